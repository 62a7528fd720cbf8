"""Repositories full of references, made once by a process of its own, and copies to write to."""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import sys
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

import icechunk_stream
from bench.commit_refs import ARRAY, OURS, PREFIX, Archive, Layout, set_documents, set_refs
from bench.datasets import kept
from bench.harness import in_fresh_process
from bench.sink_places import Place

if TYPE_CHECKING:
    from bench.sink_places import Seen

# A commit of the reference library encodes each of its manifests in a pass over all changes.
_SET_AT_ONCE, _MANIFESTS_AT_ONCE = 1_000_000, 50
_LARGE = 5_000_000
# What is never written again may be shared by copies of a repository.
_WRITTEN_ONCE = {"manifests", "snapshots", "transactions", "chunks"}
_numbers = count()


def local_storage(library: Any, path: Path, durability: str = "os") -> Any:
    options = {"durability": durability} if library is icechunk_stream else {}
    return library.local_filesystem_storage(str(path), **options)


def base(
    folder: Path, layout: Layout, spec: int, refs: int, arrays: int = 1, prefix: str = PREFIX
) -> Path:
    """A repository with so many references in each array, made by a process of its own."""
    path = folder / f"{layout}-{spec}-{arrays}x{refs}"
    words = (layout.module, str(layout.split or 0), str(spec), str(refs), str(arrays), prefix)
    return kept(path, lambda new: _checked(in_fresh_process(__file__, [str(new), *words])))


def _checked(found: dict[str, Any]) -> None:
    if not found["refs"]:
        raise ValueError("no references were written")


def names_of(arrays: int) -> list[str]:
    return [ARRAY] if arrays == 1 else [f"v{number:03}" for number in range(arrays)]


def write_base(path: Path, layout: Layout, spec: int, refs: int, names: list[str], at: str) -> int:
    """References in bulk, so many at once as a commit of the library takes well."""
    repository = _new_repository(path, layout, spec, refs)
    split = layout.split
    step = _SET_AT_ONCE if split is None else min(_SET_AT_ONCE, _MANIFESTS_AT_ONCE * split)
    session = repository.writable_session("main")
    asyncio.run(set_documents(session.store, dict.fromkeys(names, refs)))
    for first in range(0, refs, step):
        for name in names:
            set_refs(session.store, name, range(first, min(first + step, refs)), at)
        if split is not None and first + step < refs:
            session.commit("some")
            session = repository.writable_session("main")
    session.commit("before")
    return refs * len(names)


def _new_repository(path: Path, layout: Layout, spec: int, refs: int) -> Any:
    """By the library itself, but large ones with splitting by us, laid out as it would."""
    if layout.split is None or refs <= _LARGE:
        storage = local_storage(layout.library, path)
        return layout.library.Repository.create(storage, layout.config, spec_version=spec)
    storage = local_storage(icechunk_stream, path)
    config = Layout(OURS.module, layout.split).config
    made = icechunk_stream.Repository.create(storage, config, spec_version=spec)
    return made.with_manifest_policy(icechunk_stream.OnePerCell())


def copied(path: Path, target: Path) -> Path:
    """A repository to write to; objects that are never written again are not copied."""

    def copy(source: str, to: str) -> None:
        if Path(source).relative_to(path).parts[0] in _WRITTEN_ONCE:
            Path(to).hardlink_to(source)
        else:
            shutil.copyfile(source, to)

    shutil.copytree(path, target, copy_function=copy)
    return target


def opened(layout: Layout, storage: Any, refs: int, arrays: int = 1) -> Archive:
    """An archive on a storage that holds a base."""
    lengths = dict.fromkeys(names_of(arrays), refs)
    return Archive(layout.library.Repository.open(storage), lengths)


def created(layout: Layout, storage: Any, spec: int) -> Archive:
    repository = layout.library.Repository.create(storage, layout.config, spec_version=spec)
    return Archive(repository, {ARRAY: 0})


def objects_in(path: Path) -> Seen:
    """The files of a repository, without backups: stores copy these themselves."""
    found = Place(path).seen()
    return {file: about for file, about in found.items() if file.parent.name != "overwritten"}


@dataclass(slots=True)
class Manifests:
    """The manifest objects of a repository, which are never removed; those of a base are known."""

    folder: Path
    known: set[str]
    sizes: dict[str, int]

    @classmethod
    def of(cls, path: Path) -> Manifests:
        folder = path / "manifests"
        return cls(folder, {path.name for path in folder.glob("*")}, {})

    def look(self) -> None:
        with os.scandir(self.folder) as entries:
            for entry in entries:
                if entry.name not in self.known:
                    self.known.add(entry.name)
                    self.sizes[entry.name] = entry.stat().st_size


class Copies:
    """Repositories to write to, which go when their block ends."""

    def __init__(self, folder: Path, spec: int) -> None:
        self._folder, self._spec = folder, spec
        self.made: list[Path] = []

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        for path in self.made:
            shutil.rmtree(path)

    def make(
        self, layout: Layout, refs: int, durability: str = "os", *, arrays: int = 1
    ) -> Archive:
        kept = base(self._folder, layout, self._spec, refs, arrays)
        path = copied(kept, self._new_folder())
        return opened(layout, local_storage(layout.library, path, durability), refs, arrays)

    def empty(self, layout: Layout) -> Archive:
        """A repository with an array that has no chunks yet."""
        storage = local_storage(layout.library, self._new_folder())
        return created(layout, storage, self._spec)

    def _new_folder(self) -> Path:
        path = self._folder / f"written-{next(_numbers)}"
        shutil.rmtree(path, ignore_errors=True)
        self.made.append(path)
        return path


def main(words: list[str]) -> None:
    path, module, split, spec, refs, arrays, prefix = words
    layout = Layout(module, int(split) or None)
    written = write_base(Path(path), layout, int(spec), int(refs), names_of(int(arrays)), prefix)
    sys.stdout.write(json.dumps({"refs": written}))


if __name__ == "__main__":
    main(sys.argv[2:])
