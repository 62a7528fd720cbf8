import pytest

pytest.register_assert_rewrite(
    "icechunk_stream.testing.storage_contract", "icechunk_stream.testing.storage_steps"
)
