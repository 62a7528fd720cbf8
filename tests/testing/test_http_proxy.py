"""The programmable proxy disturbs the request that was named, and no other."""

import socket
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from dataclasses import replace
from http.client import (
    BadStatusLine,
    HTTPConnection,
    HTTPException,
    HTTPResponse,
    IncompleteRead,
    RemoteDisconnected,
)
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import urlsplit

import pytest

from icechunk_stream.testing.http_faults import (
    AlterAnswer,
    AlterRequest,
    CorruptBody,
    CutBody,
    Delay,
    DropAnswer,
    DropRequest,
    Gate,
    LandLate,
    Reply,
    StallBody,
    TruncateBody,
)
from icechunk_stream.testing.http_messages import Answer, Request, header, with_header, without
from icechunk_stream.testing.http_proxy import HttpProxy
from tests.secret_marker import MARKER

TEN = b"0123456789"
CONNECTION_LOST = (ConnectionError, BadStatusLine, RemoteDisconnected, IncompleteRead)


class Shelf(BaseHTTPRequestHandler):
    """A server that keeps what is put."""

    protocol_version = "HTTP/1.1"
    objects: dict[str, bytes]
    hosts: list[str]
    address: str

    def do_PUT(self) -> None:
        self.objects[self.path] = self.read_body()
        self.hosts.append(self.headers["Host"])
        self.answer(200, b"")

    def do_GET(self) -> None:
        if self.path.endswith("/chunked"):
            self.send_response(200)
            self.send_header("Transfer-Encoding", "chunked")
            self.end_headers()
            self.wfile.write(b"4\r\n0123\r\n6\r\n456789\r\n0\r\n\r\n")
        elif self.path in self.objects:
            self.answer(200, self.objects[self.path])
        else:
            self.answer(404, b"nothing here")

    def do_HEAD(self) -> None:
        self.send_response(200)
        self.send_header("Content-Length", str(len(self.objects[self.path])))
        self.end_headers()

    def do_DELETE(self) -> None:
        self.objects.pop(self.path)
        self.send_response(204)
        self.end_headers()

    def read_body(self) -> bytes:
        if self.headers.get("Transfer-Encoding") != "chunked":
            return self.rfile.read(int(self.headers["Content-Length"]))
        body = b""
        while size := int(self.rfile.readline(), 16):
            body += self.rfile.read(size + 2)[:-2]
        self.rfile.readline()
        return body

    def answer(self, status: int, body: bytes) -> None:
        self.send_response(status)
        self.send_header("ETag", '"abc"')
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: object) -> None:
        pass


@pytest.fixture
def shelf() -> Iterator[type[Shelf]]:
    """What an upstream server holds; its address is in ``address``."""

    class Own(Shelf):
        pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Own)
    Own.objects, Own.hosts = {"/b/ten": TEN, "/b/empty": b""}, []
    Own.address = f"http://127.0.0.1:{server.server_port}"
    thread = threading.Thread(target=server.serve_forever, args=(0.01,))
    thread.start()
    yield Own
    server.shutdown()
    thread.join()
    server.server_close()


@pytest.fixture
def proxy(shelf: type[Shelf]) -> Iterator[HttpProxy]:
    with HttpProxy(f"{shelf.address}/b") as proxy:
        yield proxy


def connection(proxy: HttpProxy) -> HTTPConnection:
    return HTTPConnection(urlsplit(proxy.endpoint).netloc, timeout=20)


def send(
    proxy: HttpProxy, method: str, path: str, body: bytes | None = None, **headers: str
) -> tuple[HTTPResponse, bytes]:
    with closing(connection(proxy)) as client:
        client.request(method, path, body, headers)
        answer = client.getresponse()
        return answer, answer.read()


def put(proxy: HttpProxy, path: str, body: bytes) -> int:
    return send(proxy, "PUT", path, body)[0].status


def get(proxy: HttpProxy, path: str) -> bytes:
    return send(proxy, "GET", path)[1]


