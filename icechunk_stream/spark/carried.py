"""What travels to other machines, and says there what to do where this package is missing.

Cloudpickle carries this module's functions whole, not by their names: they run where the package is
not installed, too. So they use nothing of it.
"""

from __future__ import annotations

import pickle
import sys
from typing import TYPE_CHECKING, Any

from pyspark import cloudpickle

from icechunk_stream.version import VERSION

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    import pyarrow as pa

    Work = Callable[[Iterable[pa.RecordBatch]], Iterator[pa.RecordBatch]]


def packed(make: Callable[..., object], *arguments: object) -> tuple[object, ...]:
    """What ``__reduce__`` gives for an object that is to be made again elsewhere."""
    return _made, (cloudpickle.dumps((make, arguments)), VERSION)


def carried(work: Work) -> Work:
    """The work of tasks, as ``mapInArrow`` takes it."""
    data, release = cloudpickle.dumps(work), VERSION

    def do(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        yield from _loaded(data, release)(batches)

    return do


def _made(data: bytes, release: str) -> object:
    make, arguments = _loaded(data, release)
    made: object = make(*arguments)
    return made


def _loaded(data: bytes, release: str) -> Any:  # noqa: ANN401 - anything
    try:
        return pickle.loads(data)  # noqa: S301 - the user's own
    except (ImportError, AttributeError) as error:
        message = (
            f"{error}: this Python of Spark has no icechunk-stream {release}. Install that release"
            " where Spark runs, on the driver (with Spark Connect: the server) and on all"
            " executors, and start Spark again"
        )
        raise ImportError(message) from error


cloudpickle.register_pickle_by_value(sys.modules[__name__])
