"""zarr's codecs of an array as plain calls, which threads make without an event loop."""

from __future__ import annotations

import os
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np
from zarr.codecs import ShardingCodec
from zarr.core.array_spec import ArraySpec
from zarr.core.buffer import default_buffer_prototype
from zarr.core.metadata import ArrayV3Metadata

from icechunk_stream.storage.per_process import PerProcess

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    import numpy.typing as npt
    import zarr
    from zarr.abc.codec import Codec

    from icechunk_stream.storage import BytesLike

    Block = npt.NDArray[Any]

R = TypeVar("R")

_THREADS = os.cpu_count() or 1
# Less than that is done before a thread has begun.
_SHORT = 2**17
_pool = PerProcess(partial(ThreadPoolExecutor, _THREADS, "icechunk-codecs"))


@dataclass(frozen=True, slots=True, eq=False)
class CodecChain:
    """Codecs one after the other, each with what it is told of the units that it gets."""

    steps: tuple[tuple[Any, ArraySpec], ...]
    dtype: np.dtype[Any]
    fill_value: object

    @classmethod
    def of(cls, array: zarr.Array[Any], unit: tuple[int, ...]) -> CodecChain | None:
        """None where a codec has to be awaited, or is left alone with parts of a unit."""
        metadata, prototype = array.metadata, default_buffer_prototype()
        assert isinstance(metadata, ArrayV3Metadata), array
        fill = metadata.fill_value
        spec = ArraySpec(unit, metadata.data_type, fill, array.config, prototype)
        steps = tuple(_steps(metadata.codecs, spec))
        are_plain = all(_is_plain(codec) for codec, _ in steps)
        return cls(steps, array.dtype, fill) if are_plain else None

    def encode(self, units: Block) -> list[BytesLike | None]:
        """What zarr stores for each unit, in memory of its own; None where all is fill value."""
        return _spread(lambda number: self._encode(units[number]), len(units), units.nbytes)

    def decode(self, units: Sequence[BytesLike]) -> Block:
        """The cells of each unit."""
        (_, spec), *_ = self.steps
        cells = np.empty((len(units), *spec.shape), self.dtype)

        def decode_one(number: int) -> None:
            cells[number] = self._decode(units[number])

        _spread(decode_one, len(units), cells.nbytes)
        return cells

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

    def _decode(self, unit: BytesLike) -> Block:
        data: Any = default_buffer_prototype().buffer.from_bytes(bytes(unit))
        for codec, spec in reversed(self.steps):
            data = codec._decode_sync(data, spec)  # noqa: SLF001 - as above
        cells: Block = data.as_numpy_array()
        return cells


def _spread(act: Callable[[int], R], count: int, size: int) -> list[R]:
    """What ``act`` gives for each number, by several threads where so many bytes are worth it."""
    threads = 1 if size < _SHORT else min(_THREADS, count)
    if threads <= 1:
        return [act(number) for number in range(count)]
    step = -(-count // threads)
    runs = [range(start, min(start + step, count)) for start in range(0, count, step)]
    done = _pool.value.map(lambda run: [act(number) for number in run], runs)
    return [each for run in done for each in run]


def _steps(codecs: Iterable[Codec], spec: ArraySpec) -> Iterator[tuple[Any, ArraySpec]]:
    for codec in codecs:
        yield codec.evolve_from_array_spec(spec), spec
        spec = codec.resolve_metadata(spec)


def _is_plain(codec: object) -> bool:
    return hasattr(codec, "_encode_sync") and not isinstance(codec, ShardingCodec)
