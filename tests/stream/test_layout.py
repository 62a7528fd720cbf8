"""Layouts of rows: what they hold, and what they refuse when they are built."""
# ruff: noqa: DTZ001 - times without a zone are in UTC here

from __future__ import annotations

import pickle
from collections.abc import Callable
from datetime import UTC, date, datetime, timedelta, timezone
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
import xarray as xr
from hypothesis import given
from hypothesis import strategies as st

from icechunk_stream.errors import LayoutError
from icechunk_stream.stream.cf_time import TimeUnits, parse_duration
from icechunk_stream.stream.layout import Rows, Variable, append, fixed, regular

NEW_YEAR = np.datetime64("2024-01-01", "us")
HOUR = np.timedelta64(3_600_000_000, "us")


def rows(**options: Any) -> Rows:
    given: dict[str, Any] = {
        "dims": {"t": append(), "s": fixed(["a", "b"])},
        "variables": {"v": "f4"},
    }
    return Rows(**(given | options))


class TestRegular:
    @pytest.mark.parametrize(
        "start",
        [
            "2024-01-01",
            "2024-01-01T01:00+01:00",
            date(2024, 1, 1),
            datetime(2024, 1, 1),
            datetime(2024, 1, 1, 1, tzinfo=timezone(timedelta(hours=1))),
            datetime(2024, 1, 1, tzinfo=UTC),
            np.datetime64("2024-01"),
            np.datetime64("2024-01-01", "ns"),
            xr.date_range("2024-01-01", periods=1)[0],
        ],
    )
    @pytest.mark.parametrize("step", ["1h", "60 min", timedelta(hours=1), np.timedelta64(60, "m")])
    def test_times_and_durations_of_all_kinds_are_one(self, start: Any, step: Any) -> None:
        assert regular(start, step) == regular(NEW_YEAR, HOUR)
        assert regular(start, step).start == NEW_YEAR
        assert regular(start, step).step == HOUR

    def test_nanoseconds_are_kept(self) -> None:
        grid = regular(np.datetime64("2024-01-01T00:00:00.000000001", "ns"), "1ns")
        assert grid.start == np.datetime64("2024-01-01T00:00:00.000000001", "ns")
        assert grid.step == np.timedelta64(1, "ns")

    def test_numbers_are_all_integers_or_all_floats(self) -> None:
        assert (regular(0, 5).start, regular(0, 5).step) == (0, 5)
        assert isinstance(regular(np.float64(0), 5).start, float)
        grid = regular(0, 0.25, 0.1)
        assert [type(value) for value in (grid.start, grid.step, grid.tolerance)] == [float] * 3

    def test_its_repr_makes_it_again(self) -> None:
        for grid in (regular("2024-01-01", "90s", "1s"), regular(-5, 2), regular(0.5, 0.25)):
            assert eval(repr(grid), {"regular": regular}) == grid

    @pytest.mark.parametrize(
        ("make", "message"),
        [
            (lambda: regular(0, 0), "above zero"),
            (lambda: regular(0, -1), "above zero"),
            (lambda: regular("2024-01-01", "0s"), "above zero"),
            (lambda: regular(0, 1, -0.1), "must not be negative"),
            (lambda: regular(0, 1, 0.6), "more than half of the step"),
            (lambda: regular("2024-01-01", 5), "is no duration"),
            (lambda: regular("2024-01-01", "1 month"), "no duration"),
            (lambda: regular("2024-01-01", np.timedelta64(1, "M")), "no duration"),
            (lambda: regular(0, "1h"), "is no number"),
            (lambda: regular(True, 1), "is no number"),
            (lambda: regular(float("nan"), 1), "out of range"),
            (lambda: regular(2**63, 1), "out of range"),
            (lambda: regular("soon", "1h"), "is no time"),
            (lambda: regular("2024-01-01T00:00:00.0000001", "1h"), "is no time"),
            (lambda: regular(np.datetime64("NaT", "us"), "1h"), "is no time"),
            (lambda: regular("2024-01-01", "1h", units="days since 2000-01-01"), "whole count"),
            (lambda: regular("2024-01-01T12:00", "1d", units="days since 2000-1-1"), "whole count"),
            (lambda: regular(0, 1, units="days since 2000-01-01"), "are for times"),
            (lambda: regular("2024-01-01", "1h", units="hours"), "are no units of time"),
        ],
    )
    def test_what_is_no_grid_is_refused(self, make: Callable[[], Any], message: str) -> None:
        with pytest.raises(LayoutError, match=message):
            make()


