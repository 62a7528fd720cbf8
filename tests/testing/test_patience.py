"""A call that hangs is begun anew, and one that always hangs is told."""

from __future__ import annotations

import time

import pytest

from tests.oracle.patience import answered

_LONG = 30.0


def test_a_call_that_hangs_once_is_begun_anew() -> None:
    calls: list[int] = []

    def call() -> int:
        calls.append(len(calls))
        if len(calls) == 1:
            time.sleep(_LONG)
        return len(calls)

    assert answered(call, patience=0.2) == 2


def test_what_always_hangs_is_told() -> None:
    with pytest.raises(AssertionError, match="3 calls gave no answer"):
        answered(lambda: time.sleep(_LONG), patience=0.1)


def test_an_error_is_the_callers() -> None:
    with pytest.raises(ZeroDivisionError):
        answered(lambda: 1 // 0)
    with pytest.raises(TimeoutError, match="its own"):
        answered(lambda: _fail(TimeoutError("its own")))


def _fail(error: Exception) -> None:
    raise error
