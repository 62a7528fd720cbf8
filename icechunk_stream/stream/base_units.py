"""Units as the base snapshot has them."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any, Protocol

from icechunk_stream.format.nodes import ArrayNode
from icechunk_stream.store.values import payload_length

if TYPE_CHECKING:
    from collections.abc import Sequence

    import numpy.typing as npt

    from icechunk_stream.format.chunk_refs import ChunkPayload
    from icechunk_stream.session import Session
    from icechunk_stream.storage import BytesLike

    Unit = tuple[int, ...]


class BaseUnits:
    """Stored units of arrays by path and grid index; None where a unit was never written."""

    def __init__(self, base: Session | None) -> None:
        self._reader = None if base is None else base.reader

    def holds(self, path: str, unit: Unit) -> bool:
        """Whether there is a reference."""
        return self._payload(path, unit) is not None

    def fetch(self, wanted: Sequence[tuple[str, Unit]]) -> list[BytesLike | None]:
        """Encoded bytes of units, side by side where the storage is far."""
        if self._reader is None:
            return [None] * len(wanted)
        storage = self._reader.assets.storage
        if storage.is_near:
            return [self._bytes(path, unit) for path, unit in wanted]
        return storage.together([partial(self._bytes, path, unit) for path, unit in wanted])

    def _bytes(self, path: str, unit: Unit) -> BytesLike | None:
        payload = self._payload(path, unit)
        if payload is None or self._reader is None:
            return None
        return self._reader.bytes(payload, 0, payload_length(payload))

    def _payload(self, path: str, unit: Unit) -> ChunkPayload | None:
        node = None if self._reader is None else self._reader.node(path)
        if self._reader is None or not isinstance(node, ArrayNode) or not node.has_chunk(unit):
            return None
        return self._reader.payload(node, unit)


class Gridded(Protocol):
    """An array that is cut into units."""

    @property
    def shape(self) -> tuple[int, ...]: ...

    @property
    def unit(self) -> tuple[int, ...]: ...


def clip(cells: npt.NDArray[Any], target: Gridded, unit: Unit, fill: object) -> None:
    """Fill the cells of a stored unit that lie outside of its array.

    What an array held there before it shrank must not come back when it grows.
    """
    axes = zip(target.shape, target.unit, unit, strict=True)
    for axis, (length, size, at) in enumerate(axes):
        inside = length - at * size
        if inside < size:
            cells[(slice(None),) * axis + (slice(max(inside, 0), None),)] = fill
