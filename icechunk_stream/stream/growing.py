"""Dimensions of a group grow: every array that has one gets longer.

An array that kept the old length would leave xarray unable to open the group.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from icechunk_stream.format.nodes import ArrayNode
from icechunk_stream.reading import children

if TYPE_CHECKING:
    from collections.abc import Mapping

    from icechunk_stream.session import Session


def grow(session: Session, group: str, lengths: Mapping[str, int]) -> None:
    """Lengthen every array of a group along its dimensions of these names; none gets shorter."""
    if not lengths:
        return
    arrays = [node for node in children(session.reader.nodes, group) if isinstance(node, ArrayNode)]
    for node in arrays:
        document = msgspec.json.decode(node.user_data)
        names = document.get("dimension_names") or ()
        # Dimensions without a name are no one's.
        asked = [lengths.get(name, 0) if name else 0 for name in names] or document["shape"]
        shape = [max(pair) for pair in zip(asked, document["shape"], strict=True)]
        if shape != document["shape"]:
            session.edits.set_document(node.path, msgspec.json.encode(document | {"shape": shape}))
