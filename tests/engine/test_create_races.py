"""Several create a repository in one place at once: who wins, and what is there then."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from threading import Barrier

import pytest

import icechunk_stream as ic
from icechunk_stream.format.ids import INITIAL_SNAPSHOT
from icechunk_stream.storage import Storage, Version
from tests.engine.altered import Interrupted, InterruptedAfter

FIRST = str(INITIAL_SNAPSHOT)


@pytest.mark.parametrize("specs", [(1, 1), (2, 2), (1, 2)])
def test_of_two_creators_one_wins(specs: tuple[int, int]) -> None:
    for _ in range(40):
        storage = ic.in_memory_storage()
        results = _create_at_once(storage, specs)
        [winner] = [found for found in results if isinstance(found, ic.Repository)]
        assert ic.Repository.open(storage).spec_version == winner.spec_version
        assert winner.list_branches() == {"main"}


def _create_at_once(
    storage: Storage, specs: tuple[int, int]
) -> list[ic.Repository | ic.IcechunkError]:
    barrier = Barrier(2)

    def create(spec_version: int) -> ic.Repository | ic.IcechunkError:
        barrier.wait()
        try:
            return ic.Repository.create(storage, spec_version=spec_version)
        except (ic.ConflictError, ic.InvalidInputError) as error:
            return error

    with ThreadPoolExecutor(2) as pool:
        return list(pool.map(create, specs))


def put_refs(storage: Storage) -> None:
    """What a creator of spec v1 leaves that looks for nobody else."""
    storage.put_if("refs/branch.main/ref.json", b'{"snapshot":"%s"}' % FIRST.encode(), None)


def test_a_creator_of_spec_v2_does_not_hide_a_repository_of_spec_v1_made_meanwhile() -> None:
    storage = Interrupted("repo", put_refs)
    with pytest.raises(ic.ConflictError) as caught:
        ic.Repository.create(storage)

    assert caught.value.kind == "branch-update-conflict"
    assert ic.Repository.fetch_spec_version(storage) == ic.SpecVersion.v1


def test_a_creator_of_spec_v2_leaves_a_repository_that_others_have_changed() -> None:
    def change(storage: Storage) -> None:
        put_refs(storage)
        version = storage.read("repo").version  # type: ignore[union-attr]
        assert isinstance(version, Version)
        storage.put_if("repo", storage.get("repo"), version)

    storage = InterruptedAfter("repo", change)
    with pytest.raises(ic.ConflictError):
        ic.Repository.create(storage)

    assert ic.Repository.fetch_spec_version(storage) == ic.SpecVersion.v2


def test_a_creator_of_spec_v1_loses_to_a_repo_object() -> None:
    made = ic.in_memory_storage()
    ic.Repository.create(made)
    storage = Interrupted(
        "refs/branch.main/ref.json", lambda there: there.put("repo", made.get("repo"))
    )
    with pytest.raises(ic.ConflictError) as caught:
        ic.Repository.create(storage, spec_version=1)

    assert caught.value.kind == "repo-info-updated"
    assert ic.Repository.fetch_spec_version(storage) == ic.SpecVersion.v2
