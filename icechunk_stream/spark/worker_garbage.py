"""What Python workers do about garbage between tasks."""

from __future__ import annotations

import gc

# To look through so many objects takes some milliseconds; modules of the field have ten times more.
_MANY = 50_000
# Modules come in the first tasks of a worker; what comes later may be somebody's garbage.
_TIMES = 3
_done: list[int] = []


def settle() -> None:
    """At the start of a task, leave what its worker has imported out of all later collections.

    After each task Spark collects garbage in the worker, which the next task waits for: 50 ms where
    numpy, pyarrow and zarr are imported.
    """
    if len(_done) < _TIMES and len(gc.get_objects()) > _MANY:
        gc.freeze()
        _done.append(gc.get_freeze_count())
