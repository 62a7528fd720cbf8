"""The three libraries: ours and the reference in this process, an old reference in another."""

from __future__ import annotations

import os
import pickle
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

import icechunk

if TYPE_CHECKING:
    from collections.abc import Sequence
    from types import ModuleType

    from tests.oracle import plans

ROOT = Path(__file__).parents[2]
REFERENCE: ModuleType = icechunk
REFERENCE.set_logs_filter("error")

# The reference of Python 3.11 knows spec v1 only.
KNOWS_V2 = hasattr(REFERENCE.Repository, "ops_log")
SPEC_VERSIONS = (1, 2) if KNOWS_V2 else (1,)


def legacy_python() -> Path:
    """The interpreter beside which icechunk 1.1.21 is installed."""
    if not KNOWS_V2:
        return Path(sys.executable)
    given = os.environ.get("ICECHUNK_LEGACY_PYTHON", ".venv-3.11/bin/python")
    found = ROOT / given
    assert found.exists(), f"{found} is missing: make it with `make venv`, or set the variable"
    return found


def legacy(job: str, *arguments: Any) -> Any:
    """Run a function of ``legacy_jobs`` under the old library."""
    with tempfile.TemporaryDirectory() as folder:
        question, answer = Path(folder) / "question", Path(folder) / "answer"
        question.write_bytes(pickle.dumps((job, arguments)))
        command = [str(legacy_python()), "-m", "tests.oracle.legacy_jobs"]
        done = subprocess.run(
            [*command, question, answer], cwd=ROOT, check=False, capture_output=True, text=True
        )
        assert done.returncode == 0, (
            f"icechunk 1.1.21 ended with {done.returncode}: {done.stderr[-4000:]}"
        )
        return pickle.loads(answer.read_bytes())


def legacy_dumps(places: Sequence[tuple[str, tuple[str, ...]]]) -> list[dict[str, Any]]:
    """Dumps of repositories, each given as its location and the authorised prefixes."""
    return list(legacy("dump_all", list(places)))


def legacy_repositories(
    made: Sequence[tuple[plans.Plan, str]], containers: plans.Containers
) -> None:
    legacy("make_all", list(made), containers)
