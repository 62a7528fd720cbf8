"""Event loops around a synchronous storage: turns within one, and one for the time of a call."""

from __future__ import annotations

import asyncio
from concurrent.futures import wait
from contextlib import suppress
from typing import TYPE_CHECKING, Any, TypeVar
from weakref import WeakKeyDictionary

if TYPE_CHECKING:
    from collections.abc import Coroutine
    from concurrent.futures import ThreadPoolExecutor

T = TypeVar("T")


class Turns:
    """So many requests at once in each event loop."""

    def __init__(self, at_once: int) -> None:
        self._at_once = at_once
        self._by_loop: WeakKeyDictionary[asyncio.AbstractEventLoop, asyncio.Semaphore] = (
            WeakKeyDictionary()
        )

    def here(self) -> asyncio.Semaphore:
        """What a request of the running loop holds while it runs."""
        loop = asyncio.get_running_loop()
        turns = self._by_loop.get(loop)
        if turns is None:
            turns = self._by_loop[loop] = asyncio.Semaphore(self._at_once)
        return turns


def run_in(executor: ThreadPoolExecutor, work: Coroutine[Any, Any, T]) -> T:
    """Run ``work`` in a thread, where no other loop runs; it ends with the call."""
    started: list[tuple[asyncio.AbstractEventLoop, asyncio.Task[T]]] = []

    async def start() -> T:
        task = asyncio.ensure_future(work)
        started.append((asyncio.get_running_loop(), task))
        return await task

    running = executor.submit(lambda: asyncio.run(start()))
    try:
        return running.result()
    except BaseException:
        # The caller may have been interrupted; a loop that has ended is closed.
        for loop, task in started:
            with suppress(RuntimeError):
                loop.call_soon_threadsafe(task.cancel)
        wait([running])
        raise
