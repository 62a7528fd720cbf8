"""The older reference deletes an array, expires all history, and collects what nobody needs.

Run as ``python -m tests.stream.collector LOCATION PATH`` by the interpreter that has it; it prints
how many objects with chunks were collected.
"""

from __future__ import annotations

import sys
from datetime import UTC, datetime, timedelta
from typing import Any

import icechunk
import zarr


def delete_and_collect(repository: Any, path: str) -> int:
    """Delete an array, and from the storage what only it, or history, needed."""
    session = repository.writable_session("main")
    group, _, name = path.rpartition("/")
    del zarr.open_group(session.store, path=group, mode="r+")[name]
    session.commit(f"without {path}")
    return collect(repository)


def collect(repository: Any) -> int:
    """Expire all history, and delete what nobody needs."""
    later = datetime.now(UTC) + timedelta(hours=1)
    repository.expire_snapshots(later)
    return int(repository.garbage_collect(later).chunks_deleted)


def main(location: str, path: str) -> None:
    icechunk.set_logs_filter("off")
    repository = icechunk.Repository.open(icechunk.local_filesystem_storage(location))
    print(delete_and_collect(repository, path))


if __name__ == "__main__":
    main(*sys.argv[1:])
