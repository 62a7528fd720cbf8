"""Listing a local tree in the byte order of its keys, one directory in memory at a time."""

from __future__ import annotations

import os
import stat
from typing import TYPE_CHECKING

from icechunk_stream.storage.local_errors import explain, is_missing
from icechunk_stream.storage.local_names import disk_path, key_segment
from icechunk_stream.storage.local_tree import open_child
from icechunk_stream.storage.values import ObjectInfo

if TYPE_CHECKING:
    from collections.abc import Iterator

    from icechunk_stream.storage.local_tree import Directory


def list_objects(directory: Directory, parent: str, start: str) -> Iterator[ObjectInfo]:
    """Objects below a directory whose keys begin with ``parent`` and then with ``start``.

    Links, special files, staged files and names that spell no key are passed over.
    """
    for segment in _ordered_segments(directory, parent, start):
        key = parent + segment
        if not segment.endswith("/"):
            yield from _object(directory, segment, key)
            continue
        child = _child(directory, segment[:-1], key)
        if child is not None:
            yield from list_objects(child, key, "")


def _ordered_segments(directory: Directory, parent: str, start: str) -> list[str]:
    """Segments in the order of the keys: a directory sorts as its name and a slash."""
    segments = []
    try:
        with os.scandir(directory.fd) as entries:
            for entry in entries:
                segment = key_segment(entry.name)
                if segment is not None and segment.startswith(start):
                    is_directory = entry.is_dir(follow_symlinks=False)
                    segments.append(segment + "/" if is_directory else segment)
    except OSError as error:
        raise explain(error, "list", parent) from error
    return sorted(segments)


def _object(directory: Directory, segment: str, key: str) -> Iterator[ObjectInfo]:
    try:
        status = os.stat(disk_path(segment), dir_fd=directory.fd, follow_symlinks=False)
    except OSError as error:
        if is_missing(error):
            return
        raise explain(error, "list", key) from error
    if stat.S_ISREG(status.st_mode):
        yield object_info(key, status)


def _child(directory: Directory, segment: str, key: str) -> Directory | None:
    try:
        return open_child(directory, disk_path(segment))
    except OSError as error:
        # Gone, or replaced by a link, since it was listed.
        if is_missing(error):
            return None
        raise explain(error, "list", key) from error


def object_info(key: str, status: os.stat_result) -> ObjectInfo:
    """A file as a listing shows it."""
    return ObjectInfo(key, status.st_size, status.st_mtime_ns // 1000)
