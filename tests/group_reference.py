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
        self.keys = []  # None: it comes in no order
        self.attempts = {}
        self.holder = {}
        self.parked = set()  # outside the window: the head does not wait for them
        self.behind = {}

    def put(self, state=FRESH, key=None):
        self.state.append(state)
        self.keys.append(key)

    def which(self, *states):
        return [index for index, state in enumerate(self.state) if state in states]

    def waits(self, index):
        """Whether one before it of its key is not finished."""
        key = self.keys[index]
        return key is not None and any(
            self.keys[each] == key and self.state[each] not in (DONE, PAD) for each in range(index)
        )

    def available(self):
        return [index for index in self.which(FRESH, BACK, ASIDE) if not self.waits(index)]

    def may_come(self, index):
        """
        Whether that one may be handed out now.

        Without keys those that came back go first, then the fresh ones in order; with one, whatever waits for no other.
        """
        state = self.state[index]
        if self.keys[index] is not None:
            return index in self.available()
        back, fresh = ([each for each in self.which(which) if self.keys[each] is None] for which in (BACK, FRESH))
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
