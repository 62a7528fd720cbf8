"""A proxy before an object store that disturbs exactly the request that a test names.

::

    with HttpProxy("http://127.0.0.1:9000") as proxy:
        rule = proxy.disturb(DropAnswer(), method="PUT", path="*/repo")
        ...  # a client of ``proxy.endpoint``: the answer to its first PUT of "repo" is lost
        assert [seen.status for seen in proxy.requests] == [200]

The Host header stays as the client sent it, so that signatures stay valid. Bodies are held in
memory. Plain HTTP only.
"""

from __future__ import annotations

import asyncio
import socket
import struct
from concurrent.futures import Future
from contextlib import suppress
from dataclasses import replace
from threading import Thread
from typing import TYPE_CHECKING, Self
from urllib.parse import urlsplit

from icechunk_stream.testing.http_faults import (
    AlterRequest,
    CutBody,
    Delay,
    DropAnswer,
    DropRequest,
    LandLate,
    Reply,
    Rule,
    StallBody,
    offset,
    spoiled,
)
from icechunk_stream.testing.http_messages import (
    HEAD_LIMIT,
    Answer,
    Request,
    Seen,
    header,
    read_answer,
    read_request_body,
    read_request_head,
    remembered,
)

if TYPE_CHECKING:
    from asyncio import AbstractEventLoop, StreamReader, StreamWriter
    from collections.abc import Callable
    from types import TracebackType

    from icechunk_stream.testing.http_faults import Fault, Gate

HOST = "127.0.0.1"
_START_SECONDS = 30.0


