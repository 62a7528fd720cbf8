"""Rows that are left out of a batch: as tables with the column to blame and a reason."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, TypeAlias, get_args

import numpy as np
import pyarrow as pa

from icechunk_stream.errors import BadRowsError, InvalidInputError
from icechunk_stream.stream.bad_rows import BadRows, reason_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    import numpy.typing as npt

MAX_BAD_ROWS = 10_000
# Columns that rejected rows have besides their own, and what these are called where they are kept.
BAD_COLUMN = "#bad_column"
BAD_REASON = "#bad_reason"
KEPT_NAMES = {BAD_COLUMN: "bad_column", BAD_REASON: "bad_reason"}

WhatToDo: TypeAlias = Literal["fail", "drop", "keep"]


@dataclass(frozen=True, slots=True)
class BadRowsPolicy:
    """What becomes of bad rows: their batch fails, or goes on without up to ``most`` of them."""

    what: WhatToDo = "fail"
    most: int = MAX_BAD_ROWS

    def __post_init__(self) -> None:
        if self.what not in get_args(WhatToDo):
            raise InvalidInputError(f"bad rows are to {self.what!r}: give 'fail', 'drop' or 'keep'")
        if self.most not in range(MAX_BAD_ROWS + 1):
            message = f"max_bad_rows is {self.most!r}: give a number from 0 to {MAX_BAD_ROWS}"
            raise InvalidInputError(message)

    def check(self, bad: BadRows) -> None:
        """Go on without the bad rows, or refuse the batch.

        Raises:
            BadRowsError: with the counts, the reasons, and the first examples.
        """
        if self.what == "fail":
            bad.refuse()
        elif bad.count > self.most:
            raise BadRowsError(f"more than max_bad_rows={self.most} of a batch are bad: {bad}")


def rejected(
    rows: pa.Table | pa.RecordBatch, column: str, reasons: npt.NDArray[np.uint8]
) -> pa.Table:
    """The rows that a reason is given for, as many as are kept."""
    at = np.flatnonzero(reasons)[: MAX_BAD_ROWS + 1]
    chosen = rows.take(pa.array(at))
    columns = [pa.repeat(pa.scalar(column), len(at)), pa.array(reasons[at], pa.uint8())]
    names = [*chosen.schema.names, BAD_COLUMN, BAD_REASON]
    return pa.table([*chosen.columns, *columns], names)


def bad_rows_of(found: Iterable[pa.Table | pa.RecordBatch]) -> BadRows:
    """Rejected rows by column and reason."""
    bad = BadRows()
    for rows in found:
        blamed = rows.column(BAD_COLUMN).to_numpy(zero_copy_only=False)
        for name in dict.fromkeys(blamed.tolist()):
            chosen = rows.filter(pa.array(blamed == name))
            reasons = chosen.column(BAD_REASON).to_numpy()
            bad = bad.with_reasons(name, chosen.column(name), reasons)
    return bad


def for_keeping(found: Sequence[pa.Table], schema: pa.Schema) -> pa.Table:
    """Rejected rows with the columns of their batch, and why they are bad in words.

    What a table lacks of the columns is null.
    """
    kept = schema.append(pa.field(KEPT_NAMES[BAD_COLUMN], pa.string()))
    kept = kept.append(pa.field(KEPT_NAMES[BAD_REASON], pa.string()))
    parts = [_in_words(rows, kept) for rows in found]
    return pa.concat_tables(parts) if parts else kept.empty_table()


def _in_words(rows: pa.Table, schema: pa.Schema) -> pa.Table:
    codes = rows.column(BAD_REASON).to_numpy()
    texts = {code: reason_of(code).text for code in np.unique(codes).tolist()}
    reasons = pa.array([texts[code] for code in codes.tolist()], pa.string())
    named = rows.drop_columns([BAD_REASON]).append_column(KEPT_NAMES[BAD_REASON], reasons)
    named = named.rename_columns({BAD_COLUMN: KEPT_NAMES[BAD_COLUMN]})
    columns = [
        named.column(field.name).cast(field.type)
        if field.name in named.column_names
        else pa.nulls(len(rows), field.type)
        for field in schema
    ]
    return pa.table(columns, schema)
