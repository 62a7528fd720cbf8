"""A session: one snapshot of a repository, opened for reading or for changes on a branch."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Self

import numpy as np

from icechunk_stream.changes import ChangeSet
from icechunk_stream.committing import Message
from icechunk_stream.errors import (
    ErrorKind,
    InvalidInputError,
    NodeNotFoundError,
    ReadOnlyError,
    SessionStateError,
)
from icechunk_stream.format.chunk_refs import RefKind
from icechunk_stream.format.nodes import ArrayNode
from icechunk_stream.in_thread import in_thread, iterate_in_thread
from icechunk_stream.info import ChunkType, SessionMode
from icechunk_stream.ops.diff import Diff, status
from icechunk_stream.reading import SnapshotReader
from icechunk_stream.store import IcechunkStore
from icechunk_stream.store.keys import normal_path
from icechunk_stream.store.listing import resolved
from icechunk_stream.tips import Amend, Detach
from icechunk_stream.virtual.containers import Containers
from icechunk_stream.working_copy import WorkingCopy

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator, Mapping, Sequence

    from icechunk_stream.assets import Assets
    from icechunk_stream.config import RepositoryConfig
    from icechunk_stream.conflicts import ConflictSolver
    from icechunk_stream.credentials import Authorization
    from icechunk_stream.format.ids import SnapshotId
    from icechunk_stream.format.nodes import Node
    from icechunk_stream.tips import Tip
    from icechunk_stream.working_copy import Workplace, WritingRules
    from icechunk_stream.writing import Edits

_MAX_INDEX = 2**32 - 1


class Session:
    """A snapshot of a repository; ``store`` is what zarr and xarray open.

    A writable session commits its changes to a branch. With that it becomes read-only, on the
    snapshot that it made.
    """

    def __init__(
        self,
        assets: Assets,
        config: RepositoryConfig,
        authorization: Authorization,
        snapshot_id: SnapshotId,
    ) -> None:
        self._assets = assets
        self._config = config
        self._authorization = authorization
        self._snapshot_id = snapshot_id
        self._reader: SnapshotReader | None = None
        self._work: WorkingCopy | None = None
        self._default_metadata: Mapping[str, Any] = {}

    @classmethod
    def on_branch(
        cls,
        assets: Assets,
        config: RepositoryConfig,
        authorization: Authorization,
        tip: Tip,
        place: Workplace,
    ) -> Self:
        """A writable session on the tip of a branch."""
        session = cls(assets, config, authorization, tip.id)
        session._work = WorkingCopy(assets, tip, place, session._open_reader)
        session._default_metadata = place.default_metadata
        return session

    def __reduce__(self) -> tuple[object, ...]:
        if self._work is not None:
            message = (
                "a writable session is not pickled: several processes that each hold its changes"
                " could not commit them. Session.fork() is for that, which this release lacks;"
                " commit first, or write from threads"
            )
            raise SessionStateError(message, ErrorKind.NOT_ALLOWED)
        state = (self._assets, self._config, self._authorization, self._snapshot_id)
        return (Session, state)

    def __eq__(self, value: object) -> bool:
        if not isinstance(value, Session):
            return NotImplemented
        same_place = self._assets.storage == value._assets.storage
        return same_place and self._snapshot_id == value._snapshot_id

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        where = "read-only" if self._work is None else f"writable, branch {self.branch!r}"
        return f"Session({self._assets.storage!r}, {where}, snapshot {self.snapshot_id})"

    @property
    def reader(self) -> SnapshotReader:
        """The snapshot's nodes and references; opened when first asked for."""
        if self._work is not None:
            return self._work.reader
        if self._reader is None:
            self._reader = self._open_reader(self._snapshot_id)
        return self._reader

    @property
    def edits(self) -> Edits:
        """Where the writes of the session's store go."""
        work = self._working()
        work.check_editable()
        return work.edits

    @property
    def store(self) -> IcechunkStore:
        """The zarr store of this session."""
        return IcechunkStore(self, read_only=self.read_only)

    @property
    def read_only(self) -> bool:
        return self._work is None

    @property
    def mode(self) -> SessionMode:
        return SessionMode.readonly if self._work is None else SessionMode.writable

    @property
    def snapshot_id(self) -> str:
        """The snapshot that the session reads, or that its changes are based on."""
        return str(self._snapshot_id if self._work is None else self._work.tip.id)

    @property
    def branch(self) -> str | None:
        """The branch that a writable session commits to; None for a read-only one."""
        return None if self._work is None else self._work.branch

    @property
    def has_uncommitted_changes(self) -> bool:
        return self._work is not None and not self._work.changes.is_empty

    @property
    def created(self) -> tuple[Node, ...]:
        """The groups and arrays that a commit of this session adds."""
        return () if self._work is None else tuple(self._work.changes.created.values())

    @property
    def config(self) -> RepositoryConfig:
        return self._config

    def follow(self, config: RepositoryConfig, rules: WritingRules) -> None:
        """Commit by a configuration that changed since the session was opened."""
        self._working().follow(rules)
        self._config = config

    def get_node_id(self, path: str) -> str:
        """The id that a group or array keeps for its whole life."""
        node = self._node(path)
        if node is None:
            raise NodeNotFoundError(f"no node is at {path}")
        return str(node.id)

    def chunk_type(self, array_path: str, chunk_coordinates: Sequence[int]) -> ChunkType:
        """Where the bytes of a chunk are; ``uninitialized`` where it was never written."""
        if any(not 0 <= at <= _MAX_INDEX for at in chunk_coordinates):
            message = f"invalid chunk coordinates {list(chunk_coordinates)}: they count from 0 up"
            raise InvalidInputError(message, ErrorKind.INVALID_CHUNK_INDEX)
        node = self._array(array_path)
        kind = self.reader.kind(node, tuple(chunk_coordinates))
        return ChunkType.uninitialized if kind is None else ChunkType(int(kind))

    async def chunk_coordinates(
        self, array_path: str, batch_size: int = 1000
    ) -> AsyncIterator[tuple[int, ...]]:
        """Grid coordinates of every chunk of an array that was written."""
        if batch_size < 1:
            message = f"invalid batch size {batch_size}: at least 1 is needed"
            raise InvalidInputError(message, ErrorKind.INVALID_CHUNK_INDEX)
        node = self._array(array_path)
        async for batch in iterate_in_thread(_coordinates(self.reader, node, batch_size)):
            for index in batch:
                yield tuple(index)

    def all_virtual_chunk_locations(self) -> list[str]:
        """Absolute locations of all virtual chunks."""
        locations: list[str] = []
        for node in self.reader.nodes:
            if isinstance(node, ArrayNode):
                locations.extend(_virtual_locations(self.reader, node))
        return locations

    # -- changes ---------------------------------------------------------------------------------

    def status(self) -> Diff:
        """What the session changed and has not committed."""
        if self._work is None:
            return status(ChangeSet(), self.reader.nodes)
        return status(self._work.changes, self._work.base.nodes)

    def discard_changes(self) -> None:
        """Forget everything that was not committed."""
        self._working().discard()

    def commit(
        self,
        message: str,
        metadata: dict[str, Any] | None = None,
        *,
        rebase_with: ConflictSolver | None = None,
        rebase_tries: int = 1_000,
        allow_empty: bool = False,
    ) -> str:
        """Make the changes a snapshot at the tip of the branch; its id.

        Where others committed since the session began, ``ConflictError`` is raised and nothing is
        committed. With a solver in ``rebase_with``, the changes are brought onto their commits
        instead, as often as it takes, up to ``rebase_tries`` times.
        """
        work = self._working_to_commit(allow_empty)
        said = Message(message, self._metadata(metadata))
        if rebase_with is None:
            return self._done(work.commit(said))
        return self._done(work.commit_with_rebase(said, rebase_with, rebase_tries))

    def amend(
        self, message: str, *, metadata: dict[str, Any] | None = None, allow_empty: bool = False
    ) -> str:
        """Replace the last commit of the branch by one that has these changes too (spec v2)."""
        work = self._working_to_commit(allow_empty)
        return self._done(work.amend(Message(message, self._metadata(metadata), Amend)))

    def flush(self, message: str, *, metadata: dict[str, Any] | None = None) -> str:
        """Make the changes a snapshot that no branch points to; its id."""
        work = self._working_to_commit(allow_empty=True)
        return self._done(work.flush(Message(message, self._metadata(metadata), Detach)))

    def rebase(self, solver: ConflictSolver) -> None:
        """Bring the changes onto the tip of the branch.

        Raises:
            RebaseFailedError: the solver does not resolve a conflict. The session then is based on
                the last commit that its changes fit.
        """
        self._working_to_commit(allow_empty=True).rebase(solver)

    commit_async = in_thread(commit)
    amend_async = in_thread(amend)
    flush_async = in_thread(flush)
    rebase_async = in_thread(rebase)
    get_node_id_async = in_thread(get_node_id)
    chunk_type_async = in_thread(chunk_type)
    all_virtual_chunk_locations_async = in_thread(all_virtual_chunk_locations)

    def _open_reader(self, id: SnapshotId) -> SnapshotReader:
        containers = (self._config.virtual_chunk_containers or {}).values()
        holders = Containers(containers, self._authorization)
        return SnapshotReader(self._assets, self._assets.snapshot(id), holders)

    def _working(self) -> WorkingCopy:
        if self._work is None:
            message = "this session is read-only: write through Repository.writable_session(branch)"
            raise ReadOnlyError(message, ErrorKind.READ_ONLY_SESSION)
        return self._work

    def _working_to_commit(self, allow_empty: bool) -> WorkingCopy:
        if self._work is None:
            message = (
                "this session is read-only, or was committed already: begin the next change with"
                " Repository.writable_session(branch)"
            )
            raise SessionStateError(message, ErrorKind.COMMIT_NOT_ALLOWED)
        if self._work.changes.is_empty and not allow_empty:
            message = "the session has no changes to commit: use allow_empty=True to commit anyway"
            raise SessionStateError(message, ErrorKind.NO_CHANGES_TO_COMMIT)
        return self._work

    def _metadata(self, metadata: Mapping[str, Any] | None) -> dict[str, Any]:
        return {**self._default_metadata, **(metadata or {})}

    def _done(self, id: SnapshotId) -> str:
        """From here on the session reads the snapshot that it made."""
        self._snapshot_id, self._work, self._reader = id, None, None
        return str(id)

    def _node(self, path: str) -> Node | None:
        return self.reader.node(_absolute(path))

    def _array(self, path: str) -> ArrayNode:
        return self.reader.array(_absolute(path))


def _absolute(path: str) -> str:
    normal = normal_path(path) if path.startswith("/") else None
    if normal is None:
        message = f"invalid path {path!r}: write it from the root, as in /group/array, without .."
        raise InvalidInputError(message, ErrorKind.INVALID_PATH)
    return normal


def _coordinates(
    reader: SnapshotReader, node: ArrayNode, batch_size: int
) -> Iterator[list[list[int]]]:
    for columns in reader.all_columns(node):
        for first in range(0, len(columns), batch_size):
            batch: list[list[int]] = columns.indices(slice(first, first + batch_size)).tolist()
            yield batch


def _virtual_locations(reader: SnapshotReader, node: ArrayNode) -> Iterator[str]:
    for columns in reader.all_columns(node):
        rows = np.flatnonzero(columns.kinds == RefKind.VIRTUAL)
        if len(rows):
            yield from resolved(columns.locations(rows), reader.containers.resolve).tolist()
