"""Where a repository is, in a form that goes to another process, for either library."""

from __future__ import annotations

import importlib
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pathlib import Path

    from tests.object_stores.servers import S3Server

OURS = "icechunk_stream"
THEIRS = "icechunk"

Place = dict[str, Any]


@dataclass(frozen=True)
class Bucket:
    """A prefix of a bucket."""

    server: S3Server
    name: str

    def place(self, prefix: str = "p") -> Place:
        return {"s3": asdict(self.server) | {"bucket": self.name, "prefix": prefix}}


def local(path: Path) -> Place:
    return {"local": str(path)}


def storage(library: str, place: Place) -> Any:
    """The storage of one of the libraries."""
    ic = importlib.import_module(library)
    if "local" in place:
        # The outcome of races does not depend on what survives a power cut.
        quick = {"durability": "os"} if library == OURS else {}
        return ic.local_filesystem_storage(place["local"], **quick)
    there = place["s3"]
    return ic.s3_storage(
        bucket=there["bucket"],
        prefix=there["prefix"],
        endpoint_url=there["endpoint"],
        region=there["region"],
        allow_http=True,
        force_path_style=True,
        access_key_id=there["access_key_id"],
        secret_access_key=there["secret_access_key"],
    )


def opened(library: str, place: Place) -> Any:
    """The repository, by one of the libraries."""
    ic = importlib.import_module(library)
    return ic.Repository.open(storage(library, place))
