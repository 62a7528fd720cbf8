"""Units of rows: which ones are read, packed, removed or refused, and which of two rows stays."""

from __future__ import annotations

import math
import threading
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
import zarr

import icechunk_stream as ic
from icechunk_stream.errors import ConflictingRowsError, FormatError, InvalidInputError
from icechunk_stream.format.ref_rows import DELETED
from icechunk_stream.stream import row_blocks
from icechunk_stream.stream.encodings import Encoding, Unstorable
from icechunk_stream.stream.located import locate
from icechunk_stream.stream.packs import PackWriter
from icechunk_stream.stream.refs_batch import REFS, ref_tables
from icechunk_stream.stream.tally import Tally
from icechunk_stream.stream.targets import ArrayTarget, Plan, Policies
from tests.stream.cells import plan_of, stored_refs, target_of

DIMS = ("t", "y", "x")
NAN = float("nan")
Array = np.ndarray[Any, Any]


@pytest.fixture
def repository() -> ic.Repository:
    return ic.Repository.create(ic.in_memory_storage())


def arrays(repository: ic.Repository, *names: str, **options: Any) -> ic.Session:
    """Arrays of 8 x 6 cells in chunks of 4 x 3, committed; a read-only session on them."""
    session = repository.writable_session("main")
    defaults = {"shape": (8, 6), "chunks": (4, 3), "dtype": "i4", "fill_value": -1}
    for name in names:
        zarr.create_array(
            session.store, name=name, dimension_names=DIMS[:2], **{**defaults, **options}
        )
    session.commit("arrays")
    return repository.readonly_session("main")


def rows(cells: list[tuple[int, int]], **columns: Any) -> pa.Table:
    t, y = ([cell[axis] for cell in cells] for axis in (0, 1))
    places = {"#t": pa.array(t, pa.int64()), "#y": pa.array(y, pa.int64())}
    return pa.table({**places, **columns})


def write(
    repository: ic.Repository, plan: Plan, table: pa.Table, inline: int = 0
) -> dict[str, Any]:
    batches = table.combine_chunks().to_batches()
    return ref_tables(stored_refs(batches, plan, PackWriter(repository.storage, inline)))


def keep(repository: ic.Repository, tables: dict[str, Any]) -> None:
    session = repository.writable_session("main")
    for path, table in tables.items():
        session.edits.set_refs(path, table)
    session.commit("rows")


def content(repository: ic.Repository, name: str) -> Array:
    store = repository.readonly_session("main").store
    return np.asarray(zarr.open_array(store, path=name, mode="r")[...])


WHOLE = [(t, y) for t in range(4) for y in range(3)]


def test_one_object_holds_the_complete_units_of_several_arrays(repository: ic.Repository) -> None:
    plan = plan_of(arrays(repository, "a", "b"), ["a", "b"], DIMS[:2])
    cells = [(t, y) for t in range(8) for y in range(6)]
    tables = write(repository, plan, rows(cells, a=range(48), b=range(48)))
    ids = np.concatenate([table.chunk_ids for table in tables.values()])
    assert [len(table) for table in tables.values()] == [4, 4]
    assert len(np.unique(ids)) == 1
    assert len(list(repository.storage.list("chunks/"))) == 1


def test_units_that_are_complete_and_others_go_into_different_objects(
    repository: ic.Repository,
) -> None:
    plan = plan_of(arrays(repository, "a"), ["a"], DIMS[:2])
    tables = write(repository, plan, rows([*WHOLE, (4, 0)], a=range(13)))
    assert tables["/a"].indices.tolist() == [[0, 0], [1, 0]]
    assert len(np.unique(tables["/a"].chunk_ids)) == 2


@pytest.mark.parametrize(("grows", "objects"), [(False, 1), (True, 2)])
def test_a_unit_at_the_end_of_a_dimension_is_complete_only_where_that_does_not_grow(
    repository: ic.Repository, grows: bool, objects: int
) -> None:
    base = arrays(repository, "a", shape=(6, 3))
    plan = plan_of(base, ["a"], DIMS[:2], grows=(grows, False))
    cells = [(t, y) for t in range(6) for y in range(3)]
    tables = write(repository, plan, rows(cells, a=range(18)))
    assert len(np.unique(tables["/a"].chunk_ids)) == objects


