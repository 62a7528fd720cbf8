"""Deleting many objects: in batches, and again those that failed for a reason that may pass."""

from __future__ import annotations

from typing import TYPE_CHECKING

from icechunk_stream.storage.failures import Failure, Trouble

if TYPE_CHECKING:
    from collections.abc import Sequence

    from icechunk_stream.storage.retry import Retry
    from icechunk_stream.storage.s3_requests import S3Requests

BATCH = 1000


class Deletion:
    """One batch; ``failed`` tells what is left of it, and why."""

    def __init__(self, requests: S3Requests, names: Sequence[str]) -> None:
        self._requests = requests
        self._left = list(names)
        self.failed: dict[str, Failure] = {}

    def run(self, retry: Retry) -> dict[str, Failure]:
        retry.call(lambda _: self._attempt())
        return self.failed

    def _attempt(self) -> Failure | None:
        answer = self._requests.delete(self._left)
        if isinstance(answer, Failure):
            answer = dict.fromkeys(self._left, answer)
        for name in self._left:
            self.failed.pop(name, None)
        self.failed |= answer
        self._left = [name for name, failure in answer.items() if failure.transient]
        return Failure(Trouble.BUSY) if self._left else None
