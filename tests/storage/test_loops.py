"""Event loops around a synchronous storage."""

import asyncio
import signal
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from threading import Event, main_thread
from types import FrameType

import pytest

from icechunk_stream.storage.loops import Turns, run_in


@pytest.fixture
def pool() -> Iterator[ThreadPoolExecutor]:
    with ThreadPoolExecutor(1) as pool:
        yield pool


def test_so_many_requests_of_a_loop_run_at_once() -> None:
    turns, running, most = Turns(3), [0], [0]

    async def request() -> None:
        async with turns.here():
            running[0] += 1
            most[0] = max(most[0], running[0])
            await asyncio.sleep(0)
            running[0] -= 1

    async def requests() -> None:
        await asyncio.gather(*(request() for _ in range(20)))

    for _ in range(2):
        asyncio.run(requests())
    assert (running, most) == ([0], [3])


def test_a_coroutine_gives_its_value_or_error(pool: ThreadPoolExecutor) -> None:
    async def divided(by: int) -> float:
        await asyncio.sleep(0)
        return 6 / by

    assert run_in(pool, divided(2)) == 3
    with pytest.raises(ZeroDivisionError):
        run_in(pool, divided(0))


def test_a_coroutine_ends_when_its_caller_is_interrupted(pool: ThreadPoolExecutor) -> None:
    ended = Event()

    async def endless() -> None:
        try:
            # By then the caller waits.
            await asyncio.sleep(0.2)
            signal.pthread_kill(main_thread().ident or 0, signal.SIGUSR1)
            await asyncio.sleep(3600)
        finally:
            ended.set()

    def interrupt(_number: int, _frame: FrameType | None) -> None:
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGUSR1, interrupt)
    try:
        with pytest.raises(KeyboardInterrupt):
            run_in(pool, endless())
    finally:
        signal.signal(signal.SIGUSR1, before)
    assert ended.is_set()
