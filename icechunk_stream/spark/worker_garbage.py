"""What Python workers do about garbage between tasks."""

from __future__ import annotations

import gc

# To look through so many objects takes some milliseconds; modules of the field have ten times more.
_MANY = 50_000


def settle() -> None:
    """At the start of a task, leave what a worker has imported out of all later collections.

    After each task Spark collects garbage in its worker, which the next task waits for: 50 ms where
    numpy, pyarrow and zarr are imported. What that left here is there to stay.
    """
    if len(gc.get_objects()) > _MANY:
        gc.freeze()
