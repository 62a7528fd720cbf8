"""The reference library commits to the arrays of a stream, between its batches and during them."""

from __future__ import annotations

import warnings
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
import pyarrow as pa
import pytest
import xarray as xr

from icechunk_stream.errors import BadRowsError, LayoutError, LedgerMissingError
from icechunk_stream.stream.batch import Batches, StreamSettings
from icechunk_stream.stream.layout import Dimension, Rows, append, fixed, regular
from icechunk_stream.stream.ledger import Call
from icechunk_stream.stream.outcomes import Committed
from icechunk_stream.stream.row_source import RowsInMemory
from icechunk_stream.testing.wrapped_storage import WrappedStorage
from tests.concurrency.places import OURS, THEIRS, opened, storage
from tests.stream import foreign_acts
from tests.stream.cell_model import Group
from tests.stream.foreign_acts import GOES_ON, GROUP, Act, Theirs

if TYPE_CHECKING:
    from collections.abc import Iterator

    from icechunk_stream.errors import IcechunkError
    from icechunk_stream.testing.storage_calls import Call as StorageCall
    from tests.concurrency.places import Bucket, Place

pytestmark = pytest.mark.compat

STATIONS = ["a", "b", "c", "d"]
TIMES: dict[str, Dimension] = {"append": append("append"), "regular": regular(0, 1)}
When = Literal["between", "before the first put", "before the swap"]
WHEN: tuple[When, ...] = ("between", "before the first put", "before the swap")
REFUSED: list[tuple[Act, type[IcechunkError], str]] = [
    (foreign_acts.delete_a_coordinate, LayoutError, "resize one of them"),
    (foreign_acts.truncate_one_array, LayoutError, "resize one of them"),
    (foreign_acts.lengthen_a_fixed_dimension, LayoutError, "leave the labels out"),
    (foreign_acts.lose_a_dimension, LayoutError, "give the variable those dims, or another name"),
    (foreign_acts.put_a_group_there, LayoutError, "rename one"),
    (foreign_acts.delete_everything, LedgerMissingError, "adopt"),
]
each_spec = pytest.mark.parametrize("spec", [1, 2])
each_kind_and_spec = pytest.mark.parametrize(
    ("kind", "spec"),
    [
        ("append", 1),
        ("regular", 2),
        pytest.param("append", 2, marks=pytest.mark.soak),
        pytest.param("regular", 1, marks=pytest.mark.soak),
    ],
)


def rows_of(batch: int) -> dict[str, list[Any]]:
    """Three times for all stations; of the later batches, for the first station only."""
    stations = STATIONS if batch < 2 else STATIONS[:1]
    cells = [(batch * 3 + time, station) for time in range(3) for station in stations]
    return {
        "time": [time for time, _ in cells],
        "station": [station for _, station in cells],
        "temp": [batch + at / 100 for at in range(len(cells))],
        "count": [batch * 100 + at + 1 for at in range(len(cells))],
    }


