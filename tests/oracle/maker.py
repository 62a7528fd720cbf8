"""Makes the repository that a plan describes, with the library given.

Steps that the library refuses (a plan is random) are left out; what it accepted is the repository.
"""

from __future__ import annotations

import asyncio
import functools
from datetime import UTC, datetime, timedelta
from typing import Any

from tests.oracle import plans
from tests.oracle.changes import change_all, node_paths

BUCKETS = ("s3://locked/", "s3://locked/inner/")
NAMES = "files"  # the container behind vcc:// locations


def make_repository(ic: Any, plan: plans.Plan, location: str, containers: plans.Containers) -> None:
    repository = _create(ic, plan, location, containers)
    for step in plan.steps:
        try:
            repository = _apply(step, ic, repository) or repository
        except (ic.IcechunkError, ValueError, KeyError):
            continue


def _create(ic: Any, plan: plans.Plan, location: str, containers: plans.Containers) -> Any:
    access = getattr(ic.credentials, "LocalFileSystemAccess", None)
    speaks_v2 = hasattr(ic.Repository, "ops_log")
    more = {"spec_version": plan.spec_version} if speaks_v2 else {}
    return ic.Repository.create(
        ic.local_filesystem_storage(location),
        config(ic, plan, containers),
        authorize_virtual_chunk_access=ic.containers_credentials({containers.prefix: access}),
        **more,
    )


def config(ic: Any, plan: plans.Plan, containers: plans.Containers) -> Any:
    made = ic.RepositoryConfig.default()
    made.inline_chunk_threshold_bytes = plan.inline_threshold
    _add_containers(ic, made, containers)
    made.manifest = _manifest_config(ic, plan.split, plan.compress_from)
    if plan.updates_per_file is not None:
        made.num_updates_per_repo_info_file = plan.updates_per_file
    return made


def _add_containers(ic: Any, made: Any, containers: plans.Containers) -> None:
    local = ic.local_filesystem_store(containers.folder)
    named = {"name": NAMES} if hasattr(ic.Repository, "ops_log") else {}
    made.set_virtual_chunk_container(ic.VirtualChunkContainer(containers.prefix, local, **named))
    for bucket in BUCKETS:
        store = ic.s3_store(region="us-east-1", anonymous=True)
        made.set_virtual_chunk_container(ic.VirtualChunkContainer(bucket, store))


def _manifest_config(ic: Any, split: int | None, compress_from: int | None) -> Any:
    splitting = None if split is None else split_rule(ic, split)
    if compress_from is None:
        return ic.ManifestConfig(splitting=splitting)
    compression = ic.ManifestVirtualChunkLocationCompressionConfig(min_num_chunks=compress_from)
    return ic.ManifestConfig(splitting=splitting, virtual_chunk_location_compression=compression)


def split_rule(ic: Any, size: int) -> Any:
    condition, dimension = ic.ManifestSplitCondition, ic.ManifestSplitDimCondition
    named = condition.or_conditions([condition.path_matches("a"), condition.name_matches("^b$")])
    return ic.ManifestSplittingConfig.from_dict(
        {
            named: {dimension.Axis(0): size, dimension.DimensionName("x|y"): size + 1},
            condition.AnyArray(): {dimension.Any(): size + 1},
        }
    )


@functools.singledispatch
def _apply(step: Any, ic: Any, repository: Any) -> Any:
    raise TypeError(step)


def _branch(repository: Any, number: int) -> str:
    names = sorted(repository.list_branches())
    return str(names[number % len(names)])


def _ancestor(repository: Any, branch: int, back: int) -> Any:
    infos = list(repository.ancestry(branch=_branch(repository, branch)))
    return infos[back % len(infos)]


@_apply.register
def _(step: plans.Commit, ic: Any, repository: Any) -> None:
    session = repository.writable_session(_branch(repository, step.branch))
    asyncio.run(change_all(ic, session.store, step.changes))
    getattr(session, step.way)(step.message, metadata=step.metadata)


@_apply.register
def _(step: plans.CreateRef, ic: Any, repository: Any) -> None:
    target = _ancestor(repository, step.branch, step.back).id
    create = repository.create_tag if step.kind == "tag" else repository.create_branch
    create(step.name, target)


@_apply.register
def _(step: plans.DeleteRef, ic: Any, repository: Any) -> None:
    tags = step.kind == "tag"
    names = sorted(repository.list_tags() if tags else repository.list_branches() - {"main"})
    if names:
        delete = repository.delete_tag if tags else repository.delete_branch
        delete(names[step.number % len(names)])


@_apply.register
def _(step: plans.ResetBranch, ic: Any, repository: Any) -> None:
    target = _ancestor(repository, step.branch, step.back).id
    repository.reset_branch(_branch(repository, step.branch), target)


@_apply.register
def _(step: plans.Move, ic: Any, repository: Any) -> None:
    session = repository.rearrange_session(_branch(repository, step.branch))
    paths = [f"/{path}" for path in asyncio.run(node_paths(session.store)) if path]
    if paths:
        session.move(paths[step.node % len(paths)], step.target)
        session.commit("moved")


@_apply.register
def _(step: plans.Administer, ic: Any, repository: Any) -> Any:
    match step.what:
        case "metadata":
            repository.set_metadata(step.value)
        case "update":
            repository.update_metadata(step.value)
        case "flag":
            repository.set_feature_flag(*step.value)
        case "status":
            _pause(ic, repository, step.value)
        case _:
            return _reconfigured(repository, step.value)
    return None


def _pause(ic: Any, repository: Any, reason: str) -> None:
    limited = ic.RepoStatus(ic.RepoAvailability.read_only, limited_availability_reason=reason)
    repository.set_status(limited)
    repository.set_status(ic.RepoStatus(ic.RepoAvailability.online))


def _reconfigured(repository: Any, threshold: int) -> Any:
    changed = repository.config
    changed.inline_chunk_threshold_bytes = threshold
    reopened = repository.reopen(config=changed)
    reopened.save_config()
    return reopened


@_apply.register
def _(step: plans.Expire, ic: Any, repository: Any) -> None:
    repository.expire_snapshots(
        _ancestor(repository, 0, step.back).written_at,
        delete_expired_branches=step.drop_refs,
        delete_expired_tags=step.drop_refs,
    )


@_apply.register
def _(step: plans.Collect, ic: Any, repository: Any) -> None:
    repository.garbage_collect(datetime.now(UTC) + timedelta(hours=1))


@_apply.register
def _(step: plans.RewriteManifests, ic: Any, repository: Any) -> Any:
    changed = repository.config
    changed.manifest = _manifest_config(ic, step.axis_size, None)
    reopened = repository.reopen(config=changed)
    reopened.rewrite_manifests("rewritten", branch=_branch(repository, step.branch))
    return reopened
