"""How the references of an array are spread over manifests: a choice of who writes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias

from icechunk_stream.errors import InvalidInputError


@dataclass(frozen=True, slots=True)
class OnePerCell:
    """One manifest for each cell of the splitting configuration, as the reference lays them out.

    A commit writes a cell anew as soon as one of its references changes.
    """


@dataclass(frozen=True, slots=True)
class Tiered:
    """New references go into small manifests, and neighbours of like size merge as more arrive.

    A reference is so written a few times in all, however many there are: commits cost what they
    add. Manifests of ``cell_refs`` references are full, and merge no more; ``ratio`` of like size
    merge; an array has at most ``most`` that are not full, in each cell of the splitting
    configuration. One manifest holds up to ``shared_refs`` references of several arrays. Merges of
    more than ``quick_refs`` references are made between commits.
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


ManifestPolicy: TypeAlias = OnePerCell | Tiered
