"""A part of a flatbuffer whose tables, strings and vectors get their places before their bytes."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Mapping

    import numpy.typing as npt

    from icechunk_stream.format.heaps import Heap
    from icechunk_stream.format.records import Layout

    Positions = npt.NDArray[np.intp]

_WORD = 4


class Area:
    """Zeros from one position to another, both multiples of a word, filled column by column."""

    __slots__ = ("begin", "words")

    def __init__(self, begin: int, end: int) -> None:
        self.begin = begin
        self.words = np.zeros((end - begin) // _WORD, "<u4")

    def put_tables(
        self,
        of: Layout,
        vtable: int,
        at: Positions,
        fields: Mapping[int, npt.ArrayLike],
        links: Mapping[int, Positions],
    ) -> None:
        """Tables of one shape: their numbers and structs, and where their offsets point to."""
        records = np.zeros(len(at), of.dtype)
        records["vtable"] = at - vtable
        for slot, values in fields.items():
            records[str(int(slot))] = values
        for slot, targets in links.items():
            records[str(int(slot))] = targets - at - of.shape.places[slot]
        whole = np.dtype((np.void, of.stride))
        octets = self.words.view(np.uint8)
        windows = np.ndarray((max(len(octets) - of.stride + 1, 0),), whole, octets.data, 0, (1,))
        windows[at - self.begin] = records.view(whole)

    def put_texts(self, heap: Heap, at: Positions) -> None:
        """Strings or byte vectors, each at its place."""
        heap.put(self.words, at - self.begin)

    def put_words(self, at: Positions, words: npt.ArrayLike) -> None:
        self.words[(at - self.begin) // _WORD] = words
