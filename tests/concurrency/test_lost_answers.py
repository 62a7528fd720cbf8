"""Commits on a real S3 server whose requests get lost, or come late."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING

import pytest

from icechunk_stream import ConflictDetector, Repository
from icechunk_stream.testing.http_faults import (
    DropAnswer,
    DropRequest,
    Fault,
    Gate,
    LandLate,
    Reply,
)
from icechunk_stream.testing.http_proxy import HttpProxy
from tests.concurrency.contents import GROUP, Contents, array, numbers, read, write
from tests.concurrency.places import OURS, THEIRS, Bucket, opened, storage
from tests.concurrency.three_commits import ROOT, messages
from tests.object_stores.s3_storages import storage_on

if TYPE_CHECKING:
    from collections.abc import Iterator

pytestmark = pytest.mark.compat

BASE: Contents = {"a/zarr.json": array((8,), (1,)), "zarr.json": GROUP}
FAULTS = (
    DropAnswer(),
    DropAnswer(reset=True),
    DropRequest(),
    Reply(500),
    Reply(500, forward=True),
    Reply(412, forward=True),
    Reply(503),
)


class Scene:
    """A repository behind a proxy, with a session that has one change."""

    def __init__(self, bucket: Bucket, proxy: HttpProxy, spec_version: int) -> None:
        self.place = bucket.place()
        repository = Repository.create(storage(OURS, self.place), spec_version=spec_version)
        self.commit(repository, BASE, "base")
        storage_behind = storage_on(bucket.server, bucket.name, proxy.endpoint)
        self.behind = Repository.open(storage_behind)
        self.session = self.behind.writable_session("main")
        write(self.session.store, chunk(1))
        self.swapped = "*/repo" if spec_version == 2 else "*/ref.json"

    def commit(self, repository: Repository, contents: Contents, message: str) -> None:
        session = repository.writable_session("main")
        write(session.store, contents)
        session.commit(message)

    def commit_theirs(self) -> None:
        self.commit(opened(THEIRS, self.place), chunk(2), "theirs")

    def expect(self, history: list[str], *written: int) -> None:
        contents = dict(BASE)
        for number in written:
            contents |= chunk(number)
        for library in (OURS, THEIRS):
            repository = opened(library, self.place)
            assert messages(repository) == [ROOT, *history]
            found = read(repository.readonly_session("main").store)
            assert found == dict(sorted(contents.items()))


def is_conflict(fault: Fault) -> bool:
    return isinstance(fault, Reply) and fault.status == 412


def chunk(number: int) -> Contents:
    return {f"a/c/{number}": numbers(number)}


@pytest.fixture
def proxy(bucket: Bucket) -> Iterator[HttpProxy]:
    with HttpProxy(bucket.server.endpoint) as proxy:
        yield proxy


@pytest.fixture(params=[1, 2])
def scene(request: pytest.FixtureRequest, bucket: Bucket, proxy: HttpProxy) -> Scene:
    return Scene(bucket, proxy, request.param)


@pytest.mark.parametrize("disturbed", ["swap", "*/snapshots/*", "*/transactions/*"])
def test_a_commit_whose_requests_are_disturbed_is_made_once(
    scene: Scene, proxy: HttpProxy, disturbed: str
) -> None:
    path = scene.swapped if disturbed == "swap" else disturbed
    faults = [fault for fault in FAULTS if disturbed == "swap" or not is_conflict(fault)]
    for number, fault in enumerate(faults, 1):
        session = scene.behind.writable_session("main")
        write(session.store, chunk(number))
        rule = proxy.disturb(fault, method="PUT", path=path)
        id = session.commit(f"ours {number}")
        assert rule.disturbed == 1
        assert opened(THEIRS, scene.place).lookup_branch("main") == id
        proxy.calm()
    ours = range(1, len(faults) + 1)
    scene.expect(["base", *(f"ours {number}" for number in ours)], *ours)


def test_a_swap_that_comes_late_changes_nothing_any_more(scene: Scene, proxy: HttpProxy) -> None:
    """Its answer was given up, it was sent again, and that one was quicker."""
    gate = Gate()
    proxy.disturb(LandLate(gate), method="PUT", path=scene.swapped)
    scene.session.commit("ours")
    assert gate.open() == 412
    scene.expect(["base", "ours"], 1)


def test_a_commit_is_found_beneath_one_of_the_other_library(scene: Scene, proxy: HttpProxy) -> None:
    """The answer is lost, and whoever looks for the commit has to wait for theirs."""
    gate = Gate()
    proxy.disturb(DropAnswer(), method="PUT", path=scene.swapped)
    proxy.disturb(LandLate(gate, hang_up=False), method="HEAD", path=scene.swapped)
    with ThreadPoolExecutor(1) as pool:
        commit = pool.submit(scene.session.commit, "ours", rebase_with=ConflictDetector())
        assert gate.held.wait(60)
        scene.commit_theirs()
        gate.open()
        id = commit.result(60)
    scene.expect(["base", "ours", "theirs"], 1, 2)
    assert [info.id for info in opened(OURS, scene.place).ancestry(branch="main")][1] == id
