"""Units that the batch before left incomplete, decoded: the next one often goes on with them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import numpy.typing as npt

    from icechunk_stream.format.chunk_refs import ChunkPayload

    Cells = npt.NDArray[Any]
    Unit = tuple[int, ...]

_MOST_BYTES = 32 * 2**20
# Who went on with a unit in none of so many batches is likely to be done with it.
_BATCHES = 8
# What a unit takes besides its cells.
_UNIT_BYTES = 1_024


@dataclass(frozen=True, slots=True, eq=False)
class _Warm:
    """Cells, by which codecs they were encoded, where the bytes are, and of which batch."""

    codecs: bytes
    payload: ChunkPayload
    cells: Cells
    batch: int

    @property
    def nbytes(self) -> int:
        return self.cells.nbytes + _UNIT_BYTES


class WarmUnits:
    """Cells of the latest units, up to so many bytes.

    Bytes of a chunk never change, so that they tell whether a unit still is what it was: nothing
    has to be forgotten where a commit fails, or where others write.
    """

    def __init__(self, most_bytes: int = _MOST_BYTES) -> None:
        self._most_bytes = most_bytes
        self._bytes = 0
        self._batch = 0
        self._units: dict[tuple[str, Unit], _Warm] = {}

    def begin(self) -> None:
        """Begin a batch: its units may take the place of those of earlier ones."""
        self._batch += 1
        for key, warm in list(self._units.items()):
            if warm.batch >= self._batch - _BATCHES:
                break
            self._drop(key)

    def may_have(self, path: str, unit: Unit) -> bool:
        """Whether a unit is there, be it as it was or not."""
        return (path, unit) in self._units

    def find(self, path: str, unit: Unit, codecs: bytes, payload: ChunkPayload) -> Cells | None:
        """The cells of a unit, which nobody may change; None where others are there, or none."""
        warm = self._units.get((path, unit))
        if warm is None or warm.codecs != codecs or warm.payload != payload:
            return None
        return warm.cells

    def keep(
        self, path: str, unit: Unit, codecs: bytes, payload: ChunkPayload, cells: Cells
    ) -> None:
        """Remember a unit in the place of what was there, if those of earlier batches make room.

        Those of this batch stay: the next one may ask for them in the same order.
        """
        self._drop((path, unit))
        room = self._most_bytes - cells.nbytes - _UNIT_BYTES
        while self._bytes > room:
            oldest = next(iter(self._units), None)
            if oldest is None or self._units[oldest].batch == self._batch:
                return
            self._drop(oldest)
        warm = _Warm(codecs, payload, cells.copy(), self._batch)
        self._units[path, unit] = warm
        self._bytes += warm.nbytes

    def _drop(self, key: tuple[str, Unit]) -> None:
        warm = self._units.pop(key, None)
        if warm is not None:
            self._bytes -= warm.nbytes
