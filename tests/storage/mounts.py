"""Real file systems for tests, mounted for a moment; this needs root."""

import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

FUSE_SERVER = Path(__file__).with_name("fuse_server.py")


@contextmanager
def mounted_tmpfs(target: Path, options: str) -> Iterator[Path]:
    """A file system in memory, with mount's options for its size."""
    target.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", options, "tmpfs", target], check=True)
    try:
        yield target
    finally:
        subprocess.run(["umount", "-l", target], check=True)


def remount_read_only(target: Path) -> None:
    subprocess.run(["mount", "-o", "remount,ro", target], check=True)


@contextmanager
def mounted_fuse(target: Path, failures: dict[int, int]) -> Iterator[Path]:
    """A file system without links or with another failure, once its ``armed`` directory exists."""
    target.mkdir()
    chosen = [f"{opcode}:{number}" for opcode, number in failures.items()]
    command = [sys.executable, str(FUSE_SERVER), str(target), *chosen]
    with subprocess.Popen(command, stdout=subprocess.PIPE) as server:
        assert server.stdout is not None
        assert server.stdout.readline() == b"ready\n"
        try:
            yield target
        finally:
            # Killed, it lets go of descriptors that are still open below the target.
            server.kill()
            subprocess.run(["umount", "-l", target], check=True)
