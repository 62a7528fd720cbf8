"""Everything that a repository says about itself, as plain values, through any of three libraries.

The libraries are given as modules: this package, icechunk 2.3.0 and icechunk 1.1.21 have the same
names. What a library does not offer is left out of its dump (see ``OPTIONAL``).
"""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tests.oracle.config_tree import CONFIG_KEYS, config_tree, restricted
from tests.oracle.outcomes import is_failure, outcome, plain_time
from tests.oracle.session_dump import dump_session

if TYPE_CHECKING:
    from collections.abc import Sequence
    from datetime import datetime

# What 1.1.21 does not say. Everything else must be in both of two compared dumps.
OPTIONAL = CONFIG_KEYS | {
    "spec_version",
    "stored_spec_version",
    "transaction_log",
    "repo_info",
    "ops_log",
    "metadata_of_repository",
    "status",
    "feature_flags",
    "manifests",
    "header",
    "shape",
    "node_id",
    "references",
    "kind",
}


def open_repository(ic: Any, location: str | Path, authorised: Sequence[str] = ()) -> Any:
    """Open with access to virtual chunks below the ``file://`` prefixes given."""
    return _open(ic, ic.local_filesystem_storage(str(location)), authorised)


def _open(ic: Any, storage: Any, authorised: Sequence[str]) -> Any:
    access = getattr(ic.credentials, "LocalFileSystemAccess", None)
    granted = ic.containers_credentials(dict.fromkeys(authorised, access))
    return ic.Repository.open(storage, authorize_virtual_chunk_access=granted)


def dump_repository(
    ic: Any, location: str | Path, authorised: Sequence[str] = (), storage: Any = None
) -> dict[str, Any]:
    """Dump a local repository, or the copy of it that another storage of the library holds."""
    storage = ic.local_filesystem_storage(str(location)) if storage is None else storage
    repository = _open(ic, storage, authorised)
    snapshots = {name: _snapshot(repository, name) for name in _stored(location, "snapshots")}
    dumped = _refs(repository) | _settings(ic, repository, storage)
    dumped |= {"snapshots": snapshots} | _administration(repository)
    if hasattr(repository, "inspect_manifest"):
        dumped["manifests"] = {
            name: _inspected(repository, "inspect_manifest", name)
            for name in _stored(location, "manifests")
        }
    return dumped


def _stored(location: str | Path, room: str) -> list[str]:
    """Ids of the stored objects of a kind, whether or not a ref reaches them."""
    folder = Path(location) / room
    return sorted(item.name for item in folder.iterdir()) if folder.is_dir() else []


def _settings(ic: Any, repository: Any, storage: Any) -> dict[str, Any]:
    stored = config_tree(ic.Repository.fetch_config(storage))
    dumped = {
        "exists": ic.Repository.exists(storage),
        "stored_config": stored,
        "config": restricted(config_tree(repository.config), {} if stored is None else stored),
    }
    if hasattr(repository, "spec_version"):
        dumped["spec_version"] = int(repository.spec_version)
        dumped["stored_spec_version"] = int(ic.Repository.fetch_spec_version(storage))
    return dumped


def _refs(repository: Any) -> dict[str, Any]:
    branches = {name: _branch(repository, name) for name in repository.list_branches()}
    tags = {name: _tag(repository, name) for name in repository.list_tags()}
    return {"branches": branches, "tags": tags}


def _branch(repository: Any, name: str) -> dict[str, Any]:
    ancestry = outcome(lambda: list(repository.ancestry(branch=name)))
    times = [] if is_failure(ancestry) else [info.written_at for info in ancestry]
    return {
        "target": repository.lookup_branch(name),
        "ancestry": ancestry if is_failure(ancestry) else [_info(info) for info in ancestry],
        "session": outcome(lambda: repository.readonly_session(branch=name).snapshot_id),
        "as_of": [outcome(_as_of, repository, name, time) for time in times],
    }


