"""What a release of the reference finds in a repository, and what it finds after its own commit.

Run as a module by the old release's interpreter: question file, answer file.
"""

from __future__ import annotations

import functools
import pickle
import subprocess
import sys
import tempfile
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import icechunk
import zarr

from tests.oracle.dump import open_repository
from tests.oracle.libraries import ROOT, legacy_python
from tests.oracle.outcomes import outcome

WRITTEN = 77


def exercise(ic: Any, location: str, prefix: str) -> dict[str, Any]:
    """Read, commit one chunk to each array, collect garbage; tell what was seen at each step."""
    repository = open_repository(ic, location, [prefix])
    seen: dict[str, Any] = {"history": history(repository), "values": values(repository)}
    seen["changes"] = changes(repository)
    seen["committed"] = commit(repository)
    seen["values_after_commit"] = values(repository)
    repository.garbage_collect(datetime.now(UTC) + timedelta(days=1))
    seen["values_after_collection"] = values(open_repository(ic, location, [prefix]))
    return seen


def legacy_exercise(location: str, prefix: str) -> dict[str, Any]:
    """The same in the process of the old release."""
    with tempfile.TemporaryDirectory() as folder:
        question, answer = Path(folder) / "question", Path(folder) / "answer"
        question.write_bytes(pickle.dumps((location, prefix)))
        command = [str(legacy_python()), "-m", "tests.compat.committing"]
        done = subprocess.run(
            [*command, question, answer], cwd=ROOT, check=False, capture_output=True, text=True
        )
        assert done.returncode == 0, f"icechunk 1.1.21 failed: {done.stderr[-4000:]}"
        return dict(pickle.loads(answer.read_bytes()))


def history(repository: Any) -> dict[str, Any]:
    branches = {name: repository.lookup_branch(name) for name in repository.list_branches()}
    return {
        "branches": branches,
        "tags": {name: repository.lookup_tag(name) for name in repository.list_tags()},
        "ancestry": [_info(info) for info in repository.ancestry(branch="main")],
    }


def values(repository: Any) -> dict[str, Any]:
    """Values of every array, or how reading it failed."""
    group = zarr.open_group(repository.readonly_session(branch="main").store, mode="r")
    return {name: outcome(functools.partial(_read, array)) for name, array in group.arrays()}


def _read(array: Any) -> Any:
    return array[...].tolist()


def changes(repository: Any) -> dict[str, Any]:
    """What the last commit says that it changed."""
    newest, before, *_ = [info.id for info in repository.ancestry(branch="main")]
    diff = repository.diff(from_snapshot_id=before, to_snapshot_id=newest)
    chunks = {path: sorted(map(list, found)) for path, found in diff.updated_chunks.items()}
    return {"updated_chunks": chunks, "updated_groups": sorted(diff.updated_groups)}


def commit(repository: Any) -> str:
    """Write the first chunk of every array."""
    session = repository.writable_session("main")
    group = zarr.open_group(session.store, mode="r+")
    for _, array in group.arrays():
        array[tuple(slice(0, size) for size in array.chunks)] = WRITTEN
    return str(session.commit("on top"))


def _info(info: Any) -> list[Any]:
    return [info.id, info.parent_id, info.message, info.written_at, info.metadata]


def main(question: str, answer: str) -> None:
    icechunk.set_logs_filter("off")
    location, prefix = pickle.loads(Path(question).read_bytes())
    Path(answer).write_bytes(pickle.dumps(exercise(icechunk, location, prefix)))


if __name__ == "__main__":
    main(*sys.argv[1:])
