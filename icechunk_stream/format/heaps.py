"""Strings and byte vectors of Arrow columns, laid one after another as flatbuffers has them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from icechunk_stream.format.records import blocks, invalid

if TYPE_CHECKING:
    import numpy.typing as npt

    from icechunk_stream.format.records import Writer

_WORD = 4
# Values looked at before all of them are compared: three runs of this many.
_SAMPLE = 4096
_BLOCK = 65536


@dataclass(frozen=True, slots=True, eq=False)
class Heap:
    """Values laid out but not yet written; ``starts`` are counted from the heap's begin."""

    octets: npt.NDArray[np.uint8]
    bounds: npt.NDArray[np.int64]
    starts: npt.NDArray[np.int64]

    @property
    def size(self) -> int:
        return int(self.starts[-1])

    @property
    def longest(self) -> int:
        """Length of the longest value."""
        return int(np.diff(self.bounds).max(initial=0))

    @property
    def sizes(self) -> npt.NDArray[np.int64]:
        """Bytes that each value takes, its length in front and the zeros behind it included."""
        return np.diff(self.starts)

    def __len__(self) -> int:
        return len(self.bounds) - 1

    def put(self, words: npt.NDArray[np.uint32], places: npt.NDArray[np.int64]) -> None:
        """Write each value at a place of its own, among zeros."""
        if not len(self):
            return
        lengths = np.diff(self.bounds)
        words[places // _WORD] = lengths
        for length, same in _by_length(lengths):
            origins = self.bounds[:-1][same]
            _copy(self.octets, origins, words.view(np.uint8), places[same] + _WORD, length)

    def write(self, writer: Writer) -> None:
        writer.reserve(self.size)
        for rows in blocks(len(self), _BLOCK):
            writer.append(self._block(rows))

    def _block(self, rows: slice) -> npt.NDArray[np.uint32]:
        """Some of the values: each is its length, its bytes, and zeros up to the next word."""
        starts = self.starts[rows] - self.starts[rows.start]
        lengths = np.diff(self.bounds[rows.start : rows.stop + 1])
        words = np.zeros(int(self.starts[rows.stop] - self.starts[rows.start]) // _WORD, "<u4")
        words[starts // _WORD] = lengths
        for length, same in _by_length(lengths):
            origins = self.bounds[rows.start : rows.stop][same]
            _copy(self.octets, origins, words.view(np.uint8), starts[same] + _WORD, length)
        return words


@dataclass(frozen=True, slots=True, eq=False)
class Shared:
    """A column of strings or bytes; row ``i`` is the value ``numbers[i]`` of the heap.

    Without ``numbers`` the values are the rows.
    """

    heap: Heap
    numbers: npt.NDArray[np.integer] | None

    def starts(self, rows: slice | npt.NDArray[np.intp]) -> npt.NDArray[np.int64]:
        """Where in the heap the values of rows are."""
        numbers = rows if self.numbers is None else self.numbers[rows]
        return self.heap.starts[:-1][numbers]


def share(column: pa.Array, what: str, *, text: bool) -> Shared:
    """Lay a column out, equal values once where they repeat; null rows have no value."""
    if isinstance(column, pa.ChunkedArray):
        column = column.combine_chunks()
    present = _present(column)
    if pa.types.is_dictionary(column.type):
        values = _large(column.dictionary, what, text=text)
        if values.null_count:
            raise invalid(f"{what}: null among the values of a dictionary")
        numbers = column.indices.drop_null().to_numpy(zero_copy_only=False)
        if len(numbers) and not 0 <= int(numbers.min()) <= int(numbers.max()) < len(values):
            raise invalid(f"{what}: a number that its dictionary does not have")
        values, numbers = _used(values, numbers)
    else:
        values, numbers = _large(column, what, text=text).drop_null(), None
    values, numbers = _without_repeats(values, numbers)
    if text:
        _check_text(values, what)
    return Shared(lay_out(values, terminated=text), _of_rows(numbers, present, len(values)))


def present_rows(column: pa.Array) -> npt.NDArray[np.bool_]:
    """Which rows of a column are not null."""
    present = _present(column)
    return np.ones(len(column), np.bool_) if present is None else present


def _present(column: pa.Array) -> npt.NDArray[np.bool_] | None:
    if column.null_count == 0:
        return None
    mask: npt.NDArray[np.bool_] = column.is_valid().to_numpy(zero_copy_only=False)
    return mask


def _large(values: pa.Array, what: str, *, text: bool) -> pa.Array:
    """Values with 64-bit offsets; views have few kernels."""
    types = pa.types
    texts = (types.is_string, types.is_large_string, types.is_string_view)
    octets = (
        types.is_binary,
        types.is_large_binary,
        types.is_binary_view,
        types.is_fixed_size_binary,
    )
    if not any(check(values.type) for check in (texts if text else octets)):
        kind = "strings" if text else "bytes"
        raise invalid(f"{what}: a column of {values.type}, one of {kind} is expected")
    return values.cast(pa.large_string() if text else pa.large_binary())


def _used(
    values: pa.Array, numbers: npt.NDArray[np.integer]
) -> tuple[pa.Array, npt.NDArray[np.integer]]:
    """Without values of the dictionary that no row has."""
    used = np.zeros(len(values), np.bool_)
    used[numbers] = True
    if used.all():
        return values, numbers
    renumbered = np.cumsum(used, dtype=np.int32) - 1
    return values.filter(pa.array(used)), renumbered[numbers]


def _without_repeats(
    values: pa.Array, numbers: npt.NDArray[np.integer] | None
) -> tuple[pa.Array, npt.NDArray[np.integer] | None]:
    if not _repeats(values):
        return values, numbers
    encoded = values.dictionary_encode()
    codes = encoded.indices.to_numpy()
    return encoded.dictionary, codes if numbers is None else codes[numbers]


def _repeats(values: pa.Array) -> bool:
    """Whether so many of a sample are equal that comparing all of them pays."""
    count = len(values)
    firsts = sorted({0, max(0, count // 2 - _SAMPLE // 2), max(0, count - _SAMPLE)})
    samples = [values.slice(first, _SAMPLE) for first in firsts]
    seen = sum(len(sample) for sample in samples)
    return 2 * sum(len(sample.unique()) for sample in samples) <= seen


def _check_text(values: pa.Array, what: str) -> None:
    try:
        values.validate(full=True)
    except pa.ArrowInvalid as error:
        raise invalid(f"{what}: a string is not UTF-8") from error


def _of_rows(
    numbers: npt.NDArray[np.integer] | None, present: npt.NDArray[np.bool_] | None, count: int
) -> npt.NDArray[np.integer] | None:
    """Numbers of all rows; those of null rows mean nothing."""
    if present is None:
        return numbers
    spread = np.zeros(len(present), np.int32)
    spread[present] = np.arange(count, dtype=np.int32) if numbers is None else numbers
    return spread


def lay_out(values: pa.Array, *, terminated: bool) -> Heap:
    """Strings or bytes, none of them null, each with its own place in the heap."""
    bounds, octets = np.zeros(1, np.int64), np.zeros(0, np.uint8)
    if len(values):
        _, offsets, data = values.buffers()
        window = slice(values.offset, values.offset + len(values) + 1)
        bounds = np.frombuffer(offsets, np.int64)[window]
        octets = octets if data is None else np.frombuffer(data, np.uint8)
    starts = np.zeros(len(bounds), np.int64)
    padded = np.diff(bounds) + (_WORD + int(terminated) + _WORD - 1)
    np.cumsum(padded & -_WORD, out=starts[1:])
    return Heap(octets, bounds, starts)


def _by_length(
    lengths: npt.NDArray[np.int64],
) -> list[tuple[int, slice | npt.NDArray[np.intp]]]:
    """Rows of each length."""
    if (lengths == lengths[0]).all():
        return [(int(lengths[0]), slice(None))]
    order = np.argsort(lengths, kind="stable")
    ordered = lengths[order]
    firsts = np.flatnonzero(np.diff(ordered, prepend=-1))
    return [
        (int(length), rows)
        for length, rows in zip(ordered[firsts], np.split(order, firsts[1:]), strict=True)
    ]


def _copy(
    source: npt.NDArray[np.uint8],
    origins: npt.NDArray[np.int64],
    target: npt.NDArray[np.uint8],
    places: npt.NDArray[np.int64],
    length: int,
) -> None:
    """Copy strings of one length: each is one element of a window over the bytes."""
    if length:
        _windows(target, length)[places] = _windows(source, length)[origins]


def _windows(octets: npt.NDArray[np.uint8], length: int) -> npt.NDArray[np.void]:
    return np.ndarray(
        (len(octets) - length + 1,), np.dtype((np.void, length)), octets.data, 0, (1,)
    )
