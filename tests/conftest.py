"""Settings of every test: Hypothesis profiles, and the repositories written by the reference."""

from __future__ import annotations

import os
import shutil
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from hypothesis import HealthCheck, Phase, settings

if TYPE_CHECKING:
    from collections.abc import Callable

pytest_plugins = ["tests.secret_watch"]

FIXTURES = Path(__file__).parents[2] / "shared" / "fixtures"

settings.register_profile(
    "default", max_examples=200, deadline=None, suppress_health_check=[HealthCheck.too_slow]
)
settings.register_profile("ci", settings.get_profile("default"), print_blob=True, database=None)
settings.register_profile(
    "nightly-soak",
    settings.get_profile("ci"),
    max_examples=2_000,
    phases=[phase for phase in Phase if phase is not Phase.explain],
)
settings.register_profile("soak", settings.get_profile("nightly-soak"))
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "default"))


@pytest.fixture(scope="session")
def fixtures_folder() -> Path:
    """Where the reference's repositories are; they are read-only: take copies."""
    if not (FIXTURES / "README.md").is_file():
        pytest.fail(
            f"{FIXTURES} is missing: these tests read repositories that the reference library"
            " wrote. Put them into ../shared/fixtures, beside the repository.",
            pytrace=False,
        )
    return FIXTURES


@pytest.fixture
def fixture_copy(fixtures_folder: Path, tmp_path: Path) -> Callable[[str], Path]:
    """Copy a fixture into the test's folder, writable, and say where."""

    def copy(name: str) -> Path:
        target = tmp_path / name
        shutil.copytree(fixtures_folder / name, target, copy_function=shutil.copyfile)
        for folder in (target, *(item for item in target.rglob("*") if item.is_dir())):
            folder.chmod(0o755)
        return target

    return copy
