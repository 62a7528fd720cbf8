"""A library at work in a process of its own: ``python -m tests.object_stores.rivals LIBRARY``.

Each line of its input is a job on a repository in a bucket, each line of its output how it ended.
The first line says where the bucket is.
"""

from __future__ import annotations

import importlib
import json
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import Any

from tests.object_stores.servers import S3Server
from tests.oracle.job_process import JobProcess
from tests.oracle.outcomes import outcome

ROOT = Path(__file__).parents[2]

DONE = "done"


class Rival(JobProcess):
    """The process of a library."""

    def __init__(self, library: str, server: S3Server, bucket: str) -> None:
        super().__init__("tests.object_stores.rivals", library)
        self.send(asdict(server) | {"bucket": bucket})
        assert self.receive() == "ready"

    def do(self, job: str, prefix: str, **more: Any) -> Any:
        self.send({"job": job, "prefix": prefix, "pause": 0.0} | more)
        return self.receive()


@contextmanager
def rivals(server: S3Server, bucket: str) -> Iterator[tuple[Rival, Rival]]:
    """Our library and the reference."""
    with (
        Rival("icechunk_stream", server, bucket) as ours,
        Rival("icechunk", server, bucket) as theirs,
    ):
        yield ours, theirs


def at_once(jobs: dict[Rival, dict[str, Any]]) -> list[Any]:
    """Start all jobs, then wait for all of them."""
    for rival, job in jobs.items():
        rival.send(job)
    return [rival.receive() for rival in jobs]


class _Worker:
    def __init__(self, library: str, place: dict[str, str]) -> None:
        self.ic = importlib.import_module(library)
        self.place = place
        self.opened: dict[str, Any] = {}

    def storage(self, prefix: str) -> Any:
        return self.ic.s3_storage(
            bucket=self.place["bucket"],
            prefix=prefix,
            endpoint_url=self.place["endpoint"],
            region=self.place["region"],
            allow_http=True,
            force_path_style=True,
            access_key_id=self.place["access_key_id"],
            secret_access_key=self.place["secret_access_key"],
        )

    def create(self, prefix: str, spec_version: int | None, **_: Any) -> str:
        given = {} if spec_version is None else {"spec_version": spec_version}
        self.ic.Repository.create(self.storage(prefix), **given)
        return DONE

    def open(self, prefix: str, threshold: int, **_: Any) -> str:
        config = self.ic.RepositoryConfig(inline_chunk_threshold_bytes=threshold)
        self.opened[prefix] = self.ic.Repository.open(self.storage(prefix), config)
        return DONE

    def tag(self, prefix: str, **_: Any) -> str:
        repository = self.opened[prefix]
        repository.create_tag("t", repository.lookup_branch("main"))
        return DONE

    def save(self, prefix: str, **_: Any) -> str:
        self.opened[prefix].save_config()
        return DONE

    def describe(self, prefix: str, **_: Any) -> dict[str, Any]:
        repository = self.ic.Repository.open(self.storage(prefix))
        newer = hasattr(repository, "spec_version")
        spec_version = int(repository.spec_version) if newer else 1
        updates = repository.ops_log() if spec_version == 2 else []
        return {
            "spec_version": spec_version,
            "branches": sorted(repository.list_branches()),
            "tags": sorted(repository.list_tags()),
            "snapshots": [info.message for info in repository.ancestry(branch="main")],
            "threshold": repository.config.inline_chunk_threshold_bytes,
            "log": [type(update.kind).__name__ for update in updates],
        }


def main(library: str) -> None:
    worker = _Worker(library, json.loads(sys.stdin.readline()))
    print(json.dumps("ready"), flush=True)
    for line in sys.stdin:
        job = json.loads(line)
        call: Callable[..., Any] = getattr(worker, job.pop("job"))
        time.sleep(job.pop("pause"))
        print(json.dumps(outcome(lambda call=call, job=job: call(**job))), flush=True)


if __name__ == "__main__":
    main(sys.argv[1])
