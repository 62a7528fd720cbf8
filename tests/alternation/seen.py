"""What a session shows, in the words in which a state says it."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import numpy as np
import zarr
from zarr.core.buffer import default_buffer_prototype
from zarr.core.sync import sync

from tests.alternation.states import Array, State
from tests.oracle.outcomes import plain_time

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

_DOCUMENT = "zarr.json"
_DIFF_PARTS = (
    *("new_groups", "new_arrays", "deleted_groups", "deleted_arrays"),
    *("updated_groups", "updated_arrays", "updated_chunks", "moved_nodes"),
)


def seen(session: Any) -> dict[str, Any]:
    """Every node by its path, with values as zarr reads them and the kinds of chunks."""
    store = session.store
    keys = sync(_collected(store.list()))
    paths = sorted("/" + key.removesuffix(_DOCUMENT).rstrip("/") for key in keys if _is_node(key))
    return {path: _node(session, store, path) for path in paths}


def expected(state: State) -> dict[str, Any]:
    """What a session on a state has to show."""
    return {path: _plain(state[path]) for path in sorted(state)}


def plain_diff(diff: Any) -> dict[str, Any]:
    parts = {name: getattr(diff, name, []) for name in _DIFF_PARTS}  # 1.1.21 knows no moves
    return {name: sorted(part) if isinstance(part, set) else part for name, part in parts.items()}


def plain_info(info: Any) -> dict[str, Any]:
    return {
        "id": info.id,
        "parent": info.parent_id,
        "message": info.message,
        "time": plain_time(info.written_at),
        "metadata": info.metadata,
    }


def _plain(node: Any) -> dict[str, Any]:
    if not isinstance(node, Array):
        return {"attributes": node.attributes}
    return {
        "attributes": node.attributes,
        "dtype": node.dtype,
        "shape": node.shape,
        "names": node.names,
        "values": node.values().tobytes(),
        "chunks": {index: chunk.kind for index, chunk in sorted(node.cut().chunks.items())},
    }


def _node(session: Any, store: Any, path: str) -> dict[str, Any]:
    key = f"{path}/{_DOCUMENT}".lstrip("/")
    document = json.loads(sync(store.get(key, default_buffer_prototype())).to_bytes())
    attributes = document.get("attributes", {})
    if document["node_type"] == "group":
        return {"attributes": attributes}
    array = zarr.open_array(store, path=path.lstrip("/"), mode="r")
    names = document.get("dimension_names")
    return {
        "attributes": attributes,
        "dtype": array.dtype.str,
        "shape": array.shape,
        "names": None if names is None else tuple(names),
        "values": np.asarray(array[...]).tobytes(),
        # Of an axis that was emptied, a session of the reference still lists the chunks at 0.
        "chunks": _kinds(session, path) if array.size else {},
    }


def _kinds(session: Any, path: str) -> dict[tuple[int, ...], str]:
    indices = sorted(map(tuple, sync(_collected(session.chunk_coordinates(path)))))
    kinds = {index: _kind(session, path, index) for index in indices}
    # A session of the reference lists what it deleted too.
    return {index: kind for index, kind in kinds.items() if kind != "uninitialized"}


def _kind(session: Any, path: str, index: tuple[int, ...]) -> str:
    return str(session.chunk_type(path, list(index))).rsplit(".", 1)[-1].lower()


def _is_node(key: str) -> bool:
    return key == _DOCUMENT or key.endswith("/" + _DOCUMENT)


async def _collected(items: AsyncIterator[Any]) -> list[Any]:
    return [item async for item in items]
