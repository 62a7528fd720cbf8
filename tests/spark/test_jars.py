"""Jars come from Maven into a folder of their own, whole or not at all."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from scripts import maven, servers

if TYPE_CHECKING:
    from pathlib import Path


def fake_maven(folder: Path, script: str) -> None:
    """A program of Maven's name that is found first."""
    program = folder / "mvn"
    program.write_text(f"#!/bin/sh\n{script}\n")
    program.chmod(0o755)


@pytest.fixture
def cache(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """An empty cache, and a PATH on which there is nothing but what a test puts there."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setenv("PATH", str(tmp_path))
    return tmp_path / "cache" / "icechunk_stream" / "servers"


def test_a_missing_maven_is_named(cache: Path) -> None:
    with pytest.raises(servers.InstallError, match=r"'mvn' is not on PATH: install Maven \(Debian"):
        servers.installed(maven.DELTA)
    assert [path.name for path in cache.iterdir()] == ["delta.lock"]


def test_what_maven_says_when_it_fails_is_shown_and_nothing_stays(
    cache: Path, tmp_path: Path
) -> None:
    fake_maven(tmp_path, "echo no such release; exit 1")
    with pytest.raises(servers.InstallError, match="no such release"):
        servers.installed(maven.DELTA)
    assert [path.name for path in cache.iterdir()] == ["delta.lock"]


def test_maven_keeps_its_own_files_in_the_cache_until_it_is_done(
    cache: Path, tmp_path: Path
) -> None:
    """It is told two folders, and writes to both."""
    fake_maven(
        tmp_path,
        'for given in "$@"; do case "$given" in'
        ' -Dmaven.repo.local=*) : > "${given#*=}.txt";;'
        f' -DoutputDirectory=*) : > "${{given#*=}}/{maven.DELTA.file}";;'
        " esac; done",
    )
    assert maven.jars_of(maven.DELTA) == [maven.DELTA.path]
    assert maven.DELTA.path.is_relative_to(cache)
    assert sorted(path.name for path in cache.iterdir()) == [
        maven.DELTA.folder.name,
        "delta.lock",
    ]
    assert [path.name for path in maven.DELTA.folder.iterdir()] == [maven.DELTA.file]


def test_other_contents_of_a_project_file_make_another_folder(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    text = (maven.POMS / "delta.xml").read_text()
    (tmp_path / "delta.xml").write_text(text.replace("4.4.0", "4.4.1"))
    monkeypatch.setattr(maven, "POMS", tmp_path)
    assert maven.maven_jars("delta", maven.DELTA.file).folder != maven.DELTA.folder
