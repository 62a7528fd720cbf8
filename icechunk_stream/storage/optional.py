"""Modules that need a package of an extra: imported when they are first needed."""

from __future__ import annotations

from importlib import import_module
from importlib.util import find_spec
from typing import TYPE_CHECKING

from icechunk_stream.errors import ErrorKind, StorageError

if TYPE_CHECKING:
    from types import ModuleType


def is_installed(package: str) -> bool:
    """Whether a top-level package can be imported; it is not imported."""
    return find_spec(package) is not None


def load(module: str, *, package: str, extra: str) -> ModuleType:
    """A module of this library that imports ``package``, which ``extra`` brings."""
    if not is_installed(package):
        message = (
            f"this storage needs the package {package}, which is not installed:"
            f" pip install 'icechunk-stream[{extra}]'"
        )
        raise StorageError(message, ErrorKind.STORAGE_CONFIG)
    return import_module(module)
