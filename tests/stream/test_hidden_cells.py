"""Cells beyond the ends of arrays that shrank: they stay gone when the arrays grow again."""

from __future__ import annotations

import math
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from itertools import product
from typing import TYPE_CHECKING, Any

import icechunk
import numpy as np
import pyarrow as pa
import pytest
import zarr
from hypothesis import given, settings
from hypothesis import strategies as st

import icechunk_stream as ic
from icechunk_stream.errors import FormatError
from icechunk_stream.info import SnapshotInfo
from icechunk_stream.storage import in_memory_storage
from icechunk_stream.stream.batch import Batches, StreamSettings
from icechunk_stream.stream.growing import grow
from icechunk_stream.stream.hidden_cells import Lengths, clear_hidden, suspects
from icechunk_stream.stream.layout import Rows, append, regular
from icechunk_stream.stream.ledger import Call
from icechunk_stream.stream.row_source import RowsInMemory
from tests.concurrency.places import OURS, THEIRS, local, opened, storage

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from tests.concurrency.places import Place

MARK = {"icechunk_stream": {"app_id": "obs", "batch_id": 3, "query_id": "q"}}
NAMES = ("x", "y")


@st.composite
def shrinkings(draw: st.DrawFn) -> dict[str, Any]:
    """An array, the shape that it shrinks to, and that to which it grows again."""
    rank = draw(st.integers(1, 2))
    pairs = [sorted(draw(st.tuples(st.integers(1, 7), st.integers(1, 7)))) for _ in range(rank)]
    return {
        "was": tuple(most for _, most in pairs),
        "left": tuple(least for least, _ in pairs),
        "later": tuple(draw(st.integers(least, most + 2)) for least, most in pairs),
        "chunks": tuple(draw(st.integers(1, 4)) for _ in range(rank)),
        "shard": draw(st.sampled_from([None, 2])),
        "dtype": draw(st.sampled_from(["f8", "i4", "bool", "str"])),
    }


def made(session: ic.Session, case: dict[str, Any]) -> Any:
    """An array without a cell that holds the fill value."""
    kind = case["dtype"]
    fill = {"f8": float("nan"), "i4": -1, "bool": False, "str": ""}[kind]
    shard = None if case["shard"] is None else tuple(2 * size for size in case["chunks"])
    array = zarr.create_array(
        session.store,
        name="a",
        shape=case["was"],
        chunks=case["chunks"],
        shards=shard,
        dtype=kind,
        fill_value=fill,
        dimension_names=NAMES[: len(case["was"])],
    )
    numbers = np.arange(1, math.prod(case["was"]) + 1).reshape(case["was"])
    array[...] = numbers.astype("U3") if kind == "str" else numbers.astype(kind)
    return array


@given(shrinkings())
@settings(max_examples=80)
def test_a_dimension_that_grows_again_holds_only_what_was_left(case: dict[str, Any]) -> None:
    repository = ic.Repository.create(in_memory_storage())
    session = repository.writable_session("main")
    zarr.create_group(session.store)
    made(session, case).resize(case["left"])
    left = np.asarray(zarr.open_array(session.store, path="a", mode="r")[...])
    id = session.commit("shrunk")

    session = repository.writable_session("main")
    base = repository.readonly_session(snapshot_id=id)
    names = NAMES[: len(case["was"])]
    clear_hidden(session, base, "/", names, None)
    grow(session, "/", dict(zip(names, case["later"], strict=True)))
    array = zarr.open_array(session.store, path="a", mode="r")
    wanted = np.full(case["later"], array.fill_value, dtype=left.dtype)
    wanted[tuple(map(slice, case["left"]))] = left
    np.testing.assert_array_equal(np.asarray(array[...]), wanted)


