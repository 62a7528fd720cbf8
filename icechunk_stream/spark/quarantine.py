"""Bad rows kept in a Delta table, those of each batch once."""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING

import pyarrow as pa
import pyspark.sql.functions as sql

from icechunk_stream.config.redact import redact_location
from icechunk_stream.effects import random_fraction, sleep
from icechunk_stream.errors import InvalidInputError
from icechunk_stream.spark.delta_columns import delta_names, storable
from icechunk_stream.storage.retry import RetryPolicy

if TYPE_CHECKING:
    from collections.abc import Callable

    from pyspark.sql import SparkSession
    from pyspark.sql.types import StructType

_BLAME = ("bad_column", "bad_reason")
_KEY = ("app_id", "query_id", "batch_id")
_CONDITION = re.compile(r"\[([A-Z][A-Z0-9_]+)[A-Z0-9_.]*\]")
# What another writer's commit to the table makes of ours: nothing was written then.
_OVERTAKEN = re.compile(r"DELTA_(CONCURRENT_\w+|METADATA_CHANGED|PROTOCOL_CHANGED)")
_RETRIES = RetryPolicy(max_tries=10, initial_backoff=0.2, max_backoff=5.0)


@dataclass(frozen=True, slots=True, repr=False)
class Quarantine:
    """Rows that cannot be stored go to the Delta table at this path, which is made when needed.

    They keep their columns, and say why they are there (``bad_column``, ``bad_reason``) and where
    they come from (``app_id``, ``query_id``, ``batch_id``). A batch that comes again is not added
    again. Streams may share a table if columns of one name have one type.
    """

    delta_path: str

    def __post_init__(self) -> None:
        path: object = self.delta_path
        if not isinstance(path, str) or not path.strip():
            message = (
                f"the quarantine's path is {self.delta_path!r}: give the path or URL of a Delta"
                " table as a string"
            )
            raise InvalidInputError(message)

    def __repr__(self) -> str:
        return f"Quarantine({redact_location(self.delta_path)!r})"


@dataclass(frozen=True, slots=True)
class QuarantineKey:
    """The batch that rows belong to, and which writing of it if there were several."""

    app_id: str
    query_id: str
    batch_id: int
    attempt: int = 0

    def writer(self, there: int) -> str:
        """Whom Delta counts batches of; it tells what is added to rows that are there already."""
        name = f"{self.app_id}/{self.query_id}"
        return f"{name}/{self.attempt}.{there}" if self.attempt or there else name


def check_delta(spark: SparkSession, quarantine: Quarantine) -> None:
    """Find out whether this Spark can write the table, before it has to.

    Raises:
        InvalidInputError: it has no Delta, or is not configured for it.
    """
    try:
        _schema(spark, quarantine)
    except Exception as error:
        known = _explained(error, spark, quarantine)
        if known is None:
            raise
        raise known from error


def store_bad_rows(
    spark: SparkSession, quarantine: Quarantine, rows: pa.Table, key: QuarantineKey
) -> None:
    """Add the bad rows of a batch, with ``bad_column`` and ``bad_reason``, but for those there.

    A batch that comes again may have other ones: its tip has moved.

    Raises:
        InvalidInputError: this Spark has no Delta, or the table has other types.
    """
    if not len(rows):
        return
    try:
        _add(spark, quarantine, _named(rows, key), key)
    except Exception as error:
        known = _explained(error, spark, quarantine)
        if known is None:
            raise
        raise known from error


def _add(spark: SparkSession, quarantine: Quarantine, rows: pa.Table, key: QuarantineKey) -> None:
    there = _kept(spark, quarantine, rows, key)
    missing = rows.take(pa.array(_not_among(rows, there), pa.int64()))
    if not len(missing):
        return

    def append() -> None:
        writer = spark.createDataFrame(missing).coalesce(1).write.format("delta").mode("append")
        # Of writers that found the same, one adds rows.
        once = writer.option("txnAppId", key.writer(len(there))).option("txnVersion", key.batch_id)
        once.option("mergeSchema", "true").save(quarantine.delta_path)

    _until_not_overtaken(append)


