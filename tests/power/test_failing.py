"""Every system call of every operation fails once, with each errno that it may have."""

from __future__ import annotations

import pytest
from support import share

from .campaign import child

pytestmark = pytest.mark.timeout(1500)


def test_whatever_call_fails_nothing_is_lost_or_half_done(built, record_property):
    """A clear error; what was put is there; the same handles go on; nothing is left open."""
    result = child("failing", built)
    record_property("failing calls", result["trials"])
    assert not result["findings"], "\n".join(result["findings"])
    assert result["trials"] > 1000
    assert result["raised"] > result["trials"] // 2


def test_whatever_calls_fail_in_a_row(built, record_property):
    """Up to twenty of them, one after the other."""
    result = child("failing", built, "--pairs", share(300), "--seed", 1)
    record_property("failing calls", result["trials"])
    assert not result["findings"], "\n".join(result["findings"])
