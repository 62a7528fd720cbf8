"""Rows into a session: placed, written as chunks, and the arrays grown to hold them."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from icechunk_stream.stream.arrays import open_group
from icechunk_stream.stream.growing import grow, store_labels
from icechunk_stream.stream.known import Known
from icechunk_stream.stream.ledger import Counts
from icechunk_stream.stream.placement import coordinate_values
from icechunk_stream.stream.refs_batch import ref_tables
from icechunk_stream.stream.rejected import BadRowsPolicy
from icechunk_stream.stream.row_source import ChunkPlace
from icechunk_stream.stream.targets import Plan, Policies

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    import pyarrow as pa

    from icechunk_stream.session import Session
    from icechunk_stream.stream.axes import Axis
    from icechunk_stream.stream.layout import Rows
    from icechunk_stream.stream.refs_batch import Refs
    from icechunk_stream.stream.row_source import RowSource
    from icechunk_stream.stream.targets import ArrayTarget


@dataclass(frozen=True, slots=True)
class Destination:
    """The group that rows go to, how they are laid out in it, and what becomes of bad ones."""

    layout: Rows
    group: str
    policy: BadRowsPolicy = field(default_factory=BadRowsPolicy)
    known: Known = field(default_factory=Known)

    def path(self, name: str) -> str:
        """That of an array of the group."""
        return f"{self.group.rstrip('/')}/{name}"


@dataclass(frozen=True, slots=True)
class WrittenRows:
    """What became of the rows, how many chunks they changed, and the axes as they are now."""

    counts: Counts
    chunks: int
    axes: tuple[Axis, ...]
    rejected: tuple[pa.Table, ...]


def write_rows(
    session: Session, base: Session, destination: Destination, rows: RowSource
) -> WrittenRows:
    """Write rows to the arrays of a session; ``base`` reads the snapshot that it changes.

    Raises:
        BadRowsError: rows have no place, or values that cannot be stored, and are not left out.
        ConflictingRowsError: rows give different values to one cell.
        LayoutError: the arrays, the layout and the rows do not go together.
    """
    layout, group, policy = destination.layout, destination.group, destination.policy
    before = open_group(session, layout, group, rows.schema, destination.known)
    placed = rows.place(before.axes)
    policy.check(placed.rejected.bad)
    plans = list(make_plans(before.targets, placed.axes, layout, base))
    chunks = ChunkPlace(session.reader.assets.storage, session.edits.inline_threshold)
    with placed.writing(plans, chunks, destination.known.warm) as written:
        rejected = placed.rejected.joined(written.rejected)
        policy.check(rejected.bad)
        _grow(session, destination, before.axes, written.axes)
        changed = _set_refs(session, written.refs)
    counts = Counts(
        received=placed.rejected.bad.count + written.received,
        written=written.written,
        late=rejected.bad.late,
        duplicate=written.duplicates,
        bad=rejected.bad.count - rejected.bad.late,
    )
    return WrittenRows(counts, changed, written.axes, rejected.rows)


def make_plans(
    targets: Iterable[ArrayTarget], axes: Sequence[Axis], layout: Rows, base: Session
) -> Iterator[Plan]:
    """One plan for each grid that variables are on."""
    grids: dict[tuple[object, ...], list[ArrayTarget]] = defaultdict(list)
    for target in targets:
        grids[target.dims, target.unit].append(target)
    by_name = {axis.name: axis for axis in axes}
    for alike in grids.values():
        along = [by_name[name] for name in alike[0].dims]
        yield Plan(
            targets=tuple(alike),
            shape=tuple(axis.size for axis in along),
            grows=tuple(axis.growing for axis in along),
            base=base,
            policies=Policies(layout.on_null, layout.duplicates, layout.order_by),
        )


def _grow(
    session: Session, destination: Destination, before: Sequence[Axis], after: Sequence[Axis]
) -> None:
    """Make the arrays as long as the axes became, and store the labels of what is new."""
    longer = [(old, new) for old, new in zip(before, after, strict=True) if new.size > old.size]
    if not longer:
        return
    grow(session, destination.group, {new.name: new.size for _, new in longer})
    for old, new in longer:
        labels = coordinate_values(new, old.size, new.size)
        store_labels(session, destination.path(new.name), old.size, labels)


def _set_refs(session: Session, refs: Iterable[Refs]) -> int:
    tables = ref_tables(refs)
    for path, table in tables.items():
        session.edits.set_refs(path, table)
    return sum(map(len, tables.values()))
