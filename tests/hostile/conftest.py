"""Nothing may hang: a test that does not end by itself is ended, and fails."""

from __future__ import annotations

import signal
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from collections.abc import Iterator
    from types import FrameType

_PATIENCE = 120
_SOAK_PATIENCE = 7200


class HangError(BaseException):
    """Raised in the middle of what does not end."""


@pytest.fixture(autouse=True)
def _ended_if_it_hangs(request: pytest.FixtureRequest) -> Iterator[None]:
    soak = request.node.get_closest_marker("soak")
    before = signal.signal(signal.SIGALRM, _end)
    signal.alarm(_SOAK_PATIENCE if soak else _PATIENCE)
    yield
    signal.alarm(0)
    signal.signal(signal.SIGALRM, before)


def _end(number: int, frame: FrameType | None) -> None:
    raise HangError
