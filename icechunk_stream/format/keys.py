"""Chunk indices as single sortable keys."""

from __future__ import annotations

from dataclasses import dataclass
from math import prod
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Sequence

    import numpy.typing as npt

    Keys = npt.NDArray[np.generic]
    Indices = npt.NDArray[np.uint32]

_MAX_KEY = 2**63 - 1
_WORD = 4


@dataclass(frozen=True, slots=True)
class KeySpace:
    """Indices below ``bounds`` as one integer each, or as big-endian bytes if that is too small."""

    bounds: tuple[int, ...]
    strides: tuple[int, ...] | None

    @classmethod
    def within(cls, bounds: Sequence[int]) -> KeySpace:
        # An axis without length leaves no index, but the strides of the others have to fit too.
        sizes = [max(bound, 1) for bound in bounds]
        if prod(sizes) > _MAX_KEY:
            return cls(tuple(bounds), None)
        strides = tuple(prod(sizes[axis + 1 :]) for axis in range(len(sizes)))
        return cls(tuple(bounds), strides)

    def pack(self, indices: Indices) -> Keys:
        """Keys in an order that is the lexicographic one of the indices."""
        if self.strides is None:
            big_endian = np.ascontiguousarray(indices.astype(">u4"))
            return big_endian.view(f"S{_WORD * len(self.bounds)}").reshape(len(indices))
        if not self.strides:
            return np.zeros(len(indices), np.int64)
        keys = indices[:, -1].astype(np.int64)
        for axis, stride in enumerate(self.strides[:-1]):
            keys += np.multiply(indices[:, axis], stride, dtype=np.int64)
        return keys

    def pack_one(self, index: Sequence[int]) -> int | bytes | None:
        """The key of one index, or None where it is outside of the bounds or of another rank."""
        if len(index) != len(self.bounds):
            return None
        if any(not 0 <= at < bound for at, bound in zip(index, self.bounds, strict=True)):
            return None
        if self.strides is None:
            # numpy's byte strings end before their trailing zeros.
            return b"".join(at.to_bytes(_WORD, "big") for at in index).rstrip(b"\0")
        return sum(at * stride for at, stride in zip(index, self.strides, strict=True))

    def unpack(self, keys: Keys) -> Indices:
        rank = len(self.bounds)
        if self.strides is None:
            octets = np.ascontiguousarray(keys)
            return octets.view(">u4").reshape(len(keys), rank).astype(np.uint32)
        indices = np.empty((len(keys), rank), np.uint32)
        for axis, (bound, stride) in enumerate(zip(self.bounds, self.strides, strict=True)):
            indices[:, axis] = keys // stride % bound
        return indices


def ascending(keys: Keys) -> bool:
    """Whether keys are in order, without repeats."""
    return bool(np.greater(keys[1:], keys[:-1]).all())
