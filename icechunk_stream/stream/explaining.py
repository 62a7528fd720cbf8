"""Works out what a batch would do: its rows are counted, and then written where nobody sees it."""

from __future__ import annotations

from collections import Counter as Tally
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from icechunk_stream.assets import chunk_key
from icechunk_stream.errors import IcechunkError, RefNotFoundError
from icechunk_stream.format.chunk_refs import NativeChunk
from icechunk_stream.format.paths import canonical
from icechunk_stream.repository import Repository
from icechunk_stream.storage.shadow import ShadowStorage
from icechunk_stream.stream.arrays import open_group
from icechunk_stream.stream.base_units import BaseUnits
from icechunk_stream.stream.batch import Batches
from icechunk_stream.stream.coverage import Counter, covered, marches_on, tolerant
from icechunk_stream.stream.dtypes import STRING
from icechunk_stream.stream.explanation import (
    ExpectedCommit,
    ExpectedObjects,
    ExplainedArray,
    ExplainedDimension,
    Explanation,
)
from icechunk_stream.stream.ledger import Call
from icechunk_stream.stream.ledger_store import read_ledger
from icechunk_stream.stream.row_source import PlacedInMemory
from icechunk_stream.stream.write_rows import make_plans

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    import pyarrow as pa

    from icechunk_stream.session import Session
    from icechunk_stream.storage import Storage
    from icechunk_stream.stream.arrays import OpenGroup
    from icechunk_stream.stream.axes import Axis
    from icechunk_stream.stream.batch import StreamSettings
    from icechunk_stream.stream.coverage import Covered
    from icechunk_stream.stream.encodings import Encoding
    from icechunk_stream.stream.row_source import PlacedSource, RowSource

# Who delivers a batch to a stream that nobody wrote yet.
_NO_QUERY = "explain"


class CountUnits(Protocol):
    """Counts rows where they are."""

    def __call__(self, placed: PlacedSource, counter: Counter, /) -> pa.Table:
        """What ``Counter.units`` says of all rows that have their places."""


def units_in_memory(placed: PlacedSource, counter: Counter) -> pa.Table:
    """Counts rows of this process."""
    assert isinstance(placed, PlacedInMemory)
    return counter.units(counter.cells(placed.rows.table))


def explain(
    storage: Storage,
    settings: StreamSettings,
    rows: RowSource,
    count: CountUnits = units_in_memory,
) -> Explanation:
    """What the next batch of a stream would do with these rows. Nothing is stored.

    The rows are written in earnest over a storage that is only read, so that this takes about as
    long as the batch itself.

    Raises:
        LayoutError: the arrays, the layout and the rows do not go together.
    """
    is_new = not Repository.exists(storage)
    tip = None if is_new else _tip(storage, settings)
    rehearsal = _Rehearsal.of(storage, settings)
    session = rehearsal.repository.writable_session(settings.branch)
    base = rehearsal.repository.readonly_session(snapshot_id=session.snapshot_id)
    call, query_id = _next_call(base, settings)
    group = open_group(session, settings.layout, canonical(settings.group), rows.schema)
    placed = rows.place(tolerant(group.axes))
    plans = tuple(make_plans(group.targets, placed.axes, settings.layout, base))
    counter = Counter(placed.axes, plans)
    units = count(placed, counter)
    arrays = covered(counter, units)
    objects, refusal = rehearsal.objects(call, rows, arrays)
    return Explanation(
        repository=repr(storage),
        is_new=is_new,
        commit=ExpectedCommit(settings.app_id, call.batch_id, query_id, settings.branch, tip),
        rows=counter.count(units) + placed.rejected.bad.count,
        bad=placed.rejected.bad.joined(counter.bad_rows(units)),
        dims=tuple(_dimensions(group, placed.axes, base, settings)),
        arrays=tuple(_array(each, placed.axes, base) for each in arrays),
        objects=objects,
        refusal=refusal,
    )


