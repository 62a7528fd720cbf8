"""A storage that takes its time over chunks."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from icechunk_stream.errors import StorageError
from icechunk_stream.storage import MemoryStorage

if TYPE_CHECKING:
    from icechunk_stream.storage import BytesLike

SLOWLY = 0.3


class SlowStorage(MemoryStorage):
    """Stores chunks after a while, or then fails to."""

    is_slow = False
    fails = False

    def _put(self, key: str, data: BytesLike) -> None:
        if key.startswith("chunks/") and self.is_slow:
            time.sleep(SLOWLY)
            if self.fails:
                raise StorageError("no space is left", key=key)
        super()._put(key, data)

    @property
    def chunks(self) -> int:
        return len(list(self.list("chunks/")))
