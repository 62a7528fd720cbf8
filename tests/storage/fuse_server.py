"""A small file system in user space, in memory, that fails chosen calls once it is armed.

Run as ``python fuse_server.py TARGET OPCODE:ERRNO...``; mounts, prints ``ready``, and serves until
it is unmounted. Making a directory named ``armed`` arms it. The protocol is that of linux/fuse.h.
"""

import ctypes
import errno
import os
import stat
import sys
from collections.abc import Callable
from dataclasses import dataclass, field
from struct import Struct
from time import time_ns

LOOKUP, FORGET, GETATTR, SETATTR, MKDIR, UNLINK = 1, 2, 3, 4, 9, 10
RENAME, LINK, OPEN, READ, WRITE, STATFS, RELEASE = 12, 13, 14, 15, 16, 17, 18
FSYNC, FLUSH, INIT, OPENDIR, READDIR, RELEASEDIR, FSYNCDIR = 20, 25, 26, 27, 28, 29, 30
CREATE, BATCH_FORGET, RENAME2 = 35, 42, 45

ROOT = 1
BUFFER = 1 << 18
MAX_WRITE = 1 << 17
SIZE_SET, MTIME_SET = 8, 32

HEADER = Struct("<IIQQIIII")
ANSWER = Struct("<IiQ")
ATTRIBUTES = Struct("<QQQQQQIIIIIIIIII")
ENTRY = Struct("<QQQQII")
OPENED = Struct("<QII")


@dataclass
class Node:
    mode: int
    data: bytearray = field(default_factory=bytearray)
    children: dict[bytes, int] = field(default_factory=dict)
    mtime: int = field(default_factory=time_ns)


