"""Random streams against cells in plain Python, and against each other, byte for byte."""

from __future__ import annotations

import asyncio
import tempfile
from dataclasses import asdict, dataclass, field
from itertools import pairwise, product
from typing import TYPE_CHECKING, Any, get_args

import numpy as np
import pyarrow as pa
import pytest
import zarr
from hypothesis import given, settings
from hypothesis import strategies as st
from zarr.core.buffer import default_buffer_prototype

from icechunk_stream.errors import ConflictingRowsError
from icechunk_stream.storage import local_filesystem_storage
from icechunk_stream.stream.batch import Batches, StreamSettings
from icechunk_stream.stream.layout import (
    Dimension,
    Duplicates,
    OnNull,
    Rows,
    Variable,
    append,
    fixed,
    regular,
)
from icechunk_stream.stream.ledger import Call
from icechunk_stream.stream.row_source import RowsInMemory
from icechunk_stream.stream.targets import Policies
from tests.oracle.libraries import REFERENCE, SPEC_VERSIONS
from tests.stream.cells import Conflict, Row, expected

if TYPE_CHECKING:
    from collections.abc import Sequence

pytestmark = pytest.mark.compat

GROUP = "data"
HOURS = 9
STATIONS = ["ams", "ber", "cph", "dub"]
NAN = float("nan")
TIME, STATION = regular(0, 10), fixed(STATIONS)
STABLE: dict[str, dict[str, Dimension]] = {
    "regular, fixed": {"time": TIME, "station": STATION},
    "fixed": {"station": STATION},
    "regular": {"time": TIME},
}
APPENDED: dict[str, dict[str, Dimension]] = {
    "append, append": {"time": append("append"), "station": append()},
    "append, fixed": {"time": append("append"), "station": STATION},
    "regular, append": {"time": TIME, "station": append()},
}
LAYOUTS = STABLE | APPENDED
KINDS: dict[str, tuple[pa.DataType, list[Any]]] = {
    "temp": (pa.float32(), [0.0, 1.5, -2.25, NAN]),
    "count": (pa.int16(), [0, 1, -7, 32767]),
    "note": (pa.string(), ["", "a", "longer text"]),
}
DTYPES = ("f4", "i2", object)
FILLS = {"temp": NAN, "count": -7, "note": ""}
VARIABLES = {
    "temp": "float32",
    "count": Variable("int16", fill_value=-7),
    "note": "string",
}


@dataclass(frozen=True)
class Said:
    """A row by its labels: hours and stations, those that a layout has."""

    labels: tuple[Any, ...]
    values: tuple[Any, ...]
    is_delete: bool = False
    order: int = 0


class Stream:
    """Batches into a repository of their own."""

    def __init__(self, folder: str, dims: str, spec: int, **options: Any) -> None:
        self._folder, self._dims = folder, LAYOUTS[dims]
        layout = Rows(self._dims, VARIABLES, chunks=_chunks(self._dims), **options)
        opened = StreamSettings(layout, "obs", spec_version=spec, group=GROUP)
        self._batches = Batches.open(local_filesystem_storage(folder, durability="os"), opened)
        self._number = 0

    def write(self, rows: Sequence[Said]) -> None:
        call = Call("obs", "query", self._number)
        self._batches.write(call, RowsInMemory(table_of(tuple(self._dims), rows)))
        self._number += 1

    def objects(self) -> dict[str, bytes]:
        """What the reference reads by zarr's keys: documents and chunks."""
        return asyncio.run(_all_values(self._session().store))

    def arrays(self) -> dict[str, Any]:
        group = zarr.open_group(self._session().store, path=GROUP, mode="r")
        return {name: array[...] for name, array in group.arrays()}

    def cells(self) -> dict[str, dict[tuple[Any, ...], Any]]:
        """The values of each variable by labels."""
        arrays = self.arrays()
        labels = [arrays[name].tolist() for name in self._dims]
        return {
            name: dict(zip(product(*labels), arrays[name].ravel().tolist(), strict=True))
            for name in VARIABLES
        }

    def _session(self) -> Any:
        storage = REFERENCE.local_filesystem_storage(self._folder)
        return REFERENCE.Repository.open(storage).readonly_session("main")


async def _all_values(store: Any) -> dict[str, bytes]:
    found = {}
    async for key in store.list_prefix(GROUP + "/"):
        value = await store.get(key, default_buffer_prototype())
        found[key] = value.to_bytes()
    return found


def _chunks(dims: dict[str, Dimension]) -> dict[str, int]:
    return {name: size for name, size in (("time", 4), ("station", 3)) if name in dims}


def table_of(dims: Sequence[str], rows: Sequence[Said]) -> pa.Table:
    kinds = {"time": pa.int64(), "station": pa.string()}
    columns = {
        dim: pa.array([row.labels[axis] for row in rows], kinds[dim])
        for axis, dim in enumerate(dims)
    }
    for number, (name, (kind, _)) in enumerate(KINDS.items()):
        values = [row.values[number] for row in rows]
        # A float column must not take NaN for null.
        columns[name] = pa.array(values, kind, from_pandas=False)
    columns["order"] = pa.array([row.order for row in rows], pa.int64())
    columns["#delete"] = pa.array([row.is_delete for row in rows], pa.bool_())
    return pa.table(columns)


def labels_of(dims: str) -> st.SearchStrategy[tuple[Any, ...]]:
    along = {"time": st.integers(0, HOURS - 1).map(lambda hour: 10 * hour)}
    along["station"] = st.sampled_from(STATIONS)
    return st.tuples(*(along[name] for name in LAYOUTS[dims]))


SOME_VALUES = st.tuples(*(st.sampled_from([*values, None]) for _, values in KINDS.values()))


