"""Starts the driver in a process of its own, watches it, kills it, and starts it again."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from demo.driver import Halt

Tell: TypeAlias = "Callable[[dict[str, Any]], None]"
ROOT = Path(__file__).resolve().parent.parent


class DriverError(Exception):
    """The driver ended by itself before it was done."""


@dataclass
class Delivery:
    """What became of a batch that the sink was given."""

    seconds: float | None = None
    note: str = ""


@dataclass
class Story:
    """What happened, by batch."""

    deliveries: dict[int, Delivery] = field(default_factory=dict)
    kills: list[int] = field(default_factory=list)

    def delivery(self, batch: int) -> Delivery:
        return self.deliveries.setdefault(batch, Delivery())

    def take(self, event: dict[str, Any]) -> None:
        if event["event"] == "ends":
            self.delivery(event["batch"]).seconds = event["seconds"]


def run(folder: Path, halts: list[Halt], story: Story, tell: Tell) -> None:
    """Run the stream to its end; the driver is killed at each halt and started again.

    Raises:
        DriverError: it failed otherwise.
    """
    for halt in halts:
        _run_once(folder, halt, story, tell)
    _run_once(folder, None, story, tell)


def _run_once(folder: Path, halt: Halt | None, story: Story, tell: Tell) -> None:
    place = [] if halt is None else [str(halt.batch), halt.when]
    log = folder / "driver.log"
    reading, writing = os.pipe()
    command = [sys.executable, "-m", "demo.driver", str(folder), str(writing), *place]
    with log.open("a") as output:
        process = subprocess.Popen(
            command,
            cwd=ROOT,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            pass_fds=[writing],
            start_new_session=True,
        )
    os.close(writing)
    try:
        for event in _events(reading):
            story.take(event)
            if halt is not None and event["event"] == "halts":
                _kill(process)
                story.kills.append(halt.batch)
                tell({"event": "killed", "batch": halt.batch, "when": halt.when})
            tell(event)
        status = process.wait()
    finally:
        _kill(process)
    if status != (0 if halt is None else -signal.SIGKILL):
        raise DriverError(_why(status, log))


def _events(descriptor: int) -> Iterator[dict[str, Any]]:
    with os.fdopen(descriptor) as lines:
        for line in lines:
            yield json.loads(line)


def _kill(process: subprocess.Popen[bytes]) -> None:
    """The driver's Python and its JVM, without a warning; nothing where it is over."""
    if process.poll() is None:
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()


def _why(status: int, log: Path) -> str:
    last = log.read_text(errors="replace").strip().splitlines()[-15:]
    return "\n".join([f"the driver ended with status {status}; the end of {log}:", *last])
