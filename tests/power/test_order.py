"""What is synced, and in which order: the table of docs/format.md, held against what the library does."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from .campaign import child

FORMAT = Path(__file__).parents[2] / "docs" / "format.md"
NOT_HERE = {
    "linked": "only where somebody administers the queue while another one makes a chunk",
    "handed": "tests/unit/test_durability.py and the tests of handing over",
    "known": "an ack that returned is a promise, which cuts look for",
    "acks": "an explicit ack that returned is a promise, which cuts look for",
    "letters": "a rejected message that is in neither queue is what cuts look for",
    "cut": "tests/unit/test_recover.py",
    "forwarded": "tests/unit/test_forward.py, and the cuts of two queues",
    "forwarded, done": "tests/unit/test_forward.py, and the cuts of two queues",
    "forgotten": "tests/unit/test_forward.py",
    "moved": "what was adopted is a promise, which cuts look for",
}
"""Rules of the table that order.py does not look at, and what does."""


@pytest.fixture(scope="module")
def followed(built):
    """What each profile did, rule by rule."""
    return child("order", built)


def test_what_must_be_on_the_disk_first_is(followed):
    """No rule is broken in any profile."""
    assert not followed["broken"], "\n".join(followed["broken"])


def test_every_rule_of_the_table_was_looked_at(followed):
    """A rule nobody tests is not a rule."""
    table = re.search(r"\| Rule \| First on the disk .*?\n\|---.*?\n(.*?)\n\n", FORMAT.read_text(), re.DOTALL)
    assert table
    rules = {line.split("|")[1].strip() for line in table[1].splitlines()}
    missing = {rule for rule in rules if not followed["seen"].get(rule)}
    assert missing <= set(NOT_HERE), missing
    assert set(followed["seen"]) <= rules


@pytest.mark.parametrize("fault", ["no data sync", "no directory sync", "mark before data", "no snapshot sync"])
def test_a_missing_sync_breaks_a_rule(built, fault):
    """The table bites, too."""
    assert child("order", built, "--fault", fault)["broken"]
