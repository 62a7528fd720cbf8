"""Units as the base snapshot has them."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any, Protocol

from icechunk_stream.format.chunk_refs import NativeChunk
from icechunk_stream.format.nodes import ArrayNode
from icechunk_stream.store.values import payload_length

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    import numpy.typing as npt

    from icechunk_stream.format.chunk_refs import ChunkPayload
    from icechunk_stream.session import Session
    from icechunk_stream.storage import BytesLike
    from icechunk_stream.stream.warm_units import WarmUnits

    Unit = tuple[int, ...]


class BaseUnits:
    """Stored units of arrays by path and grid index; None where a unit was never written.

    Of arrays whose codecs are among ``exact``, by path, ``warm`` may have cells.
    """

    def __init__(
        self,
        base: Session | None,
        warm: WarmUnits | None = None,
        exact: Mapping[str, bytes] | None = None,
    ) -> None:
        self._reader = None if base is None else base.reader
        self._warm = warm
        self._exact = exact or {}

    def holds(self, path: str, unit: Unit) -> bool:
        """Whether there is a reference."""
        return self._payload(path, unit) is not None

    def at_hand(self, path: str, unit: Unit) -> npt.NDArray[Any] | None:
        """Cells of a unit that are in memory; nobody may change them."""
        # Where nothing is at hand, payloads are looked up side by side with all else.
        if self._warm is None or path not in self._exact or not self._warm.may_have(path, unit):
            return None
        payload = self._payload(path, unit)
        return None if payload is None else self._warm.find(path, unit, self._exact[path], payload)

    def keep(self, path: str, unit: Unit, payload: ChunkPayload, cells: npt.NDArray[Any]) -> None:
        """Have cells at hand once the unit is what they were stored as."""
        if self._warm is not None and path in self._exact and isinstance(payload, NativeChunk):
            self._warm.keep(path, unit, self._exact[path], payload, cells)

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


def inside_of(target: Gridded, unit: Unit) -> tuple[slice, ...]:
    """The cells of a unit that lie in its array.

    What an array held outside of it before it shrank must not come back when it grows.
    """
    axes = zip(target.shape, target.unit, unit, strict=True)
    return tuple(slice(min(max(length - at * size, 0), size)) for length, size, at in axes)
