"""What a query's checkpoint says: the query's id, and up to where a batch reads its sources.

Spark writes ``metadata`` once and ``offsets/<batch id>`` before it runs the batch.
"""

from __future__ import annotations

import hashlib
import re
import stat
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol, TypeVar

import msgspec

from icechunk_stream.config.redact import redact_url
from icechunk_stream.errors import CheckpointError, FormatError
from icechunk_stream.format.json_nesting import check_json_nesting

T = TypeVar("T")

MAX_FILE_SIZE = 64 * 2**20
MAX_QUERY_ID = 200

_OTHER_SCHEME = re.compile(r"(?!file:)[a-z][a-z0-9+.-]*:/", re.IGNORECASE)
_FILE_URL = re.compile(r"file:(?://(?:localhost)?)?(/(?!/).*)", re.IGNORECASE | re.DOTALL)
# Offsets of Spark's file source, and of Databricks' Auto Loader.
_IN_CHECKPOINT = re.compile(r'"(?:logOffset|seqNum)":\d')
_BY_PLACE, _BY_NAME = 1, 2
_VERSION = re.compile(r"v(\d{1,9})")


class ReadText(Protocol):
    """Reads a whole file of a checkpoint."""

    def __call__(self, path: str, /) -> str | None:
        """The text of the file; None where there is no such file."""


@dataclass(frozen=True, slots=True)
class BatchOffsets:
    """Up to where a batch reads: what each source says, in the order of the sources.

    Most name a place in the source itself. Those of files name one in a log that lies in the
    checkpoint, which a checkpoint that was set back fills with other files: only then is
    ``planned_at`` known, the clock (milliseconds since 1970 UTC) that Spark read for the batch.
    """

    lines: tuple[str, ...]
    planned_at: int | None = None

    @property
    def digest(self) -> str:
        """Tells batches apart; the same for a batch that is given again, after any restart."""
        text = "\n".join(self.lines)
        if self.planned_at is not None:
            text = f"{text}\n\n{self.planned_at}"
        return f"sha256:{hashlib.sha256(text.encode()).hexdigest()}"


class _Metadata(msgspec.Struct):
    id: str


class _Settings(msgspec.Struct):
    batchTimestampMs: int | None = None  # noqa: N815 - Spark's name


def read_query_id(location: str, read: ReadText) -> str:
    """The id that a query keeps over restarts.

    Raises:
        CheckpointError: the file with it is missing or damaged.
    """
    path = _below(location, "metadata")
    text = read(path)
    if text is None:
        raise _missing(path, "Spark writes it when a query starts for the first time")
    found = _decode(text, path, _Metadata).id
    if not found.strip() or len(found) > MAX_QUERY_ID:
        raise _damaged(path, f"it names the query {found[:MAX_QUERY_ID]!r}")
    return found


def read_offsets(location: str, batch_id: int, read: ReadText) -> BatchOffsets:
    """Up to where a batch reads its sources.

    Raises:
        CheckpointError: the file with it is missing or damaged.
    """
    path = _below(location, f"offsets/{batch_id}")
    text = read(path)
    if text is None:
        raise _missing(path, "Spark writes it before it runs the batch")
    return _parse_offsets(text, path)


def read_local_text(path: str, /) -> str | None:
    """A file of this machine, given by its path or by a ``file:`` URL.

    A URL is taken as Hadoop takes it: percent signs in it are plain characters.
    """
    local = Path(_local_path(path))
    try:
        found = local.stat()
        if not stat.S_ISREG(found.st_mode):
            raise _damaged(path, "it is not a regular file")
        if found.st_size > MAX_FILE_SIZE:
            raise _damaged(path, f"it has {found.st_size} bytes, at most {MAX_FILE_SIZE} are read")
        return local.read_bytes().decode()
    except (FileNotFoundError, NotADirectoryError):
        return None
    except OSError as error:
        message = f"it cannot be read ({error.strerror}): give the driver access to the checkpoint"
        raise CheckpointError(message, path=redact_url(path)) from error
    except ValueError as error:
        raise _damaged(path, f"it is no text ({error})") from error


def is_local(location: str) -> bool:
    """Whether a location is on this machine, if Spark's default file system is."""
    return _OTHER_SCHEME.match(location) is None


def _below(location: str, name: str) -> str:
    return f"{location.rstrip('/')}/{name}"


def _local_path(path: str) -> str:
    if not path.lower().startswith("file:") and is_local(path):
        return path
    match = _FILE_URL.fullmatch(path)
    if match is None:
        message = "this is no path of this machine: write /absolute/path or file:///absolute/path"
        raise CheckpointError(message, path=redact_url(path))
    return match[1]


def _parse_offsets(text: str, path: str) -> BatchOffsets:
    """One line with the version, one with the batch's clock and settings, then the sources."""
    first, *rest = text.removesuffix("\n").split("\n")
    version = _version(first, path)
    if len(rest) < 2:  # noqa: PLR2004 - the batch's own line, and one source
        raise _damaged(path, "it has no line for any source")
    settings, *sources = rest
    clock = _decode(settings, path, _Settings).batchTimestampMs if settings.strip() else None
    is_in_checkpoint = any(map(_IN_CHECKPOINT.search, sources))
    ordered = tuple(sources) if version == _BY_PLACE else _by_name(sources, path)
    return BatchOffsets(ordered, clock if is_in_checkpoint else None)


def _version(line: str, path: str) -> int:
    number = _VERSION.fullmatch(line.strip())
    if number is None:
        raise _damaged(path, f"its first line is {line[:40]!r}, not a version such as 'v1'")
    if int(number[1]) not in {_BY_PLACE, _BY_NAME}:
        message = (
            f"its format is {number[0]}, of which this release knows nothing: use a newer release,"
            " or leave checkpoint_location out where Spark tells the query's id itself"
        )
        raise CheckpointError(message, path=redact_url(path))
    return int(number[1])


def _by_name(sources: list[str], path: str) -> tuple[str, ...]:
    """Lines ``name:offset``, which Spark writes in the order of a hash map."""
    if not all(":" in line for line in sources):
        raise _damaged(path, "a line of it names no source")
    return tuple(sorted(sources))


def _decode(text: str, path: str, kind: type[T]) -> T:
    try:
        data = text.encode()
        check_json_nesting(data, where="")
        return msgspec.json.decode(data, type=kind)
    except (msgspec.MsgspecError, FormatError, ValueError) as error:
        raise _damaged(path, f"its JSON is not what Spark writes ({error})") from error


def _missing(path: str, when: str) -> CheckpointError:
    message = (
        f"there is no such file, and {when}: give the sink the checkpointLocation of the very query"
        " that calls it, as a path that the driver reads"
    )
    return CheckpointError(message, path=redact_url(path))


def _damaged(path: str, what: str) -> CheckpointError:
    message = (
        f"{what}: bring the checkpoint back from a backup, or start the query with a fresh one and"
        " hand the stream over with adopt="
    )
    return CheckpointError(message, path=redact_url(path))