def test_a_covered_unit_is_not_read(repository: ic.Repository) -> None:
    base = arrays(repository, "a")
    plan = plan_of(base, ["a"], DIMS[:2])
    keep(repository, write(repository, plan, rows(WHOLE, a=range(12))))
    plan = plan_of(repository.readonly_session("main"), ["a"], DIMS[:2])
    for info in list(repository.storage.list("chunks/")):
        repository.storage.delete_many([info.key])
    tables = write(repository, plan, rows(WHOLE, a=range(12, 24)))
    with pytest.raises(ic.StorageError, match="chunks/"):
        write(repository, plan, rows(WHOLE[1:], a=range(11)))
    keep(repository, tables)
    np.testing.assert_array_equal(content(repository, "a")[:4, :3].ravel(), range(12, 24))


def test_a_unit_that_becomes_all_fill_loses_its_reference(repository: ic.Repository) -> None:
    plan = plan_of(arrays(repository, "a"), ["a"], DIMS[:2])
    keep(repository, write(repository, plan, rows([(0, 0), (7, 5)], a=[1, 2])))
    again = plan_of(repository.readonly_session("main"), ["a"], DIMS[:2])
    tables = write(repository, again, rows([(0, 0), (0, 5)], a=[-1, -1]))
    assert tables["/a"].indices.tolist() == [[0, 0]]
    assert tables["/a"].kinds.tolist() == [DELETED]
    keep(repository, tables)
    session = repository.readonly_session("main")
    assert session.chunk_type("/a", (0, 0)) is ic.ChunkType.uninitialized
    assert content(repository, "a")[7, 5] == 2


def test_nulls_alone_touch_no_unit_unless_they_clear(repository: ic.Repository) -> None:
    plan = plan_of(arrays(repository, "a"), ["a"], DIMS[:2])
    keep(repository, write(repository, plan, rows([(0, 0)], a=[5])))
    base = repository.readonly_session("main")
    nulls = rows([(0, 0), (5, 5)], a=pa.array([None, None], pa.int32()))
    assert write(repository, plan_of(base, ["a"], DIMS[:2]), nulls) == {}
    clearing = plan_of(base, ["a"], DIMS[:2], policies=Policies(on_null="fill"))
    assert write(repository, clearing, nulls)["/a"].kinds.tolist() == [DELETED]


def test_cells_that_a_shrunk_array_left_behind_do_not_come_back(repository: ic.Repository) -> None:
    plan = plan_of(arrays(repository, "a"), ["a"], DIMS[:2])
    keep(repository, write(repository, plan, rows(WHOLE, a=range(12))))
    session = repository.writable_session("main")
    zarr.open_array(session.store, path="a", mode="r+").resize((2, 6))
    session.commit("shrunk")
    base = repository.readonly_session("main")
    grown = plan_of(base, ["a"], DIMS[:2], shape=(8, 6), grows=(True, False))
    tables = write(repository, grown, rows([(2, 0)], a=[77]))
    session = repository.writable_session("main")
    zarr.open_array(session.store, path="a", mode="r+").resize((8, 6))
    session.commit("grown")
    keep(repository, tables)
    assert content(repository, "a")[:4, :3].tolist() == [
        [0, 1, 2],
        [3, 4, 5],
        [77, -1, -1],
        [-1, -1, -1],
    ]


def test_values_that_cannot_be_stored_take_their_rows_out_and_are_told(
    repository: ic.Repository,
) -> None:
    base = arrays(repository, "a", "b")
    plan = plan_of(base, ["a", "b"], DIMS[:2])
    far = 2**31
    table = rows([(0, 0), (0, 1), (0, 2)], a=[1, far, 3], b=[far, far, 5], label=["x", "y", "z"])
    tally = Tally(plan)
    refs = stored_refs(table.to_batches(), plan, PackWriter(repository.storage), tally)
    keep(repository, ref_tables(refs))
    assert (tally.rows, tally.bad) == (1, 2)
    bad = pa.Table.from_batches(tally.bad_rows).to_pydict()
    assert (bad["label"], bad["#bad_column"], bad["#bad_reason"]) == (
        ["x", "y"],
        ["b", "a"],
        [Unstorable.OUT_OF_RANGE] * 2,
    )
    assert content(repository, "a")[0, :3].tolist() == [-1, -1, 3]


def test_no_more_bad_rows_are_kept_than_asked_for_but_all_are_counted(
    repository: ic.Repository,
) -> None:
    plan = plan_of(arrays(repository, "a"), ["a"], DIMS[:2])
    tally = Tally(plan, max_bad_rows=3)
    table = rows(WHOLE, a=range(2**31, 2**31 + 12))
    batches = table.to_batches(max_chunksize=5)
    assert stored_refs(batches, plan, PackWriter(repository.storage), tally) == []
    assert (sum(map(len, tally.bad_rows)), tally.bad) == (3, 12)


