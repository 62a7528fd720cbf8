"""Labels to indices, against a dictionary of labels and against fractions."""

from __future__ import annotations

import pickle
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from icechunk_stream.errors import BadRowsError, InvalidInputError, LayoutError
from icechunk_stream.stream import row_blocks
from icechunk_stream.stream.axes import Axis
from icechunk_stream.stream.bad_rows import BadRows
from icechunk_stream.stream.dimensions import OnLate, append, fixed
from icechunk_stream.stream.encodings import Encoding
from icechunk_stream.stream.placement import Reason, coordinate_values, new_labels, place
from tests.stream.axis_model import KINDS, Kind, Model, number, of_times

POLICIES: list[OnLate] = ["fail", "append", "quarantine"]


def appending(kind: Kind, on_late: OnLate = "append", max_growth: int = 100_000) -> Axis:
    empty = pa.array([], kind.encoding.stored_type)
    return Axis("x", "x", append(on_late), 0, kind.encoding, empty, max_growth)


def having(kind: Kind, labels: list[Any], **options: Any) -> Axis:
    stored = pa.array([kind.to_stored(label) for label in labels], kind.encoding.stored_type)
    return Axis("x", "x", fixed(), len(labels), kind.encoding, stored, **options)


def labels_of(axis: Axis) -> list[Any]:
    assert axis.labels is not None
    return list(axis.labels.to_pylist())


def outcomes(placed: Any) -> list[tuple[int, Reason]]:
    indices, reasons = placed.indices.tolist(), placed.reasons.tolist()
    return [(index, Reason(reason)) for index, reason in zip(indices, reasons, strict=True)]


