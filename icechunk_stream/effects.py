"""The only clock and the only entropy of the package."""

from __future__ import annotations

import os
import time
from uuid import UUID


def now_micros() -> int:
    """Wall clock time in microseconds since 1970-01-01 UTC."""
    return time.time_ns() // 1000


def random_bytes(count: int) -> bytes:
    """Fresh random bytes from the kernel: forked workers never share a generator's state."""
    return os.urandom(count)


def monotonic() -> float:
    """Seconds on a clock that never goes back; only differences mean something."""
    return time.monotonic()


def sleep(seconds: float) -> None:
    """Hold this thread."""
    time.sleep(seconds)


def random_fraction() -> float:
    """A number from 0 up to, but not including, 1."""
    return int.from_bytes(random_bytes(6), "big") / 2**48


def random_uuid() -> str:
    """A random UUID (version 4)."""
    return str(UUID(bytes=random_bytes(16), version=4))
