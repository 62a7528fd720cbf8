"""A real Spark in this process, with two cores and Delta."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from scripts.maven import DELTA, jars_of
from tests.object_stores import servers
from tests.spark.sessions import DELTA_SETTINGS, start_spark

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from pyspark.sql import SparkSession

    from tests.object_stores.servers import S3Server


@pytest.fixture(scope="session")
def spark_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where Spark keeps its warehouse, its temporary files and its event log."""
    return tmp_path_factory.mktemp("spark")


@pytest.fixture(scope="session")
def spark(spark_folder: Path) -> Iterator[SparkSession]:
    session = start_spark(spark_folder, jars_of(DELTA), DELTA_SETTINGS)
    yield session
    session.stop()


@pytest.fixture(scope="session")
def versitygw(tmp_path_factory: pytest.TempPathFactory) -> Iterator[S3Server]:
    with servers.versitygw(tmp_path_factory.mktemp("server")) as server:
        yield server
