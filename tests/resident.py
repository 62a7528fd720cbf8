"""Memory of processes, in bytes, as Linux counts it."""

from __future__ import annotations

from pathlib import Path

_FORGET_PEAK = "5"


def resident(pid: int | str = "self") -> int:
    """What a process has in memory now.

    Counted page by page: the counters in ``status`` lag behind by some pages for each core.
    """
    return _field(Path(f"/proc/{pid}/smaps_rollup"), "Rss")


def peak(pid: int | str = "self") -> int:
    """The most that a process ever had in memory, or had since ``forget_peak``."""
    return _field(Path(f"/proc/{pid}/status"), "VmHWM")


def forget_peak(pid: int | str = "self") -> None:
    """Let the peak begin at what a process has in memory now."""
    Path(f"/proc/{pid}/clear_refs").write_text(_FORGET_PEAK)


def _field(path: Path, name: str) -> int:
    for line in path.read_text().splitlines():
        if line.startswith(f"{name}:"):
            return int(line.split()[1]) * 1024
    raise ValueError(f"{path} has no {name}")
