"""What has to hold before a stream starts on a Spark: executors, storage, checkpoint, arrays."""

from __future__ import annotations

import platform
import re
from dataclasses import dataclass
from importlib.metadata import version
from pickle import PicklingError
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from pyspark.errors import PySparkException

from icechunk_stream.assets import chunk_key
from icechunk_stream.effects import random_bytes
from icechunk_stream.errors import CheckpointError, IcechunkError
from icechunk_stream.format.chunk_refs import NativeChunk
from icechunk_stream.format.ids import OBJECT_ID_SIZE, ChunkId
from icechunk_stream.spark.checkpoints import reader_of
from icechunk_stream.stream.identity import read_query_id
from icechunk_stream.stream.validation import (
    Check,
    Validation,
    check_arrays,
    check_ledger,
    check_storage,
)
from icechunk_stream.version import VERSION

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from pyspark.sql import SparkSession

    from icechunk_stream.spark.sources import WriteMode
    from icechunk_stream.storage import Storage
    from icechunk_stream.stream.batch import StreamSettings

# Tasks that look around where Spark does not say how many run at once.
_TASKS = 4
_SHOWN = 300
# The last line of a traceback.
_TELLS = re.compile(r"([A-Za-z_]+\.)*[A-Za-z_]*(Error|Exception): ")
_REPORT = pa.schema([("versions", pa.string()), ("key", pa.string()), ("failure", pa.string())])
_REPORT_DDL = "versions string, key string, failure string"
_ALIKE = "give the executors the Python and the packages of the driver"
_DRIVER_ONLY = (
    "let executors reach the storage with the credentials that it has; or give"
    " write_mode='driver', with batches that the driver holds (maxOffsetsPerTrigger)"
)


def validate(
    spark: SparkSession,
    storage: Storage,
    settings: StreamSettings,
    checkpoint_location: str | None = None,
    write_mode: WriteMode = "auto",
) -> Validation:
    """Check what a stream needs. A check that fails raises nothing, and says what to do.

    Objects that are written to find out are deleted again; the repository is not changed.
    """
    # Tasks get what opens the storage from the driver.
    place = storage.with_pickled_credentials()
    checks = [check_storage(place)]
    if write_mode != "driver":
        checks += _check_executors(spark, place)
    checkpoint, query_id = _check_checkpoint(spark, checkpoint_location)
    checks += [checkpoint, check_arrays(place, settings)]
    if checkpoint_location is not None:
        checks.append(check_ledger(place, settings, query_id))
    return Validation(tuple(checks))


def versions() -> str:
    """What has to be alike in all processes that make chunks."""
    python = ".".join(platform.python_version_tuple()[:2])
    found = {"Python": python, "icechunk_stream": VERSION}
    found |= {name: version(name) for name in ("numpy", "pyarrow", "zarr")}
    return ", ".join(f"{name} {each}" for name, each in found.items())


@dataclass(frozen=True, slots=True)
class _LookAround:
    """What a task finds where it runs; it stores an object, for the driver to find."""

    storage: Storage

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for _ in batches:
            key, failure = chunk_key(NativeChunk(ChunkId(random_bytes(OBJECT_ID_SIZE)), 0, 1)), ""
            try:
                self.storage.put(key, b"1")
            except (IcechunkError, OSError) as error:
                failure = f"{type(error).__name__}: {error}"
            row = {"versions": versions(), "key": key, "failure": failure}
            yield pa.RecordBatch.from_pylist([row], _REPORT)


def _check_executors(spark: SparkSession, storage: Storage) -> list[Check]:
    count = _parallel_tasks(spark)
    rows = spark.range(0, count, 1, count)
    try:
        reports = rows.mapInArrow(_LookAround(storage), _REPORT_DDL).toArrow().to_pylist()
    except (PySparkException, IcechunkError, PicklingError) as error:
        return [Check("executors", False, _short(error), f"{_ALIKE}: {versions()}")]
    return [_check_versions(reports), _check_reach(storage, reports)]


def _parallel_tasks(spark: SparkSession) -> int:
    context: Any = getattr(spark, "sparkContext", None)
    return _TASKS if context is None else max(int(context.defaultParallelism), 1)


def _check_versions(reports: list[dict[str, str]]) -> Check:
    others = sorted({report["versions"] for report in reports} - {versions()})
    if others:
        found = f"the driver has {versions()}, executors have {'; '.join(others)}"
        return Check("executors", False, found, _ALIKE)
    return Check("executors", True, f"{len(reports)} tasks have what the driver has: {versions()}")


def _check_reach(storage: Storage, reports: list[dict[str, str]]) -> Check:
    """Whether the driver finds what tasks stored: a path may be another disk for each of them."""
    name, failed = "storage of executors", [each["failure"] for each in reports if each["failure"]]
    keys = [each["key"] for each in reports if not each["failure"]]
    try:
        lost = [key for key in keys if storage.stat(key) is None]
        storage.delete_many(keys)
    except (IcechunkError, OSError) as error:
        return Check(name, False, _short(error), _DRIVER_ONLY)
    if failed:
        found = f"{len(failed)} of {len(reports)} tasks cannot write: {failed[0][:_SHOWN]}"
        return Check(name, False, found, _DRIVER_ONLY)
    if lost:
        found = f"the driver does not find what {len(lost)} of {len(reports)} tasks wrote"
        return Check(name, False, found, "use a storage that all machines share")
    return Check(name, True, f"the driver finds what {len(reports)} tasks wrote")


def _check_checkpoint(spark: SparkSession, location: str | None) -> tuple[Check, str | None]:
    name = "checkpoint"
    if location is None:
        return _no_checkpoint(spark), None
    reader = reader_of(spark, location)
    try:
        if reader(f"{location.rstrip('/')}/metadata") is None:
            return Check(name, True, f"no query has begun at {location}"), None
        query_id = read_query_id(location, reader)
    except (CheckpointError, PySparkException) as error:
        advice = "give the checkpointLocation of the query, where the driver may read it"
        return Check(name, False, _short(error), advice), None
    return Check(name, True, f"of the query {query_id}"), query_id


def _no_checkpoint(spark: SparkSession) -> Check:
    advice = "pass checkpoint_location, the one of the query, to icechunk_sink()"
    if getattr(spark, "sparkContext", None) is None:
        return Check("checkpoint", False, "none is given, and Spark Connect needs it", advice)
    found = "none is given, so that batches that come again are told by their ids alone"
    return Check("checkpoint", True, found, advice)


def _short(error: Exception) -> str:
    """What went wrong, from the end of what Spark tells: there stands what Python said."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    text = next((line for line in reversed(lines) if _TELLS.match(line)), " ".join(lines))
    return f"{type(error).__name__}: {text if len(text) <= _SHOWN else text[:_SHOWN] + '...'}"