@dataclass
class Beside:
    """A stream, and the other writer of its arrays."""

    place: Place = field(repr=False)
    spec: int
    time: Dimension
    model: Group = field(init=False)

    def __post_init__(self) -> None:
        self.model = Group({"time": [], "station": list(STATIONS)}, {})
        self.model.add("temp", ("time", "station"), np.nan)
        self.model.add("count", ("time", "station"), 0)
        self.storage = WrappedStorage(storage(OURS, self.place), in_order=True)
        layout = Rows(
            dims={"time": self.time, "station": fixed(STATIONS)},
            variables={"temp": "float64", "count": "int32"},
            chunks={"time": 4, "station": 2},
        )
        settings = StreamSettings(layout, "obs", spec_version=self.spec, group=GROUP)
        self.batches = Batches.open(self.storage, settings)

    def begin(self) -> None:
        """Two batches, and arrays of the other writer."""
        self.write(0)
        self.write(1)
        self.act(foreign_acts.add_bystanders)

    def act(self, act: Act) -> None:
        session = opened(THEIRS, self.place).writable_session("main")
        act(Theirs(session, self.model))
        session.commit(act.__name__)

    def act_once(self, act: Act, when: When) -> None:
        """Act now, or just before a call of the storage is carried out."""
        if when == "between":
            self.act(act)
            return
        awaited = _is_put if when == "before the first put" else _is_swap

        def watch(call: StorageCall) -> None:
            if awaited(call):
                self.storage.script.before = None
                self.act(act)

        self.storage.script.before = watch

    def deliver(self, batch: int) -> Committed:
        rows = RowsInMemory(pa.table(rows_of(batch)))
        outcome = self.batches.write(Call("obs", "query", batch), rows)
        assert self.storage.script.before is None
        assert isinstance(outcome, Committed)
        return outcome

    def write(self, batch: int) -> Committed:
        """A batch, which follows on whatever others committed before its swap."""
        outcome = self.deliver(batch)
        rows = rows_of(batch)
        self.model.write(rows, {"time": list(self._new_times(rows["time"]))})
        return outcome

    def assert_as_the_model(self) -> None:
        session = opened(THEIRS, self.place).readonly_session("main")
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            found = xr.open_zarr(
                session.store, group=GROUP, consolidated=False, mask_and_scale=False
            ).load()
        known = {*self.model.labels, *self.model.arrays}
        assert set(found.data_vars) == set(self.model.arrays)
        for dim in found.sizes.keys() & {"time", "station"}:
            assert found[dim].values.tolist() == self.model.labels[str(dim)]
        for name, array in self.model.arrays.items():
            assert found[name].dims == array.dims
            np.testing.assert_array_equal(found[name].values, self.model.values(name), name)
        for name, attributes in self.model.attributes.items():
            attrs = found[name].attrs if name in known else found.attrs
            assert attributes.items() <= attrs.items()

    def _new_times(self, times: list[int]) -> Iterator[int]:
        known = self.model.labels["time"]
        if self.time == TIMES["regular"]:
            yield from range(len(known), max(times) + 1)
        else:
            yield from sorted(set(times) - set(known))


def _is_put(call: StorageCall) -> bool:
    return call.method == "put"


def _is_swap(call: StorageCall) -> bool:
    return call.method == "put_if" and call.key in {"repo", "refs/branch.main/ref.json"}


def write_beside(beside: Beside, act: Act, when: When) -> None:
    """Two batches after, or with, what the other writer does; nothing is lost, nothing returns."""
    beside.begin()
    beside.act_once(act, when)
    outcome = beside.write(2)
    assert outcome.lost_races == (0 if when == "between" else 1)
    beside.assert_as_the_model()
    beside.write(3)
    beside.assert_as_the_model()


@each_kind_and_spec
@pytest.mark.parametrize("act", GOES_ON, ids=lambda act: act.__name__)
def test_no_value_of_another_writer_is_lost_or_comes_back(
    bucket: Bucket, act: Act, kind: str, spec: int
) -> None:
    for at, when in enumerate(WHEN):
        write_beside(Beside(bucket.place(f"p{at}"), spec, TIMES[kind]), act, when)


@each_spec
def test_labels_of_another_writer_come_before_those_of_the_batch(bucket: Bucket, spec: int) -> None:
    for at, when in enumerate(WHEN):
        beside = Beside(bucket.place(f"p{at}"), spec, TIMES["append"])
        write_beside(beside, foreign_acts.append_other_labels, when)
        assert beside.model.labels["time"] == [*range(6), 100, 101, 102, *range(6, 12)]


@each_spec
def test_rows_that_another_writer_made_late_are_refused_where_that_is_wanted(
    bucket: Bucket, spec: int
) -> None:
    for at, when in enumerate(WHEN):
        beside = Beside(bucket.place(f"p{at}"), spec, append("fail"))
        beside.begin()
        beside.act_once(foreign_acts.append_other_labels, when)
        with pytest.raises(BadRowsError, match="on_late"):
            beside.deliver(2)
        beside.assert_as_the_model()


@each_spec
@pytest.mark.parametrize(("act", "error", "advice"), REFUSED)
def test_where_a_stream_cannot_go_on_it_says_what_to_do(
    bucket: Bucket, act: Act, error: type[IcechunkError], advice: str, spec: int
) -> None:
    for at, when in enumerate(WHEN):
        beside = Beside(bucket.place(f"p{at}"), spec, TIMES["append"])
        beside.begin()
        beside.act_once(act, when)
        with pytest.raises(error, match=advice):
            beside.deliver(2)
        newest = next(iter(opened(THEIRS, beside.place).ancestry(branch="main")))
        assert newest.message == act.__name__