def _as_of(repository: Any, name: str, time: datetime) -> str:
    return str(repository.readonly_session(branch=name, as_of=time).snapshot_id)


def _tag(repository: Any, name: str) -> dict[str, Any]:
    return {
        "target": repository.lookup_tag(name),
        "ancestry": outcome(lambda: [_info(info) for info in repository.ancestry(tag=name)]),
        "session": outcome(lambda: repository.readonly_session(tag=name).snapshot_id),
    }


def _info(info: Any) -> dict[str, Any]:
    return {
        "id": info.id,
        "parent_id": info.parent_id,
        "message": info.message,
        "written_at": plain_time(info.written_at),
        "metadata": info.metadata,
    }


def _snapshot(repository: Any, name: str) -> dict[str, Any]:
    dumped = {
        "info": outcome(lambda: _info(repository.lookup_snapshot(name))),
        "ancestry": outcome(lambda: [info.id for info in repository.ancestry(snapshot_id=name)]),
        "inspect": _inspected(repository, "inspect_snapshot", name),
        "manifest_files": outcome(_manifest_files, repository, name),
        "contents": outcome(lambda: dump_session(repository.readonly_session(snapshot_id=name))),
    }
    if hasattr(repository, "inspect_transaction_log"):
        dumped["transaction_log"] = _inspected(repository, "inspect_transaction_log", name)
    return dumped


def _manifest_files(repository: Any, name: str) -> list[list[Any]]:
    if hasattr(repository, "list_manifest_files"):
        files = repository.list_manifest_files(name)
    else:
        files = repository.lookup_snapshot(name).manifests
    return sorted([file.id, file.size_bytes, file.num_chunk_refs] for file in files)


def _inspected(repository: Any, call: str, *ids: str) -> Any:
    # The reference's blocking calls seem to keep the GIL: its own threads may wait for it for ever.
    inspect = getattr(repository, f"{call}_async", None)
    if inspect is None:
        found = outcome(getattr(repository, call), *ids)
    else:
        found = outcome(lambda: asyncio.run(inspect(*ids)))
    tree = json.loads(found) if isinstance(found, str) else found
    tree.pop("parent_id", None)  # only 1.1.21 has it here
    tree.get("synthetic_composite", {}).pop("note", None)  # prose
    return tree


def _administration(repository: Any) -> dict[str, Any]:
    """What only libraries that know spec v2 can say; on v1 these are their errors."""
    if not hasattr(repository, "ops_log"):
        return {}
    return {
        "repo_info": _inspected(repository, "inspect_repo_info"),
        "ops_log": outcome(lambda: [_update(update) for update in repository.ops_log()]),
        "metadata_of_repository": outcome(repository.get_metadata),
        "status": outcome(lambda: _status(repository.get_status())),
        "feature_flags": {
            call: outcome(_flags_of, repository, call)
            for call in ("feature_flags", "enabled_feature_flags", "disabled_feature_flags")
        },
    }


def _update(update: Any) -> dict[str, Any]:
    kind = update.kind
    fields = {name: _field(getattr(kind, name)) for name in getattr(kind, "__match_args__", ())}
    return {
        "kind": type(kind).__name__,
        "fields": fields,
        "updated_at": plain_time(update.updated_at),
        "backup_path": update.backup_path,
    }


def _field(value: Any) -> Any:
    if value is None or isinstance(value, (bool, str)):
        return value
    return int(value) if hasattr(value, "__int__") else _status(value)


def _status(status: Any) -> dict[str, Any]:
    return {
        "availability": str(status.availability).rsplit(".", 1)[-1].lower(),
        "set_at": plain_time(status.set_at),
        "limited_availability_reason": status.limited_availability_reason,
    }


def _flags_of(repository: Any, call: str) -> list[list[Any]]:
    return sorted(
        [flag.id, flag.name, flag.default_enabled, flag.setting, flag.enabled]
        for flag in getattr(repository, call)()
    )
