"""Repositories that the reference made in random ways read the same through us."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

import icechunk_stream
from tests.oracle.compare import assert_same
from tests.oracle.dump import OPTIONAL, dump_repository
from tests.oracle.libraries import (
    KNOWS_V2,
    REFERENCE,
    SPEC_VERSIONS,
    legacy_dumps,
    legacy_repositories,
)
from tests.oracle.maker import make_repository
from tests.oracle.random_repositories import repository_plans, write_files

if TYPE_CHECKING:
    from tests.oracle import plans

pytestmark = pytest.mark.compat

EXAMPLES = settings.get_profile(settings.get_current_profile_name()).max_examples
UNKNOWN_TO_THE_REFERENCE: frozenset[str] = frozenset() if KNOWS_V2 else OPTIONAL


@pytest.fixture(scope="module")
def containers(tmp_path_factory: pytest.TempPathFactory) -> plans.Containers:
    return write_files(tmp_path_factory.mktemp("virtual"))


@pytest.mark.parametrize("spec_version", SPEC_VERSIONS)
@settings(max_examples=EXAMPLES // len(SPEC_VERSIONS), suppress_health_check=[*HealthCheck])
@given(data=st.data())
def test_says_what_the_reference_says(
    data: st.DataObject, spec_version: int, containers: plans.Containers
) -> None:
    plan = data.draw(repository_plans(containers, spec_version))
    with tempfile.TemporaryDirectory() as folder:
        location = str(Path(folder) / "repository")
        make_repository(REFERENCE, plan, location, containers)
        expected = dump_repository(REFERENCE, location, [containers.prefix])
        found = dump_repository(icechunk_stream, location, [containers.prefix])
    assert_same(expected, found, ("reference", "icechunk_stream"), UNKNOWN_TO_THE_REFERENCE)
    _assert_nodes_in_byte_order(found)


@settings(max_examples=4, phases=[Phase.generate], suppress_health_check=[*HealthCheck])
@given(data=st.data())
def test_says_what_the_old_reference_says_of_its_own(
    data: st.DataObject, containers: plans.Containers
) -> None:
    made = [data.draw(repository_plans(containers, 1)) for _ in range(5)]
    with tempfile.TemporaryDirectory() as folder:
        locations = [str(Path(folder) / str(number)) for number in range(len(made))]
        legacy_repositories(list(zip(made, locations, strict=True)), containers)
        prefixes = (containers.prefix,)
        expected = legacy_dumps([(location, prefixes) for location in locations])
        found = [dump_repository(icechunk_stream, location, prefixes) for location in locations]
    assert_same(expected, found, ("icechunk 1.1.21", "icechunk_stream"), OPTIONAL)
    for dumped in found:
        _assert_nodes_in_byte_order(dumped)


def _assert_nodes_in_byte_order(dumped: dict[str, Any]) -> None:
    for snapshot in dumped["snapshots"].values():
        paths = [node["path"] for node in snapshot["inspect"]["nodes"]]
        assert paths == sorted(paths, key=str.encode)
