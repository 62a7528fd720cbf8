"""Appends, late writes, deletions and resizes in any order, ours and the reference's, in tiers."""

from __future__ import annotations

import json
import tempfile
import warnings
from itertools import product
from typing import Any

import icechunk
import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule
from zarr.core.buffer import default_buffer_prototype
from zarr.core.sync import sync

import icechunk_stream
from icechunk_stream import AlreadyCompact, Compacted, ManifestTotals, Tiered
from icechunk_stream.manifests.regrouping import ANEW
from tests.manifests.checks import Index, arrays, check_manifests, tip

pytestmark = pytest.mark.compat

# So small that everything happens within a few commits, merges between them included.
POLICIES = (
    Tiered(cell_refs=24, ratio=2, most=5, shared_refs=16, quick_refs=6),
    Tiered(cell_refs=8, ratio=3, most=4, shared_refs=1, quick_refs=1_000),
    Tiered(),
)
PATHS = ("/a", "/b", "/g/c")
WIDTH = 3
WRITERS = st.sampled_from(("ours", "ours", "ours", "theirs"))


def document(shape: tuple[int, ...], note: int) -> bytes:
    grid = {"name": "regular", "configuration": {"chunk_shape": [1] * len(shape)}}
    members = {
        "zarr_format": 3,
        "node_type": "array",
        "shape": shape,
        "data_type": "int8",
        "chunk_grid": grid,
        "chunk_key_encoding": {"name": "default", "configuration": {"separator": "/"}},
        "fill_value": 0,
        "codecs": [{"name": "bytes"}],
        "attributes": {"note": note},
    }
    return json.dumps(members).encode()