class HttpProxy:
    """Forwards HTTP/1.1 to ``upstream`` from a free loopback port, within a ``with`` block.

    Args:
        upstream: The server's address; a path in it is kept in ``endpoint``.
        latency: Seconds that each round trip takes longer. A request that waits for
            ``100 Continue`` makes two.
    """

    def __init__(self, upstream: str, *, latency: float = 0.0) -> None:
        parts = urlsplit(upstream)
        if parts.scheme != "http" or parts.hostname is None:
            raise ValueError(f"{upstream!r} is no address of a plain HTTP server")
        self._upstream = (parts.hostname, parts.port or 80)
        self._path = parts.path
        self.latency = latency
        self.connections = 0
        """Connections that clients opened so far."""
        self._rules: tuple[Rule, ...] = ()
        self._seen: list[Seen] = []
        self._started: Future[tuple[AbstractEventLoop, int]] = Future()
        self._stopped = asyncio.Event()
        self._late: set[asyncio.Task[None]] = set()
        self._thread = Thread(target=self._run, name="http-proxy", daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        self._started.result(_START_SECONDS)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        loop, _ = self._started.result()
        loop.call_soon_threadsafe(self._stopped.set)
        self._thread.join()

    @property
    def endpoint(self) -> str:
        """The address to give to clients."""
        _, port = self._started.result(_START_SECONDS)
        return f"http://{HOST}:{port}{self._path}"

    def disturb(
        self,
        fault: Fault,
        *,
        method: str = "*",
        path: str = "*",
        query: str = "",
        nth: int = 1,
        times: int = 1,
    ) -> Rule:
        """Disturb the ``nth`` request from now on that matches, and ``times - 1`` after it.

        ``method`` and ``path`` are patterns with ``*`` and ``?``; ``path`` is for the whole
        decoded path, ``query`` a part of the query. Of two rules for a request the older acts.
        """
        rule = Rule(fault, method, path, query, nth, times)
        self._rules = (*self._rules, rule)
        return rule

    def calm(self) -> None:
        """Disturb nothing any more."""
        self._rules = ()

    @property
    def requests(self) -> list[Seen]:
        """Requests so far, in the order in which they came."""
        return list(self._seen)

    def requests_of(self, method: str = "*", path: str = "*", query: str = "") -> list[Seen]:
        """Requests so far that match."""
        wanted = Rule(DropRequest(), method, path, query, 1, 1)
        return [s for s in self.requests if wanted.matches(s.method, s.path, s.query)]

    @property
    def round_trips(self) -> int:
        """Times that a client had to wait for the server so far, connecting not counted."""
        return sum(seen.round_trips for seen in self.requests)

    def forget(self) -> None:
        """Begin a new list of requests."""
        self._seen = []

    def _run(self) -> None:
        try:
            asyncio.run(self._serve())
        except OSError as error:
            self._started.set_exception(error)

    async def _serve(self) -> None:
        server = await asyncio.start_server(self._client, HOST, 0, limit=HEAD_LIMIT, backlog=512)
        self._started.set_result((asyncio.get_running_loop(), server.sockets[0].getsockname()[1]))
        await self._stopped.wait()
        server.close()

    async def _client(self, reader: StreamReader, writer: StreamWriter) -> None:
        self.connections += 1
        # What was written has left this process when drain() returns.
        writer.transport.set_write_buffer_limits(0)
        try:
            while await self._exchange(reader, writer):
                pass
        except (ConnectionError, asyncio.IncompleteReadError):
            pass  # The client went away.
        finally:
            writer.close()

    async def _exchange(self, reader: StreamReader, writer: StreamWriter) -> bool:
        """Serve one request; whether the connection goes on."""
        head = await read_request_head(reader)
        if head is None:
            return False
        fault = self._fault_of(head)
        if head.expects_continue:
            await self._pause()
            writer.write(b"HTTP/1.1 100 Continue\r\n\r\n")
        if isinstance(fault, DropRequest) and fault.at is not None:
            self._remember(head)
            await reader.readexactly(fault.at)
            return hang_up(writer, reset=fault.reset)
        request = await read_request_body(reader, head)
        remember = self._remember(request)
        if isinstance(fault, DropRequest | DropAnswer | LandLate):
            return await self._give_no_answer(request, fault, remember, reader, writer)
        answer = await self._answer(request, fault)
        remember(answer.status, not isinstance(fault, CutBody | StallBody))
        await self._pause()
        went = await send(answer, fault, reader, writer)
        return went and header(request.headers, "connection").lower() != "close"

    async def _give_no_answer(
        self,
        request: Request,
        fault: DropRequest | DropAnswer | LandLate,
        remember: Callable[[int, bool], None],
        reader: StreamReader,
        writer: StreamWriter,
    ) -> bool:
        match fault:
            case DropRequest(_, reset):
                return hang_up(writer, reset=reset)
            case DropAnswer(reset):
                remember((await self._forward(request)).status, False)
                return hang_up(writer, reset=reset)
            case LandLate(gate, at_once):
                self._hold(request, gate, remember)
                if not at_once:
                    await reader.read()
                return hang_up(writer, reset=False)

    async def _answer(self, request: Request, fault: Fault | None) -> Answer:
        match fault:
            case Reply(status, body, headers, forward):
                if forward:
                    await self._forward(request)
                return Answer(status, headers, b"" if request.method == "HEAD" else body)
            case Delay(seconds):
                await asyncio.sleep(seconds)
                return await self._forward(request)
            case AlterRequest(change):
                return await self._forward(change(request))
            case _:
                return spoiled(await self._forward(request), fault)

    async def _forward(self, request: Request) -> Answer:
        try:
            reader, writer = await asyncio.open_connection(*self._upstream, limit=HEAD_LIMIT)
        except OSError:
            return Answer(502, (), b"the proxy cannot reach its server")
        try:
            # A server may answer, and close, before it has read the whole body.
            with suppress(ConnectionError):
                writer.write(request.encode())
                await writer.drain()
            return await read_answer(reader, request.method)
        except (ConnectionError, asyncio.IncompleteReadError):
            return Answer(502, (), b"the server closed the connection amid its answer")
        finally:
            writer.close()

    def _hold(self, request: Request, gate: Gate, remember: Callable[[int, bool], None]) -> None:
        async def land() -> None:
            await asyncio.wrap_future(gate.opened)
            status = (await self._forward(request)).status
            remember(status, False)
            gate.landed.set_result(status)

        task = asyncio.create_task(land())
        self._late.add(task)
        task.add_done_callback(self._late.discard)
        gate.held.set()

    def _fault_of(self, request: Request) -> Fault | None:
        # Every rule counts every request, also those that an older rule disturbs.
        taken = [rule.fault for rule in self._rules if rule.takes(request)]
        return taken[0] if taken else None

    def _remember(self, request: Request) -> Callable[[int, bool], None]:
        """Note a request now, and its outcome by a call of what is returned."""
        memory, index = self._seen, len(self._seen)
        memory.append(remembered(request))

        def outcome(status: int, answered: bool) -> None:
            memory[index] = replace(memory[index], status=status, answered=answered)

        return outcome

    async def _pause(self) -> None:
        if self.latency:
            await asyncio.sleep(self.latency)


async def send(
    answer: Answer, fault: Fault | None, reader: StreamReader, writer: StreamWriter
) -> bool:
    """Send an answer as far as the fault lets it; whether all of it went."""
    if not isinstance(fault, CutBody | StallBody):
        writer.write(answer.encode_head() + answer.encode_body(len(answer.body)))
        await writer.drain()
        return True
    end = offset(fault.at, len(answer.body))
    cut = replace(answer, length=answer.length or len(answer.body))
    writer.write(cut.encode_head() + cut.encode_body(end))
    await writer.drain()
    if isinstance(fault, StallBody):
        await reader.read()
        return False
    return hang_up(writer, reset=fault.reset)


def hang_up(writer: StreamWriter, *, reset: bool) -> bool:
    """Close the connection, with ``reset`` so that the client gets an error and not an end."""
    if reset:
        linger = struct.pack("ii", 1, 0)
        writer.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, linger)
        writer.transport.abort()
    else:
        writer.close()
    return False
