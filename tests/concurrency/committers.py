"""Processes at work on one branch: ``python -m tests.concurrency.committers``.

A job comes as JSON on standard input. It runs apart from pytest, so that it forks from a process
with a single thread, and with a single library.
"""

from __future__ import annotations

import importlib
import json
import subprocess
import sys
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from icechunk_stream import Repository, Tiered
from icechunk_stream.testing.storage_calls import Call, Script
from icechunk_stream.testing.wrapped_storage import WrappedStorage
from tests.concurrency.contents import GROUP, Contents, array, numbers, write
from tests.concurrency.places import OURS, THEIRS, Place, storage
from tests.storage.racers import in_processes

if TYPE_CHECKING:
    from collections.abc import Callable

ROOT = Path(__file__).parents[2]
SECONDS = 150

COMPACTION = "compaction"
SMALL = Tiered(cell_refs=8, ratio=3, most=6, shared_refs=4)
_WIDTH = 256  # numbers in a chunk that is beyond the inline threshold


@dataclass(frozen=True)
class Work:
    """Some processes of each library, and how many commits each makes; another may compact."""

    ours: int
    theirs: int
    commits: int
    compacts: bool = False

    @property
    def total(self) -> int:
        return (self.ours + self.theirs) * self.commits

    @property
    def messages(self) -> list[str]:
        """Of all commits that there will be."""
        return sorted(_message(number) for number in range(self.total))

    @property
    def contents(self) -> Contents:
        """Of the repository in the end."""
        chunks: Contents = {}
        for number in range(self.total):
            chunks |= _chunks(number)
        return dict(sorted({**_arrays(self.total), **chunks}.items()))


def prepare(repository: Repository, work: Work) -> None:
    """Commit the arrays that will be written to."""
    session = repository.writable_session("main")
    write(session.store, _arrays(work.total))
    session.commit("prepare")


def run(place: Place, work: Work) -> list[Call]:
    """Let all processes commit at once; the storage calls of ours, of each in their order."""
    job = {"place": place, **asdict(work)}
    command = [sys.executable, "-m", "tests.concurrency.committers"]
    done = subprocess.run(
        command,
        cwd=ROOT,
        input=json.dumps(job),
        capture_output=True,
        text=True,
        timeout=SECONDS,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-4000:]
    return [Call(number, method, tuple(keys)) for number, method, keys in json.loads(done.stdout)]


def main() -> None:
    job = json.load(sys.stdin)
    place, count = job["place"], job["commits"]
    libraries = [OURS] * job["ours"] + [THEIRS] * job["theirs"]
    acts: list[Callable[[], Any]] = [
        partial(commits, name, place, me, count) for me, name in enumerate(libraries)
    ]
    if job["compacts"]:
        acts.append(partial(compact, place, len(libraries) * count))
    print(json.dumps([call for calls in in_processes(acts) for call in calls]))


def commits(library: str, place: Place, me: int, count: int) -> list[Any]:
    """Commits of one process, each on whatever the tip is then."""
    ic = importlib.import_module(library)
    if library == THEIRS:
        ic.set_logs_filter("error")
    there = storage(library, place)
    script = Script()
    repository = ic.Repository.open(there if library == THEIRS else WrappedStorage(there, script))
    for number in range(me * count, (me + 1) * count):
        session = repository.writable_session("main")
        write(session.store, _chunks(number))
        session.commit(_message(number), rebase_with=ic.ConflictDetector())
    return [(call.number, call.method, call.keys) for call in script.calls]


def compact(place: Place, commits: int) -> list[Any]:
    """Merge manifests, of a few references each, again and again until all commits are made."""
    repository = Repository.open(storage(OURS, place)).with_manifest_policy(SMALL)
    while True:
        repository.compact(COMPACTION, branch="main")
        made = [each for each in repository.ancestry(branch="main") if each.message != COMPACTION]
        if len(made) == commits + 2:
            return []


def _message(number: int) -> str:
    return f"commit {number}"


def _chunks(number: int) -> Contents:
    """An inline chunk, and one in an object of its own."""
    return {
        f"a/c/{number}": numbers(number + 1),
        f"b/c/{number}": numbers(*range(number + 1, number + 1 + _WIDTH)),
    }


def _arrays(total: int) -> Contents:
    return {
        "zarr.json": GROUP,
        "a/zarr.json": array((total,), (1,)),
        "b/zarr.json": array((total * _WIDTH,), (_WIDTH,)),
    }


if __name__ == "__main__":
    main()
