"""The only clock and the only entropy of the package."""

from __future__ import annotations

import os
import time


def now_micros() -> int:
    """Wall clock time in microseconds since 1970-01-01 UTC."""
    return time.time_ns() // 1000


def random_bytes(count: int) -> bytes:
    """Fresh random bytes from the kernel: forked workers never share a generator's state."""
    return os.urandom(count)
