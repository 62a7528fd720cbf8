"""How the references of an array are spread over manifests: a choice of who writes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeAlias, overload

from icechunk_stream.errors import InvalidInputError

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt


@dataclass(frozen=True, slots=True)
class OnePerCell:
    """One manifest for each cell of the splitting configuration, as the reference lays them out.

    A commit writes a cell anew as soon as one of its references changes.
    """


@dataclass(frozen=True, slots=True)
class Tiered:
    """New references go into small manifests, and neighbours of like size merge as more arrive.

    A reference is so written a few times in all, however many there are: commits cost what they
    add. Manifests of like size merge as soon as ``ratio`` are there, and any that together have
    ``cell_refs`` references; one with two thirds of these is full, and merges no more. An array has
    at most ``most`` that are not full, in each cell of the splitting configuration. Late data that
    change a short stretch of a full manifest cut it, so that the next ones write little anew; up to
    ``ratio`` such parts stay apart. One manifest holds up to ``shared_refs`` references of several
    arrays. Merges of more than ``quick_refs`` references are made between commits.
    """

    cell_refs: int = 131_072
    ratio: int = 5
    most: int = 16
    shared_refs: int = 32_768
    quick_refs: int = 8_192

    def __post_init__(self) -> None:
        for name, least in (("cell_refs", 1), ("ratio", 2), ("most", 4), ("shared_refs", 1)):
            if getattr(self, name) < least:
                message = f"Tiered({name}={getattr(self, name)}): give {least} or more"
                raise InvalidInputError(message)
        if self.most <= self.ratio:
            message = f"Tiered(ratio={self.ratio}, most={self.most}): most has to be larger"
            raise InvalidInputError(message)

    @overload
    def is_full(self, size: int) -> bool: ...

    @overload
    def is_full(self, size: npt.NDArray[np.int64]) -> npt.NDArray[np.bool_]: ...

    def is_full(self, size: int | npt.NDArray[np.int64]) -> bool | npt.NDArray[np.bool_]:
        """Whether a manifest of so many references merges no more."""
        return 3 * size >= 2 * self.cell_refs


ManifestPolicy: TypeAlias = OnePerCell | Tiered