@st.composite
def facts(draw: st.DrawFn, dims: str) -> list[Said]:
    """Rows that agree with each other: some say a part of their cell only, some say it twice."""
    known = draw(st.dictionaries(labels_of(dims), SOME_VALUES, max_size=25))
    rows = []
    for labels, values in known.items():
        for parts in draw(st.lists(st.tuples(*(st.booleans() for _ in KINDS)), max_size=3)):
            said = [value if part else None for value, part in zip(values, parts, strict=True)]
            rows.append(Said(labels, tuple(said)))
        rows.append(Said(labels, values))
    return rows


@st.composite
def cut(draw: st.DrawFn, rows: list[Said]) -> list[list[Said]]:
    """The rows in any order, in batches of which some may be empty."""
    order = draw(st.permutations(rows))
    ends = sorted(draw(st.lists(st.integers(0, len(rows)), max_size=4)))
    return [order[a:b] for a, b in pairwise([0, *ends, len(rows)])]


def model_of(dims: str, rows: Sequence[Said]) -> dict[str, dict[tuple[Any, ...], Any]]:
    """What cells hold once all is said, where no two rows differ."""
    grid = list(product(*(_labels(dim, at, rows) for at, dim in enumerate(LAYOUTS[dims].values()))))
    found = {name: dict.fromkeys(grid, FILLS[name]) for name in VARIABLES}
    for row in rows:
        for name, value in zip(VARIABLES, row.values, strict=True):
            if value is not None:
                found[name][row.labels] = value
    return found


def _labels(dim: Dimension, at: int, rows: Sequence[Said]) -> list[Any]:
    said = {row.labels[at] for row in rows}
    if dim is TIME:
        return list(range(0, max(said, default=-1) + 1, 10))
    return STATIONS if dim is STATION else sorted(said)


def assert_same_cells(found: dict[str, Any], wanted: dict[str, Any]) -> None:
    for name in VARIABLES:
        assert found[name].keys() == wanted[name].keys()
        for labels, value in wanted[name].items():
            np.testing.assert_equal(found[name][labels], value)


def written(dims: str, spec: int, batches: list[list[Said]]) -> Any:
    """What a stream of its own leaves: objects, and cells by labels."""
    with tempfile.TemporaryDirectory() as folder:
        stream = Stream(folder, dims, spec)
        for batch in batches:
            stream.write(batch)
        return stream.objects(), stream.cells()


@pytest.mark.parametrize("spec", SPEC_VERSIONS)
@settings(max_examples=settings().max_examples // 5)
@given(data=st.data())
def test_however_a_stream_is_cut_and_shuffled_its_arrays_are_the_same(
    data: st.DataObject, spec: int
) -> None:
    dims = data.draw(st.sampled_from([*STABLE, *APPENDED]))
    rows = data.draw(facts(dims))
    first, again = (written(dims, spec, data.draw(cut(rows))) for _ in range(2))
    assert_same_cells(first[1], model_of(dims, rows))
    assert_same_cells(again[1], first[1])
    if dims in STABLE:
        assert again[0] == first[0]


@st.composite
def changes(draw: st.DrawFn) -> list[list[Said]]:
    """Batches that say something else of the same cells, or clear them."""
    labels = labels_of("regular, fixed")
    cells = st.sampled_from(draw(st.lists(labels, min_size=1, max_size=8)))
    deletes = st.sampled_from([False, False, False, True])
    rows = st.builds(Said, cells, SOME_VALUES, deletes, st.integers(0, 3))
    return draw(st.lists(st.lists(rows, max_size=10), min_size=1, max_size=6))


@dataclass
class Model:
    """The arrays of a stream over hours and stations, batch by batch."""

    policies: Policies
    arrays: list[Any] = field(default_factory=lambda: [np.full((0, 4), 0, kind) for kind in DTYPES])

    def take(self, batch: Sequence[Said]) -> None:
        """One more batch.

        Raises:
            Conflict: the policies do not decide between its rows.
        """
        rows = [row_of(said) for said in batch]
        length = max([len(self.arrays[0]), *(row.cell[0] + 1 for row in rows)])
        self.arrays = [
            expected(base, (length, 4), FILLS[name], rows, number, self.policies)
            for number, (name, base) in enumerate(zip(VARIABLES, self.arrays, strict=True))
        ]


def row_of(said: Said) -> Row:
    hour, station = said.labels
    cell = hour // 10, STATIONS.index(station)
    return Row(cell, said.values, said.is_delete, said.order)


def is_taken(model: Model, batch: Sequence[Said]) -> bool:
    try:
        model.take(batch)
    except Conflict:
        return False
    return True


def policies() -> st.SearchStrategy[Policies]:
    orders = {"error": None, "first": "order", "last": "order"}
    return st.builds(
        lambda on_null, duplicates: Policies(on_null, duplicates, orders[duplicates]),
        st.sampled_from(get_args(OnNull)),
        st.sampled_from(get_args(Duplicates)),
    )


@pytest.mark.parametrize("spec", SPEC_VERSIONS)
@settings(max_examples=settings().max_examples // 5)
@given(batches=changes(), policies=policies())
def test_batches_replace_and_clear_cells_one_after_the_other(
    batches: list[list[Said]], policies: Policies, spec: int
) -> None:
    model = Model(policies)
    with tempfile.TemporaryDirectory() as folder:
        stream = Stream(folder, "regular, fixed", spec, **asdict(policies))
        stream.write([])
        for batch in batches:
            if is_taken(model, batch):
                stream.write(batch)
            else:
                with pytest.raises(ConflictingRowsError):
                    stream.write(batch)
        found = stream.arrays()
    for name, values in zip(VARIABLES, model.arrays, strict=True):
        np.testing.assert_array_equal(found[name], values)
