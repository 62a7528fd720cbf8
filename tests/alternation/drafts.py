"""What a session changed, so that the model can bring it onto what others committed."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from tests.alternation import edits
from tests.alternation.edits import Index
from tests.alternation.states import Array, Node, State, after, array_at

if TYPE_CHECKING:
    from collections.abc import Iterable

Touched = dict[int, set[Index]]


@dataclass
class Draft:
    """Nodes are known by their tokens: ``documents`` were changed, chunks ``touched``."""

    base: State
    threshold: int
    state: State = field(init=False)
    documents: set[int] = field(default_factory=set)
    touched: Touched = field(default_factory=lambda: defaultdict(set))

    def __post_init__(self) -> None:
        self.state = self.base

    def edit(self, edit: edits.Edit) -> None:
        indices = _indices(edit, self.state)
        if indices:
            self.touched[self.state[edit.path].token].update(indices)
        new = after(edit, self.state, self.threshold)
        if _changes_document(edit, self.state, new):
            self.documents.add(new[edit.path].token)
        self.state = new

    def rebased(self, tip: State, theirs: Touched, *, use_theirs: bool) -> State:
        """The draft on top of another state; where both wrote a chunk, one of them is kept."""
        mine = {node.token: (path, node) for path, node in self.state.items()}
        before = {node.token for node in self.base.values()}
        gone = before - mine.keys()
        kept = {path: node for path, node in tip.items() if node.token not in gone}
        new = {path: node for path, node in self.state.items() if node.token not in before}
        for path, node in kept.items():
            if node.token in mine:
                dropped = theirs.get(node.token, set()) if use_theirs else set()
                new[path] = self._merged(mine[node.token][1], node, dropped)
        return kept | new

    def both_replaced(self, tip: State) -> bool:
        """Whether both sides put new nodes in the place of an old one.

        The reference then stores two nodes of one path, of which one is seen.
        """
        return any(
            path in self.base
            and path in tip
            and len({self.base[path].token, tip[path].token, node.token}) == 3
            for path, node in self.state.items()
        )

    def _merged(self, mine: Node, tip: Node, dropped: set[Index]) -> Node:
        merged = tip
        if mine.token in self.documents:
            merged = replace(tip, attributes=mine.attributes)
        if not (isinstance(mine, Array) and isinstance(tip, Array) and isinstance(merged, Array)):
            return merged
        chunks = dict(tip.chunks)
        for index in self.touched.get(mine.token, set()) - dropped:
            chunks.pop(index, None)
            if index in mine.chunks:
                chunks[index] = mine.chunks[index]
        shape = mine.shape if mine.token in self.documents else tip.shape
        return replace(merged, chunks=chunks, shape=shape)


def union(all_touched: Iterable[Touched]) -> Touched:
    found: Touched = defaultdict(set)
    for touched in all_touched:
        for token, indices in touched.items():
            found[token] |= indices
    return found


def _changes_document(edit: edits.Edit, before: State, now: State) -> bool:
    match edit:
        case edits.SetAttributes(path, _):
            return before[path].attributes != now[path].attributes
        case edits.Resize(path, _, _):
            return array_at(before, path).shape != array_at(now, path).shape
        case _:
            return False


def _indices(edit: edits.Edit, state: State) -> set[Index]:
    """The chunks that an edit writes or deletes."""
    match edit:
        case edits.SetChunk(_, index) | edits.DeleteChunk(_, index):
            return {index}
        case edits.SetVirtual(_, indices):
            return set(indices)
        case edits.Fill(path, _):
            return set(array_at(state, path).indices())
        case edits.Resize(path, shape, False):
            array = array_at(state, path)
            return set(array.indices()) - set(replace(array, shape=shape).indices())
        case edits.DeleteChunks(path, leading):
            array = array_at(state, path)
            known = [index for index in array.chunks if array.holds(index)]
            return {index for index in known if index[: len(leading)] == leading}
        case _:
            return set()
