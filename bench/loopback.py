"""How a server on loopback sends: by the same algorithm on every machine."""

from __future__ import annotations

import ctypes
import os
import socket
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

import psutil

if TYPE_CHECKING:
    from tests.object_stores.servers import S3Server

CONGESTION_CONTROL = "cubic"

# The same number on every architecture; Python has no function for it.
_PIDFD_GETFD = 438
_libc = ctypes.CDLL(None, use_errno=True)
_SETTING = Path("/proc/sys/net/ipv4/tcp_congestion_control")


def machine_congestion_control() -> str:
    """By what algorithm connections send where nobody chose one."""
    return _SETTING.read_text().strip()


def send_as_linux_does(server: S3Server) -> None:
    """Have a server send by Linux's default congestion control, whatever the machine's is.

    BBR paces each connection by what it has seen of it, which on loopback holds back whoever keeps
    connections for the next round, and spares whoever makes new ones.
    """
    with _listener(urlsplit(server.endpoint).port) as listener:
        # Connections inherit it from the socket that accepts them.
        name = CONGESTION_CONTROL.encode()
        listener.setsockopt(socket.IPPROTO_TCP, socket.TCP_CONGESTION, name)


def _listener(port: int | None) -> socket.socket:
    """A handle of our own for the socket on which a process listens."""
    found = [
        (connection.pid, connection.fd)
        for connection in psutil.net_connections("tcp")
        if connection.status == psutil.CONN_LISTEN
        and connection.laddr
        and connection.laddr.port == port
        and connection.pid is not None
    ]
    if len(found) != 1:
        raise RuntimeError(f"a process of ours should listen on port {port}; found: {found}")
    pid, number = found[0]
    process = os.pidfd_open(pid)
    try:
        handle = _libc.syscall(_PIDFD_GETFD, process, number, 0)
        if handle < 0:
            reason = os.strerror(ctypes.get_errno())
            raise RuntimeError(f"the socket on port {port} can't be had from its process: {reason}")
        return socket.socket(fileno=handle)
    finally:
        os.close(process)
