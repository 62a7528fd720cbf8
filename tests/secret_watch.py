"""Fails the test that shows the marker: in output, logs, warnings, errors, pickles, files.

The marker is part of all secrets that tests use. What is checked is what every test does anyway.
"""

import io
import logging
import pickle
import sys
import threading
import traceback
import warnings
from collections.abc import Callable, Generator, Iterator
from contextlib import contextmanager, suppress
from functools import partial, wraps
from pathlib import Path
from typing import Any

import pytest

from icechunk_stream.errors import IcechunkError
from icechunk_stream.storage import S3Storage
from icechunk_stream.storage.object_store import ObjectStoreStorage
from tests.secret_marker import marked

# From these everything is checked, whatever level the test has; from others what is logged.
_LOGGERS = ("icechunk_stream", "boto3", "botocore", "obstore", "urllib3")
_ALL = 1
_LARGEST_FILE = 64 * 2**20
_SECRETIVE = ("icechunk_stream.credentials", "icechunk_stream.cloud_credentials")
_CONSENT = ("pickles_secrets", "_pickles_secrets", "pickle_static")
_GATE = "gate"
_AT_END = "secrets_shown"

_leaks: list[str] = []
_left: list[str] = []
_undo: list[Callable[[], None]] = []
_thread = threading.local()


def check(where: str, text: str | bytes) -> None:
    """Note that a place shows the marker, if its text does."""
    if marked.is_in(text):
        _leaks.append(where)


@contextmanager
def unwatched() -> Iterator[None]:
    """Let another library than ours log what it will in this thread."""
    before = getattr(_thread, "unwatched", False)
    _thread.unwatched = True
    try:
        yield
    finally:
        _thread.unwatched = before


def pytest_configure() -> None:
    _watch_logs()
    _wrap(IcechunkError, "__init__", _check_error)
    _wrap(S3Storage, "__init__", _check_storage)
    _wrap(ObjectStoreStorage, "__init__", _check_storage)
    _watch_pickles()


def pytest_unconfigure() -> None:
    while _undo:
        _undo.pop()()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item,
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    report = yield
    check("the name of the test", report.nodeid)
    for title, text in report.sections:
        if title.endswith(report.when):
            check(title, text)
    if report.longrepr is not None:
        check("the report of its failure", str(report.longrepr))
    if _leaks:
        _fail(item, report)
    return report


def _fail(item: pytest.Item, report: pytest.TestReport) -> None:
    """Say where the marker showed, and do not show it again."""
    shown = [] if report.longrepr is None else [marked.hide(str(report.longrepr))]
    places = "\n".join(f"- {marked.hide(leak)}" for leak in dict.fromkeys(_leaks))
    report.outcome = "failed"
    report.longrepr = "\n".join([*shown, f"a secret was shown in:\n{places}"])
    report.sections = [(title, marked.hide(text)) for title, text in report.sections]
    _hide_sections(item)
    _leaks.clear()


def _hide_sections(item: pytest.Item) -> None:
    """What later reports of this test repeat."""
    item._report_sections[:] = [
        (when, key, marked.hide(text)) for when, key, text in item._report_sections
    ]


@pytest.hookimpl(tryfirst=True)
def pytest_warning_recorded(warning_message: warnings.WarningMessage, nodeid: str) -> None:
    """Warnings are told after the reports of their test."""
    said = str(warning_message.message)
    if marked.is_in(said):
        _left.append(f"a warning of {nodeid}")
        warning_message.message = UserWarning(marked.hide(said))


