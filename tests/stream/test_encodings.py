"""Columns as arrays store them, against xarray and exact arithmetic."""
# ruff: noqa: DTZ001 - times without a zone are what xarray has

from __future__ import annotations

import math
import pickle
import warnings
from datetime import UTC, date, datetime
from decimal import Decimal
from fractions import Fraction
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
import xarray as xr
from hypothesis import assume, given
from hypothesis import strategies as st

from icechunk_stream.errors import LayoutError
from icechunk_stream.stream.cf_attributes import encoding_of, fill_attribute
from icechunk_stream.stream.cf_time import TimeUnits, arrow_nanos
from icechunk_stream.stream.encodings import Encoding, Unstorable

INT64 = st.integers(-(2**63), 2**63 - 1)
UNITS = [
    "seconds since 1970-01-01",
    "hours since 2000-01-01 12:00",
    "days since 1-1-1 00:00:0.0",
    "minutes since 1970-01-01T00:00:00Z",
    "milliseconds since 1999-12-31 23:59:59.5",
    "microseconds since 1970-01-01",
    "nanoseconds since 2020-02-29",
    "days since 2000-01-01 00:00:00 +05:30",
]
ZONES = [None, "UTC", "Europe/Berlin", "+02:00"]
INTEGERS = ["int8", "uint8", "int16", "uint16", "int32", "uint32", "int64", "uint64"]


def encoding(dtype: str, /, **attrs: Any) -> Encoding:
    kind = np.dtype(dtype)
    if "_FillValue" in attrs:
        attrs["_FillValue"] = fill_attribute(attrs["_FillValue"], kind)
    return encoding_of(kind, attrs, "/a")


