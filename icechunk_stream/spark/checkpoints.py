"""Files of a query's checkpoint, on whatever file system Spark keeps it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.errors import AnalysisException

from icechunk_stream.errors import CheckpointError
from icechunk_stream.stream.identity import is_local, read_local_text

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from icechunk_stream.stream.identity import ReadText

_NOT_FOUND = "PATH_NOT_FOUND"


def reader_of(spark: SparkSession, location: str) -> ReadText:
    """How to read below a location: directly where it is on this machine, else through Spark."""

    def read(path: str, /) -> str | None:
        found = read_local_text(path) if is_local(location) else None
        # A path without a scheme may be on another default file system of Spark.
        if found is not None or location.lower().startswith("file:"):
            return found
        return _read_through(spark, path)

    return read


def _read_through(spark: SparkSession, path: str) -> str | None:
    try:
        rows = spark.read.text(path, wholetext=True).collect()
    except AnalysisException as error:
        if error.getCondition() == _NOT_FOUND:
            return None
        message = f"it cannot be read ({error.getCondition()}): check the location"
        raise CheckpointError(message, path=path) from error
    return str(rows[0][0]) if rows else ""
