"""Runs zarr's own suites: asynchronous tests, and a store on either version of the format."""

from __future__ import annotations

import asyncio
import inspect
from typing import TYPE_CHECKING

import pytest

import icechunk_stream as ic

if TYPE_CHECKING:
    from typing import Any


@pytest.hookimpl(tryfirst=True)
def pytest_pyfunc_call(pyfuncitem: pytest.Function) -> bool | None:
    """Asynchronous tests run to their end in a loop of their own."""
    if not inspect.iscoroutinefunction(pyfuncitem.obj):
        return None
    names = pyfuncitem._fixtureinfo.argnames
    asyncio.run(pyfuncitem.obj(**{name: pyfuncitem.funcargs[name] for name in names}))
    return True


@pytest.fixture(params=[1, 2])
def session(request: pytest.FixtureRequest) -> Any:
    """A writable session on a repository without nodes."""
    repository = ic.Repository.create(ic.in_memory_storage(), spec_version=request.param)
    return repository.writable_session("main")
