"""What has to hold before a stream starts, checked one by one: a failed check raises nothing."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from icechunk_stream.effects import now_micros
from icechunk_stream.errors import IcechunkError
from icechunk_stream.format.paths import canonical
from icechunk_stream.preparing import check_clock
from icechunk_stream.repository import Repository
from icechunk_stream.storage import probe_conditional_writes
from icechunk_stream.storage.shadow import ShadowStorage
from icechunk_stream.stream.arrays import open_group
from icechunk_stream.stream.batch import Batches
from icechunk_stream.stream.dimensions import Append
from icechunk_stream.stream.ledger_store import read_ledger

if TYPE_CHECKING:
    from icechunk_stream.reading import SnapshotReader
    from icechunk_stream.storage import Storage
    from icechunk_stream.stream.batch import StreamSettings
    from icechunk_stream.stream.layout import Rows
    from icechunk_stream.stream.ledger import Adopt, LedgerEntry


@dataclass(frozen=True, slots=True)
class Check:
    """One check: what was found, and what to do where that is not good."""

    name: str
    ok: bool
    found: str
    advice: str = ""

    def __str__(self) -> str:
        advice = f". What to do: {self.advice}" if self.advice else ""
        return f"{'ok    ' if self.ok else 'FAILED'} {self.name}: {self.found}{advice}"


@dataclass(frozen=True, slots=True)
class Validation:
    """All checks in the order in which they were made."""

    checks: tuple[Check, ...]

    @property
    def ok(self) -> bool:
        return all(check.ok for check in self.checks)

    @property
    def failed(self) -> tuple[Check, ...]:
        return tuple(check for check in self.checks if not check.ok)

    def __getitem__(self, name: str) -> Check:
        return next(check for check in self.checks if check.name == name)

    def __str__(self) -> str:
        return "\n".join(map(str, self.checks))


def check_storage(storage: Storage) -> Check:
    """Whether this process reads there and writes with conditions; the probe is deleted again."""
    try:
        is_there = Repository.exists(storage)
        probe = probe_conditional_writes(storage)
        if probe is not None and not storage.decides_races:
            check_clock(storage, probe.modified_at, now_micros())
    except (IcechunkError, OSError) as error:
        advice = "check the location, and that its credentials may read, write and delete there"
        return Check("storage", False, str(error), advice)
    what = "has a repository" if is_there else "has no repository: the first batch makes it"
    return Check("storage", True, f"{storage!r} takes conditional writes, and {what}")


def check_arrays(storage: Storage, settings: StreamSettings) -> Check:
    """Whether the layout goes with the arrays that are there; nothing is written."""
    try:
        found = _arrays(ShadowStorage(storage), settings)
    except (IcechunkError, OSError) as error:
        advice = "change the layout to what is there, or write to another group"
        return Check("layout", False, f"{type(error).__name__}: {error}", advice)
    return Check("layout", True, found)


def check_ledger(storage: Storage, settings: StreamSettings, query_id: str | None) -> Check:
    """Whether the query goes on where the stream was left."""
    try:
        entry = _entry(ShadowStorage(storage), settings)
    except (IcechunkError, OSError) as error:
        return Check("ledger", False, f"{type(error).__name__}: {error}", "repair the repository")
    if entry is None:
        found = f"the stream {settings.app_id!r} is new to {settings.branch!r}"
        return Check("ledger", True, f"{found}: its first batch is 0")
    wrote = f"query {entry.query_id} wrote {settings.app_id!r} up to batch {entry.batch_id}"
    if query_id == entry.query_id or _adopts(settings.policy.adopt, query_id):
        return Check("ledger", True, wrote)
    if query_id is None:
        return Check("ledger", False, f"{wrote}, and the checkpoint is fresh", _OTHER_QUERY)
    return Check("ledger", False, f"{wrote}, and the checkpoint is of {query_id}", _OTHER_QUERY)


_OTHER_QUERY = (
    "give the stream's own checkpoint; if it is lost, let the sources begin where the ledger's"
    " offsets end, and hand the stream over with adopt=Adopt(query_id=<the new one>,"
    " first_batch=0)"
)


def _adopts(adopt: Adopt | None, query_id: str | None) -> bool:
    return adopt is not None and query_id in (None, adopt.query_id)


def _entry(shadow: ShadowStorage, settings: StreamSettings) -> LedgerEntry | None:
    repository = Batches.open(shadow, settings).repository
    return read_ledger(repository.readonly_session(settings.branch).reader, settings.app_id)


def _arrays(shadow: ShadowStorage, settings: StreamSettings) -> str:
    session = Batches.open(shadow, settings).repository.writable_session(settings.branch)
    group = canonical(settings.group)
    names = [*settings.layout.dims, *settings.layout.variables]
    there = [name for name in names if session.reader.node(_path(group, name)) is not None]
    known = _known_part(settings.layout, session.reader, group)
    if known is not None:
        open_group(session, known, group)
    made = [name for name in names if name not in there]
    parts = [f"{group} has {', '.join(there)}"] if there else []
    parts += [f"the first batch makes {', '.join(made)} in {group}"] if made else []
    return "; ".join(parts)


def _known_part(layout: Rows, reader: SnapshotReader, group: str) -> Rows | None:
    """The layout without arrays that take their types from rows, which are yet to come."""
    dims = {
        name: dimension
        for name, dimension in layout.dims.items()
        if not isinstance(dimension, Append)
        or dimension.coordinate.dtype is not None
        or reader.node(_path(group, name)) is not None
    }
    variables = {
        name: variable
        for name, variable in layout.variables.items()
        if dims.keys() >= set(layout.dims_of(name))
        and (variable.dtype is not None or reader.node(_path(group, name)) is not None)
    }
    if not variables:
        return None
    chunks, shards = (
        {dim: size for dim, size in given.items() if dim in dims}
        for given in (layout.chunks, layout.shards)
    )
    return replace(layout, dims=dims, variables=variables, chunks=chunks, shards=shards)


def _path(group: str, name: str) -> str:
    return f"{group.rstrip('/')}/{name}"
