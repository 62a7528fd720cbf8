"""Calls of a storage: recorded in their order, held, and spoiled as a test wants it."""

from __future__ import annotations

import threading
from contextlib import suppress
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING, Literal, TypeVar

from icechunk_stream.errors import CommitStateUnknownError, StorageError

if TYPE_CHECKING:
    from collections.abc import Callable

T = TypeVar("T")

Method = Literal["get", "read", "stat", "put", "put_if", "copy_if", "list", "delete"]
READS: frozenset[Method] = frozenset({"get", "read", "stat", "list"})

_WAVE_SECONDS = 20.0


@dataclass(frozen=True, slots=True)
class Call:
    """A call in the order in which they came, from 1; a copy's first key is its target."""

    number: int
    method: Method
    keys: tuple[str, ...]

    @property
    def key(self) -> str:
        return self.keys[0] if self.keys else ""


def failure(call: Call) -> StorageError:
    """What backends raise for a call that failed for certain."""
    return StorageError(f"{call.method} of {call.key!r} failed: try again", key=call.key)


def doubt(call: Call) -> StorageError:
    """What backends raise when an answer is lost: swaps tell that nobody knows their outcome."""
    if call.method != "put_if":
        return StorageError(f"no answer to {call.method} of {call.key!r}: try again", key=call.key)
    message = f"whether {call.key!r} was written is unknown: read it, and then try again"
    return CommitStateUnknownError(message, key=call.key)


@dataclass(frozen=True, slots=True)
class Fail:
    """Nothing is done, and the call raises."""

    error: Callable[[Call], Exception] = failure


@dataclass(frozen=True, slots=True)
class LoseAnswer:
    """The call is carried out, and raises all the same."""

    error: Callable[[Call], Exception] = doubt


@dataclass(frozen=True, slots=True)
class LandLate:
    """The call raises, and is carried out just before the first later call that ``until`` takes.

    ``Script.land`` carries it out too, should no such call come.
    """

    until: Callable[[Call], bool]
    error: Callable[[Call], Exception] = doubt


Fault = Fail | LoseAnswer | LandLate


@dataclass(slots=True)
class _Rule:
    """A fault for some of the calls that match."""

    fault: Fault
    method: str
    key: str
    first: int
    times: int
    seen: int = 0

    def takes(self, call: Call) -> bool:
        if not (fnmatchcase(call.method, self.method) and fnmatchcase(call.key, self.key)):
            return False
        self.seen += 1
        return self.first <= self.seen < self.first + self.times


@dataclass(frozen=True, slots=True, eq=False)
class _Late:
    call: Call
    until: Callable[[Call], bool]
    act: Callable[[], object]


@dataclass(slots=True, eq=False)
class Script:
    """What happens to the calls of a storage, and what happened to them so far.

    ``before`` is told of every call once it is counted, and may hold it or do something else first.
    """

    before: Callable[[Call], None] | None = None
    _events: list[tuple[bool, Call]] = field(default_factory=list)
    _rules: tuple[_Rule, ...] = ()
    _late: list[_Late] = field(default_factory=list)
    _count: int = 0
    _lock: threading.RLock = field(default_factory=threading.RLock)

    @property
    def count(self) -> int:
        """The number of the last call."""
        return self._count

    @property
    def running(self) -> int:
        """Calls that began and have not ended."""
        return sum(1 if begins else -1 for begins, _ in tuple(self._events))

    @property
    def calls(self) -> list[Call]:
        """Calls so far, in the order in which they came."""
        return [call for begins, call in tuple(self._events) if begins]

    def calls_of(self, method: str = "*", key: str = "*") -> list[Call]:
        """Calls so far that match; both are patterns with ``*`` and ``?``."""
        return [c for c in self.calls if fnmatchcase(c.method, method) and fnmatchcase(c.key, key)]

    @property
    def waves(self) -> list[list[Call]]:
        """Calls so far in groups: each began before any of its group had ended.

        Quick calls may end before others of their wave begin: ``hold_waves`` prevents that.
        """
        found: list[list[Call]] = []
        after_an_end = True
        for begins, call in tuple(self._events):
            if begins and after_an_end:
                found.append([])
            if begins:
                found[-1].append(call)
            after_an_end = not begins
        return found

    def forget(self) -> None:
        """Begin a new record; numbers go on."""
        with self._lock:
            self._events = []

    def disturb(
        self, fault: Fault, *, method: str = "*", key: str = "*", nth: int = 1, times: int = 1
    ) -> None:
        """Disturb the ``nth`` call from now on that matches, and ``times - 1`` after it.

        ``method`` and ``key`` are patterns. Of two rules for a call the older one acts.
        """
        self._rules = (*self._rules, _Rule(fault, method, key, nth, times))

    def calm(self) -> None:
        """Disturb and hold nothing any more; what is late stays late."""
        self._rules, self.before = (), None

    def hold_waves(self, *sizes: int) -> None:
        """Let calls go in groups: of the first size once so many are there, then of the next.

        A group that does not fill up breaks its barrier within 20 seconds. Calls after the last
        group go at once.
        """
        groups = [[threading.Barrier(size)] * size for size in sizes]
        barriers = [barrier for group in groups for barrier in group]
        first = self._count + 1

        def wait(call: Call) -> None:
            if call.number - first < len(barriers):
                barriers[call.number - first].wait(_WAVE_SECONDS)

        self.before = wait

    def land(self) -> None:
        """Carry out all that is late."""
        self._land(lambda _: True)

    def run(self, method: Method, keys: tuple[str, ...], act: Callable[[], T]) -> T:
        """Carry out a call as the rules want it."""
        call, fault = self._begin(method, keys)
        try:
            self._land(lambda late: late.until(call))
            if self.before is not None:
                self.before(call)
            return self._carry_out(call, fault, act)
        finally:
            with self._lock:
                self._events.append((False, call))

    def _begin(self, method: Method, keys: tuple[str, ...]) -> tuple[Call, Fault | None]:
        with self._lock:
            self._count += 1
            call = Call(self._count, method, keys)
            self._events.append((True, call))
            # Every rule counts every call, also those that an older rule disturbs.
            taken = [rule.fault for rule in self._rules if rule.takes(call)]
            return call, taken[0] if taken else None

    def _carry_out(self, call: Call, fault: Fault | None, act: Callable[[], T]) -> T:
        match fault:
            case None:
                return act()
            case Fail(error):
                raise error(call)
            case LoseAnswer(error):
                act()
                raise error(call)
            case LandLate(until, error):
                with self._lock:
                    self._late.append(_Late(call, until, act))
                raise error(call)

    def _land(self, is_due: Callable[[_Late], bool]) -> None:
        with self._lock:
            due = [late for late in self._late if is_due(late)]
            self._late = [late for late in self._late if late not in due]
            for late in due:
                # Nobody waits for the answer any more.
                with suppress(StorageError):
                    late.act()
