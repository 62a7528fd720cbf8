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


@dataclass(frozen=True, slots=True, eq=False)
class _Warm:
    """Cells, by which codecs they were encoded, and where the bytes are."""

    codecs: bytes
    payload: ChunkPayload
    cells: Cells


class WarmUnits:
    """Cells of the latest units, up to so many bytes.

    Bytes of a chunk never change, so that they tell whether a unit still is what it was: nothing
    has to be forgotten where a commit fails, or where others write.
    """

    def __init__(self, most_bytes: int = _MOST_BYTES) -> None:
        self._most_bytes = most_bytes
        self._bytes = 0
        self._units: dict[tuple[str, Unit], _Warm] = {}

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
        """Remember a unit in the place of what was there; the oldest ones make room for it."""
        self._drop((path, unit))
        if cells.nbytes > self._most_bytes:
            return
        self._units[path, unit] = _Warm(codecs, payload, cells.copy())
        self._bytes += cells.nbytes
        while self._bytes > self._most_bytes:
            self._drop(next(iter(self._units)))

    def _drop(self, key: tuple[str, Unit]) -> None:
        warm = self._units.pop(key, None)
        if warm is not None:
            self._bytes -= warm.cells.nbytes
