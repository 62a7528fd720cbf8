"""What a call gave: its value, or the stable code of its error."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable
    from datetime import datetime

ERROR = "error"


def kind_of(error: BaseException) -> str | None:
    """The stable code that the newer libraries give their errors; None where there is none."""
    kind = getattr(error, "kind", None)
    return None if kind is None else str(kind)


def failure(error: BaseException) -> dict[str, Any]:
    kind = kind_of(error)
    return {ERROR: {} if kind is None else {"kind": kind}}


def outcome(call: Callable[..., Any], *arguments: Any) -> Any:
    """The call's value, or its error as a plain value. Panics of the reference count as errors."""
    try:
        return call(*arguments)
    except (KeyboardInterrupt, SystemExit):
        raise
    except BaseException as error:  # noqa: BLE001 - any error is a result here
        return failure(error)


def is_failure(value: Any) -> bool:
    return isinstance(value, dict) and set(value) == {ERROR}


def plain_time(value: datetime) -> str:
    return value.isoformat(timespec="microseconds")
