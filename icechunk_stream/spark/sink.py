"""The sink: a callable for ``foreachBatch`` that makes each micro-batch one snapshot."""

from __future__ import annotations

import logging
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Literal, get_args

from icechunk_stream.errors import InvalidInputError
from icechunk_stream.spark.batch_sizes import BatchSizes
from icechunk_stream.spark.carried import packed
from icechunk_stream.spark.checkpoints import reader_of
from icechunk_stream.spark.explain import explain_rows
from icechunk_stream.spark.places import storage_of
from icechunk_stream.spark.quarantine import (
    Quarantine,
    QuarantineKey,
    check_delta,
    store_bad_rows,
)
from icechunk_stream.spark.sources import BatchRows, WriteMode, drain
from icechunk_stream.spark.validate import validate
from icechunk_stream.stream.batch import Batches, StreamSettings
from icechunk_stream.stream.identity import read_offsets, read_query_id
from icechunk_stream.stream.ledger import Adopt, Call, LedgerPolicy
from icechunk_stream.stream.outcomes import Committed
from icechunk_stream.stream.rejected import MAX_BAD_ROWS, BadRowsPolicy

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame, SparkSession

    from icechunk_stream.config import RepositoryConfig
    from icechunk_stream.storage import Storage
    from icechunk_stream.stream.attempts import KeepBadRows
    from icechunk_stream.stream.explanation import Explanation
    from icechunk_stream.stream.identity import BatchOffsets
    from icechunk_stream.stream.layout import Rows
    from icechunk_stream.stream.outcomes import BatchOutcome
    from icechunk_stream.stream.rejected import WhatToDo
    from icechunk_stream.stream.validation import Validation

_QUERY_ID = "sql.streaming.queryId"
# Stands for the query where a job writes batches of its own.
_NO_QUERY = "sink.write"
_log = logging.getLogger(__name__)


def icechunk_sink(
    storage: Storage | str,
    *,
    layout: Rows,
    app_id: str,
    checkpoint_location: str | None = None,
    branch: str = "main",
    group: str = "/",
    allow_gaps: bool = False,
    adopt: Adopt | None = None,
    record_empty_batches: bool = True,
    on_bad_rows: Literal["fail", "drop"] | Quarantine = "fail",
    max_bad_rows: int = MAX_BAD_ROWS,
    write_mode: WriteMode = "auto",
    spec_version: int = 1,
    config: RepositoryConfig | None = None,
    manage_splitting: bool = True,
) -> IcechunkSink:
    """A sink for ``writeStream.foreachBatch``.

    Args:
        storage: Where the repository is: a storage, a path, or a URL (``s3://bucket/prefix``).
        layout: Which columns go into which arrays.
        app_id: The name of the stream in the repository, which outlives its checkpoints.
        checkpoint_location: That of the query. Without it a replay is told by batch ids alone.
        branch: The branch to commit to; made from ``main`` where it is missing.
        group: The group that holds the arrays.
        allow_gaps: Whether batch ids may be left out.
        adopt: Hands the stream over to another query, once.
        record_empty_batches: Whether a batch without rows makes a snapshot.
        on_bad_rows: What becomes of rows without a place in the arrays, or with values that these
            cannot store: "fail" the batch, "drop" them, or keep them in a ``Quarantine(path)``.
        max_bad_rows: A batch with more of them fails nevertheless.
        write_mode: Who makes chunks of the rows: the "executors", or the "driver", which is quicker
            for small batches; "auto" takes up to 32 MiB to the driver.
        spec_version: That of a repository that is created; an existing one keeps its own.
        config: Configuration of the repository, where it is created or opened.
        manage_splitting: Whether a rule is added to the stored configuration that splits the
            manifests of growing arrays which the sink makes, so that others keep that layout too.
            Arrays that a rule speaks of already are left alone.
    """
    settings = StreamSettings(
        layout=layout,
        app_id=app_id,
        branch=branch,
        group=group,
        policy=LedgerPolicy(allow_gaps, adopt, record_empty_batches),
        bad_rows=BadRowsPolicy(_what(on_bad_rows), max_bad_rows),
        spec_version=spec_version,
        config=config,
        manage_splitting=manage_splitting,
    )
    if write_mode not in get_args(WriteMode):
        message = f"write_mode {write_mode!r} is unknown: give 'auto', 'driver' or 'executors'"
        raise InvalidInputError(message)
    quarantine = on_bad_rows if isinstance(on_bad_rows, Quarantine) else None
    options = SinkOptions(
        storage_of(storage), settings, checkpoint_location, write_mode, quarantine
    )
    return IcechunkSink(options)


def _what(on_bad_rows: Literal["fail", "drop"] | Quarantine) -> WhatToDo:
    if isinstance(on_bad_rows, Quarantine):
        return "keep"
    if on_bad_rows not in ("fail", "drop"):
        message = f"on_bad_rows is {on_bad_rows!r}: give 'fail', 'drop' or Quarantine(path)"
        raise InvalidInputError(message)
    return on_bad_rows