class TestLabels:
    @pytest.mark.parametrize(
        "labels",
        [
            ["b", "a"],
            np.array([3, 1, 2]),
            xr.date_range("2024-01-01", periods=3),
            xr.DataArray([0.5, 1.5], dims="x"),
            pa.chunked_array([[1], [2]]),
            [date(1969, 1, 1)],
        ],
    )
    def test_lists_and_arrays_of_all_kinds_are_labels(self, labels: Any) -> None:
        found = fixed(labels).labels
        assert found is not None
        wanted = labels.to_pylist() if isinstance(labels, pa.ChunkedArray) else list(labels)
        assert pa.array(np.asarray(wanted)).cast(found.type).equals(found)

    @pytest.mark.parametrize(
        ("labels", "message"),
        [
            (["a", "b", "a"], "a is one"),
            ([], "null|empty"),
            (["a", None], "null or NaN"),
            ([1.0, float("nan")], "null or NaN"),
            ("abc", "one string"),
            ([[1], [2]], "type list"),
            ([1, "a"], "of one kind"),
            ([True], "type bool"),
        ],
    )
    def test_what_cannot_be_labels_is_refused(self, labels: Any, message: str) -> None:
        with pytest.raises(LayoutError, match=message):
            fixed(labels)

    def test_fixed_labels_are_part_of_what_makes_two_alike(self) -> None:
        assert fixed(["a"]) == fixed(pa.array(["a"]))
        assert fixed(["a"]) != fixed(["b"])
        assert hash(fixed(["a"])) == hash(fixed(pa.array(["a"])))


class TestRows:
    def test_it_is_one_value_that_travels(self) -> None:
        layout = rows(variables={"v": "f4", "n": Variable("i2", scale_factor=0.1, fill_value=-1)})
        assert pickle.loads(pickle.dumps(layout)) == layout
        assert hash(pickle.loads(pickle.dumps(layout))) == hash(layout)
        assert "append(on_late='fail')" in repr(layout)

    def test_variables_have_all_dimensions_unless_they_say_which(self) -> None:
        layout = rows(variables={"v": "f4", "n": Variable("i2", dims=("s",), column="N")})
        assert layout.dims_of("v") == ("t", "s")
        assert layout.dims_of("n") == ("s",)
        assert layout.columns == ("t", "s", "v", "N")

    def test_chunks_are_as_given_for_the_layout_or_for_one_variable(self) -> None:
        variables = {"v": "f4", "n": Variable("i2", chunks={"t": 7}, shards={"t": 14})}
        layout = rows(variables=variables, chunks={"t": 24, "s": 2}, shards={"t": 48})
        assert layout.chunk_shape("v") == (24, 2)
        assert layout.shard_shape("v") == (48, 2)
        assert layout.chunk_shape("n") == (7, 2)
        assert layout.shard_shape("n") == (14, 2)
        assert rows().shard_shape("v") is None

    @given(st.lists(st.integers(1, 5_000) | st.none(), min_size=1, max_size=4))
    def test_chunks_left_out_have_a_sane_size(self, lengths: list[int | None]) -> None:
        dims = {
            f"d{n}": append() if length is None else fixed(range(length))
            for n, length in enumerate(lengths)
        }
        shape = rows(dims=dims).chunk_shape("v")
        known = [min(length, 1024) for length in lengths if length is not None]
        assert np.prod(shape, dtype=object) <= max(2**18, np.prod(known, dtype=object))
        assert all(size >= 1 for size in shape)

    def test_chunks_left_out_divide_the_shards(self) -> None:
        layout = rows(shards={"t": 1000})
        assert 1000 % layout.chunk_shape("v")[0] == 0

    @pytest.mark.parametrize(
        ("options", "message"),
        [
            ({"dims": {}}, "dims is empty"),
            ({"dims": {"t": 5}}, r"regular\(\), append\(\) or fixed\(\)"),
            ({"dims": {"a/b": append()}}, "no zarr array"),
            ({"dims": {"__t": append()}}, "no zarr array"),
            ({"dims": {"..": append()}}, "no zarr array"),
            ({"dims": {"": append()}}, "one character"),
            ({"dims": {"\ud800": append()}}, "surrogate"),
            ({"dims": {"t": append(column="x"), "s": append(column="x")}}, "several dimensions"),
            ({"variables": {}}, "variables is empty"),
            ({"variables": {"t": "f4"}}, "is a dimension and a variable"),
            ({"variables": {"zarr.json": "f4"}}, "no zarr array"),
            ({"variables": {"v": "complex64"}}, "does not write"),
            ({"variables": {"v": Variable("f4", dims=("x",))}}, "'x' is no dimension"),
            ({"variables": {"v": Variable("f4", chunks={"x": 1})}}, "'x' is no dimension"),
            ({"chunks": {"x": 1}}, "'x' is no dimension"),
            ({"chunks": {"t": 0}}, "at least 1"),
            ({"chunks": {"t": 1.5}}, "whole number"),
            ({"chunks": {"t": 4}, "shards": {"t": 6}}, "no multiples"),
            ({"on_null": "clear"}, "'keep', 'fill'"),
            ({"duplicates": "any"}, "'error', 'first', 'last'"),
            ({"duplicates": "last"}, "need the column"),
            ({"order_by": "ts"}, "need the column"),
            ({"deletes": " "}, "deletes is empty"),
            ({"max_growth": 0}, "at least 1"),
            ({"attrs": {"x": float("nan")}}, "JSON"),
        ],
    )
    def test_what_cannot_be_is_refused(self, options: dict[str, Any], message: str) -> None:
        with pytest.raises(LayoutError, match=message):
            rows(**options)

    @pytest.mark.parametrize(
        ("options", "message"),
        [
            ({"dtype": "int8", "fill_value": 200}, "fill_value 200"),
            ({"dtype": "int8", "fill_value": 1.5}, "fill_value 1.5"),
            ({"dtype": "float32", "fill_value": "x"}, "fill_value 'x'"),
            ({"dtype": "string", "scale_factor": 2.0}, "do not go with"),
            ({"dtype": "int16", "scale_factor": 0}, "scale_factor is 0"),
            ({"dtype": "int16", "add_offset": float("inf")}, "finite"),
            ({"dtype": "float32", "units": "days since 2000-01-01"}, "are of time"),
            ({"units": "K"}, "no units of time"),
            ({"units": "days since 1-1-1"}, "four digits"),
            ({"attrs": {"_FillValue": 1}}, "'_FillValue'"),
            ({"attrs": {"units": "days since 2000-01-01"}}, "'units'"),
            ({"attrs": {"x": object()}}, "JSON"),
            ({"dims": "t"}, "tuple"),
            ({"dims": ("t", "t")}, "distinct"),
            ({"column": "#t"}, "begin with '#'"),
        ],
    )
    def test_variables_that_cannot_be_are_refused(
        self, options: dict[str, Any], message: str
    ) -> None:
        with pytest.raises(LayoutError, match=message):
            Variable(**options)


