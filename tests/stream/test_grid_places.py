"""Labels on regular dimensions, against arithmetic in Python's integers and fractions."""

from __future__ import annotations

from decimal import Decimal
from fractions import Fraction
from typing import Any, Literal

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from icechunk_stream.errors import LayoutError
from icechunk_stream.stream.axes import Axis
from icechunk_stream.stream.dimensions import Regular, regular
from icechunk_stream.stream.placement import Reason, coordinate_values, place
from tests.stream.axis_model import TIMES, number, of_times

NANOS = {"s": 10**9, "ms": 10**6, "us": 10**3, "ns": 1}
INTEGERS = {
    pa.int8(): (-(2**7), 2**7 - 1),
    pa.int64(): (-(2**63), 2**63 - 2),
    pa.uint64(): (0, 2**63 - 2),
}
FAR = 2**62


def axis_of(dimension: Regular, size: int = 0, max_growth: int = 100_000) -> Axis:
    match dimension.start:
        case np.datetime64():
            encoding = TIMES
        case start:
            encoding = number("float64" if isinstance(start, float) else "int64")
    return Axis("x", "x", dimension, size, encoding, max_growth=max_growth)


def outcomes(column: pa.Array, axis: Axis) -> list[int | Reason]:
    placed = place(column, axis)
    pairs = zip(placed.indices.tolist(), placed.reasons.tolist(), strict=True)
    assert all((index == -1) == (reason != Reason.FINE) for index, reason in pairs)
    pairs = zip(placed.indices.tolist(), placed.reasons.tolist(), strict=True)
    return [Reason(reason) if reason else index for index, reason in pairs]


def expected(label: int | None, grid: tuple[int, int, int], limit: int) -> int | Reason:
    start, step, tolerance = grid
    if label is None:
        return Reason.NULL_LABEL
    index, above = divmod(label - start + tolerance, step)
    if index < 0:
        return Reason.BEFORE_START
    if index >= limit:
        return Reason.BEYOND_GROWTH
    return Reason.OFF_GRID if above > 2 * tolerance else index


