"""Cells that lie in stored chunks beyond the end of an array: what it held before it shrank.

zarr leaves them where they are when an array is made shorter. They must not come back when it
grows again: rows fill only some of the new cells.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import islice, product
from typing import TYPE_CHECKING, Any

import msgspec
import numpy as np

from icechunk_stream.errors import FormatError, IcechunkError
from icechunk_stream.format.nodes import ArrayNode
from icechunk_stream.reading import children
from icechunk_stream.stream.base_units import BaseUnits, inside_of
from icechunk_stream.stream.ledger_store import METADATA_KEY
from icechunk_stream.stream.unit_codec import unit_codecs

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence

    import numpy.typing as npt

    from icechunk_stream.info import SnapshotInfo
    from icechunk_stream.reading import SnapshotReader
    from icechunk_stream.session import Session

    Unit = tuple[int, ...]

# Commits that are looked at before all arrays are suspected.
_HISTORY = 100
_UNITS_AT_ONCE = 16
# Types whose cells can be told apart by their bytes, so that NaN is like NaN.
_PLAIN = "biufcmMSUV"


def suspects(
    history: Iterable[SnapshotInfo],
    is_own: Callable[[Mapping[str, Any]], bool],
    lengths: Callable[[str], Mapping[str, Lengths]],
) -> set[str] | None:
    """Arrays that may have shrunk since the stream's last commit; None stands for any of them.

    Args:
        history: Commits, newest first.
        is_own: Whether a commit's metadata are those of the last one of the stream, which has left
            no hidden cells.
        lengths: The arrays of a snapshot by path.
    """
    found: set[str] = set()
    newer: SnapshotInfo | None = None
    for snapshot in islice(history, _HISTORY):
        if newer is not None:
            found |= _shrunk(lengths(snapshot.id), lengths(newer.id))
        if is_own(snapshot.metadata):
            return found
        # Streams make arrays longer only.
        newer = None if METADATA_KEY in snapshot.metadata else snapshot
    return None


@dataclass(frozen=True, slots=True)
class Lengths:
    """The id and the shape of an array."""

    id: bytes
    shape: tuple[int, ...]

    def is_as_long_as(self, before: Lengths | None) -> bool:
        """Whether this is the same array, and no shorter; a new one may have shrunk already."""
        if before is None or before.id != self.id:
            return False
        return all(now >= then for now, then in zip(self.shape, before.shape, strict=True))


def lengths_of(reader: SnapshotReader, group: str) -> dict[str, Lengths]:
    """The arrays of a group by path."""
    return {node.path: Lengths(node.id.raw, _shape(node)) for node in _arrays(reader, group)}


def clear_hidden(
    session: Session, base: Session, group: str, dims: Collection[str], paths: set[str] | None
) -> None:
    """Fill the cells beyond the ends of arrays along dimensions of these names.

    ``base`` reads the snapshot that the session changes; ``paths`` are those of the arrays, None
    for all of the group.

    Raises:
        FormatError: a chunk is not what zarr reads.
    """
    units = BaseUnits(base)
    for node in _arrays(base.reader, group):
        if paths is None or node.path in paths:
            ends = _Ends.of(node, dims)
            held = [unit for unit in ends.units() if units.holds(node.path, unit)]
            for first in range(0, len(held), _UNITS_AT_ONCE):
                _clear(session, units, ends, held[first : first + _UNITS_AT_ONCE])


@dataclass(frozen=True, slots=True)
class _Ends:
    """An array, and along which of its axes it may grow."""

    path: str
    document: bytes
    shape: tuple[int, ...]
    unit: tuple[int, ...]
    grows: tuple[bool, ...]

    @classmethod
    def of(cls, node: ArrayNode, dims: Collection[str]) -> _Ends:
        document = msgspec.json.decode(node.user_data)
        shape, grid = _shape(node), document["chunk_grid"]
        names = document.get("dimension_names") or [None] * len(shape)
        # Of other grids nobody knows how they grow.
        is_regular = grid["name"] == "regular"
        unit = tuple(grid["configuration"]["chunk_shape"]) if is_regular else (1,) * len(shape)
        grows = tuple(is_regular and name in dims for name in names)
        return cls(node.path, bytes(node.user_data), shape, unit, grows)

    def units(self) -> Iterator[Unit]:
        """Units that lie across the end of an axis, each once."""
        left = [range(-(-size // step)) for size, step in zip(self.shape, self.unit, strict=True)]
        for axis, grows in enumerate(self.grows):
            whole, beyond = divmod(self.shape[axis], self.unit[axis])
            if grows and beyond:
                yield from product(*left[:axis], [whole], *left[axis + 1 :])
                left[axis] = range(whole)


def _clear(session: Session, base: BaseUnits, ends: _Ends, units: Sequence[Unit]) -> None:
    try:
        with unit_codecs([ends]) as (codec,):
            stored = [each for each in base.fetch([(ends.path, unit) for unit in units]) if each]
            for unit, cells in zip(units, codec.decode(stored), strict=True):
                old = inside_of(ends, unit)
                cleared = np.full(cells.shape, codec.fill_value, cells.dtype)
                cleared[old] = cells[old]
                if _differ(cells, cleared):
                    _store(session, ends.path, unit, codec.encode(cleared[None])[0])
    except IcechunkError:
        raise
    except Exception as error:
        message = (
            f"what {ends.path} held before it shrank would come back as it grows, and its chunks at"
            f" {', '.join(map(str, units))} cannot be read ({error}): restore or delete them"
        )
        raise FormatError(message) from error


def _store(session: Session, path: str, unit: Unit, data: Any) -> None:  # noqa: ANN401 - bytes
    if data is None:
        session.edits.delete_chunk(path, unit)
    else:
        session.edits.set_chunk(path, unit, data)


def _differ(left: npt.NDArray[Any], right: npt.NDArray[Any]) -> bool:
    if left.dtype.kind in _PLAIN:
        return left.tobytes() != right.tobytes()
    return bool((left != right).any())


def _arrays(reader: SnapshotReader, group: str) -> list[ArrayNode]:
    return [node for node in children(reader.nodes, group) if isinstance(node, ArrayNode)]


def _shape(node: ArrayNode) -> tuple[int, ...]:
    return tuple(axis.array_length for axis in node.shape)


def _shrunk(older: Mapping[str, Lengths], newer: Mapping[str, Lengths]) -> set[str]:
    return {path for path, now in newer.items() if not now.is_as_long_as(older.get(path))}
