"""Install the jars that tests give to Spark, and a Kafka broker, into the user's cache.

What each folder holds is in ``jars/<name>.xml``; a file that changed makes a folder of its own.
"""

from __future__ import annotations

import hashlib
import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from scripts.servers import Tool, install_all, installed, needed, run

if TYPE_CHECKING:
    from collections.abc import Callable

POMS = Path(__file__).parent / "jars"
COPY = "org.apache.maven.plugins:maven-dependency-plugin:3.8.1:copy-dependencies"


def maven_jars(name: str, one_of_them: str) -> Tool:
    """The jars of a project file, with all that they depend on and it does not exclude."""
    pom = POMS / f"{name}.xml"
    digest = hashlib.sha256(pom.read_bytes()).hexdigest()[:12]
    return Tool(name, digest, one_of_them, _copied(pom))


def _copied(pom: Path) -> Callable[[Path], None]:
    def build(folder: Path) -> None:
        mvn = needed("mvn", "Maven (Debian package maven)")
        options = [
            # Beside the folder, where it goes when the installation ends: ~/.m2 is not touched.
            f"-Dmaven.repo.local={folder.with_name('repository')}",
            f"-DoutputDirectory={folder}",
            "-DincludeScope=runtime",
            "-Dstyle.color=never",
        ]
        run(
            [
                mvn,
                "--quiet",
                "--batch-mode",
                "--strict-checksums",
                "--file",
                str(pom),
                *options,
                COPY,
            ],
            dict(os.environ),
        )

    return build


DELTA = maven_jars("delta", "delta-spark_4.2_2.13-4.4.0.jar")
KAFKA_BROKER = maven_jars("kafka-broker", "kafka_2.13-4.1.1.jar")
KAFKA_CONNECTOR = maven_jars("kafka-connector", "spark-sql-kafka-0-10_2.13-4.2.0.jar")
JARS = (DELTA, KAFKA_BROKER, KAFKA_CONNECTOR)


def jars_of(tool: Tool) -> list[Path]:
    """All jars of a folder, which is made where it is missing."""
    return sorted(installed(tool).parent.glob("*.jar"))


if __name__ == "__main__":
    sys.exit(install_all(JARS))
