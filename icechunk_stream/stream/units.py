"""Units that rows are being put into: blocks of cells, patched onto the base and encoded."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from icechunk_stream.errors import ConflictingRowsError, FormatError
from icechunk_stream.stream.base_units import inside_of
from icechunk_stream.stream.blocks import Block

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    import numpy.typing as npt

    from icechunk_stream.storage import BytesLike
    from icechunk_stream.stream.base_units import BaseUnits
    from icechunk_stream.stream.rows import Column, StoredRows
    from icechunk_stream.stream.targets import ArrayTarget, Plan
    from icechunk_stream.stream.unit_codec import UnitCodec

    Numbers = npt.NDArray[np.int64]
    Mask = npt.NDArray[np.bool_]
    Values = npt.NDArray[Any]
    Unit = tuple[int, ...]
    Found = Values | BytesLike

_SHOWN = 5


@dataclass(frozen=True, slots=True)
class Encoded:
    """A unit of an array as it is to be stored; None where it holds only the fill value."""

    target: ArrayTarget
    unit: Unit
    cells: Values
    data: BytesLike | None
    is_complete: bool


def open_bytes(plan: Plan, codecs: tuple[UnitCodec, ...]) -> int:
    """Memory that one open unit takes: values, what is set, and what orders duplicates."""
    extra = 1 + (plan.policies.on_null == "fill") + 8 * (plan.policies.order_by is not None)
    return math.prod(plan.unit) * sum(codec.dtype.itemsize + extra for codec in codecs)


class OpenUnits:
    """Some units, one after the other, with a block for each variable."""

    def __init__(self, plan: Plan, codecs: tuple[UnitCodec, ...], units: Numbers) -> None:
        self._plan = plan
        self._codecs = codecs
        self._units = units
        self._size = math.prod(plan.unit)
        count = len(units) * self._size
        self.blocks = tuple(
            Block(count, codec.dtype, codec.fill_value, plan.policies) for codec in codecs
        )

    def is_last(self, unit: Numbers) -> bool:
        """Whether more rows of a unit belong to the last one of these."""
        return bool((self._units[-1] == unit).all())

    def put(self, rows: StoredRows, first: int, last: int) -> None:
        """Take the rows of units ``first`` to ``last``, which are the last ones of these."""
        cells, starts = rows.located.cells, rows.located.starts
        chosen = slice(None) if starts is None else slice(int(starts[first]), int(starts[last]))
        shift = (len(self._units) - last) * self._size
        cells = cells[chosen] + shift if shift else cells[chosen]
        orders = None if rows.orders is None else rows.orders[chosen]
        for block, column, target in zip(
            self.blocks, rows.columns, self._plan.targets, strict=True
        ):
            self._put(block, cells, column.chosen(chosen), orders)
            if orders is None:
                self._check_ties(block, target)

    def finish(self, empties: Sequence[object]) -> None:
        """Clear what rows clear, each variable with its own value: no more rows come."""
        for block, target, empty in zip(self.blocks, self._plan.targets, empties, strict=True):
            block.finish(empty)
            self._check_ties(block, target)

    def encoded(self, base: BaseUnits) -> Iterator[Encoded]:
        """Every unit that rows have touched, patched onto what the base has of it."""
        needed, stays = self._needed()
        counts = [block.counts(len(self._units)) for block in self.blocks]
        found = self._found(base, [(count > 0) & (count < needed) for count in counts])
        for number, target in enumerate(self._plan.targets):
            self._patch(number, found)
            cells = self.blocks[number].values.reshape(-1, *self._plan.unit)
            touched = np.flatnonzero(counts[number])
            complete = stays & (counts[number] == needed)
            for row, data in zip(touched.tolist(), self._encode(number, touched), strict=True):
                unit = self._unit(row)
                yield Encoded(target, unit, cells[row], data, bool(complete[row]))

    def _put(self, block: Block, cells: Numbers, column: Column, orders: Values | None) -> None:
        is_valid = column.is_valid
        if is_valid is None:
            block.put(cells, column.values, orders)
            return
        if self._plan.policies.on_null == "fill":
            block.clear(cells[~is_valid])
        orders = None if orders is None else orders[is_valid]
        block.put(cells[is_valid], column.values[is_valid], orders)

    def _needed(self) -> tuple[Numbers, Mask]:
        """Cells of each unit that lie in the arrays, and which units no later batch extends."""
        unit, shape = np.array(self._plan.unit), np.array(self._plan.shape)
        inside = np.minimum(shape - self._units * unit, unit)
        stays = (inside == unit) | ~np.array(self._plan.grows)
        return inside.prod(axis=1), stays.all(axis=1)

    def _found(self, base: BaseUnits, partial: list[Mask]) -> dict[tuple[int, int], Found]:
        """Units of the base by variable and row: cells that are at hand, else encoded ones."""
        found: dict[tuple[int, int], Found] = {}
        missing: dict[tuple[int, int], tuple[str, Unit]] = {}
        for number, mask in enumerate(partial):
            path = self._plan.targets[number].path
            for row in np.flatnonzero(mask).tolist():
                cells = base.at_hand(path, self._unit(row))
                if cells is None:
                    missing[number, row] = path, self._unit(row)
                else:
                    found[number, row] = cells
        fetched = zip(missing, base.fetch([*missing.values()]), strict=True)
        return found | {key: data for key, data in fetched if data is not None}

    def _patch(self, number: int, found: dict[tuple[int, int], Found]) -> None:
        """Fill what rows have not set from the base."""
        rows = [row for variable, row in found if variable == number]
        values = self.blocks[number].values.reshape(-1, *self._plan.unit)
        is_set = self.blocks[number].is_set.reshape(-1, *self._plan.unit)
        for row, cells in self._decoded(number, {row: found.pop((number, row)) for row in rows}):
            old = inside_of(self._plan.targets[number], self._unit(row))
            np.copyto(values[row][old], cells[old], where=~is_set[row][old])

    def _decoded(self, number: int, found: dict[int, Found]) -> Iterator[tuple[int, Values]]:
        """Cells of base units of one variable."""
        encoded: dict[int, BytesLike] = {}
        for row, each in found.items():
            if isinstance(each, np.ndarray):
                yield row, each
            else:
                encoded[row] = each
        if not encoded:
            return
        try:
            decoded = self._codecs[number].decode([*encoded.values()])
        except Exception as error:
            raise self._damaged(self._plan.targets[number], [*encoded], error) from error
        yield from zip(encoded, decoded, strict=True)

    def _encode(self, number: int, rows: npt.NDArray[np.intp]) -> list[BytesLike | None]:
        units = self.blocks[number].values.reshape(-1, *self._plan.unit)
        if not len(rows):
            return []
        return self._codecs[number].encode(units if len(rows) == len(units) else units[rows])

    def _check_ties(self, block: Block, target: ArrayTarget) -> None:
        if block.tied:
            raise self._conflict(min(block.tied), len(block.tied), target)

    def _conflict(self, cell: int, count: int, target: ArrayTarget) -> ConflictingRowsError:
        row, within = divmod(cell, self._size)
        at = self._units[row] * self._plan.unit + np.unravel_index(within, self._plan.unit)
        where = ", ".join(f"{dim}={index}" for dim, index in zip(self._plan.dims, at, strict=True))
        order = self._plan.policies.order_by
        if order is None:
            advice = "choose duplicates='first' or 'last' with order_by, or leave all but one out"
        else:
            advice = f"choose an order_by that tells them apart, {order!r} is the same"
        message = (
            f"rows give different values of {target.column!r} to one cell of {target.path}, the"
            f" first at the indices {where} ({count} cells among those looked at): {advice}"
        )
        return ConflictingRowsError(message)

    def _damaged(self, target: ArrayTarget, rows: list[int], error: Exception) -> FormatError:
        units = ", ".join(str(self._unit(row)) for row in rows[:_SHOWN])
        more = f" and {len(rows) - _SHOWN} more" if len(rows) > _SHOWN else ""
        message = (
            f"a stored chunk of {target.path}, which rows change in part, is not what its codecs"
            f" decode ({error}); it is among {units}{more}: restore it, or write it whole"
        )
        return FormatError(message)

    def _unit(self, row: int) -> Unit:
        unit: Unit = tuple(self._units[row].tolist())
        return unit
