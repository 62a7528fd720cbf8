"""Both versions of the format."""

from __future__ import annotations

import pytest


@pytest.fixture(params=[1, 2], ids="v{}".format)
def spec_version(request: pytest.FixtureRequest) -> int:
    return int(request.param)
