"""What a call gave: its value, or the stable code of its error."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable
    from datetime import datetime

ERROR = "error"


def kind_of(error: BaseException) -> str | None:
    """The stable code that the newer libraries give their errors; None where there is none."""
    kind = getattr(error, "kind", None)
    return None if kind is None else str(kind)


def failure(error: BaseException) -> dict[str, Any]:
    kind = kind_of(error)
    return {ERROR: {} if kind is None else {"kind": kind}}


def refused(kind: str) -> dict[str, Any]:
    """What ``outcome`` gives for an error of this kind."""
    return {ERROR: {"kind": kind}}


def outcome(call: Callable[..., Any], *arguments: Any) -> Any:
    """The call's value, or its error as a plain value. Panics of the reference count as errors."""
    try:
        return call(*arguments)
    except (KeyboardInterrupt, SystemExit):
        raise
    except BaseException as error:  # noqa: BLE001 - any error is a result here
        return failure(error)


def answer(call: Callable[..., Any], *arguments: Any) -> Any:
    """The outcome of a call of any colour: buffers as bytes, iterators as sorted lists."""
    return outcome(lambda: asyncio.run(_settled(call, arguments)))


async def _settled(call: Callable[..., Any], arguments: tuple[Any, ...]) -> Any:
    found = call(*arguments)
    if hasattr(found, "__aiter__"):
        return await _collected(found)
    return _plain(await found if hasattr(found, "__await__") else found)


async def _collected(items: AsyncIterator[Any]) -> list[Any]:
    return sorted([item async for item in items])


def _plain(value: Any) -> Any:
    if isinstance(value, list):
        return [_plain(item) for item in value]
    return value.to_bytes() if hasattr(value, "as_buffer_like") else value


def is_failure(value: Any) -> bool:
    return isinstance(value, dict) and set(value) == {ERROR}


def plain_time(value: datetime) -> str:
    return value.isoformat(timespec="microseconds")
