"""Many processes at work on one object store: ``python -m tests.object_stores.racers NAME``.

It runs apart from pytest, so that the processes it forks are its own. The storage comes as a
pickle on standard input.
"""

import asyncio
import json
import pickle
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, Protocol

from icechunk_stream.storage import ReadRequest, Span, Storage
from icechunk_stream.testing.storage_steps import create, fetch
from tests.storage import racers
from tests.storage.racers import in_processes

FIRST = Span(0, 1)
ROOT = Path(__file__).parents[2]


class Pickled(Protocol):
    """A storage whose pickles may carry its credentials."""

    def with_pickled_credentials(self) -> Storage: ...


def run(name: str, storage: Pickled) -> Any:
    """Run a scenario in a process of its own, and give its findings."""
    command = [sys.executable, "-m", "tests.object_stores.racers", name]
    state = pickle.dumps(storage.with_pickled_credentials())
    done = subprocess.run(
        command, cwd=ROOT, input=state, capture_output=True, timeout=300, check=False
    )
    assert done.returncode == 0, done.stderr.decode()
    return json.loads(done.stdout)


def fork_before_and_after_use(storage: Storage) -> Any:
    """Children of a process with open connections, and their children, read and write."""
    create(storage, "repo", b"parent")

    def use() -> list[str]:
        mine = fetch(storage, "repo").data.decode()
        storage.put_many([(f"chunks/{number}", b"%d" % number) for number in range(40)])
        batch = storage.get_many([ReadRequest(f"chunks/{number}", FIRST) for number in range(9)])
        awaited = asyncio.run(storage.get_async("chunks/7", FIRST))
        assert batch == [b"%d" % number for number in range(9)]
        assert awaited == b"7"
        return [mine, storage.submit("chunks/7").result(60).decode()]

    def nest() -> list[Any]:
        return [use(), in_processes([use])]

    found = in_processes([nest, nest])
    return found, use()


SCENARIOS: dict[str, Callable[[Any], Any]] = {
    "increments": racers.increments,
    "creations": racers.creations,
    "fork_before_and_after_use": fork_before_and_after_use,
}

if __name__ == "__main__":
    print(json.dumps(SCENARIOS[sys.argv[1]](pickle.load(sys.stdin.buffer))))
