"""Reads an object in a process of its own, and says how that went and what memory it took."""

from __future__ import annotations

import multiprocessing
import resource
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from icechunk_stream.errors import FormatError
from tests.hostile.reading import KINDS

if TYPE_CHECKING:
    from multiprocessing.connection import Connection

PATIENCE = 20
_ADDRESS_SPACE = 4 * 2**30
_CONTEXT = multiprocessing.get_context("forkserver")
_CONTEXT.set_forkserver_preload([__name__])


@dataclass(frozen=True)
class Outcome:
    """How a read went: refused with a FormatError, or which other error; peak memory in bytes."""

    refused: bool
    error: str
    peak: int


def read_apart(kind: str, data: bytes) -> Outcome:
    """Read and look at an object of the kind in a fresh process that may not hang."""
    mine, its = _CONTEXT.Pipe(duplex=False)
    process = _CONTEXT.Process(target=_read, args=(its, kind, data))
    process.start()
    its.close()
    try:
        if not mine.poll(PATIENCE):
            return Outcome(refused=False, error="hang", peak=0)
        outcome: Outcome = mine.recv()
        return outcome
    finally:
        process.kill()
        process.join()
        mine.close()


def _read(connection: Connection, kind: str, data: bytes) -> None:
    resource.setrlimit(resource.RLIMIT_AS, (_ADDRESS_SPACE, _ADDRESS_SPACE))
    Path("/proc/self/clear_refs").write_text("5")
    before = _high_water()
    refused, failure = False, ""
    try:
        KINDS[kind].read(data)
    except FormatError:
        refused = True
    except BaseException as error:  # noqa: BLE001
        failure = repr(error)
    connection.send(Outcome(refused, failure, _high_water() - before))


def _high_water() -> int:
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) * 1024 for line in lines if line.startswith("VmHWM"))
