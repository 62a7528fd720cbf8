"""One library at work on a repository: plain values in, plain values out."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path
from typing import Any

from tests.alternation.edits import VIRTUAL_BYTES, Edit, apply_edit
from tests.alternation.seen import plain_diff, plain_info, seen
from tests.oracle.dump import dump_repository
from tests.oracle.outcomes import kind_of, outcome

CONFLICT_KINDS = (
    *("NewNodeConflictsWithExistingNode", "NewNodeInInvalidGroup", "ZarrMetadataDoubleUpdate"),
    *("ZarrMetadataUpdateOfDeletedArray", "ZarrMetadataUpdateOfDeletedGroup"),
    *("ChunkDoubleUpdate", "ChunksUpdatedInDeletedArray", "ChunksUpdatedInUpdatedArray"),
    *("DeleteOfUpdatedArray", "DeleteOfUpdatedGroup", "MoveOperationCannotBeRebased"),
)
SOLVERS = ("detector", "ours", "theirs", "fail", "keep deleted")


@dataclass(frozen=True)
class Settings:
    """What of a configuration matters here; ``split`` is the size of cells on the first axis."""

    threshold: int = 512
    split: int | None = None
    updates_per_file: int | None = None


@dataclass(frozen=True)
class Failed:
    """``kind`` is None where a library has no codes of errors; ``details`` are of conflicts."""

    kind: str | None
    details: tuple[Any, ...] = ()


@dataclass
class Driver:
    """``handle`` is kept over many steps, so that it knows old versions of everything."""

    ic: Any
    folder: str
    handle: Any = None
    sessions: dict[int, Any] = field(default_factory=dict)
    numbers: Any = field(default_factory=itertools.count)

    @property
    def location(self) -> str:
        return f"{self.folder}/repository"

    @property
    def prefix(self) -> str:
        return f"file://{self.folder}/files/"

    # -- the repository --------------------------------------------------------------------------

    def create(self, spec_version: int, settings: Settings) -> None:
        files = Path(self.folder, "files")
        files.mkdir()
        (files / "virtual.bin").write_bytes(VIRTUAL_BYTES)
        config = self.ic.RepositoryConfig.default()
        store = self.ic.local_filesystem_store(str(files))
        container = self.ic.VirtualChunkContainer(self.prefix, store)
        config.set_virtual_chunk_container(container)
        self._apply(config, settings)
        more = {"spec_version": spec_version} if self._knows_v2 else {}
        self.ic.Repository.create(self._storage(), config, **more)

    def reopen(self) -> None:
        self.handle = None

    def repository(self, *, fresh: bool) -> Any:
        if fresh or self.handle is None:
            access = getattr(self.ic.credentials, "LocalFileSystemAccess", None)
            granted = self.ic.containers_credentials({self.prefix: access})
            opened = self.ic.Repository.open(
                self._storage(), authorize_virtual_chunk_access=granted
            )
            if fresh:
                return opened
            self.handle = opened
        return self.handle

    def call(self, name: str, *arguments: Any, fresh: bool = False, **named: Any) -> Any:
        """A method of the repository whose answer is plain, or its failure."""
        return self._tried(
            partial(getattr(self.repository(fresh=fresh), name), *arguments, **named)
        )

    def configure(self, settings: Settings) -> None:
        repository = self.repository(fresh=True)
        config = repository.config
        self._apply(config, settings)
        repository.reopen(config=config).save_config()

    def set_status(self, availability: str, reason: str | None) -> None:
        known = getattr(self.ic.RepoAvailability, availability)
        status = self.ic.RepoStatus(known, limited_availability_reason=reason)
        self.repository(fresh=False).set_status(status)

    def parents(self, ids: Sequence[str]) -> dict[str, str | None]:
        """Parents of those snapshots that are there."""
        look_up = self.repository(fresh=True).lookup_snapshot
        found = {id: outcome(look_up, id) for id in ids}
        return {id: info.parent_id for id, info in found.items() if hasattr(info, "parent_id")}

    def times(self, branch: str) -> list[datetime]:
        infos = self.repository(fresh=True).ancestry(branch=branch)
        return [info.written_at for info in infos]

    # -- what is there ---------------------------------------------------------------------------

    def told(self, branch: str, parent: str | None) -> dict[str, Any]:
        """Refs, and of one branch its history, its last change and its contents, opened afresh."""
        repository = self.repository(fresh=True)
        told = {
            "branches": {
                name: repository.lookup_branch(name) for name in repository.list_branches()
            },
            "tags": {name: repository.lookup_tag(name) for name in repository.list_tags()},
            "ancestry": [plain_info(info) for info in repository.ancestry(branch=branch)],
            "seen": seen(repository.readonly_session(branch)),
        }
        if self._knows_v2:
            told["metadata"] = outcome(repository.get_metadata)
        if parent is not None:
            diff = partial(repository.diff, from_snapshot_id=parent, to_branch=branch)
            told["diff"] = outcome(lambda: plain_diff(diff()))
        return told

    def dump(self) -> dict[str, Any]:
        return dump_repository(self.ic, self.location, [self.prefix])

    # -- sessions --------------------------------------------------------------------------------

    def begin(self, branch: str, fresh: bool) -> int:
        number = next(self.numbers)
        self.sessions[number] = self.repository(fresh=fresh).writable_session(branch)
        return int(number)

    def edit(self, session: int, edits: Sequence[Edit]) -> None:
        store = self.sessions[session].store
        for edit in edits:
            apply_edit(edit, self.ic, store)

    def seen(self, session: int) -> dict[str, Any]:
        return seen(self.sessions[session])

    def changed(self, session: int) -> tuple[Any, ...]:
        found = self.sessions[session]
        return (found.has_uncommitted_changes, found.snapshot_id, plain_diff(found.status()))

    def is_changed(self, session: int) -> bool:
        return bool(self.sessions[session].has_uncommitted_changes)

    def discard(self, session: int) -> None:
        self.sessions[session].discard_changes()

    def commit(
        self, session: int, message: str, metadata: Any, solver: str | None = None
    ) -> str | Failed:
        found = self.sessions[session]
        more: dict[str, Any] = {} if solver is None else {"rebase_with": self._solver(solver)}
        if not found.has_uncommitted_changes:
            more["allow_empty"] = True
        id: str | Failed = self._tried(partial(found.commit, message, metadata, **more))
        return id

    def amend(self, session: int, message: str, metadata: Any) -> str:
        found = self.sessions[session]
        empty = not found.has_uncommitted_changes
        return str(found.amend(message, metadata=metadata, allow_empty=empty))

    def flush(self, session: int, message: str, metadata: Any) -> str:
        return str(self.sessions[session].flush(message, metadata=metadata))

    def rebase(self, session: int, solver: str) -> Failed | None:
        rebase = self.sessions[session].rebase
        failed: Failed | None = self._tried(partial(rebase, self._solver(solver)))
        return failed

    def transaction(
        self, branch: str, edits: Sequence[Edit], message: str, metadata: Any, *, fresh: bool
    ) -> str:
        repository = self.repository(fresh=fresh)
        with repository.transaction(branch, message=message, metadata=metadata) as store:
            for edit in edits:
                apply_edit(edit, self.ic, store)
        return str(repository.lookup_branch(branch))

    def forget(self, session: int) -> None:
        del self.sessions[session]

    # -- what only the reference can do ----------------------------------------------------------

    def move(self, branch: str, source: str, target: str) -> str:
        session = self.repository(fresh=False).rearrange_session(branch)
        session.move(source, target)
        return str(session.commit("moved"))

    def shift(self, branch: str, path: str, offset: Sequence[int]) -> str:
        session = self.repository(fresh=False).writable_session(branch)
        session.shift_array(path, offset)
        return str(session.commit("shifted", allow_empty=True))

    def rewrite_manifests(self, branch: str) -> str:
        repository = self.repository(fresh=False)
        return str(repository.rewrite_manifests("rewritten", branch=branch))

    def expire(self, before: datetime, *, refs: bool) -> None:
        self.repository(fresh=True).expire_snapshots(
            before, delete_expired_branches=refs, delete_expired_tags=refs
        )

    def collect(self) -> None:
        self.repository(fresh=True).garbage_collect(datetime.now(UTC) + timedelta(seconds=2))

    def upgrade(self) -> None:
        self.ic.upgrade_icechunk_repository(self.repository(fresh=True), dry_run=False)

    # -- helpers ---------------------------------------------------------------------------------

    @property
    def _knows_v2(self) -> bool:
        return hasattr(self.ic.Repository, "ops_log")

    def _storage(self) -> Any:
        if self.ic.__name__ == "icechunk_stream":  # as the reference does, for the sake of speed
            return self.ic.local_filesystem_storage(self.location, durability="os")
        return self.ic.local_filesystem_storage(self.location)

    def _apply(self, config: Any, settings: Settings) -> None:
        config.inline_chunk_threshold_bytes = settings.threshold
        config.manifest = self.ic.ManifestConfig(splitting=self._splitting(settings.split))
        if settings.updates_per_file is not None and self._knows_v2:
            config.num_updates_per_repo_info_file = settings.updates_per_file

    def _splitting(self, size: int | None) -> Any:
        if size is None:
            return None
        condition = self.ic.ManifestSplitCondition
        dimension = self.ic.ManifestSplitDimCondition
        rules = {dimension.DimensionName("x"): size, dimension.Axis(1): size + 1}
        return self.ic.ManifestSplittingConfig.from_dict(
            {condition.path_matches("a"): rules, condition.AnyArray(): {dimension.Axis(0): size}}
        )

    def _solver(self, name: str) -> Any:
        selection, basic = self.ic.VersionSelection, self.ic.BasicConflictSolver
        match name:
            case "detector":
                return self.ic.ConflictDetector()
            case "theirs":
                return basic(on_chunk_conflict=selection.UseTheirs)
            case "fail":
                return basic(on_chunk_conflict=selection.Fail)
            case "keep deleted":
                return basic(
                    fail_on_delete_of_updated_array=True, fail_on_delete_of_updated_group=True
                )
            case _:
                return basic()

    def _tried(self, call: Callable[[], Any]) -> Any:
        """What a call gives, or how the library refuses it."""
        try:
            return call()
        except self.ic.RebaseFailedError as error:
            conflicts = sorted(map(self._conflict, error.conflicts))
            return Failed("rebase", (error.snapshot, conflicts))
        except self.ic.ConflictError as error:
            return Failed("conflict", (error.expected_parent, error.actual_parent))
        except self.ic.IcechunkError as error:
            return Failed(kind_of(error))

    def _conflict(self, conflict: Any) -> tuple[str, str, str]:
        """The reference's conflict types have no names."""
        types, found = self.ic.ConflictType, conflict.conflict_type
        kind = next(name for name in CONFLICT_KINDS if getattr(types, name, None) == found)
        chunks = conflict.conflicted_chunks
        return kind, conflict.path, str(chunks if chunks is None else sorted(map(list, chunks)))
