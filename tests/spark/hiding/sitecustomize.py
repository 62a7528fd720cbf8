"""Python runs this when it starts, where its folder is on the path: the package may be hidden.

It is, to whoever has not imported it yet, while the file exists that HIDDEN_WHILE names, and if the
text of that file is in the command line.
"""

from __future__ import annotations

import os
import sys
from importlib.abc import MetaPathFinder
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence
    from importlib.machinery import ModuleSpec
    from types import ModuleType

_SIGN = Path(os.environ["HIDDEN_WHILE"])


def _is_hidden() -> bool:
    return _SIGN.exists() and _SIGN.read_text() in " ".join(sys.orig_argv)


class _Hidden(MetaPathFinder):
    def find_spec(
        self, name: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if name.split(".", maxsplit=1)[0] == "icechunk_stream" and _SIGN.exists():
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)
        return None


sys.meta_path.insert(0, _Hidden())
