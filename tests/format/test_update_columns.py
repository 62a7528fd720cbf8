"""Entries of the operations log that stay are copied as columns, or refused."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from icechunk_stream.errors import FormatError, InvalidInputError
from icechunk_stream.format.header import FileType
from icechunk_stream.format.repo_info import RepoInfo, decode_repo_info
from icechunk_stream.format.repo_info_encode import encode_repo_info
from icechunk_stream.format.update_columns import UpdateColumns
from icechunk_stream.format.updates import GCRan, Update
from tests.format.encodable import KEY
from tests.format.test_repo_info_encode import STATE, kinds
from tests.hostile import documents as doc
from tests.hostile import raw
from tests.hostile.mutate import mutant
from tests.hostile.reading import seal

if TYPE_CHECKING:
    from icechunk_stream.format.updates import UpdateKind

MUTANTS = 1500
NEWEST = Update(GCRan(), 10**6)


def opened(payload: bytes) -> RepoInfo:
    return decode_repo_info(seal(payload, FileType.REPO_INFO), KEY)


def copied(info: RepoInfo) -> list[Update]:
    """What the log says after it was copied."""
    state = replace(STATE, updates=(), older=info.log())
    return decode_repo_info(encode_repo_info(state), KEY).updates()


def copied_in_order(info: RepoInfo) -> list[tuple[UpdateKind, str | None]]:
    """The same for a log whose order and newest entry a writer would refuse."""
    log = info.log()
    falling = np.arange(len(log), 0, -1, dtype=np.uint64)
    state = replace(STATE, updates=[NEWEST], older=replace(log, times=falling))
    found = decode_repo_info(encode_repo_info(state), KEY).updates()
    return [(update.kind, update.backup) for update in found[1:]]


@given(made=st.lists(kinds, min_size=1, max_size=9))
def test_entries_of_every_kind_are_copied(made: list[UpdateKind]) -> None:
    updates = [Update(kind, 99 - at, f"b{at}" if at else None) for at, kind in enumerate(made)]
    data = encode_repo_info(replace(STATE, updates=updates))
    info = decode_repo_info(data, KEY)
    assert copied(info) == updates == info.updates()
    assert encode_repo_info(replace(STATE, updates=(), older=info.log())) == data
    assert encode_repo_info(replace(STATE, updates=updates[:1], older=_rest(updates))) == data


def _rest(updates: list[Update]) -> UpdateColumns:
    return UpdateColumns.of(updates[1:])


def test_damaged_logs_are_copied_or_refused_and_nothing_else() -> None:
    payload = raw.payload(doc.repo())
    refused = same = 0
    for seed in range(MUTANTS):
        try:
            info = opened(bytes(mutant(payload, seed)))
            expected = info.updates()
            found = copied_in_order(info)
        except (FormatError, InvalidInputError):
            refused += 1
        else:
            assert found == [(update.kind, update.backup) for update in expected]
            same += 1
    assert same > MUTANTS // 4
    assert refused > MUTANTS // 4


def test_what_is_refused_one_by_one_is_refused_as_columns() -> None:
    payload = raw.payload(doc.repo())
    read = 0
    for seed in range(MUTANTS):
        try:
            info = opened(bytes(mutant(payload, seed)))
            log = info.log()
        except FormatError:
            continue
        assert len(info.updates()) == len(log)
        read += 1
    assert read > MUTANTS // 4
