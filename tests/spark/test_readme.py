"""What the README shows first is run as it stands there."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

from icechunk_stream.stream.outcomes import Committed

if TYPE_CHECKING:
    import pytest
    from pyspark.sql import SparkSession

README = Path(__file__).parents[2] / "README.md"
FOLDER = "/tmp/obs"


def section(title: str) -> str:
    _, _, rest = README.read_text().partition(f"## {title}\n")
    return rest.partition("\n### ")[0]


def test_a_stream_on_a_laptop_is_run_and_read_again(
    spark: SparkSession, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    blocks = re.findall(r"```python\n(.*?)```", section("A stream on a laptop"), re.DOTALL)
    assert len(blocks) == 2
    names: dict[str, Any] = {}
    for block in blocks:
        assert FOLDER in block
        exec(block.replace(FOLDER, str(tmp_path)), names)
    assert names["spark"] is spark
    assert isinstance(names["sink"].last_commit, Committed)
    assert "(time: 1, station: 1)" in capsys.readouterr().out
