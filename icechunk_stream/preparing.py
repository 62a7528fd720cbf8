"""What has to be known of a storage before a repository is written there."""

from __future__ import annotations

import warnings
from typing import TYPE_CHECKING
from weakref import WeakSet

from icechunk_stream.effects import now_micros
from icechunk_stream.errors import ErrorKind, StorageError
from icechunk_stream.format.times import from_micros, to_text
from icechunk_stream.storage import probe_conditional_writes

if TYPE_CHECKING:
    from icechunk_stream.config import StorageSettings
    from icechunk_stream.storage import Storage

# The reference refuses to commit beyond it.
MAX_CLOCK_SKEW = 600 * 1_000_000

_UNCONDITIONAL = ("unsafe_use_conditional_create", "unsafe_use_conditional_update")

# What this process, or one that it was forked from, found in order.
_probed: set[Storage] = set()
_warned: WeakSet[Storage] = WeakSet()


def prepare_to_write(storage: Storage, settings: StorageSettings | None = None) -> None:
    """Refuse a storage that would lose commits; asked once per process and storage."""
    _warn_of_reference_writers(storage, settings)
    if storage.decides_races or storage in _probed:
        return
    written = probe_conditional_writes(storage)
    if written is not None:
        check_clock(storage, written.modified_at, now_micros())
    _probed.add(storage)


def check_clock(storage: Storage, theirs: int, ours: int) -> None:
    """Refuse a clock by which others could not commit on top of our snapshots."""
    if abs(theirs - ours) <= MAX_CLOCK_SKEW:
        return
    message = (
        f"the clock of this machine says {to_text(from_micros(ours))}, that of {storage!r}"
        f" {to_text(from_micros(theirs))}: they are more than {MAX_CLOCK_SKEW // 1_000_000} s"
        " apart, and snapshots would get wrong times. Set this machine's clock"
    )
    raise StorageError(message, ErrorKind.SNAPSHOT_TIMESTAMP)


def _warn_of_reference_writers(storage: Storage, settings: StorageSettings | None) -> None:
    switched_off = [name for name in _UNCONDITIONAL if getattr(settings, name, None) is False]
    if not switched_off or storage in _warned:
        return
    _warned.add(storage)
    warnings.warn(
        f"the configuration says {' and '.join(switched_off)} = False: icechunk_stream writes"
        f" conditionally all the same, but writers of the icechunk library at {storage!r} obey it"
        " and overwrite what others commit at the same time. Do not let both write there",
        UserWarning,
        stacklevel=4,
    )