class TestTemplate:
    def dataset(self) -> xr.Dataset:
        packed = {"dtype": "int16", "scale_factor": 0.1, "_FillValue": -1, "chunks": (5, 2)}
        found = xr.Dataset(
            {"v": (("t", "y"), np.zeros((1, 2), "f4"), {"units": "K"}, packed)},
            {"t": np.array(["2024-01-01"], "M8[ns]"), "y": ("y", [1.5, 2.5], {"axis": "Y"})},
            {"title": "template"},
        )
        found.t.encoding = {"units": "hours since 2000-01-01", "chunks": (50,)}
        return found

    def test_it_gives_types_attributes_encodings_and_labels(self) -> None:
        layout = Rows.like(self.dataset(), {"t": append()}, on_null="fill")
        variable = layout.variable("v")
        assert (variable.dtype, variable.scale_factor, variable.fill_value) == ("int16", 0.1, -1)
        assert dict(variable.attrs) == {"units": "K"}
        assert layout.chunk_shape("v") == (5, 2)
        assert layout.dims["t"].coordinate.units == "hours since 2000-01-01"
        assert layout.dims["t"].coordinate.chunk == 50
        assert layout.dims["y"] == fixed([1.5, 2.5]) or layout.dims["y"].coordinate.attrs
        assert (layout.on_null, dict(layout.attrs)) == ("fill", {"title": "template"})

    def test_chunks_that_are_given_come_before_its_own(self) -> None:
        layout = Rows.like(self.dataset(), {"t": append()}, chunks={"t": 24})
        assert layout.chunk_shape("v") == (24, 2)

    def test_what_it_lacks_is_told(self) -> None:
        template = self.dataset()
        with pytest.raises(LayoutError, match="lack the dimension 'x'"):
            Rows.like(template, {"x": append()})
        with pytest.raises(LayoutError, match="no variable 'w'"):
            Rows.like(template, {"t": append()}, ["w"])
        with pytest.raises(LayoutError, match="no labels for the dimension 'y'"):
            Rows.like(template.drop_vars("y"), {"t": append()})
        with pytest.raises(LayoutError, match="'crs', which is no dimension"):
            Rows.like(template.assign_coords(crs=0), {"t": append()})


class TestUnitsOfTime:
    @pytest.mark.parametrize(
        "text",
        [
            "seconds since 1970-01-01",
            "hours since 2000-01-01 12:00",
            "days since 0001-1-1 00:00:0.0",
            "milliseconds since 1900-1-1 1:2:3.5",
            "Days since 2000-01-01T00:00:00",
            "minute since 2000-01-01 00:00:00 +01:00",
        ],
    )
    def test_they_mean_what_xarray_reads(self, text: str) -> None:
        units = TimeUnits.parse(text)
        counts = np.array([0, 730_000])
        attrs = {"units": text, "calendar": "proleptic_gregorian"}
        coder = xr.coders.CFDatetimeCoder(time_unit="us")
        decoded = coder.decode(xr.Variable(("x",), counts, attrs)).values.astype("M8[us]")
        wanted = (counts.astype(object) * units.nanos + units.epoch) // 1_000
        np.testing.assert_array_equal(decoded.astype(np.int64), wanted.astype(np.int64))

    @pytest.mark.parametrize(
        "text", ["seconds", "years since 2000-01-01", "weeks since 2000-01-01", "s since", "K"]
    )
    def test_what_is_none_is_refused(self, text: str) -> None:
        with pytest.raises(LayoutError, match="no units of time"):
            TimeUnits.parse(text)
        assert not TimeUnits.is_time(text) or text.startswith("weeks")

    def test_durations_are_read_as_people_write_them(self) -> None:
        for text in ("1h", "60min", "60 minutes", "3600s", "hour", "3600000ms"):
            assert parse_duration(text) == HOUR
