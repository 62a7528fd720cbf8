"""Edits of a session through its zarr store, and what came of them, in either library."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from zarr.core.buffer import cpu

import icechunk_stream
from icechunk_stream.conflict_kinds import ConflictType
from tests.oracle.libraries import KNOWS_V2, REFERENCE

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path
    from types import ModuleType

Edit = Callable[[Any], None]

OURS: ModuleType = icechunk_stream
LIBRARIES: tuple[ModuleType, ...] = (OURS, REFERENCE)
NAMES = {OURS: "ours", REFERENCE: "the reference"}
SETS = (
    "new_groups",
    "new_arrays",
    "deleted_groups",
    "deleted_arrays",
    "updated_groups",
    "updated_arrays",
)


def array(path: str, length: int = 4, **attributes: Any) -> Edit:
    """Put the document of an array of int8 in chunks of one item."""
    grid = {"name": "regular", "configuration": {"chunk_shape": [1]}}
    encoding = {"name": "default", "configuration": {"separator": "/"}}
    return _put(
        _key(path, "zarr.json"),
        {
            "zarr_format": 3,
            "node_type": "array",
            "shape": [length],
            "data_type": "int8",
            "chunk_grid": grid,
            "chunk_key_encoding": encoding,
            "fill_value": 0,
            "codecs": [{"name": "bytes"}],
            "attributes": attributes,
        },
    )


def group(path: str, **attributes: Any) -> Edit:
    document = {"zarr_format": 3, "node_type": "group", "attributes": attributes}
    return _put(_key(path, "zarr.json"), document)


def chunk(path: str, index: int, value: int = 1) -> Edit:
    return _set(_key(path, f"c/{index}"), bytes([value]))


def drop_chunk(path: str, index: int) -> Edit:
    return _drop(_key(path, f"c/{index}"))


def drop(path: str) -> Edit:
    return _drop(_key(path, "zarr.json"))


def drop_tree(path: str) -> Edit:
    def edit(session: Any) -> None:
        asyncio.run(session.store.delete_dir(path.strip("/")))

    return edit


def create(library: ModuleType, place: Path, spec_version: int) -> Any:
    """A new repository; the reference of Python 3.11 knows one spec version."""
    storage = library.local_filesystem_storage(str(place))
    if library is REFERENCE and not KNOWS_V2:
        return library.Repository.create(storage)
    return library.Repository.create(storage, spec_version=spec_version)


def opened(library: ModuleType, place: Path) -> Any:
    return library.Repository.open(library.local_filesystem_storage(str(place)))


def begin(repository: Any, edits: Sequence[Edit], branch: str = "main") -> Any:
    """A session with uncommitted edits."""
    session = repository.writable_session(branch)
    for edit in edits:
        edit(session)
    return session


def commit(repository: Any, *edits: Edit, message: str = "edits") -> str:
    return str(begin(repository, edits).commit(message))


def move(repository: Any, *moves: tuple[str, str]) -> str:
    """Commit moves; the reference alone makes them."""
    session = repository.rearrange_session("main")
    for source, target in moves:
        session.move(source, target)
    return str(session.commit("moves"))


def contents(repository: Any) -> dict[str, bytes]:
    """Every key of the tip of main with its value."""
    return asyncio.run(_contents(repository.readonly_session("main").store))


def plain_diff(diff: Any) -> dict[str, Any]:
    """What a diff or status holds, without its empty parts."""
    plain: dict[str, Any] = {name: sorted(getattr(diff, name)) for name in SETS}
    plain["updated_chunks"] = {
        path: sorted(map(list, found)) for path, found in diff.updated_chunks.items()
    }
    plain["moved_nodes"] = list(map(tuple, getattr(diff, "moved_nodes", ())))
    return {name: value for name, value in plain.items() if value}


def plain_conflicts(library: ModuleType, conflicts: Sequence[Any]) -> list[Any]:
    """Kinds, paths and chunks, in an order."""
    kinds = {kind.name: getattr(library.ConflictType, kind.name, None) for kind in ConflictType}
    return sorted(
        [
            next(name for name, kind in kinds.items() if kind == conflict.conflict_type),
            conflict.path,
            sorted(map(list, conflict.conflicted_chunks or [])),
        ]
        for conflict in conflicts
    )


async def _contents(store: Any) -> dict[str, bytes]:
    keys = [key async for key in store.list()]
    assert len(set(keys)) == len(keys), f"a node is there twice: {sorted(keys)}"
    values = {key: await store.get(key, cpu.buffer_prototype) for key in keys}
    return {key: bytes(value.to_bytes()) for key, value in values.items()}


def _put(key: str, document: dict[str, Any]) -> Edit:
    return _set(key, json.dumps(document).encode())


def _set(key: str, value: bytes) -> Edit:
    def edit(session: Any) -> None:
        asyncio.run(session.store.set(key, cpu.Buffer.from_bytes(value)))

    return edit


def _drop(key: str) -> Edit:
    def edit(session: Any) -> None:
        asyncio.run(session.store.delete(key))

    return edit


def _key(path: str, name: str) -> str:
    return f"{path.strip('/')}/{name}".lstrip("/")
