"""What the calls of a storage must never be: a second write of a key, a deletion."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable

    from icechunk_stream.testing.storage_calls import Call

_WRITES = {"put", "put_if", "copy_if"}


def assert_written_once(calls: Iterable[Call]) -> None:
    """Only refs, the configuration and ``repo`` are written again; only probes are deleted."""
    calls = list(calls)
    counts = Counter(call.key for call in calls if call.method in _WRITES)
    probes = {call.key for call in calls if call.method == "delete"}
    swapped = {call.key for call in calls if call.method == "put_if"}
    assert probes <= {key for key in swapped if key.startswith("chunks/")}
    again = {key for key, count in counts.items() if count > 1 and key not in probes}
    assert {key for key in again if not _is_mutable(key)} == set()
    assert {call.key for call in calls if call.method == "put"} & swapped == set()


def _is_mutable(key: str) -> bool:
    return key in ("repo", "config.yaml") or (
        key.startswith("refs/branch.") and key.endswith("/ref.json")
    )
