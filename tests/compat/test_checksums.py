"""Checksums of virtual references, which the reference never shows, are read as given."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from icechunk_stream.format.chunk_refs import ETag, LastModified, VirtualChunk
from icechunk_stream.format.manifest import decode_manifest
from tests.oracle import plans
from tests.oracle.dump import open_repository
from tests.oracle.libraries import REFERENCE, SPEC_VERSIONS
from tests.oracle.maker import make_repository

if TYPE_CHECKING:
    from icechunk_stream.format.chunk_refs import Checksum, RefColumns

pytestmark = pytest.mark.compat

LAST_SECOND = 2**32 - 1
CASES: tuple[tuple[str | datetime | None, Checksum | None], ...] = (
    (None, None),
    ('"abc"', ETag('"abc"')),
    ("abc", ETag("abc")),
    ('W/"weak"', ETag('W/"weak"')),
    ("é 😀", ETag("é 😀")),
    ("e" * 1000, ETag("e" * 1000)),
    (datetime.fromtimestamp(1, UTC), LastModified(1)),
    (datetime.fromtimestamp(1_700_000_000, UTC), LastModified(1_700_000_000)),
    (datetime.fromtimestamp(1_700_000_000.75, UTC), LastModified(1_700_000_000)),
    (datetime.fromtimestamp(LAST_SECOND, UTC), LastModified(LAST_SECOND)),
    (None, None),
)


@pytest.mark.parametrize("compress_from", [None, 1], ids=["plain", "compressed"])
@pytest.mark.parametrize("spec_version", SPEC_VERSIONS)
def test_checksums_are_read_as_they_were_given(
    spec_version: int, compress_from: int | None, tmp_path: Path
) -> None:
    location = str(tmp_path / "repository")
    array = plans.PutArray("/a", (len(CASES),), (1,), None, {})
    plan = plans.Plan(
        spec_version=spec_version,
        inline_threshold=512,
        compress_from=compress_from if spec_version == 2 else None,
        steps=(plans.Commit(0, (array,), "made", {}),),
    )
    make_repository(REFERENCE, plan, location, plans.Containers(str(tmp_path)))
    _write_references(location)
    columns = _columns(Path(location))
    for number, (_, checksum) in enumerate(CASES):
        expected = VirtualChunk(f"s3://locked/some/file-{number}.nc", number, 4, checksum)
        assert columns.payload(number) == expected


def _write_references(location: str) -> None:
    repository = open_repository(REFERENCE, location)
    session = repository.writable_session("main")
    asyncio.run(_set_all(session.store))
    session.commit("referred")


async def _set_all(store: Any) -> None:
    for number, (given, _) in enumerate(CASES):
        await store.set_virtual_ref_async(
            f"a/c/{number}",
            f"s3://locked/some/file-{number}.nc",
            offset=number,
            length=4,
            checksum=given,
            validate_container=False,
        )


def _columns(location: Path) -> RefColumns:
    (file,) = (location / "manifests").iterdir()
    (columns,) = decode_manifest(file.read_bytes(), file.name).arrays.values()
    return columns
