"""Values kept in memory, bounded by the bytes they hold."""

from __future__ import annotations

import os
import threading
from collections import OrderedDict
from concurrent.futures import Future
from typing import TYPE_CHECKING, Any, Generic, TypeVar
from weakref import WeakSet

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable

V = TypeVar("V")


class ByteCache(Generic[V]):
    """The values used last; each is loaded once however many threads ask for it together.

    With ``keeps_newest`` the value loaded last stays, even if it is larger than the cache: what
    takes long to load is asked for many times in a row. Without room nothing stays.
    """

    def __init__(
        self, capacity: int, size_of: Callable[[V], int], *, keeps_newest: bool = False
    ) -> None:
        self.capacity = capacity
        self.held = 0
        self._size_of = size_of
        self._fewest = 1 if keeps_newest and capacity else 0
        self._values: OrderedDict[Hashable, V] = OrderedDict()
        self._loading: dict[Hashable, Future[V]] = {}
        self._lock = threading.Lock()
        _caches.add(self)

    def peek(self, key: Hashable) -> V | None:
        """The value if it is here; never loads, never waits for a load."""
        with self._lock:
            value = self._values.get(key)
            if value is not None:
                self._values.move_to_end(key)
            return value

    def get(self, key: Hashable, load: Callable[[], V]) -> V:
        """The value, loaded by this thread or by the one that is at it already."""
        with self._lock:
            if key in self._values:
                self._values.move_to_end(key)
                return self._values[key]
            pending = self._loading.get(key)
            mine: Future[V] = Future()
            if pending is None:
                self._loading[key] = mine
        return self._load(key, load, mine) if pending is None else pending.result()

    def drop(self, key: Hashable) -> None:
        """Forget a value that nobody will ask for any more."""
        with self._lock:
            value = self._values.pop(key, None)
            if value is not None:
                self.held -= self._size_of(value)

    def reset_after_fork(self) -> None:
        """A lock or load of a thread that the child does not have would never end."""
        self._lock = threading.Lock()
        self._loading = {}

    def _load(self, key: Hashable, load: Callable[[], V], mine: Future[V]) -> V:
        try:
            value = load()
        except BaseException as error:
            self._forget(key)
            mine.set_exception(error)
            raise
        self._keep(key, value)
        mine.set_result(value)
        return value

    def _forget(self, key: Hashable) -> None:
        with self._lock:
            self._loading.pop(key, None)

    def _keep(self, key: Hashable, value: V) -> None:
        size = self._size_of(value)
        with self._lock:
            self._loading.pop(key, None)
            if size > self.capacity and not self._fewest:
                return
            self._values[key] = value
            self.held += size
            while self.held > self.capacity and len(self._values) > self._fewest:
                _, oldest = self._values.popitem(last=False)
                self.held -= self._size_of(oldest)


_caches: WeakSet[ByteCache[Any]] = WeakSet()


def _reset_all() -> None:
    for cache in list(_caches):
        cache.reset_after_fork()


os.register_at_fork(after_in_child=_reset_all)
