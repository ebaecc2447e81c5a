"""
The whole queue against its model, the short share: it fails when a verb was never done.

Whether each pair of a verb and another feature has met is too much for it: `python -m tests.whole.campaign` checks
that from 3,000 sequences on, and fails when one has not.
"""

from __future__ import annotations

import os

import pytest

from tests.support import share
from tests.whole.campaign import play, tell_of
from tests.whole.machine import MET, VERBS, Whole, small_disk
from tests.whole.model import Entry
from tests.whole.shorter import tell
from tests.whole.steps import FAILED, FAULTS

SEEDS = range(1, 9)
SEQUENCES = 25
STEPS = 60


# On a small disk a letter may have no room, of which a group warns.
@pytest.mark.filterwarnings("ignore:.*cannot move:RuntimeWarning")
def test_the_whole_queue_says_what_its_model_says_and_every_verb_was_done():
    """A few seeds, and more until every verb was there."""
    for seed in SEEDS:
        try:
            play(seed, SEQUENCES, STEPS)
        except FAULTS as problem:
            tell_of(*(FAILED or [(problem, [])])[0], shrink=True)
            raise
        if seed >= share(4) and not VERBS.keys() - MET.verbs:
            break
    assert VERBS.keys() - MET.verbs == set()


def test_what_was_held_for_the_last_time_by_a_member_that_left_may_be_dropped_before_it_is_a_letter():
    """P13: nobody holds it. A put that drops the oldest came first; then no letter must be there, nor may be missed."""
    group = {"ordered_by": None, "expire_to": None, "max_attempts": 2, "lease": None}
    begin = {
        "place": "directory", "retention": "acked", "durability": "process", "bound": 5, "full": "drop_oldest",
        "checksum": True, "codec": "bytes", "start": 0, "group": group, "window": None, "ttl": None,
        "index_spacing": 5, "several_processes": False, "holding": [], "latest": [],
    }  # fmt: skip
    put = ("put", {"by": 0, "entry": Entry(b"x")})
    get = ("get_group", {"by": 0, "name": "g", "which": 0, "limit": 1, "how": "get"})
    leave = ("leave_group", {"by": 0, "name": "g", "which": 0})
    story = [("begin", begin), get, put, *2 * [get, leave], *6 * [put], ("drain", {"by": 0, "name": "g"})]
    assert tell(Whole, story) is None


def test_a_disk_of_a_mebibyte_is_among_the_places():
    """Where none can be mounted, the suite goes on without it, and says so here."""
    with small_disk() as place:
        if place is None:
            pytest.skip("cannot mount a file system of 1 MiB here: nothing of this suite was on one")
        assert os.statvfs(place).f_blocks * os.statvfs(place).f_frsize == 1 << 20