@dataclass(frozen=True, slots=True, eq=False)
class _Rehearsal:
    """A stream whose commits are seen by nobody."""

    shadow: ShadowStorage
    batches: Batches
    repository: Repository

    @classmethod
    def of(cls, storage: Storage, settings: StreamSettings) -> _Rehearsal:
        shadow = ShadowStorage(storage)
        batches = Batches.open(shadow, settings)
        return cls(shadow, batches, Repository.open(shadow, settings.config))

    def objects(
        self, call: Call, rows: RowSource, arrays: Sequence[Covered]
    ) -> tuple[ExpectedObjects | None, str | None]:
        """What the batch writes; or nothing, and why it fails."""
        before = len(self.shadow.writes)
        try:
            outcome = self.batches.write(call, rows)
        except IcechunkError as error:
            return None, f"{type(error).__name__}: {error}"
        found = list(self.shadow.writes[before:])
        # What tasks wrote, the storage of this process has not seen.
        known = {key for key, _ in found}
        packs = self._packs(getattr(outcome, "snapshot_id", None), arrays)
        found += [(key, size) for key, size in packs.items() if key not in known]
        folders = Tally(key.partition("/")[0] for key, _ in found)
        return ExpectedObjects(tuple(sorted(folders.items())), sum(size for _, size in found)), None

    def _packs(self, snapshot_id: str | None, arrays: Sequence[Covered]) -> dict[str, int]:
        """The objects with the chunks that the batch touches."""
        if snapshot_id is None:
            return {}
        reader = self.repository.readonly_session(snapshot_id=snapshot_id).reader
        sizes: Tally[str] = Tally()
        for each in arrays:
            node = reader.array(each.target.path)
            for unit in each.units.tolist():
                payload = reader.payload(node, tuple(unit))
                if isinstance(payload, NativeChunk):
                    sizes[chunk_key(payload)] += payload.length
        return dict(sizes)


def _tip(storage: Storage, settings: StreamSettings) -> str | None:
    try:
        return Repository.open(storage, settings.config).lookup_branch(settings.branch)
    except RefNotFoundError:
        return None


def _next_call(base: Session, settings: StreamSettings) -> tuple[Call, str | None]:
    """The batch that the ledger waits for, and the query that wrote those before."""
    entry = read_ledger(base.reader, settings.app_id)
    if entry is None:
        return Call(settings.app_id, _NO_QUERY, 0), None
    return Call(settings.app_id, entry.query_id, entry.batch_id + 1), entry.query_id


def _dimensions(
    group: OpenGroup, axes: Iterable[Axis], base: Session, settings: StreamSettings
) -> Iterator[ExplainedDimension]:
    folder = canonical(settings.group).rstrip("/")
    for old, new in zip(group.axes, axes, strict=True):
        path = f"{folder}/{old.name}"
        is_new = base.reader.node(path) is None
        units = old.encoding.units
        yield ExplainedDimension(
            name=old.name,
            column=old.column,
            kind=repr(old.dimension),
            path=path,
            dtype=_name(old.encoding),
            units=None if units is None else units.text,
            is_new=is_new,
            before=0 if is_new else old.size,
            after=new.size,
        )


def _array(each: Covered, axes: Iterable[Axis], base: Session) -> ExplainedArray:
    target, stored = each.target, BaseUnits(base)
    marching = {axis.name for axis in axes if marches_on(axis)}
    partial = each.units[each.given < each.inside].tolist()
    return ExplainedArray(
        path=target.path,
        column=target.column,
        dims=target.dims,
        marches=tuple(dim in marching for dim in target.dims),
        dtype=_name(target.encoding),
        chunk=target.unit,
        is_new=base.reader.node(target.path) is None,
        item_size=target.encoding.dtype.itemsize,
        chunks=len(each.units),
        rewritten=sum(stored.holds(target.path, tuple(unit)) for unit in partial),
        cells_given=int(each.given.sum()),
        cells_written=int(each.inside.sum()),
        cells_full=int(each.full.sum()),
    )


def _name(encoding: Encoding) -> str:
    return STRING if encoding.dtype.kind in "OT" else str(encoding.dtype)
