"""Compactions killed amid calls: ``python -m tests.concurrency.killed_compactions PATH SPEC N``.

It runs apart from pytest, so that it forks from a process with a single thread.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from icechunk_stream import AlreadyCompact, Repository, Tiered
from icechunk_stream.storage import LocalStorage
from icechunk_stream.testing.wrapped_storage import WrappedStorage
from tests.manifests.checks import check_manifests
from tests.manifests.compacting import append, create_arrays, values
from tests.storage.racers import forked, in_processes

if TYPE_CHECKING:
    from icechunk_stream.testing.storage_calls import Call

ROOT = Path(__file__).parents[2]
NAMES = ("a", "b", "c")
SCATTERED = Tiered(ratio=900, most=1_000, shared_refs=1)
READERS = Tiered(cell_refs=12, shared_refs=6)


def run(folder: Path, spec_version: int, every: int) -> Any:
    """For every so many calls, in one of which a compaction died: what it left."""
    arguments = [str(folder), str(spec_version), str(every)]
    command = [sys.executable, "-m", "tests.concurrency.killed_compactions", *arguments]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, timeout=300, check=False)
    assert done.returncode == 0, done.stderr.decode()[-4000:]
    return json.loads(done.stdout)


def main(folder: str, spec_version: int, every: int) -> None:
    made = Path(folder) / "made"
    in_processes([partial(make, made, spec_version)])
    found: list[Any] = []
    while True:
        path = Path(folder) / str(len(found) + 1)
        shutil.copytree(made, path)
        child, _ = forked(partial(compact, path, len(found) * every + 1))
        status = os.waitpid(child, 0)[1]
        if not os.WIFSIGNALED(status):
            assert status == 0
            break
        assert os.WTERMSIG(status) == signal.SIGKILL
        found += in_processes([partial(go_on, path)])
    print(json.dumps(found))


def make(path: Path, spec_version: int) -> bool:
    storage = LocalStorage(path, durability="os")
    repository = Repository.create(storage, spec_version=spec_version)
    repository = repository.with_manifest_policy(SCATTERED)
    create_arrays(repository, NAMES)
    for _ in range(5):
        append(repository, NAMES, 3)
    return True


def compact(path: Path, nth: int) -> None:
    """Compact, but die with the n-th call."""
    storage = WrappedStorage(LocalStorage(path, durability="os"))

    def before(call: Call) -> None:
        if call.number == nth:
            os.kill(os.getpid(), signal.SIGKILL)

    storage.script.before = before
    Repository.open(storage).with_manifest_policy(READERS).compact(branch="main")


def go_on(path: Path) -> dict[str, Any]:
    """What the dead one left, and that the next one ends with the same values."""
    repository = Repository.open(LocalStorage(path, durability="os"))
    repository = repository.with_manifest_policy(READERS)
    left = {name: sorted(chunks) for name, chunks in check_manifests(repository).items()}
    read = values(repository)
    had_landed = isinstance(repository.compact(branch="main"), AlreadyCompact)
    after = {name: sorted(chunks) for name, chunks in check_manifests(repository).items()}
    return {
        "had_landed": had_landed,
        "is_whole": values(repository) == read == {name: [*range(15)] for name in NAMES},
        "has_all_chunks": left == after,
        "is_compact": isinstance(repository.compact(branch="main"), AlreadyCompact),
    }


if __name__ == "__main__":
    main(sys.argv[1], *map(int, sys.argv[2:]))
