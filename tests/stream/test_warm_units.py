"""Units that batches leave incomplete stay in memory, and are used only where nothing changed."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pytest
import zarr
from zarr.codecs import GzipCodec, TransposeCodec
from zarr.core.buffer import default_buffer_prototype

import icechunk_stream as ic
from icechunk_stream.format.chunk_refs import NativeChunk
from icechunk_stream.format.ids import ChunkId
from icechunk_stream.stream.packs import PackWriter
from icechunk_stream.stream.refs_batch import ref_tables
from icechunk_stream.stream.unit_codec import UnitCodec
from icechunk_stream.stream.warm_units import WarmUnits
from tests.stream.cells import plan_of, stored_refs

DIMS = ("t", "y")
ROUNDING = {"name": "numcodecs.bitround", "configuration": {"keepbits": 2}}


@pytest.fixture
def repository() -> ic.Repository:
    return ic.Repository.create(ic.in_memory_storage())


def make_array(repository: ic.Repository, **options: Any) -> None:
    """One of 8 x 3 cells in chunks of 4 x 3."""
    session = repository.writable_session("main")
    defaults = {"shape": (8, 3), "chunks": (4, 3), "dtype": "f4", "fill_value": -1.0}
    zarr.create_array(session.store, name="a", dimension_names=DIMS, **{**defaults, **options})
    session.commit("array")


def write(
    repository: ic.Repository, warm: WarmUnits, time: int, value: float, shape: tuple[int, int]
) -> None:
    """Write one time, and commit it; the array is as long as ``shape`` then."""
    rows = {"#t": [time] * 3, "#y": [0, 1, 2], "a": pa.array([value] * 3, pa.float32())}
    base = repository.readonly_session("main")
    plan = plan_of(base, ["a"], DIMS, shape=shape, grows=(True, False))
    writer = PackWriter(repository.storage, 0)
    found = stored_refs(pa.table(rows).to_batches(), plan, writer, warm=warm)
    session = repository.writable_session("main")
    for path, table in ref_tables(found).items():
        session.edits.set_refs(path, table)
    resize(session, shape)
    session.commit("rows")


def resize(session: ic.Session, shape: tuple[int, int]) -> None:
    zarr.open_array(session.store, path="a", mode="r+").resize(shape)


def forget_chunks(repository: ic.Repository) -> None:
    """Whoever reads one fails from now on."""
    repository.storage.delete_many([info.key for info in repository.storage.list("chunks/")])


def times(repository: ic.Repository) -> list[float]:
    """The cells of the array along time, which are alike along the other dimension."""
    array = zarr.open_array(repository.readonly_session("main").store, path="a", mode="r")
    cells = np.asarray(array[...])
    assert (cells == cells[:, :1]).all()
    found: list[float] = cells[:, 0].tolist()
    return found


def test_a_unit_of_the_batch_before_is_not_read(repository: ic.Repository) -> None:
    make_array(repository)
    warm = WarmUnits()
    write(repository, warm, 0, 10, (8, 3))
    forget_chunks(repository)
    write(repository, warm, 1, 11, (8, 3))
    forget_chunks(repository)
    write(repository, warm, 2, 12, (8, 3))
    assert times(repository) == [10, 11, 12, -1, -1, -1, -1, -1]


def test_what_another_wrote_since_is_read(repository: ic.Repository) -> None:
    make_array(repository)
    warm = WarmUnits()
    write(repository, warm, 0, 10, (8, 3))
    session = repository.writable_session("main")
    zarr.open_array(session.store, path="a", mode="r+")[1] = 77
    session.commit("another")
    write(repository, warm, 2, 12, (8, 3))
    assert times(repository) == [10, 77, 12, -1, -1, -1, -1, -1]


def test_what_was_never_committed_is_not_believed(repository: ic.Repository) -> None:
    make_array(repository)
    warm = WarmUnits()
    write(repository, warm, 0, 10, (8, 3))
    before = next(repository.ancestry(branch="main")).id
    write(repository, warm, 1, 11, (8, 3))
    repository.reset_branch("main", before)
    write(repository, warm, 2, 12, (8, 3))
    assert times(repository) == [10, -1, 12, -1, -1, -1, -1, -1]


def test_cells_that_a_shrunk_array_left_behind_do_not_come_back(repository: ic.Repository) -> None:
    make_array(repository)
    warm = WarmUnits()
    for time in range(3):
        write(repository, warm, time, 10 + time, (4, 3))
    session = repository.writable_session("main")
    resize(session, (1, 3))
    session.commit("shrunk")
    write(repository, warm, 3, 13, (4, 3))
    assert times(repository) == [10, -1, -1, 13]


@pytest.mark.filterwarnings("ignore:Numcodecs codecs are not in the Zarr version 3")
def test_cells_that_codecs_round_are_read_as_they_became(repository: ic.Repository) -> None:
    make_array(repository, filters=[ROUNDING])
    warm = WarmUnits()
    write(repository, warm, 0, 1.7, (8, 3))
    write(repository, warm, 1, 1.7, (8, 3))
    assert times(repository)[:2] == [1.75, 1.75]
    forget_chunks(repository)
    with pytest.raises(ic.StorageError, match="chunks/"):
        write(repository, warm, 2, 1.7, (8, 3))


def payload(number: int) -> NativeChunk:
    return NativeChunk(ChunkId(bytes([number] * 12)), 0, 8)


def kept(warm: WarmUnits) -> list[int]:
    return [n for n in range(9) if warm.find("/a", (n,), b"codecs", payload(n)) is not None]


def keep(warm: WarmUnits, *numbers: int, cells: int = 1_000) -> None:
    warm.begin()
    for number in numbers:
        warm.keep("/a", (number,), b"codecs", payload(number), np.zeros(cells, np.uint8))


def test_the_units_of_earlier_batches_make_room_for_those_of_this_one() -> None:
    warm = WarmUnits(most_bytes=3 * 2_024)
    keep(warm, 0, 1, 2, 3)
    assert kept(warm) == [0, 1, 2]
    keep(warm, 1, 4)
    assert kept(warm) == [1, 2, 4]
    # In the same order again, those that were first are there again.
    keep(warm, 5, 6, 7, 8)
    assert kept(warm) == [5, 6, 7]
    keep(warm, 5, cells=10_000)
    assert kept(warm) == []


def test_units_that_no_batch_goes_on_with_are_let_go() -> None:
    warm = WarmUnits()
    for _ in range(20):
        keep(warm, 0, 1)
    assert kept(warm) == [0, 1]
    for _ in range(8):
        keep(warm, 1)
    assert kept(warm) == [0, 1]
    keep(warm, 1)
    assert kept(warm) == [1]


def test_small_units_take_more_than_their_cells() -> None:
    warm = WarmUnits(most_bytes=3 * 1_025)
    keep(warm, 0, 1, 2, 3, cells=1)
    assert kept(warm) == [0, 1, 2]


@pytest.mark.parametrize(
    ("options", "is_exact"),
    [
        ({"dtype": "f4"}, True),
        ({"dtype": "i2", "compressors": [GzipCodec()]}, True),
        ({"dtype": "c16", "filters": [TransposeCodec(order=(1, 0))]}, True),
        ({"dtype": "M8[s]"}, True),
        ({"dtype": "f4", "shards": (8, 3)}, False),
        ({"dtype": str}, False),
        ({"dtype": "f4", "filters": [ROUNDING]}, False),
    ],
)
@pytest.mark.filterwarnings("ignore::zarr.errors.UnstableSpecificationWarning")
@pytest.mark.filterwarnings("ignore:Numcodecs codecs are not in the Zarr version 3")
def test_only_numbers_of_known_codecs_are_kept(options: dict[str, Any], is_exact: bool) -> None:
    store = zarr.storage.MemoryStore()
    array = zarr.create_array(store, shape=(8, 3), chunks=(4, 3), **options)
    document = array.metadata.to_buffer_dict(default_buffer_prototype())["zarr.json"].to_bytes()
    assert UnitCodec(document, array.shards or array.chunks).is_exact is is_exact


@pytest.mark.parametrize(
    ("unit", "codecs", "chunk"),
    [((1,), b"codecs", payload(0)), ((0,), b"other", payload(0)), ((0,), b"codecs", payload(1))],
)
def test_a_unit_is_found_only_where_all_is_as_it_was(
    unit: tuple[int], codecs: bytes, chunk: NativeChunk
) -> None:
    warm = WarmUnits()
    warm.keep("/a", (0,), b"codecs", payload(0), np.zeros(4))
    assert warm.find("/a", unit, codecs, chunk) is None


def test_cells_stay_what_they_were_when_their_owner_changes_them() -> None:
    warm = WarmUnits()
    cells = np.zeros(4)
    warm.keep("/a", (0,), b"codecs", payload(0), cells)
    cells[:] = 7
    found = warm.find("/a", (0,), b"codecs", payload(0))
    assert found is not None
    assert found.tolist() == [0, 0, 0, 0]
