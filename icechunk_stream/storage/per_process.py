"""Values that must not be shared with a forked child: locks and thread pools."""

from __future__ import annotations

import os
import threading
from typing import TYPE_CHECKING, Any, Generic, TypeVar
from weakref import WeakSet

if TYPE_CHECKING:
    from collections.abc import Callable

T = TypeVar("T")


class PerProcess(Generic[T]):
    """A value that a forked child makes anew: its parent's locks and threads are not its own."""

    __slots__ = ("__weakref__", "_make", "value")

    def __init__(self, make: Callable[[], T]) -> None:
        self._make = make
        self.value = make()
        _living.add(self)

    def renew(self) -> None:
        self.value = self._make()


class LazyPerProcess(Generic[T]):
    """A value that each process makes when it first needs it; one thread makes it."""

    __slots__ = ("_make", "_slot")

    def __init__(self, make: Callable[[], T]) -> None:
        self._make = make
        self._slot: PerProcess[_Slot[T]] = PerProcess(_Slot)

    @property
    def value(self) -> T:
        slot = self._slot.value
        if not slot.values:
            with slot.lock:
                if not slot.values:
                    slot.values.append(self._make())
        return slot.values[0]

    @property
    def is_made(self) -> bool:
        return bool(self._slot.value.values)


class _Slot(Generic[T]):
    __slots__ = ("lock", "values")

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.values: list[T] = []


_living: WeakSet[PerProcess[Any]] = WeakSet()


def _renew_all() -> None:
    for holder in tuple(_living):
        holder.renew()


os.register_at_fork(after_in_child=_renew_all)
