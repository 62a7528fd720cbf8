"""The reference as a reader in a process of its own: ``python -m tests.stream.watching_reader``.

It looks at the tip of a repository again and again, and at a snapshot that it opened first, and
says after each look what it saw. It ends with its input.
"""

from __future__ import annotations

import json
import subprocess
import sys
import threading
import warnings
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

import icechunk
import xarray as xr

from tests.concurrency.places import THEIRS, Place, opened

if TYPE_CHECKING:
    from types import TracebackType

ROOT = Path(__file__).parents[2]


def main() -> None:
    icechunk.set_logs_filter("error")
    place, group = json.loads(sys.stdin.readline())
    ends = threading.Event()
    threading.Thread(target=_await_end, args=(ends,), daemon=True).start()
    pinned = opened(THEIRS, place).readonly_session("main")
    before = seen(pinned, group)
    while not ends.is_set():
        later = opened(THEIRS, place).readonly_session(snapshot_id=pinned.snapshot_id)
        tip = seen(opened(THEIRS, place).readonly_session("main"), group)
        stays = seen(pinned, group) == before == seen(later, group)
        print(json.dumps({"tip": tip, "pinned": before, "pinned_stays": stays}), flush=True)


def seen(session: icechunk.Session, group: str) -> dict[str, Any]:
    """A snapshot and all of its values, opened by xarray without a warning."""
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        found = xr.open_zarr(session.store, group=group, consolidated=False, decode_cf=False).load()
    arrays = {str(name): array.values.tolist() for name, array in found.variables.items()}
    return {"snapshot": session.snapshot_id, "arrays": arrays}


def _await_end(ends: threading.Event) -> None:
    sys.stdin.read()
    ends.set()


class Reader:
    """The process of a reader; it ends with the block. ``looks`` has what it said so far."""

    def __init__(self, place: Place, group: str) -> None:
        command = [sys.executable, "-m", "tests.stream.watching_reader"]
        self._process = subprocess.Popen(
            command, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps([place, group]) + "\n")
        self._process.stdin.flush()
        self.looks: list[dict[str, Any]] = []
        self.has_looked = threading.Event()
        self._thread = threading.Thread(target=self._listen)

    @property
    def snapshots(self) -> set[str]:
        """The tips that it has seen."""
        return {look["tip"]["snapshot"] for look in tuple(self.looks)}

    @property
    def is_alive(self) -> bool:
        return self._process.poll() is None

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        assert self._process.stdin is not None
        self._process.stdin.close()
        self._thread.join(timeout=120)
        self._process.wait(timeout=120)
        assert self._process.returncode == 0

    def _listen(self) -> None:
        assert self._process.stdout is not None
        with self._process.stdout as lines:
            for line in lines:
                self.looks.append(json.loads(line))
                self.has_looked.set()


if __name__ == "__main__":
    main()
