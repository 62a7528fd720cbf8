import os, sys
from hypothesis import settings, HealthCheck, Phase
from hypothesis.stateful import run_state_machine_as_test
from tests.alternation.machine import RAN
from tests.alternation.reference_steps import ReferenceSteps
from tests.alternation.ref_steps import RefSteps
import time, pytest

class M1(ReferenceSteps, RefSteps):
    spec_version = 1

class M2(ReferenceSteps, RefSteps):
    spec_version = 2

@pytest.mark.parametrize("m", [M1, M2])
@pytest.mark.filterwarnings('ignore:the configuration says')
def test_it(m):
    t = time.time()
    try:
        run_state_machine_as_test(m, settings=settings(max_examples=int(os.environ.get("N", "3")), phases=[Phase.generate] + ([Phase.shrink] if "SHRINK" in os.environ else []), report_multiple_bugs=False, stateful_step_count=30, suppress_health_check=[*HealthCheck]))
    finally:
        print(RAN, time.time() - t)
