"""Which cells of which units rows set, counted without writing: what ``explain`` is built on.

Counts are columns of Arrow tables, so that parts of a batch are counted where they are and summed.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from icechunk_stream.stream.bad_rows import BadGroup, BadRows, reason_of
from icechunk_stream.stream.dimensions import Append
from icechunk_stream.stream.placement import place
from icechunk_stream.stream.targets import DELETE

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    import numpy.typing as npt

    from icechunk_stream.stream.axes import Axis
    from icechunk_stream.stream.targets import ArrayTarget, Plan

    Numbers = npt.NDArray[np.int64]
    Mask = npt.NDArray[np.bool_]

PLAN, UNIT, CELL, ROWS = "plan", "unit", "cell", "rows"
# In the place of a plan: rows that no array takes; their unit tells the column and the reason.
BAD = -1
_REASONS = 256


def set_column(variable: int) -> str:
    """The column that says of cells if a plan's variable is set, and of units in how many."""
    return f"set{variable}"


def marches_on(axis: Axis) -> bool:
    """Whether batch after batch adds labels, as times do: names are soon all known."""
    is_text = axis.labels is not None and pa.types.is_string(axis.labels.type)
    return axis.growing and not is_text


def tolerant(axes: Sequence[Axis]) -> tuple[Axis, ...]:
    """The axes with late labels as bad ones, where they would end the batch at once."""
    return tuple(
        replace(axis, dimension=replace(axis.dimension, on_late="quarantine"))
        if isinstance(axis.dimension, Append) and axis.dimension.on_late == "fail"
        else axis
        for axis in axes
    )


@dataclass(frozen=True, slots=True)
class Counter:
    """Counts rows along axes that have grown by their labels."""

    axes: tuple[Axis, ...]
    plans: tuple[Plan, ...]

    @property
    def width(self) -> int:
        """The most variables that a plan has."""
        return max(len(plan.targets) for plan in self.plans)

    @property
    def columns(self) -> tuple[str, ...]:
        """The columns of rows to which ``BAD`` may point."""
        named = [axis.column for axis in self.axes]
        named += [target.column for plan in self.plans for target in plan.targets]
        return tuple(dict.fromkeys(named))

    @property
    def schema(self) -> pa.Schema:
        """That of ``cells``."""
        numbers = [(name, pa.int64()) for name in (PLAN, UNIT, CELL, ROWS)]
        return pa.schema(numbers + [(set_column(at), pa.bool_()) for at in range(self.width)])

    def cells(self, rows: pa.RecordBatch | pa.Table) -> pa.Table:
        """The distinct cells that rows lie in, and the rows that are bad."""
        table = pa.Table.from_batches([rows]) if isinstance(rows, pa.RecordBatch) else rows
        table = table.combine_chunks()
        places = [place(_plain(table, axis.column), axis) for axis in self.axes]
        bad = self._bad(table, [each.reasons for each in places])
        good = bad == 0
        indices = {
            axis.name: each.indices[good] for axis, each in zip(self.axes, places, strict=True)
        }
        kept = table.filter(pa.array(good))
        found = [self._cells(number, kept, indices) for number in range(len(self.plans))]
        return pa.concat_tables([self._bad_cells(bad), *found])

    def units(self, cells: pa.Table) -> pa.Table:
        """Cells of the whole batch by unit."""
        counted = [(set_column(at), "sum") for at in range(self.width)]
        found = cells.group_by([PLAN, UNIT]).aggregate([(ROWS, "sum"), *counted])
        names = [PLAN, UNIT, ROWS, *(name for name, _ in counted)]
        return found.select(
            [PLAN, UNIT, f"{ROWS}_sum", *(f"{name}_sum" for name, _ in counted)]
        ).rename_columns(names)

    def count(self, units: pa.Table) -> int:
        """All rows of the batch."""
        # Good rows are counted for every plan, and there is one at least.
        chosen = units.filter(pa.array(units[PLAN].to_numpy() <= 0))
        return int(sum(chosen[ROWS].to_pylist()))

    def bad_rows(self, units: pa.Table) -> BadRows:
        """The bad rows by column and reason; there are no examples."""
        chosen = units.filter(pa.array(units[PLAN].to_numpy() == BAD))
        pairs = zip(chosen[UNIT].to_pylist(), chosen[ROWS].to_pylist(), strict=True)
        return BadRows(tuple(self._group(code, count) for code, count in sorted(pairs)))

    def _group(self, code: int, count: int) -> BadGroup:
        column, number = divmod(code, _REASONS)
        return BadGroup(self.columns[column], reason_of(number), count, ())

    def _bad(self, table: pa.Table, along: Sequence[npt.NDArray[np.uint8]]) -> Numbers:
        """For each row what is the matter with it first; 0 if nothing is."""
        codes = np.zeros(len(table), np.int64)
        columns = self.columns
        found = zip((axis.column for axis in self.axes), along, strict=True)
        for column, reasons in (*found, *self._bad_values(table)):
            is_new = (codes == 0) & (reasons != 0)
            codes[is_new] = columns.index(column) * _REASONS + reasons[is_new].astype(np.int64)
        return codes

    def _bad_values(self, table: pa.Table) -> Iterator[tuple[str, npt.NDArray[np.uint8]]]:
        stored = ~_deleted(table)
        for target in (target for plan in self.plans for target in plan.targets):
            column = _plain(table, target.column)
            matters = stored & _is_valid(column)
            yield target.column, np.where(matters, target.encoding.encode(column).reasons, 0)

    def _bad_cells(self, codes: Numbers) -> pa.Table:
        numbers, counts = np.unique(codes[codes != 0], return_counts=True)
        plan, cell = np.full(len(numbers), BAD), np.zeros(len(numbers), np.int64)
        flags = [np.zeros(len(numbers), np.bool_)] * self.width
        return pa.table([plan, numbers, cell, counts, *flags], schema=self.schema)

    def _cells(self, number: int, rows: pa.Table, indices: dict[str, Numbers]) -> pa.Table:
        plan = self.plans[number]
        units, cells = _where(plan, [indices[name] for name in plan.dims])
        flags = [_is_set(rows, target, plan) for target in plan.targets]
        flags += [np.zeros(len(rows), np.bool_)] * (self.width - len(flags))
        count = np.ones(len(rows), np.int64)
        plans = np.full(len(rows), number)
        found = pa.table([plans, units, cells, count, *flags], schema=self.schema)
        return self.distinct(found)

    def distinct(self, cells: pa.Table) -> pa.Table:
        """Each cell once."""
        flags = [set_column(at) for at in range(self.width)]
        wanted = [(ROWS, "sum"), *((name, "any") for name in flags)]
        found = cells.group_by([PLAN, UNIT, CELL]).aggregate(wanted)
        names = [PLAN, UNIT, CELL, f"{ROWS}_sum", *(f"{name}_any" for name in flags)]
        return found.select(names).rename_columns(self.schema.names).cast(self.schema)


