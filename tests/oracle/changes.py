"""Changes of a session's nodes and chunks, made through the store of any library."""

from __future__ import annotations

import functools
import json
from datetime import UTC, datetime
from typing import Any

from zarr.core.buffer import cpu

from tests.oracle import plans


async def change_all(ic: Any, store: Any, changes: tuple[plans.Change, ...]) -> None:
    """Make the changes; one that the library refuses is left out."""
    for change in changes:
        try:
            await _change(change, store)
        except (ic.IcechunkError, ValueError, KeyError):
            continue


async def node_paths(store: Any) -> list[str]:
    """Paths of all nodes, relative to the root, which is the empty path."""
    keys = sorted([key async for key in store.list()])
    return [key[: -len("zarr.json")].rstrip("/") for key in keys if key.endswith("zarr.json")]


async def _rank(store: Any, path: str) -> int | None:
    try:
        document = await _document(store, path)
    except (AttributeError, KeyError):
        return None
    return len(document["shape"]) if document["node_type"] == "array" else None


async def _arrays(store: Any) -> list[tuple[str, dict[str, Any]]]:
    documents = [(path, await _document(store, path)) for path in await node_paths(store)]
    return [item for item in documents if item[1]["node_type"] == "array"]


async def _document(store: Any, path: str) -> dict[str, Any]:
    found = await store.get(_key(path, "zarr.json"), cpu.buffer_prototype)
    return dict(json.loads(found.to_bytes()))


def _key(path: str, name: str) -> str:
    return f"{path.strip('/')}/{name}".lstrip("/")


async def _set(store: Any, key: str, payload: bytes) -> None:
    await store.set(key, cpu.Buffer.from_bytes(payload))


@functools.singledispatch
async def _change(change: Any, store: Any) -> None:
    raise TypeError(change)


@_change.register
async def _(change: plans.PutGroup, store: Any) -> None:
    document = {"zarr_format": 3, "node_type": "group", "attributes": change.attributes}
    await _set(store, _key(change.path, "zarr.json"), _json(document))


@_change.register
async def _(change: plans.PutArray, store: Any) -> None:
    if await _rank(store, change.path) not in (None, len(change.shape)):
        return  # the reference would keep refs of the old rank, which no reader can use
    grid = {"name": "regular", "configuration": {"chunk_shape": change.chunks}}
    document = {
        "zarr_format": 3,
        "node_type": "array",
        "shape": change.shape,
        "data_type": "uint8",
        "chunk_grid": grid,
        "chunk_key_encoding": {"name": "default", "configuration": {"separator": "/"}},
        "fill_value": 7,
        "codecs": [{"name": "bytes"}],
        "attributes": change.attributes,
        **({} if change.names is None else {"dimension_names": change.names}),
    }
    await _set(store, _key(change.path, "zarr.json"), _json(document))


def _json(document: dict[str, Any]) -> bytes:
    return json.dumps(document, ensure_ascii=False).encode()


@_change.register
async def _(change: plans.DeleteNode, store: Any) -> None:
    paths = await node_paths(store)
    if paths:
        await store.delete(_key(paths[change.node % len(paths)], "zarr.json"))


@_change.register
async def _(change: plans.Resize, store: Any) -> None:
    arrays = await _arrays(store)
    if arrays:
        path, document = arrays[change.array % len(arrays)]
        shape = [*change.shape, *document["shape"]][: len(document["shape"])]
        await _set(store, _key(path, "zarr.json"), _json(document | {"shape": shape}))


async def _chunk(store: Any, array: int, index: int) -> tuple[str, int] | None:
    """Key and nominal size of a chunk of an array, or None if there is no such chunk."""
    arrays = await _arrays(store)
    if not arrays:
        return None
    path, document = arrays[array % len(arrays)]
    chunks = document["chunk_grid"]["configuration"]["chunk_shape"]
    coords, size = [], 1
    for length, step in zip(document["shape"], chunks, strict=True):
        index, coord = divmod(index, max(1, -(-length // step)))
        coords.append(str(coord))
        size *= step
    return _key(path, "/".join(["c", *coords])), size


@_change.register
async def _(change: plans.WriteChunks, store: Any) -> None:
    for number in range(change.count):
        found = await _chunk(store, change.array, change.index + number)
        if found is not None:
            key, size = found
            length = size if change.length is None else change.length
            payload = bytes((change.fill + number + i) % 256 for i in range(length))
            await _set(store, key, payload)


@_change.register
async def _(change: plans.DeleteChunk, store: Any) -> None:
    found = await _chunk(store, change.array, change.index)
    if found is not None:
        await store.delete(found[0])


@_change.register
async def _(change: plans.WriteVirtual, store: Any) -> None:
    modified = change.modified
    for number, location in enumerate(change.locations):
        found = await _chunk(store, change.array, change.index + number)
        if found is not None:
            await store.set_virtual_ref_async(
                found[0],
                location,
                offset=change.offset + number,
                length=change.length,
                checksum=change.etag if modified is None else datetime.fromtimestamp(modified, UTC),
                validate_container=False,
            )
