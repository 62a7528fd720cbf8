"""Whole repositories out of hand-made objects, and a walk through everything that one holds."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, TypeVar

from zarr.core.buffer import default_buffer_prototype

import icechunk_stream as icechunk
from icechunk_stream.errors import IcechunkError
from icechunk_stream.format.ids import encode_id
from icechunk_stream.storage import MemoryStorage
from tests.hostile import documents as doc
from tests.hostile import raw
from tests.hostile.raw import Offsets
from tests.hostile.reading import LOG, MANIFEST, REPO, SNAPSHOT, seal

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from pathlib import Path

    from icechunk_stream.session import Session
    from icechunk_stream.storage import Storage
    from tests.hostile.raw import Table

T = TypeVar("T")
Objects = dict[str, bytes]


def id_of(number: int) -> str:
    return encode_id(number.to_bytes(12, "big"))


SNAPSHOT_KEY = f"snapshots/{id_of(1)}"
MANIFEST_KEY = f"manifests/{id_of(1)}"
LOG_KEY = f"transactions/{id_of(1)}"
CHUNK_KEY = f"chunks/{id_of(77)}"
REF_KEY = "refs/branch.main/ref.json"
CHUNK = b"a chunk "


def sound_v2() -> Objects:
    """A repository of one commit, with an array whose chunks are of every kind."""
    repo = doc.repo(doc.info(1, -1), slot_1=doc.refs(tag=0), slot_2=doc.refs(main=0))
    return {
        "repo": sealed(REPO.file_type, repo),
        SNAPSHOT_KEY: sealed(SNAPSHOT.file_type, doc.snapshot(doc.group("/"), doc.array("/a"))),
        LOG_KEY: sealed(LOG.file_type, doc.every_log()),
        **_chunks(),
    }


def sound_v1() -> Objects:
    snapshot = doc.snapshot_v1(doc.group("/"), doc.array_v1("/a"))
    del snapshot.fields[1]
    return {
        REF_KEY: ref_file(1),
        "refs/tag.tag/ref.json": ref_file(1),
        "config.yaml": b"inline_chunk_threshold_bytes: 12\n",
        SNAPSHOT_KEY: sealed(SNAPSHOT.file_type, snapshot, 1),
        LOG_KEY: sealed(LOG.file_type, doc.every_log(), 1),
        **_chunks(1),
    }


SOUND: dict[str, Callable[[], Objects]] = {"v1": sound_v1, "v2": sound_v2}


def _chunks(spec_version: int = 2) -> Objects:
    refs = [doc.native([0, 0]), doc.inline([0, 1]), doc.virtual([1, 0])]
    return {MANIFEST_KEY: manifest(*refs, spec_version=spec_version), CHUNK_KEY: CHUNK}


def manifest(*refs: Table, node: int = 8, spec_version: int = 2) -> bytes:
    document = doc.manifest(doc.array_refs(node, refs))
    return sealed(MANIFEST.file_type, document, spec_version)


def snapshot(*nodes: Table, files: tuple[int, ...] = (1,)) -> bytes:
    document = doc.snapshot(*nodes)
    rows = [raw.Table("ManifestFileInfoV2", {0: doc.id12(number)}) for number in files]
    document.fields[7] = Offsets(rows)
    return sealed(SNAPSHOT.file_type, document)


def sealed(file_type: int, document: Table, spec_version: int = 2) -> bytes:
    return seal(raw.payload(document), file_type, spec_version)


def ref_file(number: int) -> bytes:
    return b'{"snapshot":"%s"}' % id_of(number).encode()


def in_memory(objects: Mapping[str, bytes]) -> MemoryStorage:
    storage = MemoryStorage()
    for key, data in objects.items():
        storage.put(key, data)
    return storage


def in_folder(objects: Mapping[str, bytes], folder: Path) -> Path:
    for key, data in objects.items():
        path = folder / key
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)
    return folder


def session_of(objects: Mapping[str, bytes]) -> Session:
    return icechunk.Repository.open(in_memory(objects)).readonly_session("main")


def get(objects: Mapping[str, bytes], key: str) -> bytes | None:
    """A value of the store on the tip of main."""
    buffer = session_of(objects).store.get_sync(key, prototype=default_buffer_prototype())
    return None if buffer is None else buffer.to_bytes()


def walk(storage: Storage) -> list[IcechunkError]:
    """Ask a repository for everything; what it refuses does not hide what comes after."""
    refusals: list[IcechunkError] = []

    def ask(question: Callable[[], T]) -> T | None:
        try:
            return question()
        except IcechunkError as error:
            refusals.append(error)
            return None

    repository = ask(lambda: icechunk.Repository.open(storage))
    if repository is not None:
        _walk_history(repository, ask)
        for branch in ask(repository.list_branches) or ():
            session = ask(lambda branch=branch: repository.readonly_session(branch))  # type: ignore[misc]
            if session is not None:
                _walk_session(session, ask)
    return refusals


def _walk_history(repository: icechunk.Repository, ask: Callable[..., Any]) -> None:
    for tag in ask(repository.list_tags) or ():
        ask(lambda tag=tag: repository.lookup_tag(tag))
    ask(lambda: list(repository.ancestry(branch="main")))
    ask(lambda: list(repository.ops_log()))
    ask(repository.get_metadata)
    ask(repository.get_status)
    ask(repository.feature_flags)
    ask(repository.inspect_repo_info)
    ask(lambda: repository.list_manifest_files(id_of(1)))
    ask(lambda: repository.inspect_snapshot(id_of(1)))
    ask(lambda: repository.inspect_manifest(id_of(1)))
    ask(lambda: repository.inspect_transaction_log(id_of(1)))


def _walk_session(session: Session, ask: Callable[..., Any]) -> None:
    store = session.store
    keys = ask(lambda: asyncio.run(_listed(store.list()))) or ()
    for key in [*keys, "a/c/0/0", "a/c/1/2"]:
        ask(lambda key=key: store.get_sync(key))
        ask(lambda key=key: asyncio.run(store.getsize(key)))
    ask(lambda: asyncio.run(_listed(store.list_dir(""))))
    ask(lambda: asyncio.run(_listed(store.array_chunk_iterator("a", 2))))
    ask(lambda: asyncio.run(_listed(session.chunk_coordinates("/a"))))
    ask(session.all_virtual_chunk_locations)


async def _listed(items: Any) -> list[Any]:
    return [item async for item in items]
