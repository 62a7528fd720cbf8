"""zarr's codecs of an array as plain calls: units are encoded by threads, without an event loop."""

from __future__ import annotations

import os
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
from zarr.codecs import ShardingCodec
from zarr.core.array_spec import ArraySpec
from zarr.core.buffer import default_buffer_prototype
from zarr.core.metadata import ArrayV3Metadata

from icechunk_stream.storage.per_process import PerProcess

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    import numpy.typing as npt
    import zarr
    from zarr.abc.codec import Codec

    from icechunk_stream.storage import BytesLike

    Block = npt.NDArray[Any]

_THREADS = os.cpu_count() or 1
# Less than that is encoded before a thread has begun.
_SHORT = 2**17
_pool = PerProcess(partial(ThreadPoolExecutor, _THREADS, "icechunk-encode"))


@dataclass(frozen=True, slots=True, eq=False)
class CodecChain:
    """Codecs one after the other, each with what it is told of the units that it gets."""

    steps: tuple[tuple[Any, ArraySpec], ...]
    fill_value: object

    @classmethod
    def of(cls, array: zarr.Array[Any], unit: tuple[int, ...]) -> CodecChain | None:
        """None where a codec has to be awaited, or is left alone with parts of a unit."""
        metadata, prototype = array.metadata, default_buffer_prototype()
        assert isinstance(metadata, ArrayV3Metadata), array
        fill = metadata.fill_value
        spec = ArraySpec(unit, metadata.data_type, fill, array.config, prototype)
        steps = tuple(_steps(metadata.codecs, spec))
        return cls(steps, fill) if all(_is_plain(codec) for codec, _ in steps) else None

    def encode(self, units: Block) -> list[BytesLike | None]:
        """What zarr stores for each unit, in memory of its own; None where all is fill value."""
        if units.nbytes < _SHORT or len(units) == 1:
            return self._encode_run(units)
        parts = np.array_split(units, min(_THREADS, len(units)))
        return [each for part in _pool.value.map(self._encode_run, parts) for each in part]

    def _encode_run(self, units: Block) -> list[BytesLike | None]:
        return [self._encode(unit) for unit in units]

    def _encode(self, unit: Block) -> BytesLike | None:
        data: Any = default_buffer_prototype().nd_buffer.from_numpy_array(unit)
        if data.all_equal(self.fill_value):
            return None
        for codec, spec in self.steps:
            data = codec._encode_sync(data, spec)  # noqa: SLF001 - zarr's protocol of such codecs
            if data is None:
                return None
        encoded = memoryview(data.as_buffer_like())
        is_view = np.may_share_memory(np.frombuffer(encoded, np.uint8), unit)
        return encoded.tobytes() if is_view else encoded


def _steps(codecs: Iterable[Codec], spec: ArraySpec) -> Iterator[tuple[Any, ArraySpec]]:
    for codec in codecs:
        yield codec.evolve_from_array_spec(spec), spec
        spec = codec.resolve_metadata(spec)


def _is_plain(codec: object) -> bool:
    return hasattr(codec, "_encode_sync") and not isinstance(codec, ShardingCodec)
