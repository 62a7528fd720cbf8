"""Listings in the byte order of keys, from stores whose own order differs a little."""

from __future__ import annotations

from heapq import heappop, heappush
from itertools import count
from typing import TYPE_CHECKING

from icechunk_stream.errors import ErrorKind, StorageError

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from icechunk_stream.storage.values import ObjectInfo

WINDOW = 20_000


def in_byte_order(
    listed: Iterable[ObjectInfo], where: str, window: int = WINDOW
) -> Iterator[ObjectInfo]:
    """Sort what is at most ``window`` objects from its place.

    Escaped names sort elsewhere than their keys, and stores with real folders list what is in a
    folder before what merely begins with its name. Both are local: in folders of many objects no
    name is escaped and none is a folder.

    Raises:
        StorageError: the store lists in another order altogether.
    """
    waiting: list[tuple[str, int, ObjectInfo]] = []
    numbers = count()
    before = ""
    for info in listed:
        if info.key < before:
            raise _out_of_order(info.key, where)
        # Order by code points is the order of the UTF-8 bytes.
        heappush(waiting, (info.key, next(numbers), info))
        if len(waiting) > window:
            before, _, least = heappop(waiting)
            yield least
    while waiting:
        yield heappop(waiting)[2]


def _out_of_order(key: str, where: str) -> StorageError:
    message = (
        f"{where} lists {key!r} after names that come behind it: list a smaller part, or use a"
        " store without hierarchical namespace"
    )
    return StorageError(message, ErrorKind.OBJECT_STORE, key=key)
