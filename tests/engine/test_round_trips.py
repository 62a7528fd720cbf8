"""A steady commit: everything immutable at once, then one swap, and nothing is read."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from icechunk_stream import (
    ConflictDetector,
    ManifestConfig,
    ManifestSplitCondition,
    ManifestSplitDimCondition,
    ManifestSplittingConfig,
    Repository,
    RepositoryConfig,
)
from icechunk_stream.storage.memory import MemoryStorage
from icechunk_stream.testing.storage_calls import READS, Call
from icechunk_stream.testing.wrapped_storage import WrappedStorage
from tests.concurrency.contents import GROUP, Contents, array, write
from tests.concurrency.three_commits import messages

if TYPE_CHECKING:
    from collections.abc import Sequence

    from icechunk_stream.session import Session

CHUNK = bytes(range(256)) * 8
ARRAYS = ("a", "b", "c")

both_specs = pytest.mark.parametrize("spec_version", [1, 2])


class Distant(MemoryStorage):
    """Memory for whose writes one has to wait."""

    writes_to_memory = False


def grown(length: int, *, first: int) -> Contents:
    """All arrays with ``length`` chunks, those from ``first`` on written."""
    contents: Contents = {}
    for name in ARRAYS:
        contents[f"{name}/zarr.json"] = array((length * 256,), (256,))
        contents |= {f"{name}/c/{index}": CHUNK for index in range(first, length)}
    return contents


def append(repository: Repository, batch: int) -> Session:
    """A session with one more batch in it."""
    session = repository.writable_session("main")
    write(session.store, grown(4 * batch + 4, first=4 * batch))
    return session


def splitting(size: int) -> RepositoryConfig:
    config = ManifestSplittingConfig.from_dict(
        {ManifestSplitCondition.AnyArray(): {ManifestSplitDimCondition.Any(): size}}
    )
    return RepositoryConfig(manifest=ManifestConfig(splitting=config))


def steady(spec_version: int, config: RepositoryConfig | None = None) -> Repository:
    """A repository object that has made two commits."""
    repository = Repository.create(WrappedStorage(Distant()), config, spec_version=spec_version)
    session = repository.writable_session("main")
    write(session.store, {"zarr.json": GROUP})
    session.commit("create")
    for batch in range(2):
        append(repository, batch).commit(f"batch {batch}")
    return repository


def folders(calls: Sequence[Call]) -> list[tuple[str, str]]:
    return sorted((call.method, call.key.partition("/")[0]) for call in calls)


def immutable(spec_version: int) -> list[tuple[str, str]]:
    """What a commit stores before its swap: one manifest, however many arrays it changes."""
    backup = [("copy_if", "overwritten")] * (spec_version == 2)
    puts = [("put", "manifests"), ("put", "snapshots"), ("put", "transactions")]
    return backup + puts


@both_specs
@pytest.mark.parametrize("size", [None, 4])
def test_a_steady_commit_is_two_waves_and_reads_nothing(
    spec_version: int, size: int | None
) -> None:
    """The calls of a wave are held until all of them are there, so that no two follow another."""
    repository = steady(spec_version, None if size is None else splitting(size))
    script = repository.storage.script  # type: ignore[attr-defined]  # a WrappedStorage
    for batch in range(2, 5):
        session = append(repository, batch)
        first = immutable(spec_version)
        script.forget()
        script.hold_waves(len(first), 1)
        session.commit(f"batch {batch}")
        script.calm()

        assert [folders(wave) for wave in script.waves] == [
            first,
            [("put_if", "repo" if spec_version == 2 else "refs")],
        ]
    assert len(messages(repository)) == 7


@both_specs
def test_opening_a_session_again_asks_for_the_tip_alone(spec_version: int) -> None:
    repository = steady(spec_version)
    script = repository.storage.script  # type: ignore[attr-defined]  # a WrappedStorage
    script.forget()
    session = append(repository, 2)
    key = "repo" if spec_version == 2 else "refs/branch.main/ref.json"
    assert [call.key for call in script.calls if call.method in READS] == [key]
    script.forget()
    session.commit("batch 2")
    assert [call for call in script.calls if call.method in READS] == []


@both_specs
def test_a_commit_that_rebases_keeps_its_manifests(spec_version: int) -> None:
    """After a lost race: the tip, its log, its snapshot; then no manifest, and the swap."""
    repository = steady(spec_version)
    storage = repository.storage
    assert isinstance(storage, WrappedStorage)
    session = append(repository, 2)
    others = Repository.open(storage.inner).writable_session("main")
    write(others.store, {"d/zarr.json": array((2,), (1,)), "d/c/0": bytes(8)})
    others.commit("others")
    storage.script.forget()
    session.commit("batch 2", rebase_with=ConflictDetector())

    tip = "repo" if spec_version == 2 else "refs/branch.main/ref.json"
    assert len(storage.script.calls_of("put", "manifests/*")) == 1
    assert len(storage.script.calls_of("put", "snapshots/*")) == 2
    reads = sorted(call.key.split("/")[0] for call in storage.script.calls if call.method in READS)
    assert reads.count(tip.partition("/")[0]) == 1
    assert reads.count("transactions") == 1
    assert reads.count("manifests") == 0
    assert reads.count("snapshots") == 1
