"""A guard before JSON is parsed: parsers recurse, and hostile documents are deep."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from icechunk_stream.errors import FormatError

if TYPE_CHECKING:
    import numpy.typing as npt

MAX_JSON_DEPTH = 512
MAX_JSON_SIZE = 64 * 2**20
_PIECE = 2**20
_QUOTE, _BACKSLASH = b'"\\'
_STEPS = np.zeros(256, np.int8)
_STEPS[list(b"[{")] = 1
_STEPS[list(b"]}")] = -1


def check_json_nesting(data: bytes, limit: int = MAX_JSON_DEPTH, *, where: str) -> None:
    """Raise ``FormatError`` if the document is too large, or nested deeper than the limit."""
    if len(data) > MAX_JSON_SIZE:
        raise FormatError(f"a JSON document of {len(data)} bytes is too large", key=where)
    # Brackets inside of strings count too here: enough to pass nearly every document.
    if data.count(b"[") + data.count(b"{") <= limit:
        return
    scan = _Scan()
    for start in range(0, len(data), _PIECE):
        if (
            scan.deepest(np.frombuffer(data, np.uint8, min(_PIECE, len(data) - start), start))
            > limit
        ):
            raise FormatError(f"a JSON document is nested deeper than {limit} levels", key=where)


@dataclass(slots=True)
class _Scan:
    """Where the scan stands between two pieces."""

    depth: int = 0
    in_string: bool = False
    escaping: bool = False

    def deepest(self, piece: npt.NDArray[np.uint8]) -> int:
        """The greatest depth within the next piece."""
        quotes = (piece == _QUOTE) & ~self._escaped(piece)
        inside = (np.cumsum(quotes) + self.in_string) % 2 == 1
        depths = self.depth + np.cumsum(np.where(inside, 0, _STEPS[piece]), dtype=np.int64)
        self.in_string = bool(inside[-1])
        self.depth = int(depths[-1])
        return int(depths.max())

    def _escaped(self, piece: npt.NDArray[np.uint8]) -> npt.NDArray[np.bool_]:
        """Which bytes stand after an odd run of backslashes."""
        places = np.arange(len(piece))
        # The last byte before each one that is no backslash; a run may begin in the last piece.
        other = np.where(piece == _BACKSLASH, -1 - self.escaping, places)
        last = np.maximum.accumulate(other)
        before = np.concatenate(([-1 - self.escaping], last[:-1]))
        self.escaping = bool((places[-1] - last[-1]) % 2)
        escaped: npt.NDArray[np.bool_] = (places - 1 - before) % 2 == 1
        return escaped