def _schema(spark: SparkSession, quarantine: Quarantine) -> StructType | None:
    """The columns of the table; None where there is no table yet."""
    try:
        # Over Connect only the schema is asked for now.
        return spark.read.format("delta").load(quarantine.delta_path).schema
    except Exception as error:
        if _condition(error) in {"PATH_NOT_FOUND", "DELTA_TABLE_NOT_FOUND"}:
            return None
        raise


def _kept(
    spark: SparkSession, quarantine: Quarantine, rows: pa.Table, key: QuarantineKey
) -> pa.Table:
    """The rows of the batch that are in the table, with the columns of those that come."""
    schema = _schema(spark, quarantine)
    if schema is None:
        return rows.schema.empty_table()
    known = {name.casefold() for name in schema.names}
    columns = [
        sql.col(f"`{name.replace('`', '``')}`").alias(name)
        if name.casefold() in known
        else sql.lit(None).alias(name)
        for name in rows.column_names
    ]
    table = spark.read.format("delta").load(quarantine.delta_path)
    for name in _KEY:
        table = table.where(sql.col(name) == getattr(key, name))
    return table.select(*columns).toArrow()


def _not_among(rows: pa.Table, there: pa.Table) -> list[int]:
    """Which rows are not there, or not as often; NaN is a value, and so is null."""
    left = Counter(map(repr, there.to_pylist()))
    missing = []
    for at, row in enumerate(map(repr, rows.to_pylist())):
        if left[row] <= 0:
            missing.append(at)
        left[row] -= 1
    return missing


def _named(rows: pa.Table, key: QuarantineKey) -> pa.Table:
    """The rows with the columns of a quarantine, those of ours at the end."""
    blame = [rows.schema.get_all_field_indices(name)[-1] for name in _BLAME]
    own = [at for at in range(rows.num_columns) if at not in blame]
    names = delta_names((rows.field(at).name for at in own), (*_BLAME, *_KEY))
    table = rows.select([*own, *blame]).rename_columns([*names, *_BLAME])
    for name, value in zip(_KEY, (key.app_id, key.query_id, key.batch_id), strict=True):
        table = table.append_column(name, pa.repeat(pa.scalar(value), len(rows)))
    return storable(table)


def _until_not_overtaken(append: Callable[[], None]) -> None:
    for tries in range(1, _RETRIES.max_tries):
        try:
            return append()
        except Exception as error:
            if _OVERTAKEN.fullmatch(_condition(error)) is None:
                raise
        sleep(_RETRIES.pause(tries, random_fraction()))
    return append()


def _condition(error: Exception) -> str:
    """Spark's name for what went wrong; Java's own errors have it in their text."""
    named = getattr(error, "getCondition", None)
    found = named() if named is not None else None
    if found:
        return str(found)
    in_text = _CONDITION.search(str(error))
    return in_text[1] if in_text else ""


def _explained(
    error: Exception, spark: SparkSession, quarantine: Quarantine
) -> InvalidInputError | None:
    """The error that says what to do, where it is known what went wrong."""
    match _condition(error):
        case "DATA_SOURCE_NOT_FOUND" | "DELTA_CONFIGURE_SPARK_SESSION_WITH_EXTENSION_AND_CATALOG":
            return InvalidInputError(_missing(spark, quarantine))
        case "DELTA_FAILED_TO_MERGE_FIELDS" | "DELTA_MERGE_INCOMPATIBLE_DATATYPE":
            said = str(error).splitlines()[0]
            message = (
                f"{quarantine!r} holds columns of other types than the bad rows have, and nothing"
                f" was added ({said}): give the path of another table"
            )
            return InvalidInputError(message)
        case _:
            return None


def _missing(spark: SparkSession, quarantine: Quarantine) -> str:
    release = ".".join(spark.version.split(".")[:2])
    return (
        f"{quarantine!r} needs Delta, which this Spark has not: start it with the package"
        f" io.delta:delta-spark_{release}_2.13 in spark.jars.packages (for Spark 4.0 it is"
        " io.delta:delta-spark_2.13), with"
        " spark.sql.extensions=io.delta.sql.DeltaSparkSessionExtension and"
        " spark.sql.catalog.spark_catalog=org.apache.spark.sql.delta.catalog.DeltaCatalog"
    )
