"""Our process and one of the reference on the same repository of a real S3 server."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import pytest

from tests.object_stores.buckets import create_bucket
from tests.object_stores.rivals import DONE, Rival, at_once, rivals
from tests.object_stores.servers import S3Server
from tests.oracle.libraries import KNOWS_V2, SPEC_VERSIONS
from tests.oracle.outcomes import is_failure, refused

pytestmark = pytest.mark.compat

# Ours comes a little earlier or later than theirs.
PAUSES = (0.0, 0.004, 0.008, 0.012, 0.016, 0.02, 0.03, 0.04)
LOST = [
    refused("parent-directory-not-clean"),
    refused("branch-update-conflict"),
    refused("repo-info-updated"),
]
SPECS = [(1, 1), (2, 2), (2, 1), (1, 2)] if KNOWS_V2 else [(1, 1), (2, 1)]

each_spec = pytest.mark.parametrize("spec_version", SPEC_VERSIONS)
Pair = tuple[Rival, Rival]


@pytest.fixture(scope="module")
def pair(versitygw: S3Server) -> Iterator[Pair]:
    with rivals(versitygw, create_bucket(versitygw, "rivals")) as found:
        yield found


def race(
    pair: Pair,
    job: str,
    prefix: str,
    pauses: tuple[float, float],
    *more: Mapping[str, int | None],
) -> list[object]:
    """What both make of the same job."""
    jobs = [{"job": job, "prefix": prefix, "pause": pause} for pause in pauses]
    given = zip(jobs, more, strict=True) if more else ((each, {}) for each in jobs)
    return at_once(dict(zip(pair, (base | dict(extra) for base, extra in given), strict=True)))


def races(name: str) -> Iterator[tuple[str, tuple[float, float]]]:
    """Prefixes, and when each of both begins there."""
    for number, pause in enumerate(PAUSES):
        yield f"{name}/{number}/ours-later", (pause, 0.0)
        yield f"{name}/{number}/theirs-later", (0.0, pause)


@pytest.mark.parametrize("specs", SPECS)
def test_of_two_creators_one_wins(pair: Pair, specs: tuple[int, int]) -> None:
    given: list[Mapping[str, int | None]] = [
        {"spec_version": specs[0]},
        {"spec_version": specs[1] if KNOWS_V2 else None},
    ]
    for prefix, pauses in races(f"create-{specs[0]}-{specs[1]}"):
        results = race(pair, "create", prefix, pauses, *given)
        if results == [DONE, DONE] and specs[0] != specs[1]:
            # The reference looks for nobody: it paused before its last write, unseen by ours.
            winner = 2
        else:
            assert sorted(result == DONE for result in results) == [False, True], results
            winner = specs[results.index(DONE)]
        if KNOWS_V2:
            assert all(result == DONE or result in LOST for result in results)
        found = pair[0].do("describe", prefix)
        assert found["spec_version"] == winner
        assert found["branches"] == ["main"]
        assert found["snapshots"] == ["Repository initialized"]
        assert pair[1].do("describe", prefix) == found


@each_spec
def test_of_two_creators_of_a_tag_one_wins(pair: Pair, spec_version: int) -> None:
    for prefix, pauses in races(f"tag-{spec_version}"):
        assert pair[0].do("create", prefix, spec_version=spec_version) == DONE
        for rival in pair:
            assert rival.do("open", prefix, threshold=1) == DONE
        results = race(pair, "tag", prefix, pauses)
        assert sorted(result == DONE for result in results) == [False, True], results
        [lost] = [result for result in results if result != DONE]
        assert lost == refused("tag-already-exists") or not KNOWS_V2
        for rival in pair:
            found = rival.do("describe", prefix)
            assert found["tags"] == ["t"]
            assert found["log"] == (["TagCreated", "RepoInitialized"] if spec_version == 2 else [])


@each_spec
def test_ours_never_overwrites_a_configuration_that_the_reference_saved(
    pair: Pair, spec_version: int
) -> None:
    for prefix, pauses in races(f"save-{spec_version}"):
        assert pair[0].do("create", prefix, spec_version=spec_version) == DONE
        for threshold, rival in enumerate(pair):
            assert rival.do("open", prefix, threshold=threshold) == DONE
        ours, theirs = race(pair, "save", prefix, pauses)
        found = pair[0].do("describe", prefix)
        assert pair[1].do("describe", prefix) == found
        if spec_version == 1:
            assert sorted([ours == DONE, theirs == DONE]) == [False, True]
            assert found["threshold"] == (0 if ours == DONE else 1)
        else:
            # The reference overwrites without looking, so it has the last word.
            assert theirs == DONE
            assert found["threshold"] == 1
            assert len(found["log"]) == (3 if ours == DONE else 2)
        assert ours == DONE or ours == refused("config-updated")
        assert theirs == DONE or is_failure(theirs)