def test_duplicates_are_counted_by_column(repository: ic.Repository) -> None:
    plan = plan_of(arrays(repository, "a", "b"), ["a", "b"], DIMS[:2])
    b = pa.array([4, None, 4, None], pa.int32())
    table = rows([(0, 0), (0, 0), (0, 0), (1, 1)], a=[1, 1, 1, 1], b=b)
    tally = Tally(plan)
    stored_refs(table.to_batches(), plan, PackWriter(repository.storage), tally)
    assert tally.duplicates == {"a": 2, "b": 1}


def test_a_conflict_names_the_column_and_the_cell(repository: ic.Repository) -> None:
    plan = plan_of(arrays(repository, "a"), ["a"], DIMS[:2])
    table = rows([(5, 4), (0, 0), (5, 4)], a=[1, 2, 3])
    with pytest.raises(ConflictingRowsError, match=r"'a' .* /a.* t=5, y=4 .*order_by"):
        write(repository, plan, table)


def test_a_tie_that_a_later_row_beats_is_no_conflict(repository: ic.Repository) -> None:
    policies = Policies(duplicates="last", order_by="n")
    plan = plan_of(arrays(repository, "a"), ["a"], DIMS[:2], policies=policies)
    table = rows([(0, 0)] * 4, a=[1, 2, 3, 4], n=[5, 5, 6, 1])
    batches = table.to_batches(max_chunksize=2)
    writer = PackWriter(repository.storage)
    keep(repository, ref_tables(stored_refs(batches, plan, writer)))
    assert content(repository, "a")[0, 0] == 3
    with pytest.raises(ConflictingRowsError, match="'n' is the same"):
        stored_refs(batches[:1], plan, writer)


@pytest.mark.parametrize(
    ("duplicates", "orders", "stays"),
    [
        ("first", [3, 1, 2], 20),
        ("first", [1, 1, 2], None),
        ("last", [1, 3, 2], 20),
        ("last", [3, 1, 3], None),
        ("error", [1, 2, 3], None),
    ],
)
def test_duplicates_in_other_record_batches_are_duplicates(
    repository: ic.Repository, duplicates: Any, orders: list[int], stays: int | None
) -> None:
    order = None if duplicates == "error" else "n"
    policies = Policies(duplicates=duplicates, order_by=order)
    plan = plan_of(arrays(repository, "a"), ["a"], DIMS[:2], policies=policies)
    table = rows([(0, 0)] * 3, a=[10, 20, 30], n=orders)
    for size in (1, 2, 3):
        batches = table.to_batches(max_chunksize=size)
        writer = PackWriter(repository.storage)
        if stays is None:
            with pytest.raises(ConflictingRowsError):
                stored_refs(batches, plan, writer)
        else:
            keep(repository, ref_tables(stored_refs(batches, plan, writer)))
            assert content(repository, "a")[0, 0] == stays


@pytest.mark.parametrize(
    ("dtype", "fill_value", "attributes", "empty"),
    [
        ("f4", 0.0, {}, 0.0),
        ("f4", 0.0, {"_FillValue": "AAAAAAAA+H8="}, NAN),
        ("i4", 0, {"_FillValue": -9}, -9),
        ("i4", 5, {}, 5),
    ],
)
def test_a_cleared_cell_reads_as_missing_where_the_array_has_a_value_for_it(
    repository: ic.Repository,
    dtype: str,
    fill_value: float,
    attributes: dict[str, Any],
    empty: float,
) -> None:
    base = arrays(repository, "a", dtype=dtype, fill_value=fill_value, attributes=attributes)
    plan = plan_of(base, ["a"], DIMS[:2], policies=Policies(on_null="fill"))
    a = pa.array([3, None, 3], pa.int32())
    table = rows([(0, 0), (0, 1), (0, 2)], a=a, **{"#delete": [True, False, None]})
    keep(repository, write(repository, plan, table))
    np.testing.assert_array_equal(content(repository, "a")[0, :3], [empty, empty, 3])


