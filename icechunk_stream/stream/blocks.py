"""Cells of the open units of one variable: values, which of them rows have set, and duplicates."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    import numpy.typing as npt

    from icechunk_stream.stream.targets import Policies

    Numbers = npt.NDArray[np.int64]
    Values = npt.NDArray[Any]
    Mask = npt.NDArray[np.bool_]

# A block of so many times the cells of some rows is not counted for these rows alone.
_SPARSE = 64
# Up to so many, a number for each of its cells takes no more memory than the rows.
_DENSE = 2


class Block:
    """Values of flat cells; a cell that no row has set holds the fill value.

    Rows for one cell are told apart as the policies say. Of equal values the one with the lowest
    bits is kept (the highest under ``"last"``), so that no result depends on the order of rows.
    """

    def __init__(self, count: int, dtype: np.dtype[Any], fill: object, policies: Policies) -> None:
        self.values: Values = np.full(count, fill, dtype)
        self.is_set: Mask = np.zeros(count, np.bool_)
        self.duplicates = 0
        self.tied: set[int] = set()
        self._policies = policies
        self._orders: Values | None = None
        self._cleared: Mask | None = None
        self._count = 0

    @property
    def count(self) -> int:
        """How many cells are set."""
        return self._count

    def put(self, cells: Numbers, values: Values, orders: Values | None) -> None:
        """Set cells; none of ``values`` is null."""
        if not len(cells):
            return
        was = self.is_set[cells] if self._count else None
        added = self._set(cells)
        self._count += added
        if added == len(cells):
            self._write(cells, values, orders)
            return
        self.duplicates += len(cells) - added
        if was is None:
            was = np.zeros(len(cells), np.bool_)
        self._contest(_Rows(cells, values, orders), was)

    def clear(self, cells: Numbers) -> None:
        """Clear cells that no row sets, before or after this."""
        if self._cleared is None:
            self._cleared = np.zeros(len(self.is_set), np.bool_)
        self._cleared[cells] = True

    def finish(self, empty: object) -> None:
        """Set what was cleared to ``empty``: no more rows come."""
        if self._cleared is not None:
            self.values[self._cleared & ~self.is_set] = empty
            self.is_set |= self._cleared
            self._count = int(np.count_nonzero(self.is_set))

    def counts(self, units: int) -> Numbers:
        """Set cells of each unit."""
        size = len(self.is_set) // units
        if self._count == len(self.is_set):
            return np.full(units, size, np.int64)
        rows = self.is_set.reshape(units, size)
        return np.array([np.count_nonzero(row) for row in rows], np.int64)

    def _set(self, cells: Numbers) -> int:
        """Mark cells; how many were not marked before."""
        if len(self.is_set) <= _SPARSE * len(cells):
            self.is_set[cells] = True
            return int(np.count_nonzero(self.is_set)) - self._count
        distinct = np.unique(cells)
        added = len(distinct) - int(np.count_nonzero(self.is_set[distinct]))
        self.is_set[distinct] = True
        return added

    def _write(self, cells: Numbers, values: Values, orders: Values | None) -> None:
        self.values[cells] = values
        if orders is not None:
            if self._orders is None:
                self._orders = np.zeros(len(self.is_set), orders.dtype)
            self._orders[cells] = orders

    def _contest(self, rows: _Rows, was: Mask) -> None:
        """Let rows for one cell, and what it holds already, decide which one stays."""
        contested = was | _repeated(rows.cells, len(self.is_set))
        self._write(*rows.chosen(~contested).columns)
        held = np.unique(rows.cells[was])
        orders = None if self._orders is None else self._orders[held]
        rivals = _Rows(held, self.values[held], orders).joined(rows.chosen(contested))
        winners, ties = rivals.winners(self._policies)
        if self.tied:
            self._forget_ties(winners)
        self.tied.update(ties.tolist())
        self._write(*winners.columns)

    def _forget_ties(self, winners: _Rows) -> None:
        """A tie ends where a row of another order has won since."""
        if winners.orders is not None and self._orders is not None:
            beaten = self._orders[winners.cells] != winners.orders
            self.tied.difference_update(winners.cells[beaten].tolist())


class _Rows:
    """Rows of one variable: cells, values, and what orders duplicates."""

    __slots__ = ("cells", "orders", "values")

    def __init__(self, cells: Numbers, values: Values, orders: Values | None) -> None:
        self.cells = cells
        self.values = values
        self.orders = orders

    @property
    def columns(self) -> tuple[Numbers, Values, Values | None]:
        return self.cells, self.values, self.orders

    def chosen(self, rows: Mask | Numbers) -> _Rows:
        orders = None if self.orders is None else self.orders[rows]
        return _Rows(self.cells[rows], self.values[rows], orders)

    def joined(self, later: _Rows) -> _Rows:
        """These rows, and then later ones."""
        orders = later.orders
        if orders is not None and self.orders is not None:
            orders = np.concatenate([self.orders, orders])
        cells = np.concatenate([self.cells, later.cells])
        values = np.concatenate([self.values, later.values.astype(self.values.dtype)])
        return _Rows(cells, values, orders)

    def winners(self, policies: Policies) -> tuple[_Rows, Numbers]:
        """The row that stays in each cell, and the cells where equals in order differ in value."""
        ranked = self.chosen(self._ranks(policies))
        first = np.ones(len(ranked.cells), np.bool_)
        np.not_equal(ranked.cells[1:], ranked.cells[:-1], out=first[1:])
        stays = np.append(first[1:], True) if policies.duplicates == "last" else first
        return ranked.chosen(stays), ranked.ties(policies, stays)

    def _ranks(self, policies: Policies) -> Numbers:
        if self.orders is not None:
            return np.lexsort((_bits(self.values), self.orders, self.cells))
        if policies.duplicates == "error":
            return np.lexsort((_bits(self.values), self.cells))
        return np.argsort(self.cells, kind="stable")

    def ties(self, policies: Policies, stays: Mask) -> Numbers:
        """Cells in which a row of the winner's order has another value; rows are ranked."""
        if self.orders is None and policies.duplicates != "error":
            return np.zeros(0, np.int64)
        winner = np.flatnonzero(stays)[
            np.cumsum(np.append(False, self.cells[1:] != self.cells[:-1]))
        ]
        rivals = ~_equal(self.values, self.values[winner])
        if self.orders is not None:
            rivals &= self.orders == self.orders[winner]
        return np.unique(self.cells[rivals])


def _repeated(cells: Numbers, count: int) -> Mask:
    """Which rows share their cell, one of ``count``, with another one."""
    if count > _DENSE * len(cells):
        ordered = np.sort(cells)
        return np.isin(cells, ordered[1:][ordered[1:] == ordered[:-1]])
    rows = np.arange(len(cells), dtype=np.uint32)
    last = np.zeros(count, np.uint32)
    last[cells] = rows
    is_shared = np.zeros(count, np.bool_)
    is_shared[cells[last[cells] != rows]] = True
    return is_shared[cells]


def _equal(left: Values, right: Values) -> Mask:
    """Whether values are equal; NaN equals NaN."""
    equal: Mask = (left == right) | ((left != left) & (right != right))  # noqa: PLR0124
    return equal


def _bits(values: Values) -> Values:
    """What sorts values in some fixed order, in which no two different ones are alike."""
    match values.dtype.kind:
        case "f" | "M" | "m" | "b":
            return values.view(f"u{values.dtype.itemsize}")
        case "i" | "u":
            return values
        case _:
            return np.unique(values, return_inverse=True)[1]
