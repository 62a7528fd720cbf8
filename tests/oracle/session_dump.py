"""Everything that a read-only session and its store say, as plain values."""

from __future__ import annotations

import asyncio
import json
import warnings
from typing import TYPE_CHECKING, Any

import numpy as np
import zarr
from zarr.core.buffer import default_buffer_prototype

from tests.oracle.outcomes import is_failure, outcome, refused

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Coroutine

DOCUMENT = "zarr.json"

# A file that ends before its virtual chunk: the reference says the one where it asks for all of the
# chunk at once, the other where it asks for parts, of which one lies past the end.
TOO_SHORT, FETCH_FAILED = "invalid-object-size", "virtual-chunk-fetch"


def dump_session(session: Any) -> dict[str, Any]:
    """Keys, nodes, chunk references, payloads and array values of one session."""
    keys = sorted(asyncio.run(_collected(session.store.list())))
    documents = {
        path: _get(session.store, key) for key in keys if (path := _node_path(key)) is not None
    }
    return {
        "snapshot_id": session.snapshot_id,
        "branch": session.branch,
        "read_only": session.read_only,
        "keys": keys,
        "virtual_locations": outcome(lambda: sorted(session.all_virtual_chunk_locations())),
        "members": outcome(_members, session.store),
        "nodes": {path: _node(session, path, text) for path, text in documents.items()},
    }


async def _collected(items: AsyncIterator[Any]) -> list[Any]:
    return [item async for item in items]


def _awaited(call: Coroutine[Any, Any, Any]) -> Any:
    return outcome(asyncio.run, call)


def _listed(items: AsyncIterator[Any]) -> Any:
    found = _awaited(_collected(items))
    return found if is_failure(found) else sorted(found)


def _get(store: Any, key: str) -> Any:
    found = _awaited(store.get(key, default_buffer_prototype()))
    if found == refused(TOO_SHORT):
        return refused(FETCH_FAILED)
    return found.to_bytes() if hasattr(found, "to_bytes") else found


def _node_path(key: str) -> str | None:
    if key == DOCUMENT:
        return "/"
    return f"/{key.removesuffix('/' + DOCUMENT)}" if key.endswith("/" + DOCUMENT) else None


def _members(store: Any) -> list[str]:
    """What zarr finds; it warns of names with backslashes, which it takes for slashes."""
    with warnings.catch_warnings(action="ignore"):
        return sorted(name for name, _ in zarr.open_group(store, mode="r").members(max_depth=None))


def _node(session: Any, path: str, document: Any) -> dict[str, Any]:
    store, prefix = session.store, path.lstrip("/")
    node = {
        "document": document,
        "size": _awaited(store.getsize(f"{prefix}/{DOCUMENT}".lstrip("/"))),
        "list_dir": _listed(store.list_dir(prefix)),
    }
    is_array = isinstance(document, bytes) and json.loads(document).get("node_type") == "array"
    if not is_array:  # the reference forgets the chunks of arrays that are below an array
        node["list_prefix"] = _listed(store.list_prefix(prefix))
    if hasattr(session, "get_node_id"):
        node["node_id"] = outcome(session.get_node_id, path)
    if is_array:
        node["array"] = _array(session, path)
    return node


def _array(session: Any, path: str) -> dict[str, Any]:
    coordinates = _listed(session.chunk_coordinates(path))
    if is_failure(coordinates):
        return {"coordinates": coordinates}
    keys = {coords: _chunk_key(path, coords) for coords in coordinates}
    store = session.store
    dumped = {
        "coordinates": [list(coords) for coords in coordinates],
        "types": [outcome(_chunk_type, session, path, coords) for coords in keys],
        "payloads": {key: _get(store, key) for key in keys.values()},
        "sizes": {key: _awaited(store.getsize(key)) for key in keys.values()},
        "values": _values(store, path),
    }
    if hasattr(store, "array_chunk_iterator"):
        dumped["references"] = _references(store, path)
    return dumped


def _chunk_key(path: str, coords: tuple[int, ...]) -> str:
    return "/".join([path, "c", *map(str, coords)]).lstrip("/")


def _chunk_type(session: Any, path: str, coords: tuple[int, ...]) -> str:
    return str(session.chunk_type(path, list(coords))).rsplit(".", 1)[-1].lower()


def _references(store: Any, path: str) -> Any:
    """Rows of the columnar iterator, sorted by coordinates."""
    batches = _awaited(_collected(store.array_chunk_iterator(path, 7)))
    if is_failure(batches):
        return batches
    return sorted((row for batch in batches for row in _rows(batch)), key=lambda row: row[0])


def _rows(batch: Any) -> list[list[Any]]:
    coords, kinds, paths, offsets, lengths, inlined = batch
    assert (coords.dtype, kinds.dtype) == (np.uint32, np.uint8)
    assert (offsets.dtype, lengths.dtype) == (np.uint64, np.uint64)
    columns = (coords.tolist(), kinds.tolist(), paths, offsets.tolist(), lengths.tolist())
    return [[*row, inlined.get(number)] for number, row in enumerate(zip(*columns, strict=True))]


def _values(store: Any, path: str) -> Any:
    """The array's bytes as zarr reads them; which of several failing chunks fails first varies."""
    found = outcome(_read, store, path)
    return "unreadable" if is_failure(found) else found


def _read(store: Any, path: str) -> dict[str, Any]:
    array = zarr.open_array(store, path=path.lstrip("/"), mode="r")
    values = np.asarray(array[...])
    attributes = array.attrs.asdict()
    return {
        "dtype": str(values.dtype),
        "shape": list(values.shape),
        "bytes": values.tobytes(),
        "attributes": attributes,
    }
