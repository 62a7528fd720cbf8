"""What our operations leave is what the reference's leave, and each goes on from the other's."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

import icechunk_stream
from tests.compat.operations import (
    PAGE,
    commit_two,
    create,
    legacy_operate,
    operate,
    steps_for,
    story,
)
from tests.oracle.compare import assert_same
from tests.oracle.dump import OPTIONAL, dump_repository
from tests.oracle.libraries import KNOWS_V2, REFERENCE, SPEC_VERSIONS, legacy_dumps

if TYPE_CHECKING:
    from types import ModuleType

pytestmark = [
    pytest.mark.compat,
    # The reference stores that it writes without conditions on a local disk.
    pytest.mark.filterwarnings("ignore:the configuration says:UserWarning"),
]

UNKNOWN_TO_THE_REFERENCE: frozenset[str] = frozenset() if KNOWS_V2 else OPTIONAL
OURS = icechunk_stream
NAMES = ("reference", "icechunk_stream")

each_spec = pytest.mark.parametrize("spec_version", SPEC_VERSIONS)
each_page = pytest.mark.parametrize("page", [None, 1, PAGE] if KNOWS_V2 else [None])


def run(
    writers: tuple[ModuleType, ...], location: Path, spec_version: int, page: int | None = None
) -> dict[str, Any]:
    """Create with the first writer, then take the steps in turn; tell how each of them ended."""
    create(writers[0], str(location), spec_version, page)
    commit_two(str(location))
    steps = steps_for(spec_version)
    return {
        name: operate(writers[number % len(writers)], str(location), name)
        for number, name in enumerate(steps)
    }


@each_spec
@each_page
@pytest.mark.parametrize("writers", [(OURS,), (OURS, REFERENCE), (REFERENCE, OURS)])
def test_operations_do_what_the_reference_does(
    tmp_path: Path, spec_version: int, page: int | None, writers: tuple[ModuleType, ...]
) -> None:
    expected = run((REFERENCE,), tmp_path / "theirs", spec_version, page)
    found = run(writers, tmp_path / "ours", spec_version, page)
    assert_same(expected, found, NAMES, UNKNOWN_TO_THE_REFERENCE)
    theirs = story(REFERENCE, str(tmp_path / "theirs"))
    assert_same(theirs, story(REFERENCE, str(tmp_path / "ours")), NAMES)
    assert_same(theirs, story(OURS, str(tmp_path / "ours")), NAMES)


@each_spec
@each_page
@pytest.mark.parametrize("writers", [(OURS,), (REFERENCE, OURS)])
def test_both_read_the_same_of_what_we_left(
    tmp_path: Path, spec_version: int, page: int | None, writers: tuple[ModuleType, ...]
) -> None:
    run(writers, tmp_path, spec_version, page)
    expected = dump_repository(REFERENCE, tmp_path)
    found = dump_repository(OURS, tmp_path)
    assert_same(expected, found, NAMES, UNKNOWN_TO_THE_REFERENCE)


def test_the_old_release_reads_what_we_left_and_goes_on(tmp_path: Path) -> None:
    run((OURS,), tmp_path / "left", 1)
    [expected] = legacy_dumps([(str(tmp_path / "left"), ())])
    assert_same(
        expected,
        dump_repository(OURS, tmp_path / "left"),
        ("icechunk 1.1.21", "icechunk_stream"),
        OPTIONAL,
    )

    for name, library in (("ours", OURS), ("theirs", REFERENCE)):
        create(library, str(tmp_path / name), 1)
        commit_two(str(tmp_path / name))
        legacy_operate(str(tmp_path / name))
    theirs = story(REFERENCE, str(tmp_path / "theirs"))
    assert_same(theirs, story(OURS, str(tmp_path / "ours")), NAMES)
    assert theirs["branches"] == {"main": "one", "b": "two", "a b": "two"}


@each_spec
def test_a_new_repository_has_the_same_objects(tmp_path: Path, spec_version: int) -> None:
    for name, library in (("theirs", REFERENCE), ("ours", OURS)):
        create(library, str(tmp_path / name), spec_version)
    theirs, ours = (
        sorted(str(path.relative_to(tmp_path / name)) for path in (tmp_path / name).rglob("*"))
        for name in ("theirs", "ours")
    )
    assert ours == theirs
    expected = dump_repository(REFERENCE, tmp_path / "ours")
    found = dump_repository(OURS, tmp_path / "ours")
    assert_same(expected, found, NAMES, UNKNOWN_TO_THE_REFERENCE)
