"""Run the demonstration: ``make demo``.

It runs in .venv where ``make venv`` has made that, else in .venv-demo, which has what it needs.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from typing import TYPE_CHECKING

from scripts.venv import LEGACY, ROOT, STAMP, fingerprint, interpreters, make

if TYPE_CHECKING:
    from pathlib import Path

EXTRAS = "spark,xarray"
OLDEST_JAVA = 17
_VERSION = re.compile(r'version "(\d+)')


def main(arguments: list[str]) -> int:
    found = {version: path for version, path in interpreters().items() if version >= LEGACY}
    if not found:
        return missing("Python 3.11 or newer on PATH or under pyenv's versions folder")
    if java_version() < OLDEST_JAVA:
        return missing(f"Java {OLDEST_JAVA} or newer on PATH or in JAVA_HOME, for Spark")
    folder = environment(found[max(found)])
    python = str(folder / "bin" / "python")
    return subprocess.run([python, "-m", "demo", *arguments], cwd=ROOT, check=False).returncode


def environment(python: str) -> Path:
    """Where the demonstration can run; it is made if it is not there."""
    whole = ROOT / ".venv" / STAMP
    if whole.exists() and whole.read_text() == fingerprint(python):
        return whole.parent
    folder = ROOT / ".venv-demo"
    make(folder, python, "demo", EXTRAS)
    return folder


def java_version() -> int:
    """The first number of its version; 0 where there is none."""
    home = os.environ.get("JAVA_HOME")
    java = shutil.which("java", path=f"{home}/bin" if home else None)
    if java is None:
        return 0
    said = subprocess.run([java, "-version"], capture_output=True, text=True, check=False)
    match = _VERSION.search(said.stderr + said.stdout)
    return int(match[1]) if match else 0


def missing(what: str) -> int:
    print(f"make demo: there is no {what}", file=sys.stderr)
    return 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
