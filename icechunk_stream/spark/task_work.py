"""What tasks do with their rows; pickled to executors."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import pyarrow as pa

from icechunk_stream.errors import StreamError
from icechunk_stream.spark.parcels import from_parcels, packed
from icechunk_stream.stream.row_source import most_duplicates
from icechunk_stream.stream.tally import Tally
from icechunk_stream.stream.targets import index_column
from icechunk_stream.stream.write_chunks import write_chunks

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from icechunk_stream.stream.row_source import ChunkPlace
    from icechunk_stream.stream.targets import Plan

_COUNTS = ("received", "written", "duplicates")
_REPORT = pa.schema(
    [("refs", pa.binary()), ("rejected", pa.binary()), *((name, pa.int64()) for name in _COUNTS)]
)
REPORT_DDL = "refs binary, rejected binary, received long, written long, duplicates long"


def quoted(name: str) -> str:
    """A column as Spark takes it, whatever is in its name."""
    return f"`{name.replace('`', '``')}`"


@dataclass(frozen=True, slots=True)
class UnitWriter:
    """Stores the units of one task, and reports their references and what was left out."""

    plan: Plan
    chunks: ChunkPlace
    are_parcels: bool

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        tally = Tally(self.plan)
        rows = map(self._placed, from_parcels(batches) if self.are_parcels else batches)
        for refs in write_chunks(rows, self.plan, self.chunks.writer(), tally):
            yield _report(refs=packed(refs))
        for rows in tally.bad_rows:
            yield _report(rejected=packed(rows))
        counts = (tally.rows + tally.bad, tally.rows, most_duplicates(tally))
        yield _report(**dict(zip(_COUNTS, counts, strict=True)))

    def _placed(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """The rows, none of which lacks its place."""
        for name in self.plan.dims:
            if batch.column(index_column(name)).null_count:
                message = (
                    f"rows have labels along {name!r} that were not there when the labels of the"
                    " batch were read: its DataFrame gives other rows each time that it runs. Take"
                    " out what is random or asks for the time, or use write_mode='driver'"
                )
                raise StreamError(message)
        return batch


def _report(**found: bytes | int) -> pa.RecordBatch:
    row = dict.fromkeys(_COUNTS, 0) | {"refs": None, "rejected": None} | found
    return pa.RecordBatch.from_pylist([row], _REPORT)
