"""Units of an array to the bytes that zarr stores for them, and back."""

from __future__ import annotations

import json
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np
import zarr
from zarr.core.buffer import default_buffer_prototype
from zarr.storage import MemoryStore

from icechunk_stream.errors import InvalidInputError
from icechunk_stream.stream.codec_chain import CodecChain

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    import numpy.typing as npt
    from zarr.core.buffer import Buffer

    from icechunk_stream.storage import BytesLike
    from icechunk_stream.stream.targets import ArrayTarget

    Block = npt.NDArray[Any]

_DOCUMENT = "zarr.json"
# Units that may be encoded or decoded at once.
MAX_UNITS = 2**16
_MAX_IDLE = 1024
_NUMBERS = "biufcmM"
# Others may round, or be anyone's.
_EXACT = frozenset({"blosc", "bytes", "crc32c", "gzip", "transpose", "zstd"})
_MISSING = frozenset({"_FillValue", "missing_value"})
_idle: dict[bytes, list[UnitCodec]] = {}


class Coded(Protocol):
    """A stored array: where it is, its zarr.json, and the shape of its units."""

    @property
    def path(self) -> str: ...

    @property
    def document(self) -> bytes: ...

    @property
    def unit(self) -> tuple[int, ...]: ...


class UnitCodec:
    """zarr's codecs of one array, for up to ``MAX_UNITS`` units at a time.

    Where they cannot be called one after the other, units lie side by side along the first axis of
    an array in memory that is like the stored one in all but its length: zarr encodes each of them
    as it would in its own place.
    """

    def __init__(self, document: bytes, unit: tuple[int, ...]) -> None:
        self.document = document
        self.unit = unit
        self._prototype = default_buffer_prototype()
        self._objects: dict[str, Buffer] = {_DOCUMENT: self._prototype.buffer.from_bytes(document)}
        self._folder = "/".join(["0"] * (len(unit) - 1))
        self._array = zarr.open_array(
            MemoryStore(self._objects), mode="r+", config={"write_empty_chunks": False}
        )
        self._chain = CodecChain.of(self._array, unit)

    @property
    def dtype(self) -> np.dtype[Any]:
        return self._array.dtype

    @property
    def fill_value(self) -> Any:  # noqa: ANN401 - a scalar of the dtype
        return self._array.fill_value

    @property
    def is_exact(self) -> bool:
        """Whether what was encoded is known to decode to the same numbers."""
        codecs = json.loads(self.document)["codecs"]
        return self.dtype.kind in _NUMBERS and all(each.get("name") in _EXACT for each in codecs)

    def encode(self, units: Block) -> list[BytesLike | None]:
        """What zarr stores for each unit, in memory of its own; None where all is fill value."""
        if self._chain is not None:
            return self._chain.encode(units)
        self._array[: len(units) * self.unit[0]] = units.reshape(-1, *self.unit[1:])
        encoded = [self._objects.pop(self._key(number), None) for number in range(len(units))]
        return [None if each is None else memoryview(each.as_buffer_like()) for each in encoded]

    def decode(self, units: Sequence[BytesLike]) -> Block:
        """The cells of each unit."""
        if self._chain is not None:
            return self._chain.decode(units)
        for number, data in enumerate(units):
            self._objects[self._key(number)] = self._prototype.buffer.from_bytes(bytes(data))
        cells = np.asarray(self._array[: len(units) * self.unit[0]])
        for number in range(len(units)):
            del self._objects[self._key(number)]
        return cells.reshape(-1, *self.unit)

    def _key(self, number: int) -> str:
        return f"c/{number}/{self._folder}" if self._folder else f"c/{number}"


@contextmanager
def unit_codecs(targets: Sequence[Coded]) -> Iterator[tuple[UnitCodec, ...]]:
    """A codec for each array, for the caller alone.

    zarr takes a millisecond to open an array, and the next batch goes to the same ones: those that
    did their work wait for it.
    """
    codecs = tuple(_codec(target) for target in targets)
    yield codecs
    if len(_idle) > _MAX_IDLE:
        _idle.clear()
    for codec in codecs:
        _idle.setdefault(codec.document, []).append(codec)


def _codec(target: Coded) -> UnitCodec:
    document = _document_of_units(target)
    try:
        return _idle[document].pop()
    except LookupError:
        return UnitCodec(document, target.unit)


def empty_value(target: ArrayTarget, codec: UnitCodec) -> Any:  # noqa: ANN401 - a scalar
    """What a cleared cell holds: what reads as missing, or the fill value where nothing does."""
    if target.encoding.fill is not None:
        return target.encoding.fill
    attributes = json.loads(target.document).get("attributes", {})
    if codec.dtype.kind == "f" and not _MISSING.isdisjoint(attributes):
        return float("nan")
    return codec.fill_value


def _document_of_units(target: Coded) -> bytes:
    document = json.loads(target.document)
    stored = document["chunk_grid"]["configuration"].get("chunk_shape")
    if stored != list(target.unit):
        message = (
            f"the chunks of {target.path} have the shape {stored}, not the unit's"
            f" {list(target.unit)}: make the target from the document of the array"
        )
        raise InvalidInputError(message)
    kept = ("zarr_format", "node_type", "data_type", "chunk_grid", "fill_value", "codecs")
    like = {key: document[key] for key in (*kept, "storage_transformers") if key in document}
    like["shape"] = [MAX_UNITS * target.unit[0], *target.unit[1:]]
    like["chunk_key_encoding"] = {"name": "default", "configuration": {"separator": "/"}}
    return json.dumps(like).encode()