def hidden(repository: ic.Repository) -> ic.Session:
    """An array of four cells, of which the last two are beyond its end."""
    session = repository.writable_session("main")
    zarr.create_group(session.store)
    array = zarr.create_array(
        session.store, name="a", shape=(4,), chunks=(4,), dtype="i8", dimension_names=["x"]
    )
    array[...] = [1, 2, 3, 4]
    array.resize((2,))
    return repository.readonly_session(snapshot_id=session.commit("shrunk"))


@pytest.mark.parametrize(
    ("dims", "paths", "is_cleared"),
    [
        (["x"], None, True),
        (["x"], {"/a"}, True),
        (["x"], {"/b"}, False),
        (["y"], None, False),
    ],
)
def test_only_what_may_have_shrunk_and_may_grow_is_looked_at(
    dims: list[str], paths: set[str] | None, is_cleared: bool
) -> None:
    repository = ic.Repository.create(in_memory_storage())
    base = hidden(repository)
    session = repository.writable_session("main")
    clear_hidden(session, base, "/", dims, paths)
    assert session.has_uncommitted_changes == is_cleared


def test_clean_chunks_are_left_alone() -> None:
    repository = ic.Repository.create(in_memory_storage())
    base = hidden(repository)
    session = repository.writable_session("main")
    clear_hidden(session, base, "/", ["x"], None)
    base = repository.readonly_session(snapshot_id=session.commit("cleared"))
    session = repository.writable_session("main")
    clear_hidden(session, base, "/", ["x"], None)
    assert not session.has_uncommitted_changes


def test_a_chunk_that_cannot_be_read_is_named() -> None:
    repository = ic.Repository.create(in_memory_storage())
    hidden(repository)
    session = repository.writable_session("main")
    session.edits.set_chunk("/a", (0,), b"no zstd frame")
    base = repository.readonly_session(snapshot_id=session.commit("damaged"))
    session = repository.writable_session("main")
    with pytest.raises(FormatError, match=r"/a held before .* at \(0,\) .* restore or delete"):
        clear_hidden(session, base, "/", ["x"], None)


def history(*metadata: dict[str, Any]) -> Iterator[SnapshotInfo]:
    """Commits with these metadata, newest first."""
    for at, each in enumerate(metadata):
        yield SnapshotInfo(str(at), str(at + 1), datetime.now(UTC), "", each)


@pytest.mark.parametrize(
    ("lengths", "marks", "found"),
    [
        # The last commit of the stream is the tip.
        ([5], [MARK], set()),
        # Others made it longer, shorter, or shorter and then longer again.
        ([7, 5], [{}, MARK], set()),
        ([4, 5], [{}, MARK], {"/a"}),
        ([9, 4, 5], [{}, {}, MARK], {"/a"}),
        # Other streams never make it shorter.
        ([7, 5], [{"icechunk_stream": {}}, MARK], set()),
        # The last commit of the stream is not in the history.
        ([7, 5], [{}, {}], None),
        ([5] * 101, [*[{}] * 100, MARK], None),
    ],
)
def test_arrays_that_shrank_since_the_last_commit_are_suspected(
    lengths: list[int], marks: list[dict[str, Any]], found: set[str] | None
) -> None:
    shapes = [{"/a": Lengths(b"a", (length, 2)), "/b": Lengths(b"b", (3,))} for length in lengths]
    is_own = MARK.__eq__
    assert suspects(history(*marks), is_own, lambda id: shapes[int(id)]) == found


def test_an_array_that_others_made_is_suspected() -> None:
    before = {"/a": Lengths(b"a", (5,))}
    made_anew = {"/a": Lengths(b"z", (5,)), "/b": Lengths(b"b", (3,))}
    shapes = [made_anew, before]
    found = suspects(history({}, MARK), MARK.__eq__, lambda id: shapes[int(id)])
    assert found == {"/a", "/b"}


