"""Every call of a creation fails once: whoever tries again has a repository, and only one."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from icechunk_stream import Repository, StorageError, in_memory_storage
from icechunk_stream.testing.wrapped_storage import WrappedStorage
from tests.concurrency.contents import copied
from tests.concurrency.three_commits import STEPS, assert_all_committed_once, commit, messages
from tests.engine.test_faults import FAULTS
from tests.oracle.libraries import REFERENCE, SPEC_VERSIONS

if TYPE_CHECKING:
    from pathlib import Path


def calls_of_a_creation(spec_version: int) -> int:
    storage = WrappedStorage(in_memory_storage(), in_order=True)
    Repository.create(storage, spec_version=spec_version)
    return len(storage.script.calls)


def created_at_last(storage: WrappedStorage, spec_version: int) -> Repository:
    """What the first try left, the second one opens or completes."""
    with pytest.raises(StorageError):
        Repository.create(storage, spec_version=spec_version)
    return Repository.open_or_create(storage, create_version=spec_version)


@pytest.mark.parametrize("spec_version", [1, 2])
@pytest.mark.parametrize("fault", FAULTS)
def test_a_creation_that_failed_is_completed_by_the_next(
    fault: str, spec_version: int, tmp_path: Path
) -> None:
    for nth in range(1, calls_of_a_creation(spec_version) + 1):
        storage = WrappedStorage(in_memory_storage(), in_order=True)
        storage.script.disturb(FAULTS[fault](), nth=nth)
        repository = created_at_last(storage, spec_version)
        assert len(messages(Repository.open(storage.inner))) == 1
        # What is still on its way takes nothing back.
        assert commit(repository, storage.inner, STEPS[0]) == []
        storage.script.land()
        for step in STEPS[1:]:
            assert commit(Repository.open(storage), storage.inner, step) == []
        assert_all_committed_once(Repository.open(storage.inner))
        if spec_version in SPEC_VERSIONS:
            folder = copied(storage.inner, tmp_path / str(nth))
            theirs = REFERENCE.local_filesystem_storage(str(folder))
            assert_all_committed_once(REFERENCE.Repository.open(theirs))
