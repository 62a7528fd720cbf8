"""Entries of the operations log for people: inspected as documents, and as public values."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from icechunk_stream.format import updates as stored
from icechunk_stream.format.times import from_micros, to_micros, to_text
from icechunk_stream.info import RepoAvailability, RepoStatus, Update, UpdateType

if TYPE_CHECKING:
    from icechunk_stream.format.updates import UpdateKind

_AVAILABILITY = {
    stored.Availability.ONLINE: RepoAvailability.online,
    stored.Availability.READ_ONLY: RepoAvailability.read_only,
}
_AVAILABILITY_NAMES = {
    stored.Availability.ONLINE: "Online",
    stored.Availability.READ_ONLY: "ReadOnly",
}


def inspected_update(update: stored.Update) -> dict[str, Any]:
    backup = {} if update.backup is None else {"backup_path": update.backup}
    return {
        "update_type": {"type": _type_name(update.kind), **_fields(update.kind)},
        "updated_at": to_text(from_micros(update.updated_at)),
        **backup,
    }


def public_update(update: stored.Update) -> Update:
    return Update(_public_kind(update.kind), from_micros(update.updated_at), update.backup)


def public_status(status: stored.Status) -> RepoStatus:
    set_at = from_micros(status.set_at)
    return RepoStatus(_AVAILABILITY[status.availability], set_at, status.reason)


def stored_status(status: RepoStatus) -> stored.Status:
    availability = next(
        stored_one for stored_one, public in _AVAILABILITY.items() if public is status.availability
    )
    set_at = to_micros(status.set_at)
    return stored.Status(availability, set_at, status.limited_availability_reason)


def _type_name(kind: UpdateKind) -> str:
    match kind:
        case stored.FeatureFlagChanged():
            return "FeatureFlagChanged"
        case stored.StatusChanged():
            return "RepoStatusChangedUpdate"
        case _:
            return f"{type(kind).__name__}Update"


def _fields(kind: UpdateKind) -> dict[str, Any]:  # noqa: C901, PLR0911
    match kind:
        case stored.RepoMigrated(from_version, to_version):
            return {"from_version": f"{from_version}.0", "to_version": f"{to_version}.0"}
        case stored.TagCreated(name) | stored.BranchCreated(name):
            return {"name": name}
        case (
            stored.TagDeleted(name, previous)
            | stored.BranchDeleted(name, previous)
            | stored.BranchReset(name, previous)
        ):
            return {"name": name, "previous_snap_id": str(previous)}
        case stored.NewCommit(branch, new):
            return {"branch": branch, "new_snap_id": str(new)}
        case stored.CommitAmended(branch, previous, new):
            ids = {"new_snap_id": str(new), "previous_snap_id": str(previous)}
            return {"branch": branch, **ids}
        case stored.NewDetachedSnapshot(new):
            return {"new_snap_id": str(new)}
        case stored.FeatureFlagChanged(id, value):
            return {"id": id, "new_value": value}
        case stored.StatusChanged(status):
            return {"status": _status(status)}
        case _:
            return {}


def _status(status: stored.Status) -> dict[str, Any]:
    return {
        "availability": _AVAILABILITY_NAMES[status.availability],
        "limited_availability_reason": status.reason,
        "set_at": to_text(from_micros(status.set_at)),
    }


def _public_kind(kind: UpdateKind) -> UpdateType:
    match kind:
        case stored.FeatureFlagChanged(id, value):
            return UpdateType.FeatureFlagChanged(id, value)
        case stored.StatusChanged(status):
            return UpdateType.RepoStatusChanged(public_status(status))
        case stored.RepoMigrated(from_version, to_version):
            return UpdateType.RepoMigrated(from_version, to_version)
        case _:
            public: type[UpdateType] = getattr(UpdateType, type(kind).__name__)
            return public(**_fields(kind))