def test_what_is_not_disturbed_is_forwarded(proxy: HttpProxy, shelf: type[Shelf]) -> None:
    assert put(proxy, "/b/a%20b", TEN) == 200
    assert shelf.objects["/b/a%20b"] == TEN
    assert get(proxy, "/b/a%20b") == TEN
    answer, body = send(proxy, "HEAD", "/b/ten")
    assert (answer.status, answer.headers["Content-Length"], body) == (200, "10", b"")
    assert send(proxy, "DELETE", "/b/ten")[0].status == 204
    assert send(proxy, "GET", "/b/ten")[0].status == 404
    assert [(s.method, s.path, s.status) for s in proxy.requests] == [
        ("PUT", "/b/a b", 200),
        ("GET", "/b/a b", 200),
        ("HEAD", "/b/ten", 200),
        ("DELETE", "/b/ten", 204),
        ("GET", "/b/ten", 404),
    ]
    assert all(seen.answered for seen in proxy.requests)


def test_the_endpoint_keeps_path_and_host(proxy: HttpProxy, shelf: type[Shelf]) -> None:
    parts = urlsplit(proxy.endpoint)
    assert parts.path == "/b"
    put(proxy, "/b/x", b"")
    assert shelf.hosts == [parts.netloc]


def test_a_connection_serves_many_requests(proxy: HttpProxy) -> None:
    with closing(connection(proxy)) as client:
        bodies = []
        for path in ("/b/ten", "/b/empty", "/b/absent", "/b/chunked", "/b/ten"):
            client.request("GET", path)
            bodies.append(client.getresponse().read())
    assert bodies == [TEN, b"", b"nothing here", TEN, TEN]
    assert (proxy.connections, len(proxy.requests)) == (1, 5)


def test_chunked_bodies_pass_both_ways(proxy: HttpProxy, shelf: type[Shelf]) -> None:
    with closing(connection(proxy)) as client:
        client.request("PUT", "/b/x", iter([b"012", b"3456789"]), encode_chunked=True)
        assert client.getresponse().read() == b""
    assert shelf.objects["/b/x"] == TEN
    answer, body = send(proxy, "GET", "/b/chunked")
    assert (answer.headers["Transfer-Encoding"], body) == ("chunked", TEN)


def test_a_request_that_waits_to_continue_makes_two_round_trips(
    proxy: HttpProxy, shelf: type[Shelf]
) -> None:
    parts = urlsplit(proxy.endpoint)
    with socket.create_connection((parts.hostname or "", parts.port or 0), 20) as client:
        client.sendall(b"PUT /b/x HTTP/1.1\r\nHost: h\r\nExpect: 100-continue\r\n")
        client.sendall(b"Content-Length: 10\r\n\r\n")
        assert client.recv(100) == b"HTTP/1.1 100 Continue\r\n\r\n"
        client.sendall(TEN)
        assert client.recv(12) == b"HTTP/1.1 200"
    put(proxy, "/b/y", TEN)
    assert shelf.objects["/b/x"] == TEN
    assert [s.expects_continue for s in proxy.requests] == [True, False]
    assert [s.round_trips for s in proxy.requests] == [2, 1]
    assert proxy.round_trips == 3


@pytest.mark.parametrize("reset", [False, True])
def test_a_lost_answer_is_lost_after_the_server_acted(
    proxy: HttpProxy, shelf: type[Shelf], reset: bool
) -> None:
    rule = proxy.disturb(DropAnswer(reset), method="PUT", path="*/x", nth=2)
    assert put(proxy, "/b/x", b"first") == 200
    assert put(proxy, "/b/other", b"") == 200
    with pytest.raises(CONNECTION_LOST):
        put(proxy, "/b/x", b"second")
    assert shelf.objects["/b/x"] == b"second"
    assert put(proxy, "/b/x", b"third") == 200
    assert (rule.matched, rule.disturbed) == (3, 1)
    assert [(s.status, s.answered) for s in proxy.requests_of(path="*/x")] == [
        (200, True),
        (200, False),
        (200, True),
    ]


@pytest.mark.parametrize("at", [None, 0, 3])
@pytest.mark.parametrize("reset", [False, True])
def test_a_lost_request_never_reaches_the_server(
    proxy: HttpProxy, shelf: type[Shelf], at: int | None, reset: bool
) -> None:
    proxy.disturb(DropRequest(at, reset))
    with pytest.raises(CONNECTION_LOST):
        put(proxy, "/b/x", TEN)
    assert "/b/x" not in shelf.objects
    assert [(s.status, s.answered) for s in proxy.requests] == [(None, False)]


