"""Documents of groups and arrays, as short as the format allows them to be."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

GROUP = b'{"zarr_format":3,"node_type":"group"}'


def array(shape: Sequence[int], chunks: Sequence[int] | None = None) -> bytes:
    """An array of bytes, with chunks of one element unless they are given."""
    sizes = [1] * len(shape) if chunks is None else list(chunks)
    document = {
        "zarr_format": 3,
        "node_type": "array",
        "shape": list(shape),
        "data_type": "uint8",
        "chunk_grid": {"name": "regular", "configuration": {"chunk_shape": sizes}},
        "chunk_key_encoding": {"name": "default", "configuration": {"separator": "/"}},
        "fill_value": 0,
        "codecs": [{"name": "bytes"}],
        "attributes": {},
    }
    return json.dumps(document).encode()
