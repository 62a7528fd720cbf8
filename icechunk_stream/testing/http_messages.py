"""Requests and answers of HTTP/1.1, whole in memory, as they pass through the testing proxy."""

from __future__ import annotations

from dataclasses import dataclass, replace
from http import HTTPStatus
from typing import TYPE_CHECKING
from urllib.parse import parse_qsl, unquote, urlencode

from icechunk_stream.config.redact import HIDDEN, redact_options

if TYPE_CHECKING:
    from asyncio import StreamReader

Headers = tuple[tuple[str, str], ...]

HEAD_LIMIT = 1 << 20
_NO_BODY = frozenset({HTTPStatus.NO_CONTENT, HTTPStatus.NOT_MODIFIED})


@dataclass(frozen=True, slots=True)
class Request:
    """A request; ``body`` is as on the wire, with the framing of chunks where there is any."""

    method: str
    target: str
    headers: Headers
    body: bytes = b""

    @property
    def path(self) -> str:
        """The path, decoded, without the query."""
        return unquote(self.target.partition("?")[0])

    @property
    def query(self) -> str:
        return self.target.partition("?")[2]

    @property
    def expects_continue(self) -> bool:
        return header(self.headers, "expect").lower() == "100-continue"

    def encode(self) -> bytes:
        """The bytes to send upstream, on a connection of their own and without waiting."""
        headers = without(self.headers, "expect", "connection")
        first = f"{self.method} {self.target} HTTP/1.1"
        return _head(first, (*headers, ("Connection", "close"))) + self.body


@dataclass(frozen=True, slots=True)
class Answer:
    """An answer, its body without framing; ``length`` is what Content-Length says."""

    status: int
    headers: Headers = ()
    body: bytes = b""
    chunked: bool = False
    length: int | None = None

    def encode_head(self) -> bytes:
        headers = without(self.headers, "connection", "content-length", "transfer-encoding")
        return _head(f"HTTP/1.1 {self.status} {_phrase(self.status)}", headers + self._framing())

    def encode_body(self, end: int) -> bytes:
        """The framed body up to ``end``; it is complete when ``end`` is its length."""
        part = self.body[:end]
        if not self.chunked:
            return part
        size = f"{len(self.body):x}\r\n".encode() if self.body else b""
        return size + part + (_last_chunk(self.body) if end >= len(self.body) else b"")

    def _framing(self) -> Headers:
        if self.chunked:
            return (("Transfer-Encoding", "chunked"),)
        if self.status in _NO_BODY:
            return ()
        length = len(self.body) if self.length is None else self.length
        return (("Content-Length", str(length)),)


@dataclass(frozen=True, slots=True)
class Seen:
    """What the proxy remembers of a request; no credential is in it.

    ``status`` is what the server said or the proxy made up, None while there is neither.
    ``answered`` tells whether the client is sent all of an answer.
    """

    method: str
    path: str
    query: str
    headers: dict[str, str]
    body_size: int
    round_trips: int = 1
    status: int | None = None
    answered: bool = False

    @property
    def expects_continue(self) -> bool:
        return "expect" in self.headers


def remembered(request: Request) -> Seen:
    fields = redact_options(dict(parse_qsl(request.query, keep_blank_values=True)))
    query = urlencode({name: HIDDEN if name == "sig" else fields[name] for name in fields})
    headers = redact_options({name.lower(): value for name, value in request.headers})
    trips = 2 if request.expects_continue else 1
    return Seen(request.method, request.path, query, headers, len(request.body), trips)


def header(headers: Headers, name: str, default: str = "") -> str:
    """The first header of this name, in any case."""
    return next((value for key, value in headers if key.lower() == name.lower()), default)


def without(headers: Headers, *names: str) -> Headers:
    dropped = {name.lower() for name in names}
    return tuple((key, value) for key, value in headers if key.lower() not in dropped)


def with_header(headers: Headers, name: str, value: str) -> Headers:
    """The headers with one of them set anew."""
    return (*without(headers, name), (name, value))


async def read_request_head(reader: StreamReader) -> Request | None:
    """The next request without its body, or None where the client is done."""
    lines = await _read_head(reader)
    if not lines:
        return None
    method, target, _ = lines[0].split(" ", 2)
    return Request(method, target, _parse_headers(lines[1:]))


async def read_request_body(reader: StreamReader, request: Request) -> Request:
    if _is_chunked(request.headers):
        raw, _ = await _read_chunks(reader)
        return replace(request, body=raw)
    size = int(header(request.headers, "content-length", "0"))
    return replace(request, body=await reader.readexactly(size))


async def read_answer(reader: StreamReader, method: str) -> Answer:
    lines = await _read_head(reader)
    if not lines:
        raise ConnectionError("the server closed the connection without an answer")
    status = int(lines[0].split(" ", 2)[1])
    if HTTPStatus.CONTINUE <= status < HTTPStatus.OK:
        return await read_answer(reader, method)
    headers = _parse_headers(lines[1:])
    said = header(headers, "content-length")
    length = int(said) if said else None
    if method == "HEAD" or status in _NO_BODY:
        return Answer(status, headers, length=length)
    if _is_chunked(headers):
        return Answer(status, headers, (await _read_chunks(reader))[1], chunked=True)
    body = await (reader.read() if length is None else reader.readexactly(length))
    return Answer(status, headers, body)


async def _read_head(reader: StreamReader) -> list[str]:
    lines: list[str] = []
    while line := await reader.readline():
        if not line.rstrip(b"\r\n"):
            return lines
        lines.append(line.rstrip(b"\r\n").decode("latin-1"))
    return []


async def _read_chunks(reader: StreamReader) -> tuple[bytes, bytes]:
    """A chunked body with its framing, and without."""
    raw, data = bytearray(), bytearray()
    while True:
        line = await reader.readline()
        raw += line
        size = int(line.partition(b";")[0], 16)
        if size == 0:
            break
        chunk = await reader.readexactly(size + 2)
        raw += chunk
        data += chunk[:-2]
    while (line := await reader.readline()).rstrip(b"\r\n"):
        raw += line
    return bytes(raw + b"\r\n"), bytes(data)


def _is_chunked(headers: Headers) -> bool:
    return "chunked" in header(headers, "transfer-encoding").lower()


def _parse_headers(lines: list[str]) -> Headers:
    pairs = (line.partition(":") for line in lines)
    return tuple((name.strip(), value.strip()) for name, _, value in pairs)


def _head(first: str, headers: Headers) -> bytes:
    lines = [first, *(f"{name}: {value}" for name, value in headers), "", ""]
    return "\r\n".join(lines).encode("latin-1")


def _last_chunk(body: bytes) -> bytes:
    return b"\r\n0\r\n\r\n" if body else b"0\r\n\r\n"


def _phrase(status: int) -> str:
    try:
        return HTTPStatus(status).phrase
    except ValueError:
        return "Unknown"
