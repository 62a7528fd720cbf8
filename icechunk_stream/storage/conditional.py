"""Conditional writes: sent once, and read back whenever their outcome is in doubt.

The clients of object stores send a request again when its answer was lost. For a conditional write
that had landed the second answer says that the condition does not hold: a false conflict. Here each
write carries an id of its own in the object's metadata, is sent once, and is looked for by this id.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from icechunk_stream.errors import CommitStateUnknownError
from icechunk_stream.storage.failures import Failure, Trouble
from icechunk_stream.storage.values import LostRace, Missing, Version, Written

if TYPE_CHECKING:
    from collections.abc import Callable

    from icechunk_stream.storage.retry import Retry

_IN_DOUBT = frozenset({Trouble.CONFLICT, Trouble.NOT_MODIFIED, Trouble.BUSY, Trouble.LOST})


@dataclass(frozen=True, slots=True)
class Seen:
    """An object as a read-back finds it."""

    version: Version
    write_id: str | None


@dataclass(frozen=True, slots=True)
class SingleWrite:
    """One conditional write.

    ``send`` sends it one time and ``look`` reads it back, as often as that takes. ``respell`` is
    the same write with the version spelled in the other way, for servers that refuse the spelling
    in which they gave it.
    """

    key: str
    expected: Version | None
    write_id: str
    send: Callable[[], Version | Failure]
    look: Callable[[], Seen | Missing | Failure]
    respell: SingleWrite | None = None


def write_once(write: SingleWrite, retry: Retry) -> Written | LostRace | Failure:
    """Decide a conditional write.

    ``LostRace`` is certain, and so is ``Failure``: the write did not and will not take place.
    Only a request that certainly was not carried out is sent again.

    Raises:
        CommitStateUnknownError: the write may have taken place, or may still do so.
    """
    return retry.call(lambda _: _attempt(write))


def _attempt(write: SingleWrite) -> Written | LostRace | Failure:
    answer = write.send()
    if isinstance(answer, Version):
        return Written(answer)
    gone = answer.trouble is Trouble.MISSING and write.expected is not None
    if gone or answer.trouble in _IN_DOUBT:
        return _read_back(write, answer)
    return answer


def _read_back(write: SingleWrite, answer: Failure) -> Written | LostRace | Failure:
    seen = write.look()
    match seen:
        case Seen(version, write_id) if write_id == write.write_id:
            return Written(version)
        case Failure():
            raise _unknown(write, answer, f"and reading it back failed too: {seen}")
        case Seen() | Missing():
            return _not_ours(write, answer, seen)


def _not_ours(
    write: SingleWrite, answer: Failure, seen: Seen | Missing
) -> Written | LostRace | Failure:
    """The object as it is was not written by this write."""
    unchanged = _is_expected(write, seen)
    match answer.trouble:
        case Trouble.LOST if unchanged:
            raise _unknown(write, answer, "and the write has not landed, but may do so yet")
        case Trouble.LOST:
            # Ours may lie beneath the version that is there now.
            raise _unknown(write, answer, "and the object has moved on to a version of others")
        case Trouble.BUSY if unchanged:
            return answer
        case _ if unchanged and write.respell is not None:
            return _attempt(write.respell)
        case _:
            return LostRace()


def _is_expected(write: SingleWrite, seen: Seen | Missing) -> bool:
    match seen:
        case Seen(version):
            return version == write.expected
        case Missing():
            return write.expected is None


def _unknown(write: SingleWrite, answer: Failure, then: str) -> CommitStateUnknownError:
    message = (
        f"whether {write.key!r} was written is unknown: {answer}, {then}."
        " Nothing was deleted. Read the object again before writing it anew"
    )
    return CommitStateUnknownError(message, key=write.key)
