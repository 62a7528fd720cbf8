"""Libraries act in turn on one repository, and each says what a model of it says."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any, ClassVar

import pytest
from hypothesis import HealthCheck, settings
from hypothesis.stateful import run_state_machine_as_test

import icechunk_stream
from tests.alternation.driver import Driver
from tests.alternation.machine import OURS, THEIRS
from tests.alternation.ref_steps import RefSteps
from tests.alternation.reference_steps import ReferenceSteps
from tests.alternation.remote import Worker
from tests.oracle.compare import assert_same
from tests.oracle.dump import OPTIONAL
from tests.oracle.libraries import ROOT, legacy_python

if TYPE_CHECKING:
    from collections.abc import Iterator

pytestmark = [
    pytest.mark.compat,
    # Here the libraries take turns, as they have to on a local disk.
    pytest.mark.filterwarnings("ignore:the configuration says unsafe_use_conditional_update"),
]

EXAMPLES = settings.get_profile(settings.get_current_profile_name()).max_examples
IS_SOAK = EXAMPLES >= 2_000
RUNS, STEPS = (500, 100) if IS_SOAK else (20, 30)
LEGACY_RUNS = 100 if IS_SOAK else 8

# Steps, and how often each is drawn.
_ALONE = {"commit": 6, "two_commits": 4, "transaction": 2, "flush": 2, "discard": 2}
_OPEN = {"begin": 8, "edit_more": 2, "commit_pending": 3, "rebase": 6, "commit_with_rebase": 4}
_BRANCHES = {"create_branch": 3, "delete_branch": 5, "reset_branch": 2}
_TAGS = {"create_tag": 3, "delete_tag": 4}
_MAINTENANCE = {"rewrite_manifests": 2, "expire": 2, "collect": 3}
_OF_V2 = {"amend": 3, "set_metadata": 2, "pause": 2, "set_flag": 2, "move": 3}
_EVERYWHERE = {**_ALONE, **_OPEN, **_BRANCHES, **_TAGS, **_MAINTENANCE, "configure": 2}
_NEWER = {**_OF_V2, "empty": 2, "shift": 2}

_UNKNOWN_TO_IT = OPTIONAL | {"metadata"}


class OnSpecV1(ReferenceSteps, RefSteps):
    """Until it is upgraded."""

    spec_version = 1
    steps: ClassVar = {**_EVERYWHERE, **_NEWER, "upgrade": 6}
    ran: ClassVar = Counter()


class OnSpecV2(ReferenceSteps, RefSteps):
    spec_version = 2
    steps: ClassVar = {**_EVERYWHERE, **_NEWER}
    ran: ClassVar = Counter()


class WithTheOldReference(ReferenceSteps, RefSteps):
    spec_version = 1
    steps: ClassVar = _EVERYWHERE
    ran: ClassVar = Counter()
    commits_nothing = False
    # 1.1.21 logs no chunks that zarr cuts off, and looks up nodes at the tip, not commit by commit.
    not_in_open_sessions = frozenset({"resize"})
    alike_over = 1
    worker: ClassVar[Worker]

    def open_drivers(self, folder: str) -> dict[str, Any]:
        return {OURS: Driver(icechunk_stream, folder), THEIRS: self.worker.drive(folder)}

    def counts_rebases(self) -> bool:
        return self.library == OURS

    def assert_alike(self, theirs: Any, ours: Any, library: str) -> None:
        assert_same(theirs, ours, ("icechunk 1.1.21", OURS), _UNKNOWN_TO_IT)


@pytest.fixture
def old_reference() -> Iterator[None]:
    WithTheOldReference.worker = Worker(str(legacy_python()), str(ROOT))
    yield
    WithTheOldReference.worker.close()


@pytest.mark.parametrize("machine", [OnSpecV1, OnSpecV2])
def test_takes_turns_with_the_reference(machine: type[ReferenceSteps]) -> None:
    counted = _run(machine, RUNS)
    # An upgrade may come too late for steps of spec v2.
    later = _OF_V2.keys() if machine.spec_version == 1 else set()
    starved = [step for step in machine.steps.keys() - later if not counted[step]]
    assert not starved


def test_takes_turns_with_the_old_reference(old_reference: None) -> None:
    _run(WithTheOldReference, LEGACY_RUNS)


def _run(machine: type[ReferenceSteps], runs: int) -> Counter[str]:
    """How often each step ran."""
    machine.ran.clear()
    profile = settings(
        max_examples=runs, stateful_step_count=STEPS, suppress_health_check=[*HealthCheck]
    )
    run_state_machine_as_test(machine, settings=profile)
    counted = Counter[str]()
    for step, count in machine.ran.items():
        counted[step.rpartition(" by ")[0]] += count
    print(", ".join(f"{step} {count}" for step, count in sorted(counted.items())))
    return counted
