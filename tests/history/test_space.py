"""The soak of space, in small: a queue whose consumers keep up stays small."""

from __future__ import annotations

from tests.history import soak_space


def test_a_million_messages_leave_at_most_three_chunks(path):
    """Of a mebibyte each, of some sixty that they would fill."""
    assert soak_space.soak(path, 1_000_000, 1 << 20) <= soak_space.CHUNKS_AT_MOST
