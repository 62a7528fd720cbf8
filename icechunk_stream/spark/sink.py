"""The sink: a callable for ``foreachBatch`` that makes each micro-batch one snapshot."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any, Literal, get_args

from icechunk_stream.errors import InvalidInputError
from icechunk_stream.spark.carried import packed
from icechunk_stream.spark.checkpoints import reader_of
from icechunk_stream.spark.places import storage_of
from icechunk_stream.spark.sources import BatchRows, BatchSizes, WriteMode, drain
from icechunk_stream.stream.batch import Batches, StreamSettings
from icechunk_stream.stream.identity import read_offsets, read_query_id
from icechunk_stream.stream.ledger import Adopt, Call, LedgerPolicy
from icechunk_stream.stream.outcomes import Committed
from icechunk_stream.stream.rejected import MAX_BAD_ROWS, BadRowsPolicy

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from icechunk_stream.config import RepositoryConfig
    from icechunk_stream.storage import Storage
    from icechunk_stream.stream.identity import BatchOffsets
    from icechunk_stream.stream.layout import Rows
    from icechunk_stream.stream.outcomes import BatchOutcome

_QUERY_ID = "sql.streaming.queryId"
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
    on_bad_rows: Literal["fail", "drop"] = "fail",
    max_bad_rows: int = MAX_BAD_ROWS,
    write_mode: WriteMode = "auto",
    spec_version: int = 1,
    config: RepositoryConfig | None = None,
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
            cannot store: "fail" the batch, or "drop" them.
        max_bad_rows: A batch with more of them fails nevertheless.
        write_mode: Who makes chunks of the rows: the "executors", or the "driver", which is quicker
            for small batches; "auto" takes up to 32 MiB to the driver.
        spec_version: That of a repository that is created; an existing one keeps its own.
        config: Configuration of the repository, where it is created or opened.
    """
    settings = StreamSettings(
        layout=layout,
        app_id=app_id,
        branch=branch,
        group=group,
        policy=LedgerPolicy(allow_gaps, adopt, record_empty_batches),
        bad_rows=BadRowsPolicy(on_bad_rows, max_bad_rows),
        spec_version=spec_version,
        config=config,
    )
    if write_mode not in get_args(WriteMode):
        message = f"write_mode {write_mode!r} is unknown: give 'auto', 'driver' or 'executors'"
        raise InvalidInputError(message)
    return IcechunkSink(storage_of(storage), settings, checkpoint_location, write_mode)


class IcechunkSink:
    """Writes micro-batches to a repository, each exactly once.

    What is pickled is the configuration: the repository is opened where the sink runs.
    """

    def __init__(
        self,
        storage: Storage,
        settings: StreamSettings,
        checkpoint_location: str | None,
        write_mode: WriteMode,
    ) -> None:
        self._storage = storage
        self._settings = settings
        self._checkpoint = checkpoint_location
        self._write_mode: WriteMode = write_mode
        self._sizes = BatchSizes()
        self._batches: Batches | None = None
        self._query_id: str | None = None
        self.last_commit: BatchOutcome | None = None

    def __call__(self, df: DataFrame, batch_id: int) -> None:
        """Write one micro-batch; Spark calls this, again if it does not know how it ended."""
        try:
            outcome = self._write(df, batch_id)
        except BaseException:
            # The next call begins with what is stored, not with what this one believed.
            self._batches = None
            raise
        self.last_commit = outcome
        _log.info("%s", outcome)

    def __reduce__(self) -> tuple[object, ...]:
        storage = self._storage.with_pickled_credentials()
        return packed(IcechunkSink, storage, self._settings, self._checkpoint, self._write_mode)

    def __repr__(self) -> str:
        settings = self._settings
        return (
            f"IcechunkSink({self._storage!r}, app_id={settings.app_id!r},"
            f" branch={settings.branch!r}, group={settings.group!r})"
        )

    def _write(self, df: DataFrame, batch_id: int) -> BatchOutcome:
        settings = self._settings
        call = Call(settings.app_id, self._identify(df), batch_id, self._offsets(df, batch_id))
        rows = BatchRows(df, settings.layout, self._write_mode, self._sizes)
        try:
            outcome = self._opened().write(call, rows)
        finally:
            rows.close()
        if not isinstance(outcome, Committed):
            drain(df)
        return outcome

    def _opened(self) -> Batches:
        if self._batches is None:
            # Tasks get what opens the storage from the driver.
            storage = self._storage.with_pickled_credentials()
            self._batches = Batches.open(storage, self._settings)
        return self._batches

    def _identify(self, df: DataFrame) -> str:
        """The id of the query that delivers the batch."""
        if self._query_id is None:
            self._query_id = self._read_query_id(df)
        return self._query_id

    def _read_query_id(self, df: DataFrame) -> str:
        spark = df.sparkSession
        if self._checkpoint is not None:
            return read_query_id(self._checkpoint, reader_of(spark, self._checkpoint))
        context: Any = getattr(spark, "sparkContext", None)
        found = None if context is None else context.getLocalProperty(_QUERY_ID)
        if not found:
            message = (
                "the query cannot be told: pass checkpoint_location, the one of the query, to"
                " icechunk_sink(); Spark Connect needs it"
            )
            raise InvalidInputError(message)
        return str(found)

    def _offsets(self, df: DataFrame, batch_id: int) -> BatchOffsets | None:
        if self._checkpoint is None:
            return None
        return read_offsets(
            self._checkpoint, batch_id, reader_of(df.sparkSession, self._checkpoint)
        )
