"""Writers killed amid commits: ``python -m tests.concurrency.kills PATH SPEC_VERSION EVERY``.

It runs apart from pytest, so that it forks from a process with a single thread.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from icechunk_stream import Repository
from icechunk_stream.storage import LocalStorage
from icechunk_stream.testing.wrapped_storage import WrappedStorage
from tests.concurrency.three_commits import STEPS, changed, messages
from tests.storage.racers import forked, in_processes

if TYPE_CHECKING:
    from icechunk_stream.testing.storage_calls import Call

ROOT = Path(__file__).parents[2]


def run(folder: Path, spec_version: int, every: int) -> Any:
    """For every so many calls, in one of which a writer died: the history then and in the end."""
    arguments = [str(folder), str(spec_version), str(every)]
    command = [sys.executable, "-m", "tests.concurrency.kills", *arguments]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, timeout=150, check=False)
    assert done.returncode == 0, done.stderr.decode()[-4000:]
    return json.loads(done.stdout)


def main(folder: str, spec_version: int, every: int) -> None:
    found: list[Any] = []
    while True:
        path = Path(folder) / str(len(found) + 1)
        [made] = in_processes([partial(create, path, spec_version)])
        child, _ = forked(partial(write, path, len(found) * every + 1))
        status = os.waitpid(child, 0)[1]
        if not os.WIFSIGNALED(status):
            assert (made, status) == (True, 0)
            break
        assert os.WTERMSIG(status) == signal.SIGKILL
        found += in_processes([partial(go_on, path)])
    print(json.dumps(found))


def create(path: Path, spec_version: int) -> bool:
    Repository.create(LocalStorage(path, durability="os"), spec_version=spec_version)
    return True


def write(path: Path, nth: int) -> None:
    """Commit everything, but die with the n-th call."""
    storage = WrappedStorage(LocalStorage(path, durability="os"))

    def before(call: Call) -> None:
        if call.number == nth:
            os.kill(os.getpid(), signal.SIGKILL)

    storage.script.before = before
    commit_the_rest(Repository.open(storage))


def go_on(path: Path) -> list[list[str]]:
    repository = Repository.open(LocalStorage(path, durability="os"))
    at_first = messages(repository)
    commit_the_rest(repository)
    return [at_first, messages(repository)]


def commit_the_rest(repository: Repository) -> None:
    for step in STEPS[len(messages(repository)) - 1 :]:
        changed(repository, step).commit(step.message)


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]), int(sys.argv[3]))
