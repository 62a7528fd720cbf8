"""One dimension of a group as of one snapshot: its length, and where its labels lie."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Self

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from icechunk_stream.errors import InvalidInputError
from icechunk_stream.stream.dimensions import Append, Dimension, Regular
from icechunk_stream.stream.label_index import LabelIndex

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from icechunk_stream.stream.encodings import Encoding


@dataclass(frozen=True, slots=True)
class NewLabels:
    """Labels that an axis grows by: in stored form, ascending, distinct, and unknown so far."""

    labels: pa.Array

    def __len__(self) -> int:
        return len(self.labels)


@dataclass(frozen=True, slots=True)
class Axis:
    """One dimension of a group, as of one snapshot.

    ``column`` is the rows' column with its labels, ``size`` its length, ``labels`` its stored
    labels in stored form (None for a regular dimension), ``max_growth`` how many labels one batch
    may add. ``index`` finds the labels; it is made from them where it is left out.
    """

    name: str
    column: str
    dimension: Dimension
    size: int
    encoding: Encoding
    labels: pa.Array | None = None
    max_growth: int = 100_000
    index: LabelIndex = field(default_factory=LabelIndex, repr=False, compare=False)

    def __post_init__(self) -> None:
        regular = isinstance(self.dimension, Regular)
        if regular != (self.labels is None) or self.size != self._known():
            message = f"the axis {self.name!r} is {self.dimension!r} with {self._known()} labels"
            raise InvalidInputError(f"{message} and {self.size} cells: give each cell its label")
        if self.labels is not None and not self.index.runs:
            object.__setattr__(self, "index", self._built(self.labels))

    @property
    def growing(self) -> bool:
        """Whether batches may make it longer."""
        return isinstance(self.dimension, Regular | Append)

    def is_late(self, labels: pa.Array) -> NDArray[np.bool_]:
        """Which of these labels, all unknown, came after the last one but lie below it."""
        ordered = self.index.ascending and bool(self.size) and not pa.types.is_string(labels.type)
        match self.dimension:
            case Append(on_late="fail" | "quarantine") if ordered and self.labels is not None:
                late = pc.less(labels, self.labels[-1])
                return np.asarray(late.to_numpy(zero_copy_only=False))
            case _:
                return np.zeros(len(labels), dtype=np.bool_)

    def grown(self, new: NewLabels) -> Self:
        """With new labels at its end; what finds the known ones is kept."""
        if not len(new):
            return self
        labels = pa.concat_arrays([self.labels, new.labels])
        index = self.index.extended(new.labels, self.size)
        return replace(self, size=len(labels), labels=labels, index=index)

    def resized(self, size: int) -> Self:
        """A regular axis of another length."""
        return replace(self, size=size)

    def _known(self) -> int:
        return self.size if self.labels is None else len(self.labels)

    def _built(self, labels: pa.Array) -> LabelIndex:
        try:
            return LabelIndex.build(labels)
        except InvalidInputError as error:
            message = f"the coordinate array of the dimension {self.name!r}: {error.message}"
            raise InvalidInputError(message) from error
