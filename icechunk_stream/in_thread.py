"""Asynchronous twins of synchronous methods: the same call in a thread."""

from __future__ import annotations

import asyncio
from functools import wraps
from typing import TYPE_CHECKING, ParamSpec, TypeVar

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Coroutine, Iterator

P = ParamSpec("P")
T = TypeVar("T")


def in_thread(call: Callable[P, T]) -> Callable[P, Coroutine[None, None, T]]:
    """The coroutine that runs a call in a thread, so that the event loop goes on."""

    @wraps(call)
    async def run(*args: P.args, **kwargs: P.kwargs) -> T:
        return await asyncio.to_thread(call, *args, **kwargs)

    return run


async def iterate_in_thread(values: Iterator[T]) -> AsyncIterator[T]:
    """The values of an iterator, each made in a thread."""
    end = object()
    while True:
        value = await asyncio.to_thread(next, values, end)
        if value is end:
            return
        yield value  # type: ignore[misc]
