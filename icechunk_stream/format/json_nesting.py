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
_PIECE = 2**18
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
        piece = np.frombuffer(data, np.uint8, min(_PIECE, len(data) - start), start)
        if scan.deepest(piece) > limit:
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
        # Only the parity counts, which survives the overflow.
        outside = (np.cumsum(quotes, dtype=np.uint8) + (not self.in_string)) & 1
        depths = np.cumsum(_STEPS[piece] * outside.view(np.int8), dtype=np.int32)
        deepest = self.depth + int(depths.max())
        self.in_string = not outside[-1]
        self.depth += int(depths[-1])
        return deepest

    def _escaped(self, piece: npt.NDArray[np.uint8]) -> npt.NDArray[np.bool_]:
        """Which bytes stand after an odd run of backslashes."""
        backslashes = piece == _BACKSLASH
        escaped = np.zeros(len(piece), np.bool_)
        if not self.escaping and not backslashes.any():
            return escaped
        # The last byte before each one that is no backslash; a run may begin in the last piece.
        places = np.arange(len(piece), dtype=np.int32)
        last = np.maximum.accumulate(np.where(backslashes, np.int32(-1 - self.escaping), places))
        escaped[0] = self.escaping
        escaped[1:] = (places[:-1] - last[:-1]) & 1
        self.escaping = bool((places[-1] - last[-1]) & 1)
        return escaped
