"""Writing xarray's objects to a session, under the reference library's names."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any, Literal

from icechunk_stream.errors import ErrorKind, InvalidInputError, SessionStateError
from icechunk_stream.session import Session

try:
    import xarray as xr
except ImportError as error:
    message = "xarray is not installed: pip install 'icechunk-stream[xarray]'"
    raise ImportError(message) from error

if TYPE_CHECKING:
    from collections.abc import Hashable, Mapping, MutableMapping

    Region = Mapping[str, slice | Literal["auto"]] | Literal["auto"] | None
    ZarrWriteModes = Literal["w", "w-", "a", "a-", "r+", "r"]

__all__ = ["to_icechunk"]

# Schedulers of dask that run in this process, where the session is.
_LOCAL = ("dask.threaded", "dask.local")


def to_icechunk(  # noqa: PLR0913 - the reference library's signature
    obj: xr.DataArray | xr.Dataset,
    session: Session,
    *,
    group: str | None = None,
    mode: ZarrWriteModes | None = None,
    safe_chunks: bool = True,
    align_chunks: bool = False,
    append_dim: Hashable | None = None,
    region: Region = None,
    encoding: Mapping[Any, Any] | None = None,
    chunkmanager_store_kwargs: MutableMapping[Any, Any] | None = None,
    split_every: int | None = None,  # noqa: ARG001 - there is nothing to merge in one process
) -> None:
    """Write a Dataset or DataArray to a group of a writable session; ``session.commit`` keeps it.

    Values held by dask are computed and written by threads of this process: a session is not
    shared with other processes, so a distributed scheduler is refused.

    Args:
        obj: What is written.
        session: A writable session.
        group: Path of the group; the root if none is given.
        mode: ``"w"`` replaces the group, ``"w-"`` fails if it is there, ``"a"`` replaces variables,
            ``"a-"`` only appends, ``"r+"`` only changes values. By default ``"a"`` with
            ``append_dim``, ``"r+"`` with ``region``, otherwise ``"w-"``.
        safe_chunks: Refuse chunks of dask that share a chunk of zarr with others.
        align_chunks: Change chunks of dask so that none of them share a chunk of zarr.
        append_dim: The dimension along which the values are appended.
        region: Where in existing arrays to write: a slice for each dimension, or ``"auto"`` to
            look its labels up.
        encoding: For each variable how its array is made, as in ``{"t": {"chunks": (100,)}}``.
        chunkmanager_store_kwargs: Handed on to ``dask.array.store``.
        split_every: Without effect.
    """
    _check(obj, session)
    options: dict[str, Any] = {
        "group": group,
        "mode": mode,
        "encoding": encoding,
        "append_dim": append_dim,
        "region": region,
        "safe_chunks": safe_chunks,
        "chunkmanager_store_kwargs": chunkmanager_store_kwargs,
    }
    if align_chunks:
        # Releases of xarray before 2025.6 do not have the parameter.
        options["align_chunks"] = True
    obj.to_zarr(session.store, consolidated=False, zarr_format=3, **options)


def _check(obj: object, session: object) -> None:
    if not isinstance(obj, xr.DataArray | xr.Dataset):
        raise TypeError(f"a Dataset or DataArray is written, not a {type(obj).__name__}")
    if not isinstance(session, Session):
        message = f"{session!r} is no session: pass what Repository.writable_session(branch) gives"
        raise InvalidInputError(message, ErrorKind.NOT_ALLOWED)
    # Raises for a read-only session, before zarr says the same less clearly.
    _ = session.edits
    if obj.__dask_graph__() is not None:  # type: ignore[no-untyped-call]
        _require_threads()


def _require_threads() -> None:
    """Whoever holds values of dask has imported it."""
    scheduler = sys.modules["dask.base"].get_scheduler()
    module = getattr(scheduler, "__module__", "")
    if scheduler is not None and module not in _LOCAL:
        message = (
            f"dask is set to compute with {module}, whose processes cannot write to this session:"
            " write within `with dask.config.set(scheduler='threads')`, or close the client"
        )
        raise SessionStateError(message, ErrorKind.NOT_ALLOWED)
