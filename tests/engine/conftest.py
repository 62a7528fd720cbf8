"""Repositories for the engine's tests, which need no reference library."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

SHARED = Path(__file__).resolve().parents[3] / "shared" / "fixtures"


@pytest.fixture(scope="session")
def fixtures() -> Path:
    """Repositories that releases of the reference library wrote; never written to."""
    assert SHARED.is_dir(), f"the fixtures are expected in {SHARED}"
    return SHARED


@pytest.fixture(params=["test-repo-v1", "test-repo-v2"])
def fixture_repository(request: pytest.FixtureRequest, fixtures: Path, tmp_path: Path) -> Path:
    """A copy of a repository with branches, tags, and chunks of every kind."""
    path = tmp_path / str(request.param)
    shutil.copytree(fixtures / request.param, path)
    return path
