"""obstore's native module, as the present process can use it.

Its threads do not follow into a forked child, where its calls would never return. A child loads
a copy of the module from another file, which has threads, and connections, of its own.
"""

from __future__ import annotations

import os
import shutil
import sys
import tempfile
from importlib.machinery import ExtensionFileLoader
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from typing import TYPE_CHECKING, Any
from weakref import finalize

from icechunk_stream.errors import ErrorKind, StorageError
from icechunk_stream.storage.optional import load
from icechunk_stream.storage.per_process import LazyPerProcess

if TYPE_CHECKING:
    from types import ModuleType

_NATIVE = "obstore._obstore"


class _Forked:
    """Whether this process has another one's module in its memory."""

    inherited = False


def native() -> ModuleType:
    """The module, with ``_store`` and ``exceptions`` in it; ``StorageError`` without obstore."""
    return _native.value


def keep(owner: object, store: Any) -> None:  # noqa: ANN401 - obstore's classes have no stubs
    """Let a store live as long as its owner, and in forked children for ever.

    A child that ended a store of its parent could wait for the parent's threads.
    """
    _alive[id(store)] = store
    finalize(owner, _let_go, os.getpid(), id(store))


def _let_go(process: int, number: int) -> None:
    if os.getpid() == process:
        _alive.pop(number, None)


def _load() -> ModuleType:
    if _Forked.inherited:
        return _load_copy(str(sys.modules[_NATIVE].__file__))
    load("obstore", package="obstore", extra="cloud")
    return sys.modules[_NATIVE]


def _load_copy(file: str) -> ModuleType:
    """Load a native module once more: another file is another module, for the linker too."""
    known = {name: module for name, module in sys.modules.items() if _is_obstore(name)}
    try:
        with tempfile.TemporaryDirectory(prefix="icechunk-obstore-") as folder:
            copy = shutil.copyfile(file, Path(folder) / Path(file).name)
            return _execute(str(copy))
    except (OSError, ImportError) as error:
        message = (
            f"obstore cannot be used in this forked process ({type(error).__name__}): it needs room"
            " for 20 MB in a temporary folder that allows to run programs; or start processes by"
            " 'spawn' or 'forkserver'"
        )
        raise StorageError(message, ErrorKind.STORAGE_CONFIG) from error
    finally:
        sys.modules.update(known)


def _execute(file: str) -> ModuleType:
    loader = ExtensionFileLoader(_NATIVE, file)
    spec = spec_from_file_location(_NATIVE, file, loader=loader)
    assert spec is not None
    module = module_from_spec(spec)
    loader.exec_module(module)
    return module


def _is_obstore(name: str) -> bool:
    return name == "obstore" or name.startswith("obstore.")


def _after_fork() -> None:
    _Forked.inherited = _Forked.inherited or _NATIVE in sys.modules


_alive: dict[int, Any] = {}
_native: LazyPerProcess[ModuleType] = LazyPerProcess(_load)
os.register_at_fork(after_in_child=_after_fork)
