"""What a snapshot holds, as plain values, and what edits make of it."""

from __future__ import annotations

import functools
import itertools
from dataclasses import dataclass, field, replace
from math import ceil
from typing import TYPE_CHECKING, Any

import numpy as np

from tests.alternation import edits
from tests.alternation.edits import Attributes, Index, Shape, filling

if TYPE_CHECKING:
    from collections.abc import Iterator

_tokens = itertools.count()


@dataclass(frozen=True)
class Chunk:
    data: bytes
    kind: str


@dataclass(frozen=True)
class Group:
    """``token`` stands for the node's id: it stays with the node for its whole life."""

    attributes: Attributes
    token: int = field(default_factory=_tokens.__next__)


@dataclass(frozen=True)
class Array:
    dtype: str
    shape: Shape
    chunk_shape: Shape
    fill: int
    names: tuple[str | None, ...] | None
    attributes: Attributes
    chunks: dict[Index, Chunk]
    token: int = field(default_factory=_tokens.__next__)

    @property
    def grid(self) -> Shape:
        return tuple(
            ceil(length / step) for length, step in zip(self.shape, self.chunk_shape, strict=True)
        )

    @property
    def chunk_size(self) -> int:
        """In bytes."""
        return int(np.prod(self.chunk_shape)) * np.dtype(self.dtype).itemsize

    def indices(self) -> Iterator[Index]:
        """All of the grid."""
        return itertools.product(*map(range, self.grid))

    def holds(self, index: Index) -> bool:
        return all(at < size for at, size in zip(index, self.grid, strict=True))

    def cut(self) -> Array:
        """Without the chunks that are outside of the grid."""
        inside = {index: chunk for index, chunk in self.chunks.items() if self.holds(index)}
        return replace(self, chunks=inside)

    def shifted(self, offset: Index) -> Array:
        """With all chunks moved on; what leaves the grid is lost."""
        moved = {
            tuple(at + step for at, step in zip(index, offset, strict=True)): chunk
            for index, chunk in self.chunks.items()
        }
        inside = {index: chunk for index, chunk in moved.items() if min(index, default=0) >= 0}
        return replace(self, chunks=inside).cut()

    def values(self) -> np.ndarray[Any, Any]:
        found = np.full(self.shape, self.fill, self.dtype)
        for index, chunk in self.cut().chunks.items():
            decoded = np.frombuffer(chunk.data, self.dtype).reshape(self.chunk_shape)
            place = tuple(
                slice(at * step, (at + 1) * step)
                for at, step in zip(index, self.chunk_shape, strict=True)
            )
            target = found[place]
            found[place] = decoded[tuple(map(slice, target.shape))]
        return found


Node = Group | Array
State = dict[str, Node]


def is_below(path: str, top: str) -> bool:
    return path == top or path.startswith(top.rstrip("/") + "/")


def without(state: State, top: str) -> State:
    """Without a node and all that is below it."""
    return {path: node for path, node in state.items() if not is_below(path, top)}


def committed(state: State) -> State:
    """Chunks outside of the grid stay in a session, which may grow again, not in a snapshot."""
    return {path: node.cut() if isinstance(node, Array) else node for path, node in state.items()}


@functools.singledispatch
def after(edit: Any, state: State, threshold: int) -> State:
    """The state after an edit in a session whose chunks are inline up to the threshold."""
    raise TypeError(edit)


@after.register
def _(edit: edits.PutGroup, state: State, threshold: int) -> State:
    return _with_parents(state, edit.path) | {edit.path: Group(edit.attributes)}


@after.register
def _(edit: edits.PutArray, state: State, threshold: int) -> State:
    array = Array(
        edit.dtype, edit.shape, edit.chunk_shape, edit.fill, edit.names, edit.attributes, {}
    )
    return _with_parents(without(state, edit.path), edit.path) | {edit.path: array}


@after.register
def _(edit: edits.DeleteNode, state: State, threshold: int) -> State:
    return without(state, edit.path)


@after.register
def _(edit: edits.SetAttributes, state: State, threshold: int) -> State:
    return state | {edit.path: replace(state[edit.path], attributes=edit.attributes)}


@after.register
def _(edit: edits.Resize, state: State, threshold: int) -> State:
    array = replace(array_at(state, edit.path), shape=edit.shape)
    return state | {edit.path: array if edit.by_document else array.cut()}


@after.register
def _(edit: edits.SetChunk, state: State, threshold: int) -> State:
    chunk = Chunk(edit.data, _kind(edit.data, threshold))
    return _with_chunks(state, edit.path, {edit.index: chunk})


@after.register
def _(edit: edits.DeleteChunk, state: State, threshold: int) -> State:
    return _without_chunks(state, edit.path, edit.index)


@after.register
def _(edit: edits.DeleteChunks, state: State, threshold: int) -> State:
    return _without_chunks(state, edit.path, edit.leading)


@after.register
def _(edit: edits.Fill, state: State, threshold: int) -> State:
    array = array_at(state, edit.path)
    if edit.seed is None:
        kept = {at: chunk for at, chunk in array.chunks.items() if not array.holds(at)}
        return state | {edit.path: replace(array, chunks=kept)}
    values = filling(array.shape, array.dtype, edit.seed)
    written = {index: _cut_out(array, values, index, threshold) for index in array.indices()}
    return _with_chunks(state, edit.path, written)


@after.register
def _(edit: edits.SetVirtual, state: State, threshold: int) -> State:
    written = {}
    for number, index in enumerate(edit.indices):
        first = edit.offset + number * edit.size
        written[index] = Chunk(edits.VIRTUAL_BYTES[first : first + edit.size], "virtual")
    return _with_chunks(state, edit.path, written)


def array_at(state: State, path: str) -> Array:
    array = state[path]
    assert isinstance(array, Array)
    return array


def _with_parents(state: State, path: str) -> State:
    """With the groups that zarr creates above a new node."""
    parts = path.split("/")[1:-1]
    above = ["/" + "/".join(parts[:depth]) for depth in range(len(parts) + 1)]
    return {top: Group({}) for top in above if top not in state and path != "/"} | state


def _kind(data: bytes, threshold: int) -> str:
    return "inline" if len(data) <= threshold else "native"


def _with_chunks(state: State, path: str, written: dict[Index, Chunk]) -> State:
    array = array_at(state, path)
    return state | {path: replace(array, chunks=array.chunks | written)}


def _without_chunks(state: State, path: str, leading: Index) -> State:
    array = array_at(state, path)
    kept = {
        index: chunk
        for index, chunk in array.chunks.items()
        if index[: len(leading)] != leading or not array.holds(index)
    }
    return state | {path: replace(array, chunks=kept)}


def _cut_out(array: Array, values: np.ndarray[Any, Any], index: Index, threshold: int) -> Chunk:
    """What zarr writes for a chunk: filled up where it reaches over the array's edge."""
    whole = np.full(array.chunk_shape, array.fill, array.dtype)
    place = tuple(
        slice(at * step, (at + 1) * step) for at, step in zip(index, array.chunk_shape, strict=True)
    )
    part = values[place]
    whole[tuple(map(slice, part.shape))] = part
    data = whole.tobytes()
    return Chunk(data, _kind(data, threshold))
