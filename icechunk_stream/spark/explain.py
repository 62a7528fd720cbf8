"""What the next batch would do with the rows of a DataFrame."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import pyspark.sql.functions as sql

from icechunk_stream.errors import InvalidInputError
from icechunk_stream.spark.batch_sizes import BatchSizes
from icechunk_stream.spark.sources import BatchRows
from icechunk_stream.spark.tasks import PlacedInTasks
from icechunk_stream.stream.coverage import CELL, PLAN, ROWS, UNIT, set_column
from icechunk_stream.stream.explaining import explain, units_in_memory

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    import pyarrow as pa
    from pyspark.sql import DataFrame

    from icechunk_stream.spark.sources import WriteMode
    from icechunk_stream.storage import Storage
    from icechunk_stream.stream.batch import StreamSettings
    from icechunk_stream.stream.coverage import Counter
    from icechunk_stream.stream.explanation import Explanation
    from icechunk_stream.stream.row_source import PlacedSource


def explain_rows(
    df: DataFrame, storage: Storage, settings: StreamSettings, write_mode: WriteMode = "auto"
) -> Explanation:
    """What the next batch of a stream would do with the rows of a DataFrame. Nothing is stored.

    This takes about as long as the batch itself: give as many rows as one has.

    Raises:
        LayoutError: the arrays, the layout and the rows do not go together.
    """
    if df.isStreaming:
        message = (
            "a stream has no rows to look at before it runs: explain a batch of it, read from the"
            " same place with spark.read in place of spark.readStream"
        )
        raise InvalidInputError(message)
    # Tasks get what opens the storage from the driver.
    place = storage.with_pickled_credentials()
    rows = BatchRows(df, settings.layout, write_mode, BatchSizes())
    return explain(place, settings, rows, _units)


def _units(placed: PlacedSource, counter: Counter) -> pa.Table:
    if not isinstance(placed, PlacedInTasks):
        return units_in_memory(placed, counter)
    flags = [set_column(at) for at in range(counter.width)]
    found = placed.df.mapInArrow(_CellCounter(counter), _ddl(flags))
    any_set = [sql.bool_or(name).alias(name) for name in flags]
    cells = found.groupBy(PLAN, UNIT, CELL).agg(sql.sum(ROWS).alias(ROWS), *any_set)
    numbers = [sql.sum(sql.col(name).cast("long")).alias(name) for name in flags]
    return cells.groupBy(PLAN, UNIT).agg(sql.sum(ROWS).alias(ROWS), *numbers).toArrow()


@dataclass(frozen=True, slots=True)
class _CellCounter:
    """Counts the rows of one task."""

    counter: Counter

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            yield from self.counter.cells(batch).to_batches()


def _ddl(flags: Iterable[str]) -> str:
    numbers = [f"{name} long" for name in (PLAN, UNIT, CELL, ROWS)]
    return ", ".join(numbers + [f"{name} boolean" for name in flags])