def as_xarray(data: Any, **how: Any) -> Any:
    """What xarray stores for the data with an encoding."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return xr.conventions.encode_cf_variable(xr.Variable(("x",), data, {}, how)).values


def reasons(found: Any) -> list[Unstorable]:
    return [Unstorable(reason) for reason in found.reasons.tolist()]


class TestTimes:
    @given(
        st.lists(INT64 | st.integers(-(10**12), 10**12), min_size=1, max_size=8),
        st.sampled_from(["s", "ms", "us", "ns"]),
        st.sampled_from(ZONES),
        st.sampled_from(UNITS),
    )
    def test_counts_are_exact_or_refused(
        self, ticks: list[int], unit: str, zone: str | None, text: str
    ) -> None:
        units = TimeUnits.parse(text)
        column = pa.array(ticks, pa.int64()).cast(pa.timestamp(unit, zone))
        found = encoding("int64", units=text, calendar="proleptic_gregorian").encode(column)
        for tick, value, reason in zip(ticks, found.values.tolist(), reasons(found), strict=True):
            count = Fraction(tick * arrow_nanos(unit) - units.epoch, units.nanos)
            if reason is Unstorable.FINE:
                assert value == count
            elif reason is Unstorable.INEXACT:
                assert count.denominator > 1
            else:
                assert reason is Unstorable.OUT_OF_RANGE
                assert abs(count) >= 2**63 - 1 or tick == -(2**63)

    @given(
        st.lists(st.integers(-(10**6), 10**6), min_size=1, max_size=8),
        st.sampled_from(["s", "ms", "us", "ns"]),
        st.sampled_from(ZONES),
        st.sampled_from(UNITS),
        st.sampled_from(["int64", "float64"]),
    )
    def test_as_xarray_stores_them(
        self, days: list[int], unit: str, zone: str | None, text: str, dtype: str
    ) -> None:
        text = text.replace(" +05:30", "").replace("Z", "")
        hours = 12 * ("hours" in text)
        times = (np.array(days) % 80_000 - 20_000).astype("M8[D]") + np.timedelta64(hours, "h")
        column = pa.array(times.astype(f"M8[{unit}]")).cast(pa.timestamp(unit, zone))
        # Coarser times than the units become NaT in xarray, and finer ones do not reach year 1.
        finest = "ns" if unit == "ns" or "nano" in text else "us"
        assume(not (finest == "ns" and "1-1-1 " in text))
        how = {"units": text, "dtype": dtype, "calendar": "proleptic_gregorian"}
        wanted = as_xarray(times.astype(f"M8[{finest}]"), **how)
        found = encoding(dtype, units=text, calendar="proleptic_gregorian").encode(column)
        if found.reasons.any():
            assert set(reasons(found)) == {Unstorable.INEXACT}
            return
        np.testing.assert_array_equal(found.values, wanted)

    def test_dates_are_midnights(self) -> None:
        column = pa.array([date(1969, 12, 31), None, date(2024, 2, 29)])
        for kind in (pa.date32(), pa.date64()):
            found = encoding("int64", units="hours since 1970-01-01").encode(column.cast(kind))
            assert found.values[[0, 2]].tolist() == [-24, 19782 * 24]
            assert not found.reasons.any()

    def test_texts_are_parsed_in_any_zone_and_others_are_told(self) -> None:
        texts = ["2024-01-01", " 2024-01-01T06:00:01.5 ", "2024-01-01T06:00+02:00", "2024-01-01Z"]
        bad = ["2024-02-30", "soon", "", "2024-01-01T25:00", None]
        found = encoding("int64", units="milliseconds since 2024-01-01").encode(
            pa.array(texts + bad)
        )
        assert found.values[:3].tolist() == [0, 21_601_500, 4 * 3_600_000]
        assert reasons(found)[:3] == [Unstorable.FINE] * 3
        assert reasons(found)[4:] == [Unstorable.UNREADABLE] * 4 + [Unstorable.FINE]

    def test_nanoseconds_of_texts_are_kept(self) -> None:
        texts = pa.array(["1970-01-01T00:00:00.123456789", "1970-01-01", "9999-01-01"])
        found = encoding("int64", units="nanoseconds since 1970-01-01").encode(texts)
        assert found.values[:2].tolist() == [123_456_789, 0]
        assert reasons(found)[2] is Unstorable.UNREADABLE

    def test_floats_hold_parts_of_a_unit(self) -> None:
        column = pa.array([datetime(1999, 12, 31, 18), datetime(2000, 1, 1, 12)])
        found = encoding("float64", units="days since 2000-01-01").encode(column)
        assert found.values.tolist() == [-0.25, 0.5]

    def test_finer_than_the_units_is_refused_and_not_rounded(self) -> None:
        column = pa.array([datetime(2024, 1, 1, 0, 0, 1), datetime(2024, 1, 1, 1)])
        found = encoding("int64", units="hours since 2024-01-01").encode(column)
        assert reasons(found) == [Unstorable.INEXACT, Unstorable.FINE]
        assert found.values[1] == 1

    def test_small_integer_types_are_checked(self) -> None:
        column = pa.array([datetime(2024, 1, 1), datetime(1970, 1, 2)])
        found = encoding("int16", units="seconds since 1970-01-02").encode(column)
        assert reasons(found) == [Unstorable.OUT_OF_RANGE, Unstorable.FINE]

    def test_the_calendar_standard_has_no_days_before_its_reform(self) -> None:
        column = pa.array([date(1582, 10, 14), date(1582, 10, 15)])
        found = encoding("int64", units="days since 1582-10-15", calendar="standard").encode(column)
        assert reasons(found) == [Unstorable.OUT_OF_RANGE, Unstorable.FINE]
        assert found.values[1] == 0
        with pytest.raises(LayoutError, match="proleptic_gregorian"):
            encoding("int64", units="days since 1-1-1", calendar="standard")
        with pytest.raises(LayoutError, match="noleap"):
            encoding("int64", units="days since 2000-1-1", calendar="noleap")

    def test_a_count_that_is_the_fill_value_would_read_as_missing(self) -> None:
        how = encoding("int64", units="days since 1970-01-01", _FillValue=1)
        found = how.encode(pa.array([date(1970, 1, 2), date(1970, 1, 3)]))
        assert reasons(found) == [Unstorable.READS_AS_MISSING, Unstorable.FINE]
        assert how.decode(np.array([1, 2])).to_pylist() == [None, datetime(1970, 1, 3)]

    @given(st.lists(st.datetimes(datetime(1, 1, 1), datetime(9999, 1, 1)), max_size=5))
    def test_decode_undoes_encode(self, times: list[datetime]) -> None:
        how = encoding("int64", units="microseconds since 1970-01-01", calendar="gregorian")
        found = how.encode(pa.array(times, pa.timestamp("us")))
        decoded = how.decode(found.values).to_pylist()
        for time, back, reason in zip(times, decoded, reasons(found), strict=True):
            assert (back == time) or (reason is Unstorable.OUT_OF_RANGE and time.year < 1583)

    def test_aware_times_are_stored_in_utc(self) -> None:
        column = pa.array([datetime(2024, 1, 1, 1, tzinfo=UTC)]).cast(
            pa.timestamp("us", "America/New_York")
        )
        assert encoding("int64", units="hours since 2024-01-01").encode(column).values[0] == 1


class TestNumbers:
    @given(
        st.lists(INT64 | st.integers(-300, 300), max_size=8),
        st.sampled_from([*INTEGERS, "float16", "float32", "float64", "bool"]),
    )
    def test_integers_are_exact_or_refused(self, numbers: list[int], dtype: str) -> None:
        found = encoding(dtype).encode(pa.array(numbers, pa.int64()))
        assert found.values.dtype == dtype
        for number, value, reason in zip(
            numbers, found.values.tolist(), reasons(found), strict=True
        ):
            assert (reason is Unstorable.FINE) == _holds(dtype, number)
            assert reason is not Unstorable.FINE or int(value) == number

    @given(st.lists(st.floats(), max_size=8), st.sampled_from(INTEGERS))
    def test_floats_in_integers_are_whole_or_refused(self, numbers: list[float], to: str) -> None:
        found = encoding(to).encode(pa.array(numbers, pa.float64()))
        for number, value, reason in zip(
            numbers, found.values.tolist(), reasons(found), strict=True
        ):
            whole = math.isfinite(number) and number == int(number) and _holds(to, int(number))
            assert (reason is Unstorable.FINE) == whole
            assert not whole or value == number

    def test_floats_of_16_bits_are_floats(self) -> None:
        column = pa.array(np.array([1.5, np.nan, 3], "f2"))
        np.testing.assert_array_equal(encoding("float64").encode(column).values, [1.5, np.nan, 3])
        assert reasons(encoding("int64").encode(column)) == [
            Unstorable.INEXACT,
            Unstorable.READS_AS_MISSING,
            Unstorable.FINE,
        ]

    @given(st.lists(st.floats(), max_size=8))
    def test_floats_in_narrower_floats_are_the_nearest_ones(self, numbers: list[float]) -> None:
        found = encoding("float32").encode(pa.array(numbers, pa.float64()))
        with np.errstate(over="ignore"):
            wanted = np.array(numbers, "f8").astype("f4")
        np.testing.assert_array_equal(found.values, wanted)
        overflowed = np.isinf(wanted) & np.isfinite(np.array(numbers, "f8"))
        np.testing.assert_array_equal(found.reasons == Unstorable.OUT_OF_RANGE, overflowed)

    def test_decimals_are_exact_in_integers(self) -> None:
        column = pa.array([Decimal("1.00"), Decimal("1.25"), None, Decimal("300.00")])
        found = encoding("int8").encode(column)
        assert reasons(found) == [
            Unstorable.FINE,
            Unstorable.INEXACT,
            Unstorable.FINE,
            Unstorable.OUT_OF_RANGE,
        ]
        assert encoding("float32").encode(column).values[[0, 1, 3]].tolist() == [1, 1.25, 300]
        huge = pa.array([Decimal(10) ** 37, Decimal(2) ** 63 - 1], pa.decimal128(38, 0))
        found = encoding("int64").encode(huge)
        assert reasons(found) == [Unstorable.OUT_OF_RANGE, Unstorable.FINE]
        assert found.values[1] == 2**63 - 1

    def test_texts_are_parsed_or_refused(self) -> None:
        texts = pa.array([" 12 ", "+7", "1.5", "x", None, "99999999999999999999"])
        found = encoding("int32").encode(texts)
        unread = Unstorable.UNREADABLE
        assert found.values[:2].tolist() == [12, 7]
        assert reasons(found) == [Unstorable.FINE] * 2 + [unread] * 2 + [Unstorable.FINE, unread]
        floats = encoding("float64").encode(pa.array(["1e3", "-.5", "NaN", "one"]))
        np.testing.assert_array_equal(floats.values[:3], [1000, -0.5, np.nan])
        assert reasons(floats)[3] is unread

    def test_nan_is_stored_as_the_fill_value_where_there_is_one(self) -> None:
        column = pa.array([1.0, np.nan])
        assert encoding("float32", _FillValue=-9999.0).encode(column).values.tolist() == [1, -9999]
        assert encoding("int16", _FillValue=-1).encode(column).values.tolist() == [1, -1]
        found = encoding("int16").encode(column)
        assert reasons(found) == [Unstorable.FINE, Unstorable.READS_AS_MISSING]

    def test_booleans_are_flags_or_booleans(self) -> None:
        column = pa.array([True, False, None])
        assert encoding("bool").encode(column).values.tolist() == [True, False, False]
        flags = encoding("int8", dtype="bool").encode(column)
        assert flags.values.tolist() == [1, 0, 0]
        assert flags.values.dtype == np.int8
        found = encoding("bool").encode(pa.array([0, 1, 2]))
        assert reasons(found) == [Unstorable.FINE, Unstorable.FINE, Unstorable.OUT_OF_RANGE]

    def test_columns_of_other_kinds_are_refused_by_name(self) -> None:
        with pytest.raises(LayoutError, match=r"/a: a column of type timestamp"):
            encoding("int64").check_column(pa.timestamp("us"), "/a")
        with pytest.raises(LayoutError, match="of times"):
            encoding("int64", units=UNITS[0]).check_column(pa.int64(), "/a")
        with pytest.raises(LayoutError, match="of texts"):
            encoding("U3").check_column(pa.int64(), "/a")
        with pytest.raises(LayoutError, match="_Unsigned"):
            encoding("int8", _Unsigned="true")


class TestPacking:
    @given(
        st.lists(st.floats(-1e6, 1e6, width=32) | st.just(math.nan), min_size=1, max_size=8),
        st.sampled_from([None, 0.01, 0.5, 2.0]),
        st.sampled_from([None, 273.15, -10.0]),
        st.sampled_from(["f4", "f8"]),
        st.sampled_from(["int16", "int32", "uint8", "float32"]),
    )
    def test_as_xarray_packs_them(
        self, numbers: list[float], scale: float | None, offset: float | None, data: str, to: str
    ) -> None:
        fill = np.dtype(to).type(99)
        how: dict[str, Any] = {"scale_factor": scale, "add_offset": offset}
        how = {name: value for name, value in how.items() if value is not None}
        values = np.array(numbers, data)
        found = encoding(to, _FillValue=fill, **how).encode(pa.array(values))
        with np.errstate(invalid="ignore"):
            wanted = as_xarray(values, dtype=to, _FillValue=fill, **how)
        good = found.reasons == 0
        assume(how)
        np.testing.assert_array_equal(found.values[good], wanted[good])
        assert (found.values[np.isnan(values)] == fill).all()
        assert good[np.isnan(values)].all()

    @given(
        st.lists(st.floats(-300, 300), min_size=1, max_size=8), st.sampled_from(["int16", "int32"])
    )
    def test_as_xarray_packs_them_without_a_fill_value(self, numbers: list[float], to: str) -> None:
        how = {"scale_factor": 0.01, "add_offset": 5.0}
        found = encoding(to, **how).encode(pa.array(numbers, pa.float64()))
        good = found.reasons == 0
        wanted = as_xarray(np.array(numbers), dtype="int64", **how)
        np.testing.assert_array_equal(found.values[good], wanted[good])
        np.testing.assert_array_equal(~good, np.abs(wanted + 0.5) > np.iinfo(to).max + 0.5)

    def test_out_of_range_does_not_wrap(self) -> None:
        how = encoding("int32", scale_factor=1.0, _FillValue=-(2**31))
        column = pa.array([2.0**31, 2.0**31 - 128, -(2.0**31)], pa.float32())
        assert reasons(how.encode(column)) == [
            Unstorable.OUT_OF_RANGE,
            Unstorable.FINE,
            Unstorable.READS_AS_MISSING,
        ]

    def test_decode_undoes_packing(self) -> None:
        how = encoding("int16", scale_factor=0.5, add_offset=10.0, _FillValue=-1)
        assert how.decode(np.array([4, -1], "i2")).to_pylist() == [12.0, None]


class TestTexts:
    @given(st.lists(st.text(max_size=4) | st.none(), max_size=6))
    def test_texts_of_any_length_are_kept(self, texts: list[str | None]) -> None:
        how = Encoding(np.dtypes.StringDType(), encoding("U1").how)
        found = how.encode(pa.array(texts, pa.string()))
        assert [str(value) for value in found.values] == [text or "" for text in texts]
        assert not found.reasons.any()

    @given(st.lists(st.text(max_size=4), max_size=6), st.sampled_from(["U3", "S3"]))
    def test_texts_that_a_fixed_length_cuts_are_refused(self, texts: list[str], to: str) -> None:
        column = pa.array(texts, pa.string()).dictionary_encode()
        how = encoding(to)
        found = how.encode(column)
        back = how.decode(found.values).to_pylist()
        for text, kept, reason in zip(texts, back, reasons(found), strict=True):
            size = len(text) if to == "U3" else len(text.encode())
            assert (reason is Unstorable.TOO_LONG) == (size > 3)
            assert (reason is Unstorable.FINE) == (kept == text)


def test_nulls_have_no_reason_and_chunks_are_joined() -> None:
    column = pa.chunked_array([[1, None], [], [3]], pa.int64())
    for dtype in ("int16", "float32"):
        found = encoding(dtype).encode(column)
        assert found.values[[0, 2]].tolist() == [1, 3]
        assert not found.reasons.any()
    nothing = encoding("int64", units=UNITS[0]).encode(pa.nulls(2))
    assert reasons(nothing) == [Unstorable.FINE] * 2


def test_encodings_travel_in_pickles() -> None:
    for how in (
        encoding("int64", units=UNITS[1]),
        encoding("int16", scale_factor=0.1, _FillValue=-1),
        encoding("U3"),
        Encoding(np.dtypes.StringDType()),
    ):
        assert pickle.loads(pickle.dumps(how)) == how
        assert hash(pickle.loads(pickle.dumps(how))) == hash(how)


def _holds(dtype: str, number: int) -> bool:
    if dtype == "bool":
        return number in (0, 1)
    if dtype.startswith("float"):
        with np.errstate(over="ignore"):
            nearest = float(np.dtype(dtype).type(float(number)))
        return math.isfinite(nearest) and int(nearest) == number
    return int(np.iinfo(dtype).min) <= number <= int(np.iinfo(dtype).max)