class FuseServer:
    def __init__(self, failures: dict[int, int]) -> None:
        self.failures = failures
        self.armed = False
        self.written: set[int] = set()
        self.nodes = {ROOT: Node(stat.S_IFDIR | 0o755)}
        self.calls: dict[int, Callable[[int, bytes], bytes]] = {
            INIT: lambda _, body: initial(body),
            LOOKUP: lambda parent, body: self.entry(self.child(parent, body[:-1])),
            GETATTR: lambda node, _: self.attributes(node),
            SETATTR: self.set_attributes,
            MKDIR: self.make_directory,
            CREATE: self.create,
            UNLINK: self.unlink,
            RENAME: lambda parent, body: self.rename(parent, body, 8),
            RENAME2: lambda parent, body: self.rename(parent, body, 16),
            LINK: self.link,
            OPEN: lambda *_: OPENED.pack(0, 0, 0),
            OPENDIR: lambda *_: OPENED.pack(0, 0, 0),
            READ: self.read,
            WRITE: self.write,
            READDIR: self.read_directory,
            STATFS: lambda *_: Struct("<QQQQQIIII24x").pack(9, 9, 9, 9, 9, 4096, 255, 4096, 0),
        }
        self.calls |= dict.fromkeys((RELEASE, RELEASEDIR, FSYNC, FSYNCDIR, FLUSH), lambda *_: b"")

    def answer(self, opcode: int, node: int, body: bytes) -> tuple[int, bytes]:
        # Closing a file that was only read does not fail.
        idle = opcode == FLUSH and node not in self.written
        if self.armed and opcode in self.failures and not idle:
            return -self.failures[opcode], b""
        call = self.calls.get(opcode)
        if call is None:
            return -errno.ENOSYS, b""
        try:
            return 0, call(node, body)
        except OSError as error:
            return -(error.errno or errno.EIO), b""

    def child(self, parent: int, name: bytes) -> int:
        found = self.nodes[parent].children.get(name)
        if found is None:
            raise OSError(errno.ENOENT, "no such name")
        return found

    def packed(self, number: int) -> bytes:
        node = self.nodes[number]
        size = len(node.data)
        seconds, nanoseconds = divmod(node.mtime, 10**9)
        times = (seconds,) * 3 + (nanoseconds,) * 3
        links = sum(number in parent.children.values() for parent in self.nodes.values())
        return ATTRIBUTES.pack(number, size, 0, *times, node.mode, links, 0, 0, 0, 4096, 0)

    def attributes(self, node: int) -> bytes:
        return bytes(16) + self.packed(node)

    def entry(self, node: int) -> bytes:
        return ENTRY.pack(node, 0, 0, 0, 0, 0) + self.packed(node)

    def add(self, parent: int, name: bytes, mode: int) -> int:
        number = max(self.nodes) + 1
        self.nodes[number] = Node(mode)
        self.nodes[parent].children[name] = number
        return number

    def make_directory(self, parent: int, body: bytes) -> bytes:
        (mode,) = Struct("<I").unpack_from(body)
        name = body[8:-1]
        self.armed = self.armed or name == b"armed"
        return self.entry(self.add(parent, name, stat.S_IFDIR | mode))

    def create(self, parent: int, body: bytes) -> bytes:
        (mode,) = Struct("<I").unpack_from(body, 4)
        number = self.add(parent, body[16:-1], stat.S_IFREG | stat.S_IMODE(mode))
        return self.entry(number) + OPENED.pack(0, 0, 0)

    def set_attributes(self, number: int, body: bytes) -> bytes:
        (valid,) = Struct("<I").unpack_from(body)
        node = self.nodes[number]
        if valid & SIZE_SET:
            (size,) = Struct("<Q").unpack_from(body, 16)
            node.data[size:] = b""
        if valid & MTIME_SET:
            (seconds,), (nanoseconds,) = (
                Struct("<Q").unpack_from(body, 40),
                Struct("<I").unpack_from(body, 60),
            )
            node.mtime = seconds * 10**9 + nanoseconds
        return self.attributes(number)

    def unlink(self, parent: int, body: bytes) -> bytes:
        self.child(parent, body[:-1])
        del self.nodes[parent].children[body[:-1]]
        return b""

    def rename(self, parent: int, body: bytes, head: int) -> bytes:
        (target,) = Struct("<Q").unpack_from(body)
        old, new, _ = body[head:].split(b"\0")
        self.nodes[target].children[new] = self.child(parent, old)
        return self.unlink(parent, old + b"\0")

    def link(self, parent: int, body: bytes) -> bytes:
        (number,) = Struct("<Q").unpack_from(body)
        self.nodes[parent].children[body[8:-1]] = number
        return self.entry(number)

    def read(self, number: int, body: bytes) -> bytes:
        offset, size = Struct("<QI").unpack_from(body, 8)
        return bytes(self.nodes[number].data[offset : offset + size])

    def write(self, number: int, body: bytes) -> bytes:
        offset, size = Struct("<QI").unpack_from(body, 8)
        if self.armed:
            self.written.add(number)
        self.nodes[number].data[offset : offset + size] = body[40 : 40 + size]
        return Struct("<II").pack(size, 0)

    def read_directory(self, number: int, body: bytes) -> bytes:
        (offset,) = Struct("<Q").unpack_from(body, 8)
        names = list(self.nodes[number].children.items())
        entries = [
            dirent(child, index + 1, name, self.nodes[child].mode)
            for index, (name, child) in enumerate(names)
        ]
        return b"".join(entries[offset : offset + 8])


def initial(body: bytes) -> bytes:
    _, _, read_ahead, _ = Struct("<IIII").unpack_from(body)
    return Struct("<IIIIHHIIHHI28x").pack(7, 31, read_ahead, 0, 0, 0, MAX_WRITE, 1, 0, 0, 0)


def dirent(number: int, offset: int, name: bytes, mode: int) -> bytes:
    entry = Struct("<QQII").pack(number, offset, len(name), stat.S_IFMT(mode) >> 12) + name
    return entry + bytes(-len(entry) % 8)


def mount(target: str) -> int:
    device = os.open("/dev/fuse", os.O_RDWR)
    options = f"fd={device},rootmode=40000,user_id=0,group_id=0".encode()
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.mount(b"test", target.encode(), b"fuse", 0, options):
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))
    return device


def serve(device: int, server: FuseServer) -> None:
    while True:
        try:
            request = os.read(device, BUFFER)
        except OSError as error:
            if error.errno == errno.ENODEV:
                return
            raise
        _, opcode, unique, node, *_ = HEADER.unpack_from(request)
        if opcode not in {FORGET, BATCH_FORGET}:
            code, body = server.answer(opcode, node, request[HEADER.size :])
            os.write(device, ANSWER.pack(ANSWER.size + len(body), code, unique) + body)


def main(target: str, *failures: str) -> None:
    pairs = [failure.split(":") for failure in failures]
    device = mount(target)
    print("ready", flush=True)
    serve(device, FuseServer({int(opcode): int(number) for opcode, number in pairs}))


if __name__ == "__main__":
    main(*sys.argv[1:])
