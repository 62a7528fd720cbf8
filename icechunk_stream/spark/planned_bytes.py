"""How large rows are where they come from, before any of them is read."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


def planned_bytes(df: DataFrame) -> int | None:
    """What Spark's plan says of the sources: files tell their sizes, streams of messages do not.

    Those count as larger than anything. What is made of the rows on their way does not count. None
    where nobody may ask the plan, as in Spark Connect and on shared clusters.
    """
    plan = getattr(df, "_jdf", None)
    if plan is None:
        return None
    try:
        return int(plan.queryExecution().optimizedPlan().stats().sizeInBytes())
    except Exception:  # noqa: BLE001 - whatever forbids it, the size is not known then
        return None
