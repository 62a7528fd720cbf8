"""Texts of ids."""

from __future__ import annotations

from base64 import b32encode

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from icechunk_stream.format.ids import decode_id, encode_id, encode_ids

CROCKFORD = str.maketrans("ABCDEFGHIJKLMNOPQRSTUVWXYZ234567", "0123456789ABCDEFGHJKMNPQRSTVWXYZ")


@given(raw=st.binary(min_size=1, max_size=20))
def test_an_id_is_written_as_base_32_with_crockfords_digits(raw: bytes) -> None:
    text = b32encode(raw).decode().rstrip("=").translate(CROCKFORD)
    assert encode_id(raw) == text
    assert encode_ids(np.array([raw], f"V{len(raw)}")).tolist() == [text]
    assert decode_id(text, len(raw)) == raw