@pytest.fixture(autouse=True, params=[5, 2**16])
def block(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Rows in many blocks, and in one."""
    monkeypatch.setattr(row_blocks, "_BLOCK", request.param)


INTEGERS = ["int8", "uint8", "int16", "uint16", "int32", "uint32", "int64", "uint64"]


@pytest.mark.parametrize("dtype", INTEGERS)
@pytest.mark.parametrize("end", ["min", "max"])
def test_integers_side_by_side_are_found_at_both_ends_of_their_type(dtype: str, end: str) -> None:
    limits = np.iinfo(dtype)
    first = int(limits.min) if end == "min" else int(limits.max) - 199
    labels = [first + offset for offset in range(0, 200, 2)]
    encoding = Encoding(np.dtype(dtype))
    stored = pa.array(labels, encoding.stored_type)
    axis = Axis("x", "x", fixed(), len(labels), encoding, stored)
    asked = [first + offset for offset in (*range(200), *range(199, -1, -1))]
    found = place(pa.array(asked, pa.from_numpy_dtype(np.dtype(dtype))), axis)
    expected = [labels.index(each) if each in labels else -1 for each in asked]
    assert found.indices.tolist() == expected
    unknown = [Reason.FINE if index >= 0 else Reason.UNKNOWN_LABEL for index in expected]
    assert found.reasons.tolist() == unknown


@st.composite
def streams(draw: st.DrawFn) -> tuple[Kind, list[list[list[Any]]]]:
    """Batches of a few columns each, with nulls, NaN and labels that come again."""
    kind = KINDS[draw(st.sampled_from(sorted(KINDS)))]
    label = st.sampled_from(draw(st.lists(kind.labels, min_size=1, max_size=12)))
    column = st.lists(st.none() | label | label | kind.labels, max_size=8)
    return kind, draw(st.lists(st.lists(column, max_size=3), min_size=1, max_size=5))


class TestAppend:
    @given(streams(), st.sampled_from(POLICIES), st.integers(1, 12))
    def test_a_stream_finds_the_indices_of_a_dictionary(
        self, stream: tuple[Kind, list[list[list[Any]]]], on_late: OnLate, max_growth: int
    ) -> None:
        kind, batches = stream
        axis = appending(kind, on_late, max_growth)
        model = Model(on_late, max_growth, kind.encoding.stored_type != pa.string())
        for batch in batches:
            columns = [kind.array(column) for column in batch]
            labels = [label for column in batch for label in column]
            if on_late == "fail" and model.late(model.new(labels)):
                with pytest.raises(BadRowsError, match="on_late"):
                    new_labels(columns, axis)
                continue
            new = new_labels(columns, axis)
            assert new.labels.to_pylist() == [kind.to_stored(each) for each in model.grow(labels)]
            axis = axis.grown(new)
            assert axis.size == len(model.labels)
            for column, array in zip(batch, columns, strict=True):
                assert outcomes(place(array, axis)) == [model.place(label) for label in column]
        assert labels_of(axis) == [kind.to_stored(label) for label in model.labels]

    def test_a_grown_axis_leaves_the_one_it_came_from_as_it_was(self) -> None:
        axis = appending(KINDS["text"])
        longer = axis.grown(new_labels([pa.array(["b", "a"])], axis))
        assert (axis.size, longer.size) == (0, 2)
        assert place(pa.array(["a"]), axis).indices.tolist() == [-1]
        assert place(pa.array(["b", "a"]), longer).indices.tolist() == [1, 0]

    def test_many_batches_are_searched_in_few_runs(self) -> None:
        axis = appending(KINDS["int64"])
        order = np.random.default_rng(1).permutation(20_000)
        for part in np.split(order, 100):
            axis = axis.grown(new_labels([pa.array(part)], axis))
        assert len(axis.index.runs) < 8
        assert np.array_equal(place(axis.labels, axis).indices, np.arange(20_000))

    def test_a_few_texts_are_found_among_many(self) -> None:
        names = [f"{number:05}" for number in range(0, 30_000, 2)]
        axis = having(KINDS["text"], names)
        asked = pa.array(["", "00000", "00001", "29998", "29999", "17530"])
        assert place(asked, axis).indices.tolist() == [-1, 0, -1, 14_999, -1, 8_765]

    def test_a_text_is_never_late(self) -> None:
        axis = appending(KINDS["text"], "fail")
        axis = axis.grown(new_labels([pa.array(["m"])], axis))
        assert new_labels([pa.array(["a", "z"])], axis).labels.to_pylist() == ["a", "z"]

    def test_late_labels_fail_with_their_column_and_what_to_do(self) -> None:
        axis = appending(KINDS["time"], "fail")
        axis = axis.grown(new_labels([pa.array([np.datetime64("2024-01-02", "us")])], axis))
        late = pa.array([np.datetime64("2023-12-31T05", "us"), np.datetime64("2025-01-01", "us")])
        with pytest.raises(BadRowsError) as caught:
            new_labels([late], axis)
        assert str(caught.value) == (
            "1 new label of the dimension 'x' in the column 'x' would come after a greater one:"
            " 2023-12-31 05:00:00.000000. What to do: choose on_late='append' or 'quarantine'"
        )

    def test_known_labels_below_the_last_are_not_late(self) -> None:
        axis = appending(KINDS["int64"], "fail")
        axis = axis.grown(new_labels([pa.array([1, 5])], axis))
        assert not len(new_labels([pa.array([1, 1])], axis))

    def test_a_dictionary_column_adds_only_labels_that_rows_have(self) -> None:
        axis = appending(KINDS["text"])
        column = pa.DictionaryArray.from_arrays(pa.array([1, None, 1]), pa.array(["a", "b", "c"]))
        axis = axis.grown(new_labels([column], axis))
        assert labels_of(axis) == ["b"]
        assert place(column, axis).indices.tolist() == [0, -1, 0]

    def test_a_column_of_nothing_but_nulls_places_nothing(self) -> None:
        axis = appending(KINDS["int64"])
        column = pa.nulls(2)
        assert not len(new_labels([column], axis))
        assert outcomes(place(column, axis)) == [(-1, Reason.NULL_LABEL)] * 2


class TestFixed:
    @given(st.data(), st.sampled_from(sorted(KINDS)))
    def test_labels_in_any_order_are_found_and_others_are_unknown(
        self, data: st.DataObject, name: str
    ) -> None:
        kind = KINDS[name]
        real = kind.labels.filter(lambda label: label == label)  # noqa: PLR0124 - not NaN
        labels = data.draw(st.lists(real, min_size=1, unique_by=lambda label: label))
        asked = data.draw(st.lists(st.sampled_from(labels) | real))
        placed = outcomes(place(kind.array(asked), having(kind, labels)))
        assert placed == [
            (labels.index(label), Reason.FINE) if label in labels else (-1, Reason.UNKNOWN_LABEL)
            for label in asked
        ]

    def test_labels_that_are_there_twice_are_refused(self) -> None:
        with pytest.raises(InvalidInputError, match="'x': the label 3 is there twice, at 0 and 2"):
            having(KINDS["int64"], [3, 1, 3])

    def test_a_stored_nan_is_found_by_nothing(self) -> None:
        nan = float("nan")
        axis = having(KINDS["float64"], [nan, 1.0, nan])
        assert outcomes(place(pa.array([nan, 1.0]), axis)) == [
            (-1, Reason.NAN_LABEL),
            (1, Reason.FINE),
        ]

    def test_an_axis_goes_through_a_pickle(self) -> None:
        axis = pickle.loads(pickle.dumps(having(KINDS["text"], ["b", "a"])))
        assert place(pa.array(["a", "b"]), axis).indices.tolist() == [1, 0]

    def test_numbers_on_an_axis_of_texts_are_refused(self) -> None:
        with pytest.raises(LayoutError, match=r"the column 'x' of the dimension 'x': .*texts"):
            place(pa.array([1]), having(KINDS["text"], ["1"]))

    def test_labels_must_be_as_many_as_cells(self) -> None:
        with pytest.raises(InvalidInputError, match="give each cell its label"):
            Axis("x", "x", fixed(), 3, number("int64"), pa.array([1, 2]))


class TestStoredForm:
    def test_times_are_found_in_the_units_of_the_coordinate(self) -> None:
        hours = of_times("hours since 2000-01-01 12:00", "float64")
        axis = Axis("x", "x", append(), 2, hours, pa.array([-1.0, 0.5]))
        column = pa.array(np.array(["2000-01-01T12:30", "2000-01-01T11", "2000-01-02"], "M8[ns]"))
        assert place(column, axis).indices.tolist() == [1, 0, -1]
        assert new_labels([column], axis).labels.to_pylist() == [12.0]

    def test_texts_are_read_as_times(self) -> None:
        axis = Axis("x", "x", append(), 1, of_times("days since 1970-01-01"), pa.array([-1]))
        column = pa.array(["1969-12-31", "1970-01-03", "1970-01-03T01:00", "never"])
        axis = axis.grown(new_labels([column], axis))
        unreadable = (-1, Reason.UNREADABLE_LABEL)
        assert (
            outcomes(place(column, axis)) == [(0, Reason.FINE), (1, Reason.FINE)] + [unreadable] * 2
        )

    def test_labels_that_the_coordinate_cannot_store_add_nothing(self) -> None:
        kind = KINDS["int64 in int16"]
        axis = appending(kind)
        column = pa.array([2**40, 5])
        axis = axis.grown(new_labels([column], axis))
        assert labels_of(axis) == [5]
        assert outcomes(place(column, axis)) == [(-1, Reason.UNREADABLE_LABEL), (0, Reason.FINE)]

    def test_numbers_that_the_coordinate_rounds_to_one_are_one_label(self) -> None:
        kind = KINDS["float32"]
        axis = appending(kind)
        column = pa.array([0.1, float(np.float32(0.1)), 0.2])
        axis = axis.grown(new_labels([column], axis))
        assert axis.size == 2
        assert place(column, axis).indices.tolist() == [0, 0, 1]


class TestCoordinateValues:
    def test_those_of_an_axis_that_appends_are_its_labels(self) -> None:
        axis = appending(KINDS["time"])
        times = pa.array(np.array(["1969-12-31T23:59:59.999999", "1970-01-02"], "M8[us]"))
        axis = axis.grown(new_labels([times], axis))
        values = coordinate_values(axis, 0, 2)
        assert values.dtype == np.int64
        assert values.tolist() == [-1, 86_400_000_000]

    def test_texts_are_encoded(self) -> None:
        axis = having(KINDS["text"], ["b", "a", "c"])
        assert coordinate_values(axis, 1, 3).tolist() == ["a", "c"]


class TestBadRows:
    def test_they_are_counted_by_column_and_reason_with_examples(self) -> None:
        axis = having(KINDS["int64"], [1])
        table = pa.table({"x": pa.array([None, 7, 1, 8, None, 9, 10, 11, 12])})
        placed = place(table["x"].combine_chunks(), axis)
        bad = BadRows().with_column(table, axis, placed.reasons)
        assert bad.count == 8
        assert [(group.reason, group.count) for group in bad.groups] == [
            (Reason.NULL_LABEL, 2),
            (Reason.UNKNOWN_LABEL, 6),
        ]
        with pytest.raises(BadRowsError) as caught:
            bad.refuse()
        assert str(caught.value) == (
            "8 rows have no place in the arrays: 2 rows whose label in the column 'x' is null; 6"
            " rows whose label in the column 'x' is not among those of the fixed dimension (7, 8,"
            " 9, 10, 11, ...). What to do: give every row a label; correct the labels, or make the"
            " dimension with append()"
        )

    def test_those_of_several_tasks_are_joined(self) -> None:
        axis = having(KINDS["text"], ["a"])
        parts = [pa.table({"x": [*"bcd"]}), pa.table({"x": [*"aefgh"]})]
        bad = BadRows()
        for table in parts:
            placed = place(table["x"].combine_chunks(), axis)
            bad = bad.joined(BadRows().with_column(table, axis, placed.reasons))
        assert (bad.count, bad.groups[0].examples) == (7, ("b", "c", "d", "e", "f"))

    def test_values_that_cannot_be_stored_are_told_from_labels(self) -> None:
        encoded = number("int8").encode(pa.array([300, 1, None]))
        bad = BadRows().with_reasons("flag", pa.array([300, 1, None]), encoded.reasons)
        assert str(bad) == (
            "1 row has no place in the arrays: 1 row whose value in the column 'flag' is out of the"
            " range of the array's type (300). What to do: correct the values, or store them in a"
            " wider type"
        )

    def test_good_rows_are_no_bad_rows(self) -> None:
        axis = having(KINDS["text"], ["a"])
        bad = BadRows().with_column(pa.table({"x": ["a"]}), axis, np.zeros(1, np.uint8))
        bad.refuse()
        assert bad == BadRows()
