"""Batches that go on without their bad rows."""

from __future__ import annotations

from datetime import datetime
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pytest
import zarr

from icechunk_stream.errors import BadRowsError, InvalidInputError
from icechunk_stream.storage import in_memory_storage
from icechunk_stream.stream.batch import Batches, StreamSettings
from icechunk_stream.stream.layout import Rows, append, fixed, regular
from icechunk_stream.stream.ledger import Call
from icechunk_stream.stream.ledger_store import read_ledger
from icechunk_stream.stream.outcomes import Committed
from icechunk_stream.stream.rejected import BadRowsPolicy
from icechunk_stream.stream.row_source import RowsInMemory

if TYPE_CHECKING:
    from collections.abc import Mapping

    from icechunk_stream.stream.outcomes import BatchOutcome

LAYOUT = Rows(
    dims={
        "time": regular("2024-01-01", "1h"),
        "station": fixed(["ams", "ber"]),
        "run": append(on_late="quarantine"),
    },
    variables={"count": "int16"},
)
HOURS = [datetime(2024, 1, 1, hour) for hour in range(4)]  # noqa: DTZ001
COLUMNS: dict[str, list[Any]] = {
    "time": [HOURS[0], datetime(2024, 1, 1, 0, 30), HOURS[1], HOURS[1], None, HOURS[2]],  # noqa: DTZ001
    "station": ["ams", "ams", "cph", "ber", "ber", "ams"],
    "run": [5, 6, 7, 5, 8, 5],
    "count": [1, 2, 3, 100_000, 5, 6],
}


def rows(columns: Mapping[str, Any] = COLUMNS) -> RowsInMemory:
    return RowsInMemory(pa.table(dict(columns)))


def stream(what: Any, most: int = 10_000) -> Batches:
    settings = StreamSettings(LAYOUT, "obs", bad_rows=BadRowsPolicy(what, most))
    return Batches.open(in_memory_storage(), settings)


def committed(outcome: BatchOutcome) -> Committed:
    assert isinstance(outcome, Committed)
    return outcome


def test_good_rows_are_written_and_bad_ones_are_counted() -> None:
    batches = stream("drop")
    counts = committed(batches.write(Call("obs", "query", 0), rows())).counts
    assert (counts.received, counts.written, counts.bad, counts.late) == (6, 2, 4, 0)
    session = batches.repository.readonly_session("main")
    group = zarr.open_group(session.store, mode="r")
    assert np.asarray(group["count"])[:, :, 0].tolist() == [[1, 0], [0, 0], [6, 0]]
    entry = read_ledger(session.reader, "obs")
    assert entry is not None
    assert entry.counts == counts


def test_rows_without_a_place_along_one_dimension_add_no_label_to_another() -> None:
    batches = stream("drop")
    batches.write(Call("obs", "query", 0), rows())
    group = zarr.open_group(batches.repository.readonly_session("main").store, mode="r")
    assert np.asarray(group["run"]).tolist() == [5]
    assert group["count"].shape == (3, 2, 1)  # type: ignore[union-attr]


def test_late_rows_are_counted_apart() -> None:
    batches = stream("drop")
    batches.write(Call("obs", "query", 0), rows())
    late = {"time": [HOURS[0]], "station": ["ams"], "run": [4], "count": [1]}
    counts = committed(batches.write(Call("obs", "query", 1), rows(late))).counts
    assert (counts.received, counts.written, counts.bad, counts.late) == (1, 0, 0, 1)


def test_bad_rows_are_kept_with_their_reasons_before_the_commit() -> None:
    batches = stream("keep")
    kept: list[tuple[pa.Table, int, int]] = []

    def keep(table: pa.Table, attempt: int) -> None:
        kept.append((table, attempt, len(list(batches.repository.ancestry(branch="main")))))

    batches.write(Call("obs", "query", 0), rows(), keep)
    ((table, attempt, commits),) = kept
    assert (attempt, commits) == (0, 1)
    assert table.column_names == [*COLUMNS, "bad_column", "bad_reason"]
    assert sorted(zip(*table.to_pydict().values(), strict=True), key=lambda row: row[3]) == [
        (COLUMNS["time"][1], "ams", 6, 2, "time", "lies between two grid points"),
        (HOURS[1], "cph", 7, 3, "station", "is not among those of the fixed dimension"),
        (None, "ber", 8, 5, "time", "is null"),
        (HOURS[1], "ber", 5, 100_000, "count", "is out of the range of the array's type"),
    ]


def test_a_batch_without_bad_rows_keeps_nothing() -> None:
    kept: list[pa.Table] = []
    good = {name: values[:1] for name, values in COLUMNS.items()}
    stream("keep").write(Call("obs", "query", 0), rows(good), lambda table, _: kept.append(table))
    assert kept == []


@pytest.mark.parametrize(("what", "most"), [("drop", 3), ("keep", 0), ("fail", 10_000)])
def test_a_batch_with_more_bad_rows_than_allowed_is_refused(what: str, most: int) -> None:
    batches = stream(what, most)
    with pytest.raises(BadRowsError, match="1 row whose label in the column 'time' is null"):
        batches.write(Call("obs", "query", 0), rows())
    assert len(list(batches.repository.ancestry(branch="main"))) == 1


def test_more_than_ten_thousand_bad_values_are_refused() -> None:
    many = 10_001
    columns = {
        "time": [HOURS[0]] * many,
        "station": ["ams"] * many,
        "run": list(range(many)),
        "count": [100_000] * many,
    }
    with pytest.raises(BadRowsError, match="more than max_bad_rows=10000"):
        stream("drop").write(Call("obs", "query", 0), rows(columns))


@pytest.mark.parametrize(("what", "most"), [("ignore", 1), ("drop", -1), ("drop", 10_001)])
def test_policies_that_make_no_sense_are_refused(what: Any, most: int) -> None:
    with pytest.raises(InvalidInputError, match="give"):
        BadRowsPolicy(what, most)
