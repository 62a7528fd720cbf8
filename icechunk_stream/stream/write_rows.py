"""Rows into a session: placed, written as chunks, and the arrays grown to hold them."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from icechunk_stream.stream.arrays import open_group
from icechunk_stream.stream.growing import grow
from icechunk_stream.stream.known import Known
from icechunk_stream.stream.ledger import Counts
from icechunk_stream.stream.packs import PackWriter
from icechunk_stream.stream.placement import coordinate_values
from icechunk_stream.stream.refs_batch import ref_tables
from icechunk_stream.stream.rejected import BadRowsPolicy
from icechunk_stream.stream.targets import Plan, Policies
from icechunk_stream.stream.write_chunks import write_labels

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    import pyarrow as pa

    from icechunk_stream.session import Session
    from icechunk_stream.stream.arrays import OpenGroup
    from icechunk_stream.stream.axes import Axis
    from icechunk_stream.stream.layout import Rows
    from icechunk_stream.stream.refs_batch import Refs
    from icechunk_stream.stream.row_source import RowSource
    from icechunk_stream.stream.targets import ArrayTarget
    from icechunk_stream.stream.warm_units import WarmUnits


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
    storage, warm = session.reader.assets.storage, destination.known.warm
    warm.begin()
    with PackWriter(storage, session.edits.inline_threshold) as writer:
        written = placed.write(plans, writer, warm)
        rejected = placed.rejected.joined(written.rejected)
        policy.check(rejected.bad)
        grown = _grown(before, written.axes)
        labels = [each.write_labels(base, writer, warm) for each in grown]
        # Chunks are stored while the session learns of them.
        writer.start()
        grow(session, group, {each.after.name: each.after.size for each in grown})
        changed = _set_refs(session, written.refs)
        _set_refs(session, labels)
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


@dataclass(frozen=True, slots=True)
class _Grown:
    """A dimension that a batch makes longer, and its coordinate array."""

    before: Axis
    after: Axis
    coordinate: ArrayTarget

    def write_labels(self, base: Session, writer: PackWriter, warm: WarmUnits) -> Refs:
        """Write the labels of what is new."""
        old, new = self.before.size, self.after.size
        plan = Plan((self.coordinate,), (new,), (self.after.growing,), base)
        return write_labels(plan, old, coordinate_values(self.after, old, new), writer, warm)


def _grown(before: OpenGroup, after: Sequence[Axis]) -> list[_Grown]:
    found = zip(before.axes, after, before.coordinates, strict=True)
    return [_Grown(*each) for each in found if each[1].size > each[0].size]


def _set_refs(session: Session, refs: Iterable[Refs]) -> int:
    tables = ref_tables(refs)
    for path, table in tables.items():
        session.edits.set_refs(path, table)
    return sum(map(len, tables.values()))
