"""A storage whose calls by the driver are recorded and disturbed, and those by tasks are not."""

from __future__ import annotations

from typing import TYPE_CHECKING

from icechunk_stream.testing.wrapped_storage import WrappedStorage

if TYPE_CHECKING:
    from icechunk_stream.storage import Storage


class DriverStorage(WrappedStorage):
    """Its pickles, which tasks get, are those of the storage that it wraps."""

    def _around(self, inner: Storage) -> DriverStorage:
        return DriverStorage(inner, self.script, in_order=self._in_order)

    def __reduce__(self) -> tuple[object, ...]:
        return (_itself, (self.inner,))


def _itself(storage: Storage) -> Storage:
    return storage
