"""A Spark that lacks what serverless compute and shared clusters of Databricks lack.

Only the package meets the limits: Spark's own Python goes through the same attributes.
"""

from __future__ import annotations

import socket
import sys
from typing import TYPE_CHECKING, Any, NoReturn

import pytest
from pyspark import TaskContext
from pyspark.errors import PySparkAttributeError, PySparkNotImplementedError
from pyspark.sql import SparkSession
from pyspark.sql.classic.dataframe import DataFrame

from icechunk_stream.errors import StorageError
from icechunk_stream.testing.wrapped_storage import WrappedStorage

if TYPE_CHECKING:
    from collections.abc import Callable

    from icechunk_stream.storage import Storage
    from icechunk_stream.testing.storage_calls import Call

METADATA_HOSTS = {"169.254.169.254", "fd00:ec2::254", "metadata.google.internal"}
PACKAGE = "icechunk_stream"
HIDDEN = [(SparkSession, "sparkContext"), (SparkSession, "_sc"), (SparkSession, "_jvm")]
HIDDEN += [(DataFrame, "rdd"), (DataFrame, "_jdf")]


class DriverStorage(WrappedStorage):
    """A storage that only the driver reaches."""

    def __init__(self, inner: Storage) -> None:
        super().__init__(inner)
        self.script.before = refuse_tasks

    def __reduce__(self) -> tuple[Any, ...]:
        return DriverStorage, (self.inner,)

    def _around(self, inner: Storage) -> DriverStorage:
        return DriverStorage(inner)


def refuse_tasks(call: Call) -> None:
    if TaskContext.get() is not None:
        message = f"executors have no access to {call.key!r}: let the driver do it"
        raise StorageError(message, key=call.key)


def limit_spark(monkeypatch: pytest.MonkeyPatch) -> None:
    """Take away what is not there: kept rows, the JVM, RDDs, and the machine's credentials."""
    for name in ("persist", "cache", "unpersist", "checkpoint", "localCheckpoint"):
        monkeypatch.setattr(DataFrame, name, _refused(name))
    for owner, name in HIDDEN:
        monkeypatch.setattr(owner, name, _hidden(owner, name), raising=False)
    monkeypatch.setattr(socket.socket, "connect", _without_metadata(socket.socket.connect))


def _refused(name: str) -> Callable[..., NoReturn]:
    def refuse(*_: object, **__: object) -> NoReturn:
        raise PySparkNotImplementedError("NOT_IMPLEMENTED", {"feature": f"{name}()"})

    return refuse


def _hidden(owner: type, name: str) -> property:
    """An attribute, of the class or of its instances, that the package does not find."""
    original = vars(owner).get(name)

    def get(instance: Any) -> Any:
        caller = sys._getframe(1).f_globals["__name__"]
        if caller.split(".")[0] == PACKAGE:
            raise PySparkAttributeError("JVM_ATTRIBUTE_NOT_SUPPORTED", {"attr_name": name})
        return vars(instance)[name] if original is None else original.__get__(instance, owner)

    def put(instance: Any, value: object) -> None:
        vars(instance)[name] = value

    return property(get, put)


def _without_metadata(connect: Callable[..., Any]) -> Callable[..., Any]:
    def guarded(connection: socket.socket, address: Any) -> Any:
        if address[0] in METADATA_HOSTS:
            raise ConnectionRefusedError(f"{address[0]} is not reached from here")
        return connect(connection, address)

    return guarded