@st.composite
def grids(draw: st.DrawFn, bound: int = FAR) -> tuple[int, int, int]:
    step = draw(st.integers(1, 12) | st.integers(1, bound))
    tolerance = draw(st.just(0) | st.integers(0, step // 2))
    return draw(st.integers(-20, 20) | st.integers(-bound, bound)), step, tolerance


def near(grid: tuple[int, int, int], limit: int) -> st.SearchStrategy[int]:
    """Labels on the grid and a little off it, inside and outside."""
    start, step, tolerance = grid
    cells = st.integers(-2, limit + 1) | st.sampled_from([0, limit - 1, limit])
    off = st.sampled_from([0, 0, tolerance, -tolerance, tolerance + 1, -tolerance - 1])
    return st.builds(lambda cell, more: start + cell * step + more, cells, off)


class TestIntegers:
    @given(st.data(), grids(), st.sampled_from(list(INTEGERS)))
    def test_every_integer_finds_its_cell(
        self, data: st.DataObject, grid: tuple[int, int, int], kind: pa.DataType
    ) -> None:
        low, high = INTEGERS[kind]
        size, growth = data.draw(st.integers(0, 40)), data.draw(st.integers(1, 40))
        fitting = near(grid, size + growth).filter(lambda label: low <= label <= high)
        label = st.none() | st.integers(low, high) | fitting
        labels = data.draw(st.lists(label, max_size=10))
        found = outcomes(pa.array(labels, kind), axis_of(Regular(*grid), size, growth))
        assert found == [expected(each, grid, size + growth) for each in labels]

    def test_a_number_above_63_bits_is_far_outside(self) -> None:
        column = pa.array([2**64 - 1, 2**63, 3], pa.uint64())
        far = Reason.BEYOND_GROWTH
        assert outcomes(column, axis_of(regular(0, 1))) == [far, far, 3]

    def test_growth_is_counted_from_the_present_end(self) -> None:
        axis = axis_of(regular(0, 10), max_growth=2)
        column = pa.array([10, 20])
        assert outcomes(column, axis) == [1, Reason.BEYOND_GROWTH]
        assert outcomes(column, axis.resized(1)) == [1, 2]

    def test_texts_and_decimals_are_read_as_numbers(self) -> None:
        axis = axis_of(regular(0, 2))
        assert outcomes(pa.array(["4", "5", "x"]), axis) == [
            2,
            Reason.OFF_GRID,
            Reason.UNREADABLE_LABEL,
        ]
        decimals = pa.array([Decimal("6.0"), Decimal("6.5")])
        assert outcomes(decimals, axis) == [3, Reason.UNREADABLE_LABEL]

    def test_whole_floats_lie_on_a_grid_of_integers(self) -> None:
        column = pa.array([4.0, 4.5, None, float("nan")])
        assert outcomes(column, axis_of(regular(0, 2))) == [
            2,
            Reason.OFF_GRID,
            Reason.NULL_LABEL,
            Reason.NAN_LABEL,
        ]


class TestTimes:
    @given(st.data(), grids(bound=10**13), st.sampled_from(list(NANOS)), st.booleans())
    def test_every_time_finds_its_cell_whatever_its_unit(
        self, data: st.DataObject, grid: tuple[int, int, int], unit: str, in_nanos: bool
    ) -> None:
        grid_unit: Literal["ns", "us"] = "ns" if in_nanos else "us"
        in_ns = tuple(value * NANOS[grid_unit] for value in grid)
        close = near((in_ns[0], in_ns[1], in_ns[2]), 40).map(lambda label: label // NANOS[unit])
        labels = data.draw(st.lists(st.none() | close | st.integers(-FAR, FAR), max_size=10))
        start, step, tolerance = grid
        dimension = Regular(
            np.datetime64(start, grid_unit),
            np.timedelta64(step, grid_unit),
            np.timedelta64(tolerance, grid_unit),
        )
        zone = data.draw(st.sampled_from([None, "UTC", "Europe/Zurich"]))
        column = pa.array(labels, pa.int64()).cast(pa.timestamp(unit, zone))
        nanos = [None if label is None else label * NANOS[unit] for label in labels]
        found = outcomes(column, axis_of(dimension, 10, 30))
        assert found == [expected(each, (in_ns[0], in_ns[1], in_ns[2]), 40) for each in nanos]

    def test_microseconds_before_1970_are_exact(self) -> None:
        axis = axis_of(regular("1969-12-31T23:59:59.999990", "3us"))
        times = ["1969-12-31T23:59:59.999993", "1970-01-01T00:00:00.000002", "1970-01-01"]
        column = pa.array(np.array(times, "M8[us]"))
        assert outcomes(column, axis) == [1, 4, Reason.OFF_GRID]

    def test_dates_lie_on_a_grid_of_days(self) -> None:
        axis = axis_of(regular("1969-12-30", "1d"))
        days = pa.array([-3, -2, 0, None], pa.int32()).cast(pa.date32())
        wanted = [Reason.BEFORE_START, 0, 2, Reason.NULL_LABEL]
        assert outcomes(days, axis) == wanted
        assert outcomes(days.cast(pa.date64()), axis) == wanted

    def test_a_clock_of_another_age_is_far_outside(self) -> None:
        seconds = pa.array([2**62, -(2**62), 60], pa.int64()).cast(pa.timestamp("s"))
        assert outcomes(seconds, axis_of(regular("1970-01-01", "1min"))) == [
            Reason.BEYOND_GROWTH,
            Reason.BEFORE_START,
            1,
        ]

    def test_a_start_that_nanoseconds_do_not_reach_is_no_obstacle(self) -> None:
        axis = axis_of(regular("1600-01-01", "1d"), 240_000)
        column = pa.array(np.array(["2024-01-01", "2262-01-01"], "M8[ns]"))
        wanted = (column.to_numpy().astype("M8[D]") - np.datetime64("1600-01-01")).astype(int)
        assert outcomes(column, axis) == wanted.tolist()

    def test_a_tolerance_takes_labels_on_both_sides(self) -> None:
        axis = axis_of(regular("2024-01-01", "1h", tolerance="5min"))
        times = ["2023-12-31T23:55", "2024-01-01T01:05", "2024-01-01T01:06", "2023-12-31T23:54"]
        column = pa.array(np.array(times, "M8[ms]"))
        assert outcomes(column, axis) == [0, 1, Reason.OFF_GRID, Reason.BEFORE_START]

    def test_texts_are_read_as_times(self) -> None:
        axis = axis_of(regular("1969-12-31", "1h"))
        column = pa.array(["1970-01-01T01:00", "soon", None, "1969-12-31", "1970-01-01T01:00:01"])
        assert outcomes(column, axis) == [
            25,
            Reason.UNREADABLE_LABEL,
            Reason.NULL_LABEL,
            0,
            Reason.OFF_GRID,
        ]

    def test_the_grid_points_are_stored_in_the_units_of_the_coordinate(self) -> None:
        days = of_times("days since 1970-01-01", "int32")
        axis = Axis("x", "x", regular("1969-12-31", "1d"), 0, days)
        values = coordinate_values(axis, 0, 3)
        assert values.dtype == np.int32
        assert values.tolist() == [-1, 0, 1]

    def test_a_grid_point_that_the_coordinate_cannot_store_is_named(self) -> None:
        days = of_times("days since 1970-01-01", "int32")
        axis = Axis("x", "x", regular("1969-12-31", "12h"), 0, days)
        with pytest.raises(LayoutError, match=r"'x' cannot store 1969-12-31 12:00:00.*finer units"):
            coordinate_values(axis, 0, 3)

    def test_the_grid_points_are_what_the_coordinate_stores(self) -> None:
        axis = axis_of(regular("1969-12-31", "12h"))
        values = coordinate_values(axis, 1, 4)
        assert values.tolist() == [-43_200_000_000, 0, 43_200_000_000]


class TestFloats:
    @pytest.mark.parametrize("kind", [pa.float64(), pa.float32(), pa.float16()])
    def test_tenths_lie_on_a_grid_of_tenths_however_they_were_rounded(self, kind: Any) -> None:
        cells = np.arange(200)
        for values in (cells / 10, cells * 0.1, np.round(cells * 0.1, 3)):
            column = pa.array(values.astype(kind.to_pandas_dtype()), kind)
            assert outcomes(column, axis_of(regular(0.0, 0.1))) == cells.tolist()

    @given(
        st.integers(-1000, 1000).map(lambda number: number / 8),
        st.integers(1, 100).map(lambda number: number / 16),
        st.lists(st.integers(-64_000, 64_000).map(lambda number: number / 64), max_size=10),
        st.sampled_from([0, 0.25, 0.5]),
    )
    def test_binary_fractions_find_their_cells_as_exact_fractions_do(
        self, start: float, step: float, labels: list[float], part: float
    ) -> None:
        grid = Fraction(start), Fraction(step), Fraction(step * part)
        found = outcomes(pa.array(labels, pa.float64()), axis_of(Regular(start, step, step * part)))
        as_fractions: Any = [Fraction(label) for label in labels]
        exact: Any = grid
        assert found == [expected(label, exact, 100_000) for label in as_fractions]

    def test_a_tolerance_takes_labels_on_both_sides(self) -> None:
        axis = axis_of(regular(-0.5, 0.1, tolerance=0.02))
        column = pa.array([-0.519, -0.38, 0.021, 0.98, -0.53])
        assert outcomes(column, axis) == [0, 1, Reason.OFF_GRID, 15, Reason.BEFORE_START]

    def test_what_is_no_number_or_without_end_is_bad(self) -> None:
        column = pa.array([float("nan"), float("inf"), float("-inf"), 1e308, None])
        assert outcomes(column, axis_of(regular(0.0, 1e-5))) == [
            Reason.NAN_LABEL,
            Reason.BEYOND_GROWTH,
            Reason.BEFORE_START,
            Reason.BEYOND_GROWTH,
            Reason.NULL_LABEL,
        ]

    def test_labels_with_too_few_digits_to_tell_cells_apart_are_refused(self) -> None:
        column = pa.array([1e9], pa.float32())
        axis = axis_of(regular(0.0, 1.0), 2_000_000_000)
        assert outcomes(column, axis) == [Reason.OFF_GRID]
        assert outcomes(column.cast(pa.float64()), axis) == [1_000_000_000]

    def test_integers_lie_on_a_grid_of_floats(self) -> None:
        column = pa.array([1, 2, 3])
        assert outcomes(column, axis_of(regular(0.5, 0.5))) == [1, 3, 5]

    def test_the_grid_points_are_what_the_coordinate_stores(self) -> None:
        assert coordinate_values(axis_of(regular(0.5, 0.25)), 2, 4).tolist() == [1.0, 1.25]


class TestRefusals:
    @pytest.mark.parametrize("step", [0, -1, -0.5, "0s"])
    def test_a_step_must_be_above_zero(self, step: Any) -> None:
        with pytest.raises(LayoutError, match="step"):
            regular("2024-01-01" if isinstance(step, str) else 0, step)

    def test_numbers_on_a_grid_of_times_are_refused(self) -> None:
        with pytest.raises(
            LayoutError, match=r"the column 'x' of the dimension 'x': .*times: cast"
        ):
            place(pa.array([3]), axis_of(regular("2024-01-01", "1h")))

    def test_a_step_too_long_for_nanoseconds_is_refused(self) -> None:
        column = pa.array(np.array(["2024-01-01"], "M8[ns]"))
        with pytest.raises(LayoutError, match="microseconds"):
            place(column, axis_of(regular("2000-01-01", "200000 days")))
