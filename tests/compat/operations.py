"""What is done to a repository beside commits, by a library that is given as a module.

Run as a module by the old release's interpreter: question file, answer file.
"""

from __future__ import annotations

import pickle
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import icechunk
import zarr

from tests.oracle.libraries import KNOWS_V2, ROOT, legacy_python
from tests.oracle.outcomes import outcome

PAGE = 5
THRESHOLD = 100

Step = Callable[[Any, Any], object]


def create(ic: Any, location: str, spec_version: int, page: int | None = None) -> None:
    """A repository with a stored configuration; the reference alone stores more than is set."""
    config = ic.RepositoryConfig(inline_chunk_threshold_bytes=THRESHOLD)
    if page is not None:
        config.num_updates_per_repo_info_file = page
    given = {"spec_version": spec_version} if KNOWS_V2 or ic is not icechunk else {}
    ic.Repository.create(ic.local_filesystem_storage(location), config=config, **given)


def commit_two(location: str) -> None:
    """Two commits of the reference, which are there to be pointed at."""
    repository = icechunk.Repository.open(icechunk.local_filesystem_storage(location))
    for name in ("one", "two"):
        session = repository.writable_session("main")
        zarr.create_group(session.store, path=name)
        session.commit(name)


def _at(repository: Any, message: str) -> str:
    """The snapshot with this message in the history of main as it was."""
    infos = {info.message: info.id for info in repository.ancestry(tag="newest")}
    return str(infos[message])


def _tag_newest(_: Any, repository: Any) -> None:
    repository.create_tag("newest", repository.lookup_branch("main"))


def _save_config(ic: Any, repository: Any) -> None:
    config = repository.config
    config.inline_chunk_threshold_bytes = THRESHOLD + 1
    storage = repository.storage
    ic.Repository.open(storage, config).save_config()


REFS: dict[str, Step] = {
    "tag newest": _tag_newest,
    "branch": lambda _, it: it.create_branch("b", _at(it, "one")),
    "branch again": lambda _, it: it.create_branch("b", _at(it, "two")),
    "branch with a space": lambda _, it: it.create_branch("a b", _at(it, "two")),
    "branch of nothing": lambda _, it: it.create_branch("c", "0" * 20),
    "reset": lambda _, it: it.reset_branch("b", _at(it, "two")),
    "reset to the same": lambda _, it: it.reset_branch("b", _at(it, "two")),
    "reset what is not there": lambda _, it: it.reset_branch("d", _at(it, "two")),
    "reset to nothing": lambda _, it: it.reset_branch("b", "0" * 20),
    "delete main": lambda _, it: it.delete_branch("main"),
    "tag": lambda _, it: it.create_tag("t", _at(it, "one")),
    "tag again": lambda _, it: it.create_tag("t", _at(it, "two")),
    "another tag": lambda _, it: it.create_tag("root", _at(it, "Repository initialized")),
    "delete a tag": lambda _, it: it.delete_tag("t"),
    "delete it again": lambda _, it: it.delete_tag("t"),
    "make it again": lambda _, it: it.create_tag("t", _at(it, "one")),
    "another branch": lambda _, it: it.create_branch("gone", _at(it, "one")),
    "delete a branch": lambda _, it: it.delete_branch("gone"),
    "delete it too again": lambda _, it: it.delete_branch("gone"),
    "move main back": lambda _, it: it.reset_branch("main", _at(it, "one")),
}
NEWER: dict[str, Step] = {
    "reset from there": lambda _, it: it.reset_branch(
        "b", _at(it, "one"), from_snapshot_id=_at(it, "two")
    ),
    "reset from elsewhere": lambda _, it: it.reset_branch(
        "b", _at(it, "one"), from_snapshot_id=_at(it, "two")
    ),
    "save the configuration": _save_config,
}
V2_ONLY: dict[str, Step] = {
    "metadata": lambda _, it: it.set_metadata({"a": 1, "b": {"c": [1, 2.5, None, "é"]}}),
    "more metadata": lambda _, it: it.update_metadata({"d": True, "a": "one"}),
    "forbid moves": lambda _, it: it.set_feature_flag("move_node", False),
    "allow tags": lambda _, it: it.set_feature_flag("create_tag", True),
    "forbid the end of tags": lambda _, it: it.set_feature_flag("delete_tag", False),
    "delete a tag in spite of it": lambda _, it: it.delete_tag("root"),
    "undo": lambda _, it: it.set_feature_flag("delete_tag", None),
    "unknown flag": lambda _, it: it.set_feature_flag("nothing", True),
    "branch é": lambda _, it: it.create_branch("é ü", _at(it, "two")),
    "branch a/b": lambda _, it: it.create_branch("a/b", _at(it, "one")),
    "read-only": lambda ic, it: it.set_status(
        ic.RepoStatus(ic.RepoAvailability.read_only, limited_availability_reason="moving")
    ),
    "branch in spite of it": lambda _, it: it.create_branch("e", _at(it, "one")),
    "metadata in spite of it": lambda _, it: it.set_metadata({}),
    "online": lambda ic, it: it.set_status(ic.RepoStatus(ic.RepoAvailability.online)),
    "last tag": lambda _, it: it.create_tag("last", _at(it, "one")),
}


