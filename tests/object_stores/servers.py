"""Real servers for tests, on free loopback ports: started, waited for, stopped by process id."""

import json
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.error import HTTPError, URLError

import psutil

from scripts.servers import AZURITE, TOXIPROXY, VERSITYGW, installed, needed
from tests.secret_marker import MARKER

HOST = "127.0.0.1"
_GRACE = 2.0
REGION = "us-east-1"
START_SECONDS = 60.0
PORT_TRIES = 3


class ServerError(Exception):
    """A server did not start; the message holds what it said."""


@dataclass(frozen=True)
class S3Server:
    """An S3 endpoint with the access key of its owner."""

    endpoint: str
    access_key_id: str
    secret_access_key: str = field(repr=False)
    region: str = REGION


@dataclass(frozen=True)
class AzureServer:
    """A blob endpoint, which ends with the account's name, and the account's key."""

    endpoint: str
    account: str
    access_key: str = field(repr=False)


@dataclass(frozen=True)
class Toxiproxy:
    """A proxy that adds latency or cuts connections; driven over its HTTP interface."""

    api: str

    def forward(self, name: str, upstream: str) -> str:
        """Listen before ``upstream`` (host:port); the new address."""
        body = {"name": name, "listen": f"{HOST}:0", "upstream": upstream}
        return str(self._call("POST", "/proxies", body)["listen"])

    def add_toxic(self, proxy: str, kind: str, stream: str, **attributes: int) -> None:
        """Disturb a stream, ``upstream`` or ``downstream``, of all connections of a proxy."""
        body = {"type": kind, "stream": stream, "attributes": attributes}
        self._call("POST", f"/proxies/{proxy}/toxics", body)

    def remove(self, proxy: str) -> None:
        self._call("DELETE", f"/proxies/{proxy}", None)

    def _call(self, method: str, path: str, body: Any) -> Any:
        data = None if body is None else json.dumps(body).encode()
        request = urllib.request.Request(self.api + path, data, method=method)
        with _opener.open(request, timeout=10) as answer:
            text = answer.read()
        return json.loads(text) if text else None


@contextmanager
def versitygw(folder: Path) -> Iterator[S3Server]:
    """S3 with atomic conditional writes, over a folder."""
    program = installed(VERSITYGW)
    data = folder / "objects"
    data.mkdir(parents=True)
    access_key_id, secret = f"versity{MARKER}", f"secret{MARKER}"
    environment = {"ROOT_ACCESS_KEY": access_key_id, "ROOT_SECRET_KEY": secret}

    def command(port: int) -> list[str]:
        listen = ["--port", f"{HOST}:{port}", "--region", REGION, "--keep-alive", "--quiet"]
        return [str(program), *listen, "posix", str(data)]

    with running("versitygw", command, environment, folder) as endpoint:
        yield S3Server(endpoint, access_key_id, secret)


@contextmanager
def moto(folder: Path) -> Iterator[S3Server]:
    """S3 in memory: right about semantics, not about races."""

    def command(port: int) -> list[str]:
        return [sys.executable, "-m", "moto.server", "-H", HOST, "-p", str(port)]

    with running("moto", command, {}, folder) as endpoint:
        yield S3Server(endpoint, f"moto{MARKER}", f"secret{MARKER}")


@contextmanager
def azurite(folder: Path) -> Iterator[AzureServer]:
    """Azure Blob Storage in memory."""
    program = installed(AZURITE)
    node = needed("node", "Node.js from https://nodejs.org")
    account, key = "azuritetests", MARKER * 4

    def command(port: int) -> list[str]:
        listen = ["--blobHost", HOST, "--blobPort", str(port)]
        options = ["--silent", "--disableTelemetry", "--inMemoryPersistence"]
        return [node, str(program), *listen, *options, "--skipApiVersionCheck"]

    with running("azurite", command, {"AZURITE_ACCOUNTS": f"{account}:{key}"}, folder) as endpoint:
        yield AzureServer(f"{endpoint}/{account}", account, key)


@contextmanager
def toxiproxy(folder: Path) -> Iterator[Toxiproxy]:
    program = installed(TOXIPROXY)

    def command(port: int) -> list[str]:
        return [str(program), "-host", HOST, "-port", str(port)]

    with running("toxiproxy", command, {"LOG_LEVEL": "warn"}, folder) as endpoint:
        yield Toxiproxy(endpoint)


@contextmanager
def running(
    name: str, command: Callable[[int], list[str]], environment: dict[str, str], folder: Path
) -> Iterator[str]:
    """Start a server on a free port, and give its address; it ends with the block."""
    folder.mkdir(parents=True, exist_ok=True)
    log = folder / f"{name}.log"
    process, port = start(name, command, environment, log)
    try:
        yield f"http://{HOST}:{port}"
    finally:
        stop(process)


def start(
    name: str, command: Callable[[int], list[str]], environment: dict[str, str], log: Path
) -> tuple[psutil.Popen, int]:
    for _ in range(PORT_TRIES):
        port = free_port()
        # Only what a server needs: no credentials and no proxies of whoever runs the tests.
        kept = {"PATH": _path(), "HOME": str(log.parent), **environment}
        with log.open("ab") as output:
            process = psutil.Popen(
                command(port),
                env=kept,
                cwd=log.parent,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
            )
        if became_ready(process, port):
            return process, port
        stop(process)
    said = log.read_text(errors="replace")[-2000:]
    raise ServerError(f"{name} did not start; it said:\n{said}")


def became_ready(process: psutil.Popen, port: int) -> bool:
    """Wait until this process, and not another one that was quicker, answers on the port."""
    until = time.monotonic() + START_SECONDS
    while time.monotonic() < until and process.poll() is None:
        if listens(process, port) and answers(port):
            return True
        time.sleep(0.05)
    return False


def listens(process: psutil.Popen, port: int) -> bool:
    try:
        connections = process.net_connections("tcp")
    except psutil.NoSuchProcess:
        return False
    return any(c.status == psutil.CONN_LISTEN and c.laddr.port == port for c in connections)


def answers(port: int) -> bool:
    try:
        with _opener.open(f"http://{HOST}:{port}/", timeout=5):
            return True
    except HTTPError:
        return True
    except (URLError, OSError):
        return False


def stop(process: psutil.Popen) -> None:
    """End a server, whose data nobody needs: some wait for connections that clients keep."""
    if process.poll() is None:
        process.terminate()
    try:
        process.wait(_GRACE)
    except psutil.TimeoutExpired:
        process.kill()
        process.wait(10)


def free_port() -> int:
    with socket.socket() as listener:
        listener.bind((HOST, 0))
        return int(listener.getsockname()[1])


def _path() -> str:
    return str(Path(sys.executable).parent) + ":/usr/local/bin:/usr/bin:/bin"


# Whatever proxies the environment names are not for loopback.
_opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
