"""Rows become the chunks that zarr would store for the same cells, whatever their order."""

from __future__ import annotations

import asyncio
import pickle
import tempfile
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, get_args

import numpy as np
import pyarrow as pa
import pytest
import zarr
from hypothesis import given, settings
from hypothesis import strategies as st
from zarr.core.buffer import default_buffer_prototype
from zarr.storage import MemoryStore

import icechunk_stream as ic
from icechunk_stream.errors import ConflictingRowsError
from icechunk_stream.stream.layout import Duplicates, OnNull
from icechunk_stream.stream.packs import PackWriter
from icechunk_stream.stream.refs_batch import ref_tables
from icechunk_stream.stream.targets import Plan, Policies
from tests.oracle.libraries import KNOWS_V2, REFERENCE, SPEC_VERSIONS
from tests.stream.cells import Conflict, Row, expected, plan_of, stored_refs
from tests.stream.unit_order import by_unit

pytestmark = pytest.mark.compat

DIMS = ("t", "y", "x")
NAN = float("nan")
KINDS: dict[str, tuple[pa.DataType, list[Any], list[Any]]] = {
    "f4": (pa.float32(), [0.0, 1.5, -2.25, NAN], [0.0, NAN]),
    "f8": (pa.float64(), [0.0, 1e300, NAN, -1.0], [0.0, NAN, -1.0]),
    "i2": (pa.int16(), [0, 1, -7, 32767], [0, -7]),
    "i4": (pa.int32(), [0, 5, -(2**31)], [0, 5]),
    "bool": (pa.bool_(), [True, False], [False, True]),
    "str": (pa.string(), ["", "a", "longer text", "ü"], ["", "a"]),
}
Array = np.ndarray[Any, Any]


@dataclass(frozen=True)
class Variable:
    kind: str
    fill: Any
    base: Array


@dataclass(frozen=True)
class Case:
    """Arrays on one grid, what they hold, and a batch of rows."""

    chunk: tuple[int, ...]
    shard: tuple[int, ...] | None
    shape: tuple[int, ...]
    grows: tuple[bool, ...]
    variables: tuple[Variable, ...]
    rows: tuple[Row, ...]
    policies: Policies
    cuts: tuple[int, ...]
    inline: int

    @property
    def names(self) -> list[str]:
        return [f"v{number}" for number in range(len(self.variables))]

    @property
    def dims(self) -> tuple[str, ...]:
        return DIMS[: len(self.shape)]


@st.composite
def variables(draw: st.DrawFn, shape: tuple[int, ...]) -> Variable:
    kind = draw(st.sampled_from(sorted(KINDS)))
    _, values, fills = KINDS[kind]
    fill = draw(st.sampled_from(fills))
    dtype = np.dtype(object if kind == "str" else kind)
    base = np.full(shape, fill, dtype)
    size = int(np.prod(shape))
    for at in draw(st.lists(st.integers(0, size - 1), max_size=12)) if size else []:
        base.flat[at] = draw(st.sampled_from(values))
    return Variable(kind, fill, base)


@st.composite
def cases(draw: st.DrawFn) -> Case:
    rank = draw(st.integers(1, 3))
    shape = tuple(draw(st.integers(1, 9)) for _ in range(rank))
    grows = tuple(draw(st.booleans()) for _ in range(rank))
    lengths = zip(shape, grows, strict=True)
    before = tuple(draw(st.integers(0, n)) if grow else n for n, grow in lengths)
    chunk = tuple(draw(st.integers(1, 4)) for _ in range(rank))
    times = tuple(draw(st.integers(1, 2)) for _ in range(rank))
    shard = tuple(n * k for n, k in zip(chunk, times, strict=True))
    arrays = tuple(draw(variables(before)) for _ in range(draw(st.integers(1, 3))))
    whole = st.tuples(*(st.integers(0, n - 1) for n in shape))
    few = st.lists(whole, max_size=40)
    crowded = st.lists(st.sampled_from(draw(st.lists(whole, min_size=1, max_size=3))), max_size=12)
    every = st.just([tuple(map(int, cell)) for cell in np.ndindex(shape)])
    cells = draw(st.one_of(few, crowded, every).flatmap(st.permutations))
    return Case(
        chunk=chunk,
        shard=shard if draw(st.booleans()) else None,
        shape=shape,
        grows=grows,
        variables=arrays,
        rows=tuple(draw(rows_at(cell, arrays)) for cell in cells),
        policies=draw(policies()),
        cuts=tuple(draw(st.lists(st.integers(0, len(cells)), max_size=8))),
        inline=draw(st.sampled_from([0, 30, 512])),
    )


@st.composite
def rows_at(draw: st.DrawFn, cell: tuple[int, ...], arrays: tuple[Variable, ...]) -> Row:
    some = [st.sampled_from([*KINDS[each.kind][1], None, each.fill]) for each in arrays]
    values = draw(st.tuples(*some))
    return Row(cell, values, draw(st.integers(0, 9)) == 0, draw(st.integers(0, 2)))


def policies() -> st.SearchStrategy[Policies]:
    some = [
        Policies(on_null, duplicates, order)
        for on_null in get_args(OnNull)
        for duplicates, order in zip(get_args(Duplicates), (None, "order", "order"), strict=True)
    ]
    return st.sampled_from(some)