def steps_for(spec_version: int) -> dict[str, Step]:
    newer = NEWER if KNOWS_V2 else {}
    return REFS | newer | (V2_ONLY if spec_version == 2 else {})


def operate(ic: Any, location: str, name: str) -> Any:
    """Take one step, and tell how it ended."""
    repository = ic.Repository.open(ic.local_filesystem_storage(location))
    step = (REFS | NEWER | V2_ONLY)[name]
    return outcome(lambda: step(ic, repository) and None)


def legacy_operate(location: str) -> None:
    """Take the steps that it knows with the old release."""
    with tempfile.TemporaryDirectory() as folder:
        question = Path(folder) / "question"
        question.write_bytes(pickle.dumps(location))
        command = [str(legacy_python()), "-m", "tests.compat.operations", str(question)]
        done = subprocess.run(command, cwd=ROOT, check=False, capture_output=True, text=True)
        assert done.returncode == 0, f"icechunk 1.1.21 failed: {done.stderr[-4000:]}"


def story(ic: Any, location: str) -> dict[str, Any]:
    """What a repository has become, without times and without random ids."""
    storage = ic.local_filesystem_storage(location)
    repository = ic.Repository.open(storage)
    config = ic.Repository.fetch_config(storage)

    def message(id: str) -> str:
        return str(repository.lookup_snapshot(id).message)

    told: dict[str, Any] = {
        "branches": {
            name: message(repository.lookup_branch(name)) for name in repository.list_branches()
        },
        "tags": {name: message(repository.lookup_tag(name)) for name in repository.list_tags()},
        "config": None if config is None else config.inline_chunk_threshold_bytes,
    }
    return told | _story_of_v2(repository, message)


def _story_of_v2(repository: Any, message: Callable[[str], str]) -> dict[str, Any]:
    if not hasattr(repository, "spec_version") or int(repository.spec_version) == 1:
        return {}
    updates = list(repository.ops_log())
    return {
        "log": [_told(update.kind, message) for update in updates],
        "backups": [update.backup_path is not None for update in updates],
        "page": len(repository.inspect_repo_info()["latest_updates"]),
        "deleted_tags": repository.inspect_repo_info()["deleted_tags"],
        "metadata": repository.get_metadata(),
        "status": _status(repository.get_status()),
        "flags": sorted((flag.name, flag.setting) for flag in repository.feature_flags()),
    }


def _told(kind: Any, message: Callable[[str], str]) -> list[Any]:
    names = getattr(kind, "__match_args__", ())
    fields = {name: getattr(kind, name) for name in names}
    told = [
        message(value) if name.endswith("snap_id") else _plain(value)
        for name, value in fields.items()
    ]
    return [type(kind).__name__, *told]


def _plain(value: Any) -> Any:
    return _status(value) if hasattr(value, "availability") else value


def _status(status: Any) -> list[Any]:
    availability = str(status.availability).rsplit(".", 1)[-1].lower()
    return [availability, status.limited_availability_reason]


def main(question: str) -> None:
    icechunk.set_logs_filter("off")
    location = pickle.loads(Path(question).read_bytes())
    for name in REFS:
        operate(icechunk, location, name)


if __name__ == "__main__":
    main(*sys.argv[1:])
