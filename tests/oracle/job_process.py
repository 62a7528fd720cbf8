"""A process that takes a job on each line of its input, and says on a line how it ended."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

if TYPE_CHECKING:
    from types import TracebackType

ROOT = Path(__file__).parents[2]


class JobProcess:
    """Python at work on a module; it ends with the block."""

    def __init__(self, module: str, *arguments: str) -> None:
        quiet = os.environ | {"AWS_EC2_METADATA_DISABLED": "true"}
        command = [sys.executable, "-m", module, *arguments]
        self._name = " ".join((module, *arguments))
        self._process = subprocess.Popen(
            command, cwd=ROOT, env=quiet, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._process.communicate(timeout=60)

    def send(self, job: dict[str, Any]) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps(job) + "\n")
        self._process.stdin.flush()

    def receive(self) -> Any:
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        assert line, f"the process of {self._name} has ended"
        return json.loads(line)