def test_a_late_request_lands_when_its_gate_opens(proxy: HttpProxy, shelf: type[Shelf]) -> None:
    gate = Gate()
    proxy.disturb(LandLate(gate), method="PUT")
    with pytest.raises(CONNECTION_LOST):
        put(proxy, "/b/x", b"late")
    assert put(proxy, "/b/x", b"competitor") == 200
    assert shelf.objects["/b/x"] == b"competitor"
    assert gate.open() == 200
    assert shelf.objects["/b/x"] == b"late"


def test_a_late_request_may_leave_its_client_waiting(proxy: HttpProxy, shelf: type[Shelf]) -> None:
    gate = Gate()
    proxy.disturb(LandLate(gate, hang_up=False))
    with closing(HTTPConnection(urlsplit(proxy.endpoint).netloc, timeout=0.2)) as client:
        client.request("PUT", "/b/x", b"late")
        with pytest.raises(TimeoutError):
            client.getresponse()
    assert "/b/x" not in shelf.objects
    assert gate.open() == 200
    assert shelf.objects["/b/x"] == b"late"


def test_a_delayed_request_lands_after_its_client_gave_up(
    proxy: HttpProxy, shelf: type[Shelf]
) -> None:
    proxy.disturb(Delay(0.3))
    with closing(HTTPConnection(urlsplit(proxy.endpoint).netloc, timeout=0.1)) as client:
        client.request("PUT", "/b/x", b"late")
        with pytest.raises(TimeoutError):
            client.getresponse()
    until = time.monotonic() + 20
    while "/b/x" not in shelf.objects and time.monotonic() < until:
        time.sleep(0.01)
    assert shelf.objects["/b/x"] == b"late"


def test_a_gate_that_nothing_came_to_says_so() -> None:
    with pytest.raises(TimeoutError, match="no request came to the gate"):
        Gate().open(timeout=0.01)


@pytest.mark.parametrize(("forward", "stored"), [(False, False), (True, True)])
def test_an_answer_may_be_made_up(
    proxy: HttpProxy, shelf: type[Shelf], forward: bool, stored: bool
) -> None:
    reply = Reply(503, b"<Code>SlowDown</Code>", (("Retry-After", "1"),), forward)
    proxy.disturb(reply, times=2)
    for _ in range(2):
        answer, body = send(proxy, "PUT", "/b/x", TEN)
        assert (answer.status, body) == (503, b"<Code>SlowDown</Code>")
        assert answer.headers["Retry-After"] == "1"
    assert ("/b/x" in shelf.objects) is stored
    assert put(proxy, "/b/x", TEN) == 200


def test_a_body_that_is_cut_ends_early_and_says_more(proxy: HttpProxy) -> None:
    for at, expected in ((0, b""), (4, b"0123"), (-1, b"012345678")):
        proxy.disturb(CutBody(at), path="*/ten")
        with pytest.raises(IncompleteRead) as caught:
            get(proxy, "/b/ten")
        assert caught.value.partial == expected
        proxy.calm()
    assert get(proxy, "/b/ten") == TEN


def test_a_reset_amid_a_body_is_an_error_of_the_connection(proxy: HttpProxy) -> None:
    proxy.disturb(CutBody(5, reset=True))
    with pytest.raises(CONNECTION_LOST):
        get(proxy, "/b/ten")


def test_a_chunked_body_is_cut_amid_its_chunk(proxy: HttpProxy) -> None:
    proxy.disturb(CutBody(4))
    with pytest.raises(IncompleteRead):
        get(proxy, "/b/chunked")


def test_a_stalled_body_keeps_the_connection_open(proxy: HttpProxy) -> None:
    proxy.disturb(StallBody(4))
    with closing(connection(proxy)) as client:
        client.request("GET", "/b/ten")
        answer = client.getresponse()
        assert answer.read(4) == b"0123"
        client.sock.settimeout(0.1)
        with pytest.raises(TimeoutError):
            answer.read(1)
        answer.close()


def test_a_truncated_body_looks_complete(proxy: HttpProxy) -> None:
    proxy.disturb(TruncateBody(4))
    answer, body = send(proxy, "GET", "/b/ten")
    assert (answer.headers["Content-Length"], body) == ("4", b"0123")


