"""
The whole queue against its model, the short share: it fails when a verb was never done.

Whether each pair of a verb and another feature has met is too much for it: `python -m tests.whole.campaign` checks
that from 3,000 sequences on, and fails when one has not.
"""

from __future__ import annotations

import os

import pytest

from tests.whole.campaign import play, tell_of
from tests.whole.machine import MET, VERBS, small_disk
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
        if seed >= 4 and not VERBS.keys() - MET.verbs:
            break
    assert VERBS.keys() - MET.verbs == set()


def test_a_disk_of_a_mebibyte_is_among_the_places():
    """Where none can be mounted, the suite goes on without it, and says so here."""
    with small_disk() as place:
        if place is None:
            pytest.skip("cannot mount a file system of 1 MiB here: nothing of this suite was on one")
        assert os.statvfs(place).f_blocks * os.statvfs(place).f_frsize == 1 << 20
