"""zarr's view of a session: keys, their values, listings, byte ranges."""

from icechunk_stream.store.zarr_store import IcechunkStore

__all__ = ["IcechunkStore"]
