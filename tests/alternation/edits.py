"""Edits of a session as plain values, and how each is done through a store of any library."""

from __future__ import annotations

import functools
import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import zarr
from zarr.core.buffer import default_buffer_prototype
from zarr.core.sync import sync

if TYPE_CHECKING:
    from types import ModuleType

Attributes = dict[str, Any]
Index = tuple[int, ...]
Shape = tuple[int, ...]

VIRTUAL_BYTES = bytes((7 * at + 3) % 256 for at in range(1024))


@dataclass(frozen=True)
class PutGroup:
    path: str
    attributes: Attributes


@dataclass(frozen=True)
class PutArray:
    """``overwrite`` deletes what is at the path in the same session."""

    path: str
    dtype: str
    shape: Shape
    chunk_shape: Shape
    fill: int
    names: tuple[str | None, ...] | None
    attributes: Attributes
    overwrite: bool = False


@dataclass(frozen=True)
class DeleteNode:
    """By the key of its document, or with all below its path."""

    path: str
    by_document: bool


@dataclass(frozen=True)
class SetAttributes:
    path: str
    attributes: Attributes


@dataclass(frozen=True)
class Resize:
    """Through zarr, which deletes the chunks cut off, or by the document alone."""

    path: str
    shape: Shape
    by_document: bool


@dataclass(frozen=True)
class SetChunk:
    path: str
    index: Index
    seed: int
    size: int

    @property
    def data(self) -> bytes:
        return bytes((self.seed + 11 * at) % 256 for at in range(self.size))


@dataclass(frozen=True)
class DeleteChunk:
    path: str
    index: Index


@dataclass(frozen=True)
class DeleteChunks:
    """All chunks of an array, or those whose indices begin so."""

    path: str
    leading: Index


@dataclass(frozen=True)
class Fill:
    """All of an array, as zarr writes it; ``seed`` None writes the fill value everywhere."""

    path: str
    seed: int | None


@dataclass(frozen=True)
class SetVirtual:
    """Chunks that lie in a file, one after the other from the offset on."""

    path: str
    indices: tuple[Index, ...]
    offset: int
    size: int
    location: str


Edit = (
    PutGroup
    | PutArray
    | DeleteNode
    | SetAttributes
    | Resize
    | SetChunk
    | DeleteChunk
    | DeleteChunks
    | Fill
    | SetVirtual
)


def key_of(path: str, name: str) -> str:
    return f"{path}/{name}".lstrip("/")


def chunk_key(path: str, index: Index) -> str:
    return "/".join([key_of(path, "c"), *map(str, index)])


def filling(shape: Shape, dtype: str, seed: int) -> np.ndarray[Any, Any]:
    """Values that no fill value of an array equals."""
    count = int(np.prod(shape))
    return ((np.arange(count) * 5 + seed) % 100 + 1).astype(dtype).reshape(shape)


@functools.singledispatch
def apply_edit(edit: Any, ic: ModuleType, store: Any) -> None:
    raise TypeError(edit)


@apply_edit.register
def _(edit: PutGroup, ic: Any, store: Any) -> None:
    zarr.create_group(store, path=edit.path.lstrip("/"), attributes=edit.attributes)


@apply_edit.register
def _(edit: PutArray, ic: Any, store: Any) -> None:
    zarr.create_array(
        store,
        name=edit.path.lstrip("/"),
        shape=edit.shape,
        chunks=edit.chunk_shape,
        dtype=edit.dtype,
        fill_value=edit.fill,
        dimension_names=edit.names,
        attributes=edit.attributes,
        compressors=None,
        filters=None,
        overwrite=edit.overwrite,
    )


@apply_edit.register
def _(edit: DeleteNode, ic: Any, store: Any) -> None:
    if edit.by_document:
        sync(store.delete(key_of(edit.path, "zarr.json")))
    else:
        sync(store.delete_dir(edit.path.lstrip("/")))


@apply_edit.register
def _(edit: SetAttributes, ic: Any, store: Any) -> None:
    _change_document(store, edit.path, {"attributes": edit.attributes})


@apply_edit.register
def _(edit: Resize, ic: Any, store: Any) -> None:
    if edit.by_document:
        _change_document(store, edit.path, {"shape": edit.shape})
    else:
        zarr.open_array(store, path=edit.path.lstrip("/"), mode="r+").resize(edit.shape)


@apply_edit.register
def _(edit: SetChunk, ic: Any, store: Any) -> None:
    sync(store.set(chunk_key(edit.path, edit.index), _buffer(edit.data)))


@apply_edit.register
def _(edit: DeleteChunk, ic: Any, store: Any) -> None:
    sync(store.delete(chunk_key(edit.path, edit.index)))


@apply_edit.register
def _(edit: DeleteChunks, ic: Any, store: Any) -> None:
    sync(store.delete_dir(chunk_key(edit.path, edit.leading)))


@apply_edit.register
def _(edit: Fill, ic: Any, store: Any) -> None:
    array = zarr.open_array(store, path=edit.path.lstrip("/"), mode="r+")
    if edit.seed is None:
        array[...] = array.fill_value
    else:
        array[...] = filling(array.shape, str(array.dtype), edit.seed)


@apply_edit.register
def _(edit: SetVirtual, ic: Any, store: Any) -> None:
    offsets = [edit.offset + number * edit.size for number in range(len(edit.indices))]
    if len(edit.indices) == 1:
        key = chunk_key(edit.path, edit.indices[0])
        store.set_virtual_ref(key, edit.location, offset=edit.offset, length=edit.size)
        return
    specs = [
        ic.VirtualChunkSpec(list(index), edit.location, offset, edit.size)
        for index, offset in zip(edit.indices, offsets, strict=True)
    ]
    assert store.set_virtual_refs(edit.path, specs) is None


def _buffer(data: bytes) -> Any:
    return default_buffer_prototype().buffer.from_bytes(data)


def _change_document(store: Any, path: str, changes: dict[str, Any]) -> None:
    key = key_of(path, "zarr.json")
    found = sync(store.get(key, default_buffer_prototype()))
    document = json.loads(found.to_bytes()) | changes
    # As zarr writes it, so that a document without a change has the same bytes.
    sync(store.set(key, _buffer(json.dumps(document, indent=2).encode())))
