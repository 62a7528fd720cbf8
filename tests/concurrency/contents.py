"""What a store holds, as bytes by key, written and read through the interface of zarr."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from zarr.core.buffer import default_buffer_prototype

if TYPE_CHECKING:
    from collections.abc import Coroutine, Mapping

    from zarr.abc.store import Store

    from icechunk_stream.storage import Storage

Contents = dict[str, bytes]

GROUP = json.dumps({"zarr_format": 3, "node_type": "group", "attributes": {}}).encode()


def array(shape: tuple[int, ...], chunks: tuple[int, ...], dtype: str = "int64") -> bytes:
    """The document of an array without compression."""
    document = {
        "zarr_format": 3,
        "node_type": "array",
        "shape": shape,
        "data_type": dtype,
        "chunk_grid": {"name": "regular", "configuration": {"chunk_shape": chunks}},
        "chunk_key_encoding": {"name": "default", "configuration": {"separator": "/"}},
        "fill_value": 0,
        "codecs": [{"name": "bytes", "configuration": {"endian": "little"}}],
        "attributes": {},
    }
    return json.dumps(document).encode()


def numbers(*values: int) -> bytes:
    """A chunk of small integers."""
    return np.array(values, "<i8").tobytes()


def run(work: Coroutine[Any, Any, Any]) -> Any:
    return asyncio.run(work)


def write(store: Store, contents: Mapping[str, bytes]) -> None:
    """Set keys, one after another."""
    make = default_buffer_prototype().buffer.from_bytes

    async def work() -> None:
        for key, data in contents.items():
            await store.set(key, make(data))

    run(work())


def delete(store: Store, folder: str) -> None:
    run(store.delete_dir(folder))


def read(store: Store) -> Contents:
    """Every key with its bytes."""
    prototype = default_buffer_prototype()

    async def work() -> Contents:
        keys = sorted([key async for key in store.list()])
        found = [await store.get(key, prototype) for key in keys]
        assert None not in found
        return {key: data.to_bytes() for key, data in zip(keys, found, strict=True) if data}

    return dict(run(work()))


def copied(storage: Storage, folder: Path) -> Path:
    """The objects of a storage as files."""
    for info in storage.list():
        path = folder / info.key
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(storage.get(info.key))
    return folder
