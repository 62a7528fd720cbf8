"""References of arrays packed into new manifest objects: small ones share an object."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TYPE_CHECKING, Protocol, TypeVar

from icechunk_stream.effects import random_bytes
from icechunk_stream.format.ids import OBJECT_ID_SIZE, ManifestId
from icechunk_stream.format.manifest import MAX_ARRAYS
from icechunk_stream.format.manifest_encode import encode_manifest
from icechunk_stream.format.snapshot import ManifestFile
from icechunk_stream.manifests.policy import Tiered
from icechunk_stream.manifests.rebuild import extents_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    import numpy as np
    import numpy.typing as npt

    from icechunk_stream.config import SplitSizes
    from icechunk_stream.format.ids import NodeId
    from icechunk_stream.format.ref_tables import RefTable
    from icechunk_stream.manifests.policy import ManifestPolicy
    from icechunk_stream.storage import Storage

# Array, state of its changes, and what of them and of older manifests a part holds.
PartKey = tuple[object, ...]

# Laying out fewer references than this takes no longer than handing them to another thread.
_WORTH_A_THREAD = 8_192


@dataclass(frozen=True, slots=True)
class EncodingRules:
    """How objects are laid out and encoded."""

    spec_version: int
    level: int
    splitting: SplitSizes
    policy: ManifestPolicy = field(default_factory=Tiered)

    @property
    def shared_refs(self) -> int:
        """How many references of several arrays may be in one manifest."""
        return self.policy.shared_refs if isinstance(self.policy, Tiered) else 0


@dataclass(frozen=True, slots=True, eq=False)
class Part:
    """What a manifest holds of one array; parts with one key are equal."""

    key: PartKey
    node: NodeId
    table: RefTable

    def __len__(self) -> int:
        return len(self.table)

    def box(self) -> npt.NDArray[np.uint32]:
        return extents_of(self.table)


class Packable(Protocol):
    """What a manifest may hold of one array beside what it holds of others."""

    @property
    def node(self) -> NodeId: ...

    def __len__(self) -> int: ...


P = TypeVar("P", bound=Packable)


@dataclass(frozen=True, slots=True, eq=False)
class NewManifest:
    """A new manifest; ``data`` is None for one that is stored already."""

    parts: tuple[Part, ...]
    file: ManifestFile
    data: bytes | None

    @property
    def key(self) -> tuple[PartKey, ...]:
        return tuple(part.key for part in self.parts)

    @property
    def stored(self) -> NewManifest:
        return replace(self, data=None)


@dataclass(slots=True)
class Shelf:
    """Manifests that attempts of one session have stored, to be used again by the next attempt."""

    stored: dict[tuple[PartKey, ...], NewManifest] = field(default_factory=dict)

    def keep(self, manifest: NewManifest) -> None:
        self.stored[manifest.key] = manifest.stored

    def find(self, parts: Sequence[Part]) -> NewManifest | None:
        return self.stored.get(tuple(part.key for part in parts))


def new_manifests(
    parts: Iterable[Part], rules: EncodingRules, storage: Storage, shelf: Shelf
) -> list[NewManifest]:
    """Manifests with all parts; what an earlier attempt stored is not made again."""
    bins = list(packed(parts, rules.shared_refs))
    calls = [partial(_made, each, rules, shelf) for each in bins]
    if sum(len(part) for each in bins for part in each) < _WORTH_A_THREAD:
        return [call() for call in calls]
    return storage.together(calls)


def _made(parts: Sequence[Part], rules: EncodingRules, shelf: Shelf) -> NewManifest:
    known = shelf.find(parts)
    return encoded(parts, rules) if known is None else known


def encoded(parts: Sequence[Part], rules: EncodingRules) -> NewManifest:
    """A manifest with some parts, each of another array."""
    id = ManifestId(random_bytes(OBJECT_ID_SIZE))
    tables = {part.node: part.table for part in parts}
    data = encode_manifest(id, tables, rules.spec_version, rules.level)
    return NewManifest(tuple(parts), ManifestFile(id, len(data), sum(map(len, parts))), data)


def packed(parts: Iterable[P], most: int) -> Iterator[list[P]]:
    """Parts that share a manifest: no array twice, and no more references than ``most``."""
    before: dict[NodeId, int] = defaultdict(int)
    open_: dict[int, list[P]] = defaultdict(list)
    refs: dict[int, int] = defaultdict(int)
    for part in parts:
        if len(part) >= most:
            yield [part]
            continue
        # The n-th small part of an array goes with the n-th ones of others.
        number = before[part.node]
        before[part.node] += 1
        if refs[number] + len(part) > most or len(open_[number]) == MAX_ARRAYS:
            yield open_.pop(number)
            refs[number] = 0
        open_[number].append(part)
        refs[number] += len(part)
    yield from open_.values()