@pytest.fixture(scope="session", autouse=True)
def watched_files(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """All that tests leave in temporary folders, such as event logs, but for their own secrets."""
    yield
    left = filter(_is_watched, tmp_path_factory.getbasetemp().rglob("*"))
    _leaks.extend(f"the file {path}" for path in left if marked.is_in_file(path))


def _is_watched(path: Path) -> bool:
    if not path.is_file() or path.is_symlink() or path.stat().st_size > _LARGEST_FILE:
        return False
    return marked.own_paths.isdisjoint([path, *path.parents])


@pytest.hookimpl(trylast=True)
def pytest_sessionfinish(session: pytest.Session) -> None:
    """What showed when no report could tell of it fails the run."""
    _left.extend(_leaks)
    _leaks.clear()
    if hasattr(session.config, "workeroutput"):
        session.config.workeroutput[_AT_END] = list(_left)
    elif _left:
        session.exitstatus = pytest.ExitCode.TESTS_FAILED


@pytest.hookimpl(optionalhook=True)
def pytest_testnodedown(node: Any) -> None:
    _left.extend(getattr(node, "workeroutput", {}).get(_AT_END, ()))


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    if _left:
        terminalreporter.section("secrets were shown", red=True)
        for place in dict.fromkeys(_left):
            terminalreporter.line(marked.hide(place))


class _Watcher(logging.Handler):
    """Checks records; with ``then``, passes on those that were to be logged without it."""

    def __init__(self, then: logging.Logger | None = None) -> None:
        super().__init__(_ALL)
        self._then = then

    def emit(self, record: logging.LogRecord) -> None:
        if not getattr(_thread, "unwatched", False):
            self._check(record)
        if self._then is not None and _is_wanted(record):
            self._then.callHandlers(record)

    @staticmethod
    def _check(record: logging.LogRecord) -> None:
        check(f"a log record of {record.name}", record.getMessage())
        if record.exc_info and record.exc_info[1] is not None:
            error = "".join(traceback.format_exception(record.exc_info[1]))
            check(f"an error that {record.name} logged", error)


def _is_wanted(record: logging.LogRecord) -> bool:
    logger: logging.Logger | None = logging.getLogger(record.name)
    while logger is not None and logger.name != _GATE:
        if logger.level not in {logging.NOTSET, _ALL}:
            return record.levelno >= logger.level
        logger = logger.parent
    return record.levelno >= logging.getLogger().level


def _watch_logs() -> None:
    root = logging.getLogger()
    _add_handler(root, _Watcher())
    # Between these loggers and the root: what only the marker is looked for in goes no further.
    gate = logging.Logger(_GATE)  # noqa: LOG001 - no part of the tree
    gate.propagate = False
    gate.addHandler(_Watcher(root))
    for name in _LOGGERS:
        logger = logging.getLogger(name)
        _undo.append(partial(_place, logger, logging.NOTSET, root))
        _place(logger, _ALL, gate)


def _add_handler(logger: logging.Logger, handler: logging.Handler) -> None:
    logger.addHandler(handler)
    _undo.append(lambda: logger.removeHandler(handler))


def _place(logger: logging.Logger, level: int, parent: logging.Logger) -> None:
    logger.setLevel(level)
    logger.parent = parent


def _wrap(owner: type, name: str, after: Callable[[Any], None]) -> None:
    original = getattr(owner, name)

    @wraps(original)
    def wrapped(self: Any, *args: Any, **kwargs: Any) -> None:
        original(self, *args, **kwargs)
        after(self)

    setattr(owner, name, wrapped)
    _undo.append(lambda: setattr(owner, name, original))


def _check_error(error: IcechunkError) -> None:
    """Also of what is being handled, which becomes the error's context."""
    link: BaseException | None = error
    while link is not None:
        check(f"a {type(link).__name__} that became or caused an error", f"{link!s} {link.args!r}")
        link = sys.exception() if link is error else link.__cause__ or link.__context__


def _check_storage(storage: Any) -> None:
    check("the representation of a storage", f"{storage!r} {storage!s} {vars(storage)!r}")
    # What holds a function of a test has no pickle.
    with suppress(pickle.PicklingError, AttributeError, TypeError):
        pickle.dumps(storage)


def _watch_pickles() -> None:
    original = pickle.dumps

    @wraps(original)
    def dumps(value: Any, *args: Any, **kwargs: Any) -> bytes:
        data = original(value, *args, **kwargs)
        if marked.is_in(data) and not _was_asked(value):
            check(f"the pickle of a {type(value).__name__}", data)
        return data

    setattr(pickle, "dumps", dumps)  # noqa: B010 - for mypy, functions cannot be replaced
    _undo.append(lambda: setattr(pickle, "dumps", original))


def _was_asked(value: Any) -> bool:
    """Whether credentials were to be pickled: with their storage's consent, or by themselves."""
    looker = _Looker(io.BytesIO())
    looker.dump(value)
    return looker.consent or not looker.holders


class _Looker(pickle.Pickler):
    """Sees each object that a pickle is made from."""

    def __init__(self, file: io.BytesIO) -> None:
        super().__init__(file)
        self.consent = False
        self.holders = False

    def reducer_override(self, value: Any) -> Any:
        module = type(value).__module__
        if module.startswith("icechunk_stream.") and not module.startswith(_SECRETIVE):
            self.holders = True
        said = (getattr(value, name, False) for name in _CONSENT)
        self.consent = self.consent or any(given is True for given in said)
        return NotImplemented
