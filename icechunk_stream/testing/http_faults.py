"""What can go wrong with one HTTP request, as values for ``HttpProxy.disturb``."""

from __future__ import annotations

from concurrent.futures import Future
from dataclasses import dataclass, field, replace
from fnmatch import fnmatchcase
from threading import Event, Lock
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

    from icechunk_stream.testing.http_messages import Answer, Headers, Request


class Gate:
    """Holds a request back until the test opens it, and tells when the server has answered."""

    def __init__(self) -> None:
        self.held = Event()
        self.landed: Future[int] = Future()
        self._opened: Future[None] = Future()

    @property
    def opened(self) -> Future[None]:
        return self._opened

    def open(self, timeout: float = 60.0) -> int:
        """Let the request go; the status that the server answers it with."""
        if not self.held.wait(timeout):
            raise TimeoutError("no request came to the gate: check the method and the path")
        self._opened.set_result(None)
        return self.landed.result(timeout)


@dataclass(frozen=True, slots=True)
class DropRequest:
    """The server never sees the request; the connection closes after ``at`` bytes of its body."""

    at: int | None = None
    reset: bool = False


@dataclass(frozen=True, slots=True)
class DropAnswer:
    """The server does what was asked; the connection closes before a byte of the answer."""

    reset: bool = False


@dataclass(frozen=True, slots=True)
class LandLate:
    """The request reaches the server when the gate is opened.

    The client's connection closes at once, or with ``hang_up=False`` stays silent until the
    client gives up.
    """

    gate: Gate
    hang_up: bool = True


@dataclass(frozen=True, slots=True)
class Delay:
    """The request reaches the server some seconds later, whether or not the client waits."""

    seconds: float


@dataclass(frozen=True, slots=True)
class Reply:
    """The client gets this answer; with ``forward`` the server has done what was asked."""

    status: int
    body: bytes = b""
    headers: Headers = ()
    forward: bool = False


@dataclass(frozen=True, slots=True)
class CutBody:
    """The connection closes before byte ``at`` of the answer's body, of which it tells all."""

    at: int
    reset: bool = False


@dataclass(frozen=True, slots=True)
class StallBody:
    """No byte follows from byte ``at`` of the answer's body on; the connection stays open."""

    at: int


@dataclass(frozen=True, slots=True)
class TruncateBody:
    """The body ends before byte ``at``, and the answer says that this is all."""

    at: int


@dataclass(frozen=True, slots=True)
class CorruptBody:
    """Byte ``at`` of the answer's body has all its bits flipped."""

    at: int


@dataclass(frozen=True, slots=True)
class AlterAnswer:
    """The client gets a changed answer."""

    change: Callable[[Answer], Answer]


@dataclass(frozen=True, slots=True)
class AlterRequest:
    """The server gets a changed request; what is signed must stay, where signatures count."""

    change: Callable[[Request], Request]


Fault = (
    DropRequest
    | DropAnswer
    | LandLate
    | Delay
    | Reply
    | CutBody
    | StallBody
    | TruncateBody
    | CorruptBody
    | AlterAnswer
    | AlterRequest
)


@dataclass(slots=True)
class Rule:
    """A fault for the ``nth`` request that matches, and for those after it up to ``times``."""

    fault: Fault
    method: str
    path: str
    query: str
    nth: int
    times: int
    matched: int = 0
    """Requests that matched so far, disturbed or not."""
    _lock: Lock = field(default_factory=Lock, repr=False)

    @property
    def disturbed(self) -> int:
        """Requests that were disturbed so far."""
        return max(0, min(self.matched - self.nth + 1, self.times))

    def matches(self, method: str, path: str, query: str) -> bool:
        return (
            fnmatchcase(method, self.method)
            and fnmatchcase(path, self.path)
            and self.query in query
        )

    def takes(self, request: Request) -> bool:
        """Count a request, and tell whether it is one to disturb."""
        if not self.matches(request.method, request.path, request.query):
            return False
        with self._lock:
            self.matched += 1
            return self.nth <= self.matched < self.nth + self.times


def spoiled(answer: Answer, fault: Fault | None) -> Answer:
    """The answer that the client gets, as far as it is complete."""
    match fault:
        case AlterAnswer(change):
            return change(answer)
        case TruncateBody(at):
            return replace(answer, body=answer.body[: offset(at, len(answer.body))])
        case CorruptBody(at) if answer.body:
            place = min(offset(at, len(answer.body)), len(answer.body) - 1)
            flipped = bytes([answer.body[place] ^ 0xFF])
            body = answer.body[:place] + flipped + answer.body[place + 1 :]
            return replace(answer, body=body)
        case _:
            return answer


def offset(at: int, size: int) -> int:
    """A place in a body; negative ones count from its end, as in a slice."""
    return min(at, size) if at >= 0 else max(0, size + at)