def table_of(case: Case) -> pa.Table:
    columns: dict[str, pa.Array] = {}
    for axis, dim in enumerate(case.dims):
        columns[f"#{dim}"] = pa.array([row.cell[axis] for row in case.rows], pa.int64())
    for number, (name, each) in enumerate(zip(case.names, case.variables, strict=True)):
        # A float column must not take NaN for null.
        values = [row.values[number] for row in case.rows]
        columns[name] = pa.array(values, KINDS[each.kind][0], from_pandas=False)
    columns["order"] = pa.array([row.order for row in case.rows], pa.int64())
    columns["#delete"] = pa.array([row.is_delete for row in case.rows], pa.bool_())
    return pa.table(columns)


def cut(table: pa.Table, cuts: tuple[int, ...]) -> list[pa.RecordBatch]:
    edges = [0, *sorted(cuts), len(table)]
    pieces = [table.slice(a, b - a) for a, b in pairwise(edges)]
    return [batch for piece in pieces for batch in piece.combine_chunks().to_batches()]


def create(store: Any, case: Case, name: str, variable: Variable, shape: tuple[int, ...]) -> Any:
    return zarr.create_array(
        store,
        name=name,
        shape=shape,
        chunks=case.chunk,
        shards=case.shard,
        dtype=str if variable.kind == "str" else variable.kind,
        fill_value=variable.fill,
        dimension_names=case.dims,
    )


def written_by_reference(path: str, case: Case, spec_version: int) -> None:
    """A repository with the base contents, as icechunk and zarr write them."""
    storage = REFERENCE.local_filesystem_storage(path)
    more = {"spec_version": spec_version} if KNOWS_V2 else {}
    repository = REFERENCE.Repository.create(storage, **more)
    session = repository.writable_session("main")
    for name, variable in zip(case.names, case.variables, strict=True):
        array = create(session.store, case, name, variable, variable.base.shape)
        array[...] = variable.base
    session.commit("base")


def outcome(case: Case) -> list[Array] | None:
    """The arrays as they must be, or None for a conflict."""
    try:
        return [
            expected(each.base, case.shape, each.fill, case.rows, number, case.policies)
            for number, each in enumerate(case.variables)
        ]
    except Conflict:
        return None


def stored_by_zarr(case: Case, results: list[Array]) -> dict[str, bytes]:
    store = MemoryStore()
    for name, variable, result in zip(case.names, case.variables, results, strict=True):
        create(store, case, name, variable, case.shape)[...] = result
    return {key: value.to_bytes() for key, value in store._store_dict.items() if "/c/" in key}


def written(repository: ic.Repository, plan: Plan, case: Case) -> dict[str, Any]:
    """Reference tables of the batch, made by a copy of the plan as a task has it."""
    copy = pickle.loads(pickle.dumps(plan))
    # One batch may have its rows in any order.
    rows = table_of(case)
    batches = cut(by_unit(rows, plan) if case.cuts else rows, case.cuts)
    return ref_tables(stored_refs(batches, copy, PackWriter(repository.storage, case.inline)))


def commit(repository: ic.Repository, case: Case, tables: dict[str, Any]) -> None:
    session = repository.writable_session("main")
    for name in case.names:
        zarr.open_array(session.store, path=name, mode="r+").resize(case.shape)
    for path, table in tables.items():
        session.edits.set_refs(path, table)
    session.commit("batch", allow_empty=True)


def touched(case: Case, tables: dict[str, Any]) -> set[str]:
    return {
        "/".join([path[1:], "c", *map(str, index)])
        for path, table in tables.items()
        for index in table.indices.tolist()
    }


def value_at(session: Any, key: str) -> bytes | None:
    found = asyncio.run(session.store.get(key, default_buffer_prototype()))
    return None if found is None else found.to_bytes()


def check(case: Case, spec_version: int) -> None:
    with tempfile.TemporaryDirectory() as path:
        written_by_reference(path, case, spec_version)
        repository = ic.Repository.open(ic.local_filesystem_storage(path, durability="os"))
        base = repository.readonly_session("main")
        options = {"shape": case.shape, "grows": case.grows, "policies": case.policies}
        plan = plan_of(base, case.names, case.dims, **options)
        results = outcome(case)
        if results is None:
            with pytest.raises(ConflictingRowsError, match="different values"):
                written(repository, plan, case)
            return
        tables = written(repository, plan, case)
        commit(repository, case, tables)
        reference = REFERENCE.Repository.open(REFERENCE.local_filesystem_storage(path))
        session = reference.readonly_session("main")
        for name, result in zip(case.names, results, strict=True):
            np.testing.assert_array_equal(zarr.open_array(session.store, path=name)[...], result)
        by_zarr = stored_by_zarr(case, results)
        for key in touched(case, tables):
            assert value_at(session, key) == by_zarr.get(key)
        for table in tables.values():
            assert ((table.lengths <= case.inline) == (table.kinds != 1)).all()


@settings(max_examples=settings().max_examples // 4)
@given(case=cases(), spec_version=st.sampled_from(SPEC_VERSIONS))
def test_any_rows_in_any_pieces_become_what_zarr_stores_for_the_same_cells(
    case: Case, spec_version: int
) -> None:
    check(case, spec_version)