class Histories(RuleBasedStateMachine):
    """A model of chunks by index, and a repository that both libraries write to."""

    spec = 1

    @initialize(
        policy=st.sampled_from(POLICIES),
        splits=st.none() | st.tuples(st.integers(1, 6), st.integers(1, 3)),
    )
    def begin(self, policy: Tiered, splits: tuple[int, int] | None) -> None:
        self.folder = tempfile.TemporaryDirectory(prefix="tiers-")
        place = icechunk_stream.local_filesystem_storage(self.folder.name, durability="os")
        config = None if splits is None else _splitting(*splits)
        created = icechunk_stream.Repository.create(place, config=config, spec_version=self.spec)
        self.ours = created.with_manifest_policy(policy)
        self.policy = policy
        self.is_split = splits is not None
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            self.theirs = icechunk.Repository.open(
                icechunk.local_filesystem_storage(self.folder.name)
            )
        self.shapes: dict[str, tuple[int, ...]] = dict.fromkeys(PATHS, (2, WIDTH))
        self.model: dict[str, dict[Index, bytes]] = {path: {} for path in PATHS}
        self.number = 0
        session = self.ours.writable_session("main")
        for path in PATHS:
            self._put(session, f"{path[1:]}/zarr.json", document(self.shapes[path], 0))
        session.commit("begin")

    def _put(self, session: Any, key: str, value: bytes) -> None:
        sync(session.store.set(key, default_buffer_prototype().buffer.from_bytes(value)))

    def _session(self, writer: str) -> Any:
        self.number += 1
        return (self.ours if writer == "ours" else self.theirs).writable_session("main")

    def _write(self, session: Any, path: str, indices: list[Index]) -> None:
        for index in indices:
            value = f"{self.number}:{index}".encode()
            if sum(index) % 2:
                value *= 60
            self._put(session, f"{path[1:]}/c/{'/'.join(map(str, index))}", value)
            self.model[path][index] = value

    def _resize(self, session: Any, path: str, shape: tuple[int, ...]) -> None:
        self.shapes[path] = shape
        self._put(session, f"{path[1:]}/zarr.json", document(shape, self.number))
        kept = self.model[path].items()
        self.model[path] = {
            index: value
            for index, value in kept
            if all(at < length for at, length in zip(index, shape, strict=True))
        }

    @rule(
        writer=WRITERS,
        paths=st.sets(st.sampled_from(PATHS), min_size=1),
        rows=st.integers(1, 4),
        again=st.booleans(),
    )
    def append(self, writer: str, paths: set[str], rows: int, again: bool) -> None:
        """New rows of some arrays, and with ``again`` the last one of before."""
        session = self._session(writer)
        for path in sorted(paths):
            length, width = self.shapes[path]
            self._resize(session, path, (length + rows, width))
            first = length - (1 if again and length else 0)
            indices = product(range(first, length + rows), range(width))
            self._write(session, path, list(indices))
        session.commit("append")

    @rule(writer=WRITERS, path=st.sampled_from(PATHS), columns=st.integers(1, 2))
    def widen(self, writer: str, path: str, columns: int) -> None:
        """The other axis grows."""
        session = self._session(writer)
        length, width = self.shapes[path]
        self._resize(session, path, (length, width + columns))
        self._write(session, path, list(product(range(length), range(width, width + columns))))
        session.commit("widen")

    @rule(writer=WRITERS, path=st.sampled_from(PATHS), data=st.data())
    def write_late(self, writer: str, path: str, data: st.DataObject) -> None:
        places = list(product(*map(range, self.shapes[path])))
        if not places:
            return
        chosen = data.draw(st.lists(st.sampled_from(places), min_size=1, max_size=6, unique=True))
        session = self._session(writer)
        self._write(session, path, chosen)
        session.commit("late")

    @rule(writer=WRITERS, path=st.sampled_from(PATHS), data=st.data())
    def delete(self, writer: str, path: str, data: st.DataObject) -> None:
        places = list(product(*map(range, self.shapes[path])))
        if not places:
            return
        chosen = data.draw(st.lists(st.sampled_from(places), min_size=1, max_size=9, unique=True))
        session = self._session(writer)
        for index in chosen:
            sync(session.store.delete(f"{path[1:]}/c/{'/'.join(map(str, index))}"))
            self.model[path].pop(index, None)
        session.commit("delete")

    @rule(writer=WRITERS, path=st.sampled_from(PATHS), data=st.data())
    def shrink(self, writer: str, path: str, data: st.DataObject) -> None:
        shape = tuple(data.draw(st.integers(0, length)) for length in self.shapes[path])
        session = self._session(writer)
        self._resize(session, path, shape)
        session.commit("shrink")

    @rule(writer=WRITERS)
    def compact(self, writer: str) -> None:
        """Either library writes manifests anew; after ours there is nothing left to do."""
        if writer == "theirs":
            self.theirs.rewrite_manifests("rewrite", branch="main")
            return
        before = len(tip(self.ours).manifest_files)
        outcome = self.ours.compact(branch="main")
        again = self.ours.compact(branch="main")
        assert isinstance(again, AlreadyCompact)
        assert again.snapshot_id == outcome.snapshot_id == self.ours.lookup_branch("main")
        assert again.now == ManifestTotals.of(tip(self.ours).manifest_files)
        if isinstance(outcome, Compacted):
            assert outcome.before.manifests == before
            assert outcome.after == again.now
        if not self.is_split:
            self._check_few_manifests()

    def _check_few_manifests(self) -> None:
        full, most = self.policy.cell_refs, ANEW * self.policy.cell_refs
        for node in arrays(tip(self.ours)):
            refs = len(self.model[node.path])
            assert len(node.manifests) <= -(-refs // full) + 1 or refs > most

    @rule()
    def wait_for_merges(self) -> None:
        self.ours._upkeep.finish()

    @rule()
    def start_again(self) -> None:
        """Another process goes on with what is stored."""
        place = icechunk_stream.local_filesystem_storage(self.folder.name, durability="os")
        self.ours = icechunk_stream.Repository.open(place).with_manifest_policy(self.policy)

    @invariant()
    def every_chunk_is_in_one_manifest(self) -> None:
        found = check_manifests(self.ours)
        assert found == {path: set(self.model[path]) for path in PATHS}

    @invariant()
    def both_libraries_read_what_was_written(self) -> None:
        for repository in (self.ours, self.theirs):
            store = repository.readonly_session("main").store
            for path in PATHS:
                for index, value in self.model[path].items():
                    key = f"{path[1:]}/c/{'/'.join(map(str, index))}"
                    read = sync(store.get(key, default_buffer_prototype()))
                    assert read is not None
                    assert read.to_bytes() == value

    def teardown(self) -> None:
        if hasattr(self, "folder"):
            self.ours._upkeep.finish()
            self.folder.cleanup()


class HistoriesV2(Histories):
    spec = 2


def _splitting(rows: int, columns: int) -> icechunk_stream.RepositoryConfig:
    which = icechunk_stream.ManifestSplitCondition.AnyArray()
    axis = icechunk_stream.ManifestSplitDimCondition.Axis
    splitting = icechunk_stream.ManifestSplittingConfig.from_dict(
        {which: {axis(0): rows, axis(1): columns}}
    )
    manifest = icechunk_stream.ManifestConfig(splitting=splitting)
    return icechunk_stream.RepositoryConfig(manifest=manifest)


_SETTINGS = settings(
    max_examples=15, stateful_step_count=20, suppress_health_check=[HealthCheck.too_slow]
)
TestHistoriesOfV1 = Histories.TestCase
TestHistoriesOfV1.settings = _SETTINGS
TestHistoriesOfV2 = HistoriesV2.TestCase
TestHistoriesOfV2.settings = _SETTINGS