@dataclass(frozen=True, slots=True)
class SinkOptions:
    """What a sink was given."""

    storage: Storage
    settings: StreamSettings
    checkpoint_location: str | None
    write_mode: WriteMode
    quarantine: Quarantine | None = None

    def with_credentials(self) -> SinkOptions:
        """With storage credentials that pickles carry."""
        return replace(self, storage=self.storage.with_pickled_credentials())


class IcechunkSink:
    """Writes micro-batches to a repository, each exactly once.

    What is pickled is the configuration: the repository is opened where the sink runs.
    ``last_commit`` tells what became of the last batch.
    """

    # Whoever passes a storage to a sink wants it opened elsewhere.
    _pickles_secrets = True

    def __init__(self, options: SinkOptions) -> None:
        self._options = options
        self._sizes = BatchSizes()
        self._batches: Batches | None = None
        self._query_id: str | None = None
        self.last_commit: BatchOutcome | None = None

    def __call__(self, df: DataFrame, batch_id: int) -> None:
        """Write one micro-batch; Spark calls this, again if it does not know how it ended."""
        self._write(df, self._call(df, batch_id))

    def write(self, df: DataFrame, batch_id: int | None = None) -> BatchOutcome:
        """Write the rows of a plain job as one batch, as backfills do.

        Batches count from 0 up, and one that is there already is not written again. Without a
        number it is the next one, so that a job which ran twice writes twice. A stream and jobs
        beside it need different app ids.
        """
        app_id = self._settings.app_id
        if batch_id is None:
            batch_id = self._opened(df).next_id()
        return self._write(df, Call(app_id, _NO_QUERY, batch_id))

    def explain(self, df: DataFrame) -> Explanation:
        """What the next batch would do with these rows; nothing is stored."""
        options = self._options
        return explain_rows(df, options.storage, self._settings, options.write_mode)

    def validate(self, spark: SparkSession) -> Validation:
        """Check what the stream needs; nothing is raised for a check that fails."""
        options = self._options
        return validate(
            spark,
            options.storage,
            self._settings,
            options.checkpoint_location,
            options.write_mode,
        )

    def __reduce__(self) -> tuple[object, ...]:
        return packed(IcechunkSink, self._options.with_credentials())

    def __repr__(self) -> str:
        settings = self._settings
        return (
            f"IcechunkSink({self._options.storage!r}, app_id={settings.app_id!r},"
            f" branch={settings.branch!r}, group={settings.group!r})"
        )

    @property
    def _settings(self) -> StreamSettings:
        return self._options.settings

    def _write(self, df: DataFrame, call: Call) -> BatchOutcome:
        rows = BatchRows(df, self._settings.layout, self._options.write_mode, self._sizes)
        try:
            outcome = self._opened(df).write(call, rows, self._keeper(df, call))
            if isinstance(outcome, Committed):
                self._sizes.rows = outcome.counts.received
            else:
                drain(df)
        except BaseException:
            # The next call begins with what is stored, not with what this one believed.
            self._batches = None
            raise
        self.last_commit = outcome
        _log.info("%s", outcome)
        return outcome

    def _opened(self, df: DataFrame) -> Batches:
        if self._batches is None:
            options = self._options
            if options.quarantine is not None:
                check_delta(df.sparkSession, options.quarantine)
            # Tasks get what opens the storage from the driver.
            storage = options.with_credentials().storage
            self._batches = Batches.open(storage, self._settings)
        return self._batches

    def _keeper(self, df: DataFrame, call: Call) -> KeepBadRows | None:
        quarantine = self._options.quarantine
        if quarantine is None:
            return None

        def keep(rows: pa.Table, attempt: int) -> None:
            key = QuarantineKey(call.app_id, call.query_id, call.batch_id, attempt)
            store_bad_rows(df.sparkSession, quarantine, rows, key)

        return keep

    def _call(self, df: DataFrame, batch_id: int) -> Call:
        query_id = self._identify(df)
        return Call(self._settings.app_id, query_id, batch_id, self._offsets(df, batch_id))

    def _identify(self, df: DataFrame) -> str:
        """The id of the query that delivers the batch."""
        if self._query_id is None:
            self._query_id = self._read_query_id(df)
        return self._query_id

    def _read_query_id(self, df: DataFrame) -> str:
        spark, checkpoint = df.sparkSession, self._options.checkpoint_location
        if checkpoint is not None:
            return read_query_id(checkpoint, reader_of(spark, checkpoint))
        context: Any = getattr(spark, "sparkContext", None)
        found = None if context is None else context.getLocalProperty(_QUERY_ID)
        if not found:
            message = (
                "the query cannot be told: pass checkpoint_location, the one of the query, to"
                " icechunk_sink(); Spark Connect needs it. Rows of no stream go to sink.write(df)"
            )
            raise InvalidInputError(message)
        return str(found)

    def _offsets(self, df: DataFrame, batch_id: int) -> BatchOffsets | None:
        checkpoint = self._options.checkpoint_location
        if checkpoint is None:
            return None
        return read_offsets(checkpoint, batch_id, reader_of(df.sparkSession, checkpoint))
