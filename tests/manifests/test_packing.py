"""What shares a manifest: as many references and arrays as it may have, and no array twice."""

from __future__ import annotations

from dataclasses import dataclass

from icechunk_stream.format.ids import NodeId
from icechunk_stream.format.manifest import MAX_ARRAYS
from icechunk_stream.packing import packed


@dataclass(frozen=True)
class Small:
    """Some references of an array."""

    number: int
    refs: int = 1

    @property
    def node(self) -> NodeId:
        return NodeId(self.number.to_bytes(8, "big"))

    def __len__(self) -> int:
        return self.refs


def test_no_manifest_gets_more_arrays_than_one_can_have() -> None:
    parts = [Small(number) for number in range(2 * MAX_ARRAYS)]

    assert [len(each) for each in packed(parts, 4 * MAX_ARRAYS)] == [MAX_ARRAYS, MAX_ARRAYS]


def test_parts_share_up_to_the_bound_and_large_ones_stay_alone() -> None:
    parts = [Small(1, 4), Small(2, 9), Small(3, 5), Small(1, 3), Small(4, 2), Small(2, 1)]

    found = [[(part.number, part.refs) for part in each] for each in packed(parts, 9)]

    assert sorted(found) == [[(1, 3)], [(1, 4), (3, 5)], [(2, 9)], [(4, 2), (2, 1)]]
