"""A test that shows a secret fails, whatever it shows it in, and its report does not show it."""

from base64 import b64encode
from pathlib import Path

import pytest

from tests.secret_marker import HIDDEN, MARKER, marked

pytest_plugins = ["pytester"]

ROOT = Path(__file__).parents[2]
HEAD = """
import base64, logging, os, pickle, subprocess, sys, threading, warnings
import pytest
from icechunk_stream.credentials import s3_static_credentials
from icechunk_stream.errors import InvalidInputError, StorageError
from icechunk_stream.storage import S3Access, S3Storage
from tests.secret_marker import MARKER, marked

KEY = s3_static_credentials(access_key_id=MARKER, secret_access_key=MARKER)

"""
SHOWN = {
    "print(MARKER)": "Captured stdout call",
    "sys.stderr.write(MARKER.lower())": "Captured stderr call",
    "subprocess.run(['echo', MARKER])": "Captured stdout call",
    "print(base64.b64encode(b'a' + MARKER.encode()).decode())": "Captured stdout call",
    "print(base64.b64decode(MARKER).hex())": "Captured stdout call",
    "print(list(MARKER.encode()))": "Captured stdout call",
    "logging.getLogger('icechunk_stream.storage').debug('%s', MARKER)": (
        "a log record of icechunk_stream.storage"
    ),
    "logging.getLogger('botocore.auth').debug('Key %s', MARKER)": "a log record of botocore.auth",
    "logging.getLogger('other').warning(MARKER)": "a log record of other",
    "logging.getLogger('urllib3').debug('no', exc_info=ValueError(MARKER))": (
        "an error that urllib3 logged"
    ),
    "assert MARKER == 'other'": "the report of its failure",
    "pytest.raises(StorageError, fail)": "a StorageError that became or caused an error",
    "pytest.raises(StorageError, fail_from)": "a ValueError that became or caused an error",
    "S3Storage(MARKER, 'p')": "the representation of a storage",
    "S3Storage('b', 'p', S3Access(read_headers=(('x-plain', MARKER),)))": (
        "the pickle of a S3Storage"
    ),
    "pickle.dumps(InvalidInputError(MARKER))": "the pickle of a InvalidInputError",
    "run_thread()": "a log record of icechunk_stream.threads",
}
HELPERS = """
def fail():
    raise StorageError(MARKER)

def fail_from():
    try:
        raise ValueError(MARKER)
    except ValueError:
        raise StorageError("broken") from None

def run_thread():
    logger = logging.getLogger("icechunk_stream.threads")
    thread = threading.Thread(target=logger.info, args=(MARKER,))
    thread.start()
    thread.join()
"""
LATE = """
def test_warns():
    warnings.warn(MARKER)

def test_leaves_a_file(tmp_path):
    (tmp_path / "events").write_text("x" * 2**20 + MARKER)

def test_leaves_its_own_file(tmp_path):
    (tmp_path / "profile").write_text(MARKER)
    marked.own_paths.add(tmp_path / "profile")
"""
KEPT = """
@pytest.mark.usefixtures("tmp_path")
def test_keeps_its_secrets(caplog):
    storage = S3Storage("b", "p", None, KEY)
    assert MARKER not in repr(storage)
    pickle.dumps(storage)
    assert MARKER.encode() in pickle.dumps(storage.with_pickled_credentials())
    assert MARKER.encode() in pickle.dumps(KEY)

def test_logs_as_ever(caplog):
    logger = logging.getLogger("icechunk_stream.storage")
    logger.debug("1")
    logger.warning("2")
    with caplog.at_level(logging.DEBUG):
        logger.debug("3")
    with caplog.at_level(logging.DEBUG, logger="icechunk_stream"):
        logger.debug("4")
    with caplog.at_level(logging.DEBUG, logger="icechunk_stream.storage"):
        logger.debug("5")
    logger.debug("6")
    assert [record.getMessage() for record in caplog.records] == ["2", "3", "4", "5"]

def test_watches_what_it_is_told():
    marked.add("a+b/signature")
"""


def run(pytester: pytest.Pytester, source: str, *options: str) -> tuple[pytest.RunResult, str]:
    marked.own_paths.add(pytester.path)
    pytester.makepyfile(HEAD + source)
    pytester.makeini(f"[pytest]\npythonpath = {ROOT}")
    result = pytester.runpytest_subprocess("-p", "tests.secret_watch", "-rfE", *options)
    said = "\n".join(result.outlines + result.errlines)
    assert not marked.is_in(said)
    return result, said


def test_what_shows_the_marker_fails_and_is_named(pytester: pytest.Pytester) -> None:
    tests = [f"def test_{number}():\n    {act}\n" for number, act in enumerate(SHOWN)]
    result, said = run(pytester, HELPERS + "\n".join(tests))
    result.assert_outcomes(failed=len(SHOWN))
    told, _ = said.split("short test summary info")  # which repeats it where CI is set
    sections = told.split("a secret was shown in:")[1:]
    assert len(sections) == len(SHOWN)
    for place, section in zip(SHOWN.values(), sections, strict=True):
        assert f"- {place}" in section
    assert HIDDEN in said


def test_what_shows_when_no_report_can_tell_of_it_fails_the_run(pytester: pytest.Pytester) -> None:
    result, said = run(pytester, LATE)
    result.assert_outcomes(passed=3, errors=1, warnings=1)
    assert "events" in said
    assert "- the file" in said
    assert "profile" not in said
    assert "a warning of" in said
    assert result.ret == pytest.ExitCode.TESTS_FAILED


def test_a_warning_alone_fails_the_run(pytester: pytest.Pytester) -> None:
    warns = "def test_warns():\n    warnings.warn(MARKER)\n"
    for workers in ((), ("-n", "1")):
        result, said = run(pytester, warns, *workers)
        result.assert_outcomes(passed=1, warnings=1)
        assert "secrets were shown" in said
        assert result.ret == pytest.ExitCode.TESTS_FAILED


def test_workers_watch_too(pytester: pytest.Pytester) -> None:
    result, said = run(pytester, "def test_prints():\n    print(MARKER)\n", "-n", "1")
    result.assert_outcomes(failed=1)
    assert "Captured stdout call" in said


def test_what_shows_no_marker_passes(pytester: pytest.Pytester) -> None:
    result, _ = run(pytester, KEPT)
    result.assert_outcomes(passed=3)
    assert result.ret == pytest.ExitCode.OK


@pytest.mark.parametrize("before", range(3))
def test_the_marker_is_found_in_other_spellings(before: int) -> None:
    text = b64encode(b"-" * before + MARKER.encode() + b"-").decode()
    assert marked.is_in(text)
    assert not marked.is_in(text[: len(text) // 2])
    assert marked.hide(f"at {MARKER}!") == f"at {HIDDEN}!"
