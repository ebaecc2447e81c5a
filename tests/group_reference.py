"""
A group in plain Python: what tests/property/test_group_reference.py compares with. No processes, no bytes, no time.

An index is FRESH until somebody has had it, then HELD, BACK (its holder left), ASIDE (given back, to come behind
others), LATER (delayed beyond the end of the test), or DONE; PAD never was a message.
"""

from __future__ import annotations

FRESH, HELD, BACK, ASIDE, LATER, DONE, PAD = "FRESH", "HELD", "BACK", "ASIDE", "LATER", "DONE", "PAD"


class Group:
    def __init__(self):
        self.state = []
        self.attempts = {}
        self.holder = {}
        self.parked = set()  # outside the window: the head does not wait for them
        self.behind = {}

    def put(self, state=FRESH):
        self.state.append(state)

    def which(self, *states):
        return [index for index, state in enumerate(self.state) if state in states]

    def available(self):
        return self.which(FRESH, BACK, ASIDE)

    def may_come(self, index):
        """Whether that one may be handed out now: those that came back go first, then the fresh ones in order."""
        state = self.state[index]
        back, fresh = self.which(BACK), self.which(FRESH)
        if state == BACK:
            return index == back[0]
        if state == FRESH:
            return not back and index == fresh[0]
        return state == ASIDE and not [each for each in fresh if each < self.behind[index]]

    def hand_out(self, index, member):
        self.state[index], self.holder[index] = HELD, member
        self.attempts[index] = self.attempts.get(index, 0) + 1
        return self.attempts[index]

    def held_by(self, member):
        return [index for index in self.which(HELD) if self.holder[index] == member]

    def finish(self, index):
        self.state[index] = DONE

    def give_back(self, index, *, later=False):
        self.state[index] = LATER if later else ASIDE
        self.parked.add(index)
        self.behind[index] = len(self.state)

    def leave(self, member):
        for index in self.held_by(member):
            if index in self.parked:
                self.state[index], self.behind[index] = ASIDE, 0
            else:
                self.state[index] = BACK

    @property
    def head(self):
        unfinished = [index for index in self.which(FRESH, HELD, BACK) if index not in self.parked]
        return min(unfinished, default=len(self.state))