def test_without_an_order_column_the_order_of_the_rows_counts(repository: ic.Repository) -> None:
    base = arrays(repository, "a", "b")
    for name, policy, stays in [("a", "first", 1), ("b", "last", 3)]:
        policies = Policies(duplicates=policy)  # type: ignore[arg-type]
        plan = plan_of(base, [name], DIMS[:2], policies=policies)
        table = rows([(0, 0), (7, 5), (0, 0), (0, 0)], **{name: [1, 9, 2, 3]})
        keep(repository, write(repository, plan, table))
        assert content(repository, name)[0, 0] == stays


@pytest.mark.parametrize("times", ["timestamp[us, UTC]", "date32", "time64[ns]", "double"])
def test_times_and_numbers_order_duplicates_and_nulls_come_first(
    repository: ic.Repository, times: str
) -> None:
    kind = {
        "timestamp[us, UTC]": pa.timestamp("us", "UTC"),
        "date32": pa.date32(),
        "time64[ns]": pa.time64("ns"),
        "double": pa.float64(),
    }[times]
    numbers = pa.int32() if times == "date32" else pa.int64()
    order = pa.array([3, None, 1], numbers).cast(kind)
    policies = Policies(duplicates="first", order_by="n")
    plan = plan_of(arrays(repository, "a"), ["a"], DIMS[:2], policies=policies)
    keep(repository, write(repository, plan, rows([(0, 0)] * 3, a=[1, 2, 3], n=order)))
    assert content(repository, "a")[0, 0] == 2


def test_the_result_does_not_depend_on_which_of_equal_zeros_comes_first(
    repository: ic.Repository,
) -> None:
    base = arrays(repository, "a", dtype="f8", fill_value=NAN)
    plan = plan_of(base, ["a"], DIMS[:2])
    signs = []
    for zeros in ([0.0, -0.0], [-0.0, 0.0]):
        keep(repository, write(repository, plan, rows([(0, 0), (0, 0)], a=zeros)))
        signs.append(bool(np.signbit(content(repository, "a")[0, 0])))
    assert signs[0] == signs[1]


@pytest.mark.parametrize(
    ("table", "match"),
    [
        (rows([(0, 0)], b=[1]), "lack the column 'a'"),
        (rows([(8, 0)], a=[1]), "index 8 along 't', whose length is 8"),
        (rows([(0, -1)], a=[1]), "index -1 along 'y'"),
        (pa.table({"#t": pa.array([None], pa.int64()), "#y": [0], "a": [1]}), "'#t' has 1 nulls"),
        (pa.table({"#t": [0.0], "#y": [0], "a": [1]}), "the type double"),
    ],
)
def test_rows_that_were_not_placed_are_refused(
    repository: ic.Repository, table: pa.Table, match: str
) -> None:
    plan = plan_of(arrays(repository, "a"), ["a"], DIMS[:2])
    with pytest.raises(InvalidInputError, match=match):
        stored_refs(table.to_batches(), plan, PackWriter(repository.storage))


def test_text_orders_no_duplicates(repository: ic.Repository) -> None:
    policies = Policies(duplicates="last", order_by="n")
    plan = plan_of(arrays(repository, "a"), ["a"], DIMS[:2], policies=policies)
    with pytest.raises(InvalidInputError, match=r"'n' is string.* number or a time"):
        write(repository, plan, rows([(0, 0)], a=[1], n=["x"]))


def test_a_unit_that_two_writers_wrote_is_refused(repository: ic.Repository) -> None:
    plan = plan_of(arrays(repository, "a"), ["a"], DIMS[:2])
    table = rows([(0, 0), (7, 5), (0, 1)], a=[1, 2, 3])
    batches = table.to_batches(max_chunksize=1)
    refs = stored_refs(batches, plan, PackWriter(repository.storage))
    with pytest.raises(ic.InternalError, match=r"\(0, 0\) of /a was written twice"):
        ref_tables(refs)


def test_arrays_that_are_not_stored_yet_need_no_base(repository: ic.Repository) -> None:
    target = target_of(arrays(repository, "a"), "a", DIMS[:2])
    plan = Plan((target,), (8, 6), (False, False))
    keep(repository, write(repository, plan, rows([(1, 1)], a=[3])))
    assert content(repository, "a")[1, 1] == 3


