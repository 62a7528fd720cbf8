"""Make the virtual environments: .venv for all work, .venv-3.11 for the older reference release.

Run by ``make venv``. Does nothing where both are up to date with pyproject.toml.
"""

from __future__ import annotations

import hashlib
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
NEWEST_FROM = (3, 12)
LEGACY = (3, 11)
STAMP = ".made-from"
EXTRAS = "xarray,s3,cloud"
NEWEST_EXTRAS = f"{EXTRAS},spark,connect"
TOOLS = ["pip>=25.1"]


def main() -> int:
    found = interpreters()
    newest = max((version for version in found if version >= NEWEST_FROM), default=None)
    if newest is None:
        return missing("Python 3.12 or newer, which the reference library 2.3.0 needs")
    if LEGACY not in found:
        return missing("Python 3.11, which the reference library 1.1.21 needs")
    make(ROOT / ".venv", found[newest], "dev", NEWEST_EXTRAS)
    make(ROOT / ".venv-3.11", found[LEGACY], "test", EXTRAS)
    return 0


def missing(what: str) -> int:
    print(f"make venv: no {what}, on PATH or under pyenv's versions folder", file=sys.stderr)
    return 1


def interpreters() -> dict[tuple[int, int], str]:
    """A working interpreter of each version, by what it says of itself: shims may refuse."""
    found: dict[tuple[int, int], str] = {}
    for candidate in candidates():
        version = version_of(candidate)
        if version is not None:
            found.setdefault(version, candidate)
    return found


def candidates() -> list[str]:
    names = re.compile(r"python3(\.\d+)?$")
    folders = [Path(folder) for folder in os.get_exec_path()]
    folders += sorted(pyenv_root().glob("versions/*/bin"))
    return [
        str(path)
        for folder in folders
        if folder.is_dir()
        for path in sorted(folder.iterdir())
        if names.match(path.name)
    ]


def pyenv_root() -> Path:
    return Path(os.environ.get("PYENV_ROOT", Path.home() / ".pyenv"))


def version_of(python: str) -> tuple[int, int] | None:
    """Major and minor version, or None where the interpreter cannot make environments."""
    probe = "import sys, ensurepip, venv; print(sys.version_info[0], sys.version_info[1])"
    try:
        result = subprocess.run(
            [python, "-c", probe], capture_output=True, text=True, timeout=20, check=False
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    words = result.stdout.split()
    return (int(words[0]), int(words[1])) if result.returncode == 0 and len(words) == 2 else None


def make(folder: Path, python: str, group: str, extras: str) -> None:
    wanted = fingerprint(python)
    stamp = folder / STAMP
    if stamp.exists() and stamp.read_text() == wanted:
        return
    print(f"make venv: {folder.name} with {python}", file=sys.stderr)
    shutil.rmtree(folder, ignore_errors=True)
    run(python, "-m", "venv", str(folder))
    inside = str(folder / "bin" / "python")
    run(inside, "-m", "pip", "install", "--quiet", "--upgrade", *TOOLS)
    pins = ["--constraint", str(ROOT / "constraints.txt")]
    project = ["--editable", f"{ROOT}[{extras}]", "--group", f"{ROOT / 'pyproject.toml'}:{group}"]
    run(inside, "-m", "pip", "install", "--quiet", *pins, *project)
    stamp.write_text(wanted)


def fingerprint(python: str) -> str:
    files = (ROOT / "pyproject.toml", ROOT / "constraints.txt")
    digest = hashlib.sha256(b"".join(file.read_bytes() for file in files))
    return f"{python} {digest.hexdigest()}\n"


def run(*command: str) -> None:
    subprocess.run(command, check=True, cwd=ROOT)


if __name__ == "__main__":
    sys.exit(main())