def test_one_byte_of_a_body_is_flipped(proxy: HttpProxy) -> None:
    for at, place in ((0, 0), (5, 5), (-1, 9), (99, 9)):
        proxy.disturb(CorruptBody(at))
        body = get(proxy, "/b/ten")
        assert [i for i in range(10) if body[i] != TEN[i]] == [place]
        proxy.calm()
    proxy.disturb(CorruptBody(0))
    assert get(proxy, "/b/empty") == b""


def test_headers_are_altered_in_both_directions(proxy: HttpProxy, shelf: type[Shelf]) -> None:
    def unquoted(answer: Answer) -> Answer:
        etag = header(answer.headers, "etag").strip('"')
        return replace(answer, headers=with_header(answer.headers, "ETag", etag))

    def elsewhere(request: Request) -> Request:
        headers = with_header(without(request.headers, "host"), "Host", "elsewhere")
        return replace(request, headers=headers)

    proxy.disturb(AlterAnswer(unquoted), method="GET")
    proxy.disturb(AlterRequest(elsewhere), method="PUT")
    assert send(proxy, "GET", "/b/ten")[0].headers["ETag"] == "abc"
    put(proxy, "/b/x", b"")
    assert shelf.hosts == ["elsewhere"]


def test_rules_count_for_themselves_and_the_older_acts(proxy: HttpProxy) -> None:
    proxy.disturb(Reply(500), nth=2)
    second = proxy.disturb(Reply(501), nth=2, times=2)
    statuses = [send(proxy, "GET", "/b/ten")[0].status for _ in range(4)]
    assert statuses == [200, 500, 501, 200]
    assert (second.matched, second.disturbed) == (4, 2)


def test_a_rule_may_name_a_part_of_the_query(proxy: HttpProxy) -> None:
    proxy.disturb(Reply(500), query="list-type=2", times=9)
    assert send(proxy, "GET", "/b/ten?a=1")[0].status == 404
    assert send(proxy, "GET", "/b/ten?list-type=2&a=1")[0].status == 500
    assert [s.query for s in proxy.requests] == ["a=1", "list-type=2&a=1"]


def test_secrets_are_not_remembered(proxy: HttpProxy) -> None:
    marker = MARKER
    path = f"/b/ten?X-Amz-Signature={marker}&sig={marker}&X-Amz-Credential={marker}&prefix=p"
    headers = {"Authorization": f"AWS4 {marker}", "x-amz-security-token": marker, "if-match": "e"}
    send(proxy, "GET", path, None, **headers)
    assert marker not in repr(proxy.requests)
    [seen] = proxy.requests
    assert seen.query.endswith("prefix=p")
    assert seen.headers["if-match"] == "e"
    assert seen.headers["authorization"] == "***"


def test_latency_is_added_to_each_round_trip(shelf: type[Shelf]) -> None:
    with HttpProxy(shelf.address, latency=0.05) as proxy:
        begun = time.monotonic()
        for _ in range(3):
            assert get(proxy, "/b/ten") == TEN
        assert time.monotonic() - begun > 0.15
        proxy.forget()
        assert (proxy.requests, proxy.round_trips) == ([], 0)


def test_many_clients_are_served_at_once(proxy: HttpProxy) -> None:
    proxy.disturb(DropAnswer(), nth=50)

    def attempt(number: int) -> bool:
        try:
            return put(proxy, f"/b/{number}", TEN) == 200
        except CONNECTION_LOST:
            return False

    with ThreadPoolExecutor(16) as pool:
        outcomes = list(pool.map(attempt, range(200)))
    assert outcomes.count(False) == 1
    assert len(proxy.requests) == 200


def test_a_server_that_is_away_is_a_bad_gateway(shelf: type[Shelf]) -> None:
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        with HttpProxy(f"http://127.0.0.1:{unused.getsockname()[1]}") as proxy:
            assert send(proxy, "GET", "/")[0].status == 502


def test_a_proxy_ends_with_its_block_even_amid_a_stall(shelf: type[Shelf]) -> None:
    with HttpProxy(shelf.address) as proxy:
        proxy.disturb(StallBody(0))
        client = connection(proxy)
        client.request("GET", "/b/ten")
        answer = client.getresponse()
    with pytest.raises((HTTPException, OSError)):
        answer.read()
    client.close()


def test_only_plain_http_is_forwarded() -> None:
    with pytest.raises(ValueError, match="no address of a plain HTTP server"):
        HttpProxy("https://example.com")
