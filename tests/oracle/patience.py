"""Calls of the reference that may wait for themselves for ever: seen once, with no request open."""

from __future__ import annotations

from concurrent.futures import Future
from threading import Thread
from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable

T = TypeVar("T")

_PATIENCE = 60.0
_TIMES = 3


def answered(call: Callable[[], T], patience: float = _PATIENCE) -> T:
    """What a call gives, which is begun anew where it does not end."""
    for _ in range(_TIMES):
        found: Future[T] = Future()
        # No pool: the interpreter would wait at its end for threads that never do.
        Thread(target=_run, args=(call, found), daemon=True).start()
        try:
            return found.result(patience)
        except TimeoutError:
            if found.done():
                raise
    raise AssertionError(f"{_TIMES} calls gave no answer within {patience} s each")


def _run(call: Callable[[], T], found: Future[T]) -> None:
    try:
        found.set_result(call())
    except BaseException as error:  # noqa: BLE001 - the caller gets it
        found.set_exception(error)
