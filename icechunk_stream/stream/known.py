"""What a stream has read of arrays, which holds for as long as nobody changes them."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, TypeAlias

import msgspec

from icechunk_stream.format.ids import ManifestId
from icechunk_stream.format.nodes import ArrayNode
from icechunk_stream.reading import children
from icechunk_stream.stream.warm_units import WarmUnits

if TYPE_CHECKING:
    from icechunk_stream.format.nodes import Node
    from icechunk_stream.reading import SnapshotReader
    from icechunk_stream.stream.axes import Axis
    from icechunk_stream.stream.encodings import Encoding

Content: TypeAlias = tuple[bytes, bytes, bytes]


def content_of(node: Node) -> Content:
    """What tells one state of a stored node from all others: its document and its manifests."""
    manifests = node.manifests.ids.tobytes() if isinstance(node, ArrayNode) else b""
    return node.id.raw, node.user_data, manifests


@dataclass(frozen=True, slots=True)
class Form:
    """What the document of an array says, apart from how long the array is."""

    dims: tuple[str, ...]
    unit: tuple[int, ...]
    encoding: Encoding


@dataclass(slots=True)
class Known:
    """Axes and forms of the arrays of one stream, from the batches before.

    Labels of a long axis take a while to read, and zarr a millisecond to open an array. ``newest``
    is the snapshot of the stream's last commit, where this process made it. ``warm`` are units that
    are not complete yet.
    """

    newest: str = ""
    warm: WarmUnits = field(default_factory=WarmUnits)
    _axes: dict[str, tuple[Content, Axis]] = field(default_factory=dict)
    _forms: dict[str, tuple[bytes, Form]] = field(default_factory=dict)

    def axis(self, node: ArrayNode) -> Axis | None:
        """The axis of a coordinate array, if that is as it was."""
        content, axis = self._axes.get(node.path, (None, None))
        return axis if content == content_of(node) else None

    def keep_axis(self, node: ArrayNode, axis: Axis) -> None:
        """Remember an axis as of a snapshot; uncommitted changes of the node would be missed."""
        self._axes[node.path] = content_of(node), axis

    def form(self, node: ArrayNode) -> Form | None:
        document, form = self._forms.get(node.path, (None, None))
        return form if form is not None and document == _without_shape(node) else None

    def keep_form(self, node: ArrayNode, form: Form) -> None:
        self._forms[node.path] = _without_shape(node), form


def forget_replaced(before: SnapshotReader, after: SnapshotReader, group: str) -> None:
    """Let caches go of the manifests of a group that a commit replaced."""
    newer = {node.path: node for node in children(after.nodes, group)}
    gone: set[bytes] = set()
    for node in children(before.nodes, group):
        now = newer.get(node.path)
        if isinstance(node, ArrayNode) and isinstance(now, ArrayNode):
            gone |= _ids(node) - _ids(now) if _changed(node, now) else set()
    before.assets.forget_manifests(map(ManifestId, gone))


def _changed(before: ArrayNode, after: ArrayNode) -> bool:
    return before.manifests.ids.tobytes() != after.manifests.ids.tobytes()


def _ids(node: ArrayNode) -> set[bytes]:
    return {id.tobytes() for id in node.manifests.ids}


def _without_shape(node: ArrayNode) -> bytes:
    document = msgspec.json.decode(node.user_data)
    del document["shape"]
    return msgspec.json.encode(document)
