"""Batches of one stream onto a branch: each judged by the ledger, written, and committed once."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from icechunk_stream.errors import RefNotFoundError
from icechunk_stream.format.paths import canonical
from icechunk_stream.refs import MAIN
from icechunk_stream.repository import Repository
from icechunk_stream.repository.splitting import split_sizes
from icechunk_stream.stream.attempts import Attempts, Stream
from icechunk_stream.stream.courtesy import Courtesy
from icechunk_stream.stream.ledger import LedgerPolicy
from icechunk_stream.stream.ledger_store import check_app_id, read_ledger
from icechunk_stream.stream.rejected import BadRowsPolicy
from icechunk_stream.stream.write_rows import Destination

if TYPE_CHECKING:
    from icechunk_stream.config import RepositoryConfig
    from icechunk_stream.storage import Storage
    from icechunk_stream.stream.attempts import KeepBadRows
    from icechunk_stream.stream.layout import Rows
    from icechunk_stream.stream.ledger import Call
    from icechunk_stream.stream.outcomes import BatchOutcome
    from icechunk_stream.stream.row_source import RowSource


@dataclass(frozen=True, slots=True)
class StreamSettings:
    """What a stream writes, and where to."""

    layout: Rows
    app_id: str
    branch: str = MAIN
    group: str = "/"
    policy: LedgerPolicy = field(default_factory=LedgerPolicy)
    bad_rows: BadRowsPolicy = field(default_factory=BadRowsPolicy)
    spec_version: int = 1
    config: RepositoryConfig | None = None
    manage_splitting: bool = True

    def __post_init__(self) -> None:
        check_app_id(self.app_id)


class Batches:
    """The batches of a stream, one after the other.

    What was read for one is kept for the next, for as long as it holds.
    """

    def __init__(self, repository: Repository, settings: StreamSettings) -> None:
        self.repository = repository
        self._stream = Stream(
            app_id=settings.app_id,
            policy=settings.policy,
            destination=Destination(settings.layout, canonical(settings.group), settings.bad_rows),
            courtesy=Courtesy(repository, settings.branch, settings.app_id),
            manage_splitting=settings.manage_splitting,
        )

    @classmethod
    def open(cls, storage: Storage, settings: StreamSettings) -> Batches:
        """Open the repository; it is created, or the branch, where it is missing."""
        repository = Repository.open_or_create(
            storage, settings.config, create_version=settings.spec_version
        )
        _require_branch(repository, settings.branch)
        batches = cls(repository, settings)
        if settings.manage_splitting and settings.config and split_sizes(settings.config):
            # Splitting that is given hides the rules that are stored.
            repository.follow_stored_splitting(batches.paths)
        return batches

    @property
    def paths(self) -> list[str]:
        """Those of the arrays that the layout has."""
        destination = self._stream.destination
        layout = destination.layout
        return [destination.path(name) for name in (*layout.dims, *layout.variables)]

    def write(self, call: Call, rows: RowSource, keep: KeepBadRows | None = None) -> BatchOutcome:
        """Commit a batch, on whatever tip the branch has by then.

        ``rows`` are not looked at where the batch is in the branch already. Bad rows that are left
        out go to ``keep`` before the commit that leaves them out.

        Raises:
            BadRowsError: rows are bad, and are not left out; nothing was committed.
            StreamError: the ledger does not allow the batch.
        """
        return Attempts(self._stream, call, rows, keep).outcome()

    def next_id(self) -> int:
        """The batch that comes after the last one of the stream."""
        session = self.repository.readonly_session(self._stream.branch)
        entry = read_ledger(session.reader, self._stream.app_id)
        return 0 if entry is None else entry.batch_id + 1


def _require_branch(repository: Repository, branch: str) -> None:
    try:
        repository.lookup_branch(branch)
    except RefNotFoundError:
        repository.create_branch(branch, repository.lookup_branch(MAIN))
