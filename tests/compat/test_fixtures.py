"""Repositories that released versions of the reference wrote read the same through us."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

import icechunk_stream
from tests.oracle.compare import assert_same
from tests.oracle.dump import OPTIONAL, dump_repository, open_repository
from tests.oracle.libraries import KNOWS_V2, REFERENCE, legacy_dumps

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

pytestmark = pytest.mark.compat

V1 = ("test-repo-v1", "split-repo-v1", "expire-repo-v1-by-1.1.21")
V2 = ("test-repo-v2", "split-repo-v2", "expire-repo-v2-by-working-copy")
READABLE = (*V1, *V2) if KNOWS_V2 else V1


@pytest.mark.parametrize("name", READABLE)
def test_says_what_the_reference_says(name: str, fixture_copy: Callable[[str], Path]) -> None:
    location = fixture_copy(name)
    expected = dump_repository(REFERENCE, location)
    found = dump_repository(icechunk_stream, location)
    optional = frozenset() if KNOWS_V2 else OPTIONAL
    assert_same(expected, found, ("reference", "icechunk_stream"), optional)


@pytest.mark.parametrize("name", V1)
def test_says_what_the_old_reference_says(name: str, fixture_copy: Callable[[str], Path]) -> None:
    location = fixture_copy(name)
    (expected,) = legacy_dumps([(str(location), ())])
    found = dump_repository(icechunk_stream, location)
    assert_same(expected, found, ("icechunk 1.1.21", "icechunk_stream"), OPTIONAL)


@pytest.mark.parametrize("name", V1 if KNOWS_V2 else ())
def test_says_what_the_reference_says_after_a_migration(
    name: str, fixture_copy: Callable[[str], Path]
) -> None:
    location = fixture_copy(name)
    REFERENCE.upgrade_icechunk_repository(open_repository(REFERENCE, location), dry_run=False)
    expected = dump_repository(REFERENCE, location)
    found = dump_repository(icechunk_stream, location)
    assert found["spec_version"] == 2
    assert_same(expected, found, ("reference", "icechunk_stream"))


@pytest.mark.parametrize("name", READABLE)
def test_reading_changes_nothing_on_disk(name: str, fixture_copy: Callable[[str], Path]) -> None:
    location = fixture_copy(name)
    before = _files(location)
    dump_repository(icechunk_stream, location)
    assert _files(location) == before


def _files(location: Path) -> dict[str, bytes]:
    return {str(item): item.read_bytes() for item in location.rglob("*") if item.is_file()}
