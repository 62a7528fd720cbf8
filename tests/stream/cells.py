"""What cells hold after rows were written to them, in plain Python; plans onto stored arrays."""

from __future__ import annotations

import json
from dataclasses import dataclass
from itertools import groupby
from typing import TYPE_CHECKING, Any

import numpy as np
import zarr

from icechunk_stream.stream.cf_attributes import encoding_of
from icechunk_stream.stream.targets import ArrayTarget, Plan, Policies
from icechunk_stream.stream.write_chunks import write_chunks

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    import pyarrow as pa

    import icechunk_stream as ic
    from icechunk_stream.stream.packs import PackWriter
    from icechunk_stream.stream.refs_batch import Refs

Cell = tuple[int, ...]


class Conflict(Exception):  # noqa: N818 - an outcome
    """Rows give different values to one cell."""


@dataclass(frozen=True)
class Row:
    """A row: where it belongs, its values by variable, and what orders it."""

    cell: Cell
    values: tuple[Any, ...]
    is_delete: bool = False
    order: int = 0


def target_of(session: ic.Session, name: str, dims: Sequence[str]) -> ArrayTarget:
    """The target of a stored array, whose column has its name."""
    document = session.reader.array(f"/{name}").user_data
    parsed = json.loads(document)
    unit = tuple(parsed["chunk_grid"]["configuration"]["chunk_shape"])
    dtype = zarr.open_array(session.store, path=name, mode="r").dtype
    encoding = encoding_of(dtype, parsed.get("attributes", {}), name)
    return ArrayTarget(
        f"/{name}", name, tuple(dims), document, tuple(parsed["shape"]), unit, encoding
    )


def plan_of(session: ic.Session, names: Sequence[str], dims: Sequence[str], **options: Any) -> Plan:
    """A plan onto the stored arrays, with the session as its base."""
    targets = tuple(target_of(session, name, dims) for name in names)
    options.setdefault("shape", targets[0].shape)
    options.setdefault("grows", (False,) * len(dims))
    return Plan(targets, base=session, **options)


def stored_refs(
    rows: Iterable[pa.RecordBatch], plan: Plan, writer: PackWriter, *options: Any, **named: Any
) -> list[Refs]:
    """The references of rows, whose chunks are stored."""
    refs = [*write_chunks(rows, plan, writer, *options, **named)]
    writer.flush()
    return refs


def expected(
    base: np.ndarray[Any, Any],
    shape: Cell,
    fill: Any,
    rows: Sequence[Row],
    variable: int,
    policies: Policies,
) -> np.ndarray[Any, Any]:
    """The array after a batch.

    Raises:
        Conflict: the policies do not decide between rows.
    """
    result = np.full(shape, fill, base.dtype)
    result[tuple(map(slice, base.shape))] = base
    for cell, group in groupby(sorted(rows, key=lambda row: row.cell), lambda row: row.cell):
        events = [
            (row.order, fill if row.is_delete else row.values[variable])
            for row in group
            if row.is_delete or row.values[variable] is not None or policies.on_null == "fill"
        ]
        said = [event for event in events if event[1] is not None]
        if said:
            result[cell] = _winner(said, policies)
        elif events:
            result[cell] = fill
    return result


def _winner(events: Sequence[tuple[int, Any]], policies: Policies) -> Any:
    orders = [order for order, _ in events]
    wins = {"error": set(orders), "first": {min(orders)}, "last": {max(orders)}}
    rivals = [value for order, value in events if order in wins[policies.duplicates]]
    if not all(_same(value, rivals[0]) for value in rivals):
        raise Conflict
    return rivals[0]


def _same(left: Any, right: Any) -> bool:
    return bool(left == right or (left != left and right != right))  # noqa: PLR0124