@dataclass
class Scene:
    """A stream of three rows a batch into chunks of four, one of two columns at a time."""

    place: Place
    spec: int

    def batches(self) -> Batches:
        layout = Rows(
            dims={"time": append(), "column": regular(0, 1)},
            variables={"value": "float64"},
            chunks={"time": 4, "column": 1},
        )
        return Batches.open(
            storage(OURS, self.place), StreamSettings(layout, "obs", spec_version=self.spec)
        )

    def write(self, batch: int, times: list[int], columns: list[int]) -> None:
        cells = list(product(times, columns))
        rows = {
            "time": [time for time, _ in cells],
            "column": [column for _, column in cells],
            "value": [10.0 * time + column for time, column in cells],
        }
        self.batches().write(Call("obs", "query", batch), RowsInMemory(pa.table(rows)))

    def by_reference(self, end: Callable[[icechunk.Session], Any], length: int = 5) -> None:
        """Let the reference cut the stream's arrays to so many times."""
        session = opened(THEIRS, self.place).writable_session("main")
        for name, shape in (("time", (length,)), ("value", (length, 2))):
            zarr.open_array(session.store, path=name, mode="r+").resize(shape)
        end(session)

    def assert_nothing_came_back(self, length: int = 5) -> None:
        """The other writer left so many times; of the next three, one column was written."""
        store = opened(THEIRS, self.place).readonly_session("main").store
        times = np.asarray(zarr.open_array(store, path="time", mode="r")[...]).tolist()
        assert times == [*range(length), 6, 7, 8]
        value = np.asarray(zarr.open_array(store, path="value", mode="r")[...])
        wanted = np.array([[10.0 * time, 10.0 * time + 1] for time in times])
        wanted[length:, 1] = np.nan
        np.testing.assert_array_equal(value, wanted)


@pytest.fixture(params=[1, 2])
def scene(request: pytest.FixtureRequest, tmp_path: Path) -> Scene:
    scene = Scene(local(tmp_path), request.param)
    scene.write(0, [0, 1, 2], [0, 1])
    scene.write(1, [3, 4, 5], [0, 1])
    return scene


@pytest.mark.compat
def test_a_stream_that_starts_again_finds_what_shrank_meanwhile(scene: Scene) -> None:
    scene.by_reference(lambda session: session.commit("shorter"))
    scene.write(2, [6, 7, 8], [0])
    scene.assert_nothing_came_back()


@pytest.mark.compat
def test_a_batch_that_makes_nothing_longer_clears_for_those_after_it(scene: Scene) -> None:
    scene.by_reference(lambda session: session.commit("shorter"))
    scene.write(2, [4], [0])
    scene.write(3, [6, 7, 8], [0])
    scene.assert_nothing_came_back()


@pytest.mark.compat
def test_a_stream_finds_what_grew_and_shrank_to_the_length_that_it_had(scene: Scene) -> None:
    session = opened(THEIRS, scene.place).writable_session("main")
    for name, shape, values in (("time", (8,), [98, 99]), ("value", (8, 2), 55.0)):
        array = zarr.open_array(session.store, path=name, mode="r+")
        array.resize(shape)
        array[6:] = values
    session.commit("longer")
    scene.by_reference(lambda session: session.commit("shorter"), 6)
    scene.write(2, [6, 7, 8], [0])
    scene.assert_nothing_came_back(6)


@pytest.mark.compat
def test_a_stream_whose_last_commit_was_expired_suspects_all(scene: Scene) -> None:
    scene.by_reference(lambda session: session.commit("shorter"))
    repository = opened(THEIRS, scene.place)
    repository.expire_snapshots(datetime.now(UTC) + timedelta(hours=1))
    scene.write(2, [6, 7, 8], [0])
    scene.assert_nothing_came_back()


@pytest.mark.compat
def test_a_stream_whose_last_commit_was_amended_suspects_all(tmp_path: Path) -> None:
    scene = Scene(local(tmp_path), 2)
    scene.write(0, [0, 1, 2], [0, 1])
    scene.write(1, [3, 4, 5], [0, 1])
    scene.by_reference(lambda session: session.amend("shorter"))
    scene.write(2, [6, 7, 8], [0])
    scene.assert_nothing_came_back()