def test_units_of_a_far_storage_are_read_side_by_side(
    repository: ic.Repository, monkeypatch: pytest.MonkeyPatch
) -> None:
    base = arrays(repository, "a", "b")
    plan = plan_of(base, ["a", "b"], DIMS[:2])
    cells = [(0, 0), (0, 5), (7, 0), (7, 5)]
    keep(repository, write(repository, plan, rows(cells, a=range(4), b=range(4))))
    storage = repository.storage
    all_are_asked = threading.Barrier(8, timeout=30)
    fetch = type(storage)._get

    def waiting(self: Any, key: str, byte_range: Any) -> bytes:
        if key.startswith("chunks/"):
            all_are_asked.wait()
        return fetch(self, key, byte_range)

    monkeypatch.setattr(type(storage), "is_near", False)
    monkeypatch.setattr(type(storage), "_get", waiting)
    plan = plan_of(repository.readonly_session("main"), ["a", "b"], DIMS[:2])
    tables = write(repository, plan, rows([(1, 1), (1, 4), (6, 1), (6, 4)], a=[9] * 4, b=[9] * 4))
    assert [len(table) for table in tables.values()] == [4, 4]


def test_a_damaged_chunk_that_rows_change_in_part_is_named(repository: ic.Repository) -> None:
    arrays(repository, "a")
    session = repository.writable_session("main")
    session.edits.set_chunk("/a", (1, 1), b"no frame of zstd")
    session.commit("damaged")
    plan = plan_of(repository.readonly_session("main"), ["a"], DIMS[:2])
    with pytest.raises(FormatError, match=r"chunk of /a, .* among \(1, 1\): restore it"):
        write(repository, plan, rows([(7, 5)], a=[1]))


def test_a_plan_takes_arrays_of_one_grid_only(repository: ic.Repository) -> None:
    base = arrays(repository, "a")
    arrays(repository, "b", chunks=(2, 3))
    with pytest.raises(InvalidInputError, match="/b has units of"):
        plan_of(repository.readonly_session("main"), ["a", "b"], DIMS[:2])
    with pytest.raises(InvalidInputError, match="differ in number"):
        plan_of(base, ["a"], DIMS[:2], grows=(True,))
    with pytest.raises(InvalidInputError, match="no arrays"):
        Plan((), (), ())


def test_no_rows_give_no_references(repository: ic.Repository) -> None:
    plan = plan_of(arrays(repository, "a"), ["a"], DIMS[:2])
    empty = rows([], a=pa.array([], pa.int32()))
    assert write(repository, plan, empty) == {}
    assert ref_tables([pa.RecordBatch.from_pylist([], REFS)]) == {}


@pytest.mark.parametrize("block", [7, 2**16])
@pytest.mark.parametrize("capacity", [0, 4, 64])
@pytest.mark.parametrize("shape", [(8, 6), (70_000, 9), (2**40, 2**40, 2**40)])
def test_rows_are_found_in_their_units_in_their_own_order_or_unit_by_unit(
    monkeypatch: pytest.MonkeyPatch, shape: tuple[int, ...], capacity: int, block: int
) -> None:
    monkeypatch.setattr(row_blocks, "_BLOCK", block)
    rng = np.random.default_rng(5)
    dims, unit = DIMS[: len(shape)], (3, 2, 5)[: len(shape)]
    target = Unplaced(dims, shape, unit).target
    plan = Plan((target,), shape, (False,) * len(shape))
    at = np.stack([rng.integers(0, n, 500) for n in shape], axis=1)
    columns = {f"#{dim}": at[:, axis] for axis, dim in enumerate(dims)}
    found = locate(pa.table(columns).to_batches()[0], plan, capacity)
    units = sorted({tuple(row) for row in (at // unit).tolist()})
    assert [tuple(row) for row in found.units.tolist()] == units
    order = np.arange(500) if found.order is None else found.order
    rank = {each: number for number, each in enumerate(units)}
    ranks = [rank[tuple(row)] for row in (at[order] // unit).tolist()]
    within = np.ravel_multi_index(tuple((at[order] % unit).T), unit)
    assert found.cells.tolist() == (np.array(ranks) * math.prod(unit) + within).tolist()
    assert (found.starts is None) == (len(units) <= capacity)
    if found.starts is not None:
        assert np.diff(found.starts).tolist() == np.bincount(ranks).tolist()
        assert order.tolist() == sorted(range(500), key=lambda row: tuple(at[row] // unit))


@dataclass(frozen=True)
class Unplaced:
    dims: tuple[str, ...]
    shape: tuple[int, ...]
    unit: tuple[int, ...]

    @property
    def target(self) -> ArrayTarget:
        return ArrayTarget(
            "/a", "n", self.dims, b"{}", self.shape, self.unit, Encoding(np.dtype(np.int64))
        )