@dataclass(frozen=True, slots=True, eq=False)
class Covered:
    """What a batch sets of one array, by unit that it touches.

    ``given`` are distinct cells, ``inside`` cells of the unit that lie in the array after the
    batch, ``full`` those that it will have once the dimensions that march on have filled it.
    """

    target: ArrayTarget
    units: Numbers
    given: Numbers
    inside: Numbers
    full: Numbers


def covered(counter: Counter, units: pa.Table) -> tuple[Covered, ...]:
    """What a batch sets of every array."""
    found = []
    marching = {axis.name for axis in counter.axes if marches_on(axis)}
    for number, plan in enumerate(counter.plans):
        chosen = units.filter(pa.array(units[PLAN].to_numpy() == number)).sort_by(UNIT)
        grid = tuple(-(-length // size) for length, size in zip(plan.shape, plan.unit, strict=True))
        places = np.stack(np.unravel_index(chosen[UNIT].to_numpy(), grid), axis=1)
        inside = np.minimum(np.array(plan.shape) - places * plan.unit, plan.unit)
        full = np.where([dim in marching for dim in plan.dims], np.array(plan.unit), inside)
        for at, target in enumerate(plan.targets):
            given = chosen[set_column(at)].to_numpy()
            rows = given > 0
            cells = (each[rows].prod(axis=1) for each in (inside, full))
            found.append(Covered(target, places[rows], given[rows], *cells))
    return tuple(found)


def _where(plan: Plan, along: Sequence[Numbers]) -> tuple[Numbers, Numbers]:
    """The number of each row's unit in its grid, and of its cell in the unit."""
    units = cells = np.zeros(len(along[0]), np.int64)
    grid = [-(-length // size) for length, size in zip(plan.shape, plan.unit, strict=True)]
    # More units than this have no numbers; an array of so many cells is no array.
    assert math.prod(grid) < 2**63
    for indices, size, count in zip(along, plan.unit, grid, strict=True):
        units = units * count + indices // size
        cells = cells * size + indices % size
    return units, cells


def _is_set(rows: pa.Table, target: ArrayTarget, plan: Plan) -> Mask:
    """Which rows say something of a variable."""
    if plan.policies.on_null == "fill":
        return np.ones(len(rows), np.bool_)
    return _is_valid(_plain(rows, target.column)) | _deleted(rows)


def _deleted(rows: pa.Table) -> Mask:
    if DELETE not in rows.schema.names:
        return np.zeros(len(rows), np.bool_)
    found: Mask = _plain(rows, DELETE).fill_null(False).to_numpy(zero_copy_only=False)
    return found


def _is_valid(column: pa.Array) -> Mask:
    found: Mask = column.is_valid().to_numpy(zero_copy_only=False)
    return found


def _plain(table: pa.Table, name: str) -> pa.Array:
    column = table[name]
    return column.chunk(0) if column.num_chunks == 1 else column.combine_chunks()
