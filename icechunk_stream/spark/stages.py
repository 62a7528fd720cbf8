"""Names of what a batch does, as Spark's UI shows them."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pyspark.sql import DataFrame

_DESCRIPTION = "spark.job.description"


@contextmanager
def stage(df: DataFrame, name: str) -> Iterator[None]:
    """Name the jobs of a block; where there is no Spark context, as in Connect, nothing happens."""
    context: Any = getattr(df.sparkSession, "sparkContext", None)
    if context is None:
        yield
        return
    before = context.getLocalProperty(_DESCRIPTION)
    context.setLocalProperty(_DESCRIPTION, f"{before}: {name}" if before else name)
    try:
        yield
    finally:
        context.setLocalProperty(_DESCRIPTION, before)
