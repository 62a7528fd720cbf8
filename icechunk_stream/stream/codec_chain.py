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

# Executors have a worker for each core, and each worker has threads of its own.
_THREADS = min(os.cpu_count() or 1, 8)
# So many bytes of cells are done before a thread has begun.
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
        """None where a codec may have to be awaited, or makes shards: zarr writes parts of them."""
        metadata = array.metadata
        assert isinstance(metadata, ArrayV3Metadata), array
        fill, prototype = metadata.fill_value, default_buffer_prototype()
        spec = ArraySpec(unit, metadata.data_type, fill, array.config, prototype)
        steps = tuple(_steps(metadata.codecs, spec))
        are_plain = all(_is_plain(codec) for codec, _ in steps)
        return cls(steps, array.dtype, fill) if are_plain else None

    def encode(self, units: Block) -> list[BytesLike | None]:
        """What zarr stores for each unit, in memory of its own; None where all is fill value."""
        # Some releases of zarr give codecs only what lies in memory as an array of its own would.
        units = np.ascontiguousarray(units, self.dtype).reshape(-1, *self._unit.shape)
        return _spread(lambda number: self._encode(units[number]), len(units), units.nbytes)

    def decode(self, units: Sequence[BytesLike]) -> Block:
        """The cells of each unit."""
        cells = np.empty((len(units), *self._unit.shape), self.dtype)

        def decode_one(number: int) -> None:
            cells[number] = self._decode(units[number])

        _spread(decode_one, len(units), cells.nbytes)
        return cells

    @property
    def _unit(self) -> ArraySpec:
        return self.steps[0][1]

    def _encode(self, unit: Block) -> BytesLike | None:
        data: Any = self._unit.prototype.nd_buffer.from_numpy_array(unit)
        if data.all_equal(self.fill_value):
            return None
        for codec, spec in self.steps:
            data = codec._encode_sync(data, spec)  # noqa: SLF001 - zarr's protocol of such codecs
            if data is None:
                return None
        encoded = memoryview(data.as_buffer_like())
        may_change = np.may_share_memory(np.frombuffer(encoded, np.uint8), unit)
        return encoded.tobytes() if may_change else encoded

    def _decode(self, unit: BytesLike) -> Block:
        data: Any = self._unit.prototype.buffer.from_bytes(bytes(unit))
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
    for each in codecs:
        codec = each.evolve_from_array_spec(spec)
        yield codec, spec
        spec = codec.resolve_metadata(spec)


def _is_plain(codec: object) -> bool:
    """Whether plain calls do what zarr awaits: codecs of others may differ in the two."""
    is_of_zarr = type(codec).__module__.partition(".")[0] == "zarr"
    return is_of_zarr and hasattr(codec, "_encode_sync") and not isinstance(codec, ShardingCodec)
