"""
The promise of `Durability.replicated(n)` as a machine of few states, all of which can be visited.

A source, and F followers. Each has a log, of which a prefix is on its disk. A put is acknowledged once n followers have
sent marks that cover it, however late those arrive. `FLAWS` are protocols that are nearly right: each is to be found.

What may happen, in any order: a put; a follower copies one more, syncs, sends its mark, loses what it has not synced,
loses its disk; it is fenced, the fence is lifted, it gives its receipt to one candidate;
a candidate is promoted by the receipts that were ever printed; somebody follows a queue of a later era.
"""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterator

Era = tuple[int, int]
"""A number, and who was promoted: as two may be, each by their own receipts."""
Log = tuple[tuple[int, int, int], ...]
"""Each entry by its era and its number in that."""

NOBODY = -1
FLAWS = (
    "one receipt too few",
    "marked before the sync",
    "marked behind the fence",
    "for somebody else",
    "given twice",
    "shorter",
    "an older era",
    "of an older fence",
    "made anew",
    "before it has all of before",
)


class Node(NamedTuple):
    """A queue."""

    leads: bool
    era: Era
    log: Log = ()
    synced: int = 0
    fence: int = 0
    """Its number, the n-th of this queue; 0 is none."""
    fences: int = 0
    given: int = NOBODY
    """The candidate that has its receipt."""
    lost: bool = False
    """Its disk is new, and its source, which knew another one by that name, does not take it."""


class Receipt(NamedTuple):
    """What was printed once, and is there for ever."""

    voter: int
    era: Era
    fence: int
    candidate: int
    end: Log


class Told(NamedTuple):
    """What is known of an era."""

    era: Era
    parent: Era | None
    base: Log
    """What was there when it began."""
    followers: tuple[int, ...]
    promoted: frozenset[tuple[Era, int]]
    """Who was, and of which era before."""
    marks: tuple[int, ...]
    """Of each node: the largest that it has sent."""
    acked: int
    log: Log


class State(NamedTuple):
    """All of it."""

    nodes: tuple[Node, ...]
    eras: tuple[Told, ...]
    receipts: frozenset[Receipt]
    puts: int
    cuts: int
    losses: int
    lifts: int


class Bounds(NamedTuple):
    """How much of each may happen."""

    puts: int = 2
    promotions: int = 2
    cuts: int = 0
    losses: int = 0
    lifts: int = 0


class Model:
    """All that can happen to F followers of which n must have what was acknowledged."""

    def __init__(self, followers: int, n: int, bounds: Bounds, flaw: str = "") -> None:
        self._n, self._bounds, self._flaw = n, bounds, flaw
        self._in_detail = bool(bounds.cuts)
        """Copies, syncs and marks by steps; else by one, as what was not marked can only be missed less."""
        first = (1, 0)
        nodes = (Node(True, first), *(Node(False, first) for _ in range(followers)))
        names = tuple(range(1, followers + 1))
        told = Told(first, None, (), names, frozenset(), (0,) * len(nodes), 0, ())
        self._first = State(nodes, (told,), frozenset(), 0, 0, 0, 0)

    def loses(self) -> tuple[int, list[str]]:
        """How many states there are, and the way to one in which something acknowledged is lost, if there is one."""
        came: dict[State, tuple[State | None, str]] = {self._first: (None, "")}
        todo = [self._first]
        while todo:
            behind = []
            for state in todo:
                for what, after in self._steps(state):
                    if after in came:
                        continue
                    came[after] = state, what
                    if self._is_lost(after):
                        return len(came), _way(came, after)
                    behind.append(after)
            todo = behind
        return len(came), []

    def _is_lost(self, state: State) -> bool:
        """Whether a queue that leads lacks what was acknowledged in an era that does not come from it."""
        eras = {told.era: told for told in state.eras}
        for node in state.nodes:
            if not node.leads:
                continue
            base = eras[node.era].base
            for told in state.eras:
                is_lost = base[: told.acked] != told.log[: told.acked]
                if is_lost and node.era not in _line(eras, told.era):
                    return True
        return False

    def _steps(self, state: State) -> Iterator[tuple[str, State]]:
        eras = {told.era: told for told in state.eras}
        for who, node in enumerate(state.nodes):
            if node.leads:
                yield from self._put(state, who, node)
                continue
            if node.lost:
                yield from self._join(state, eras, who, node)
                continue
            yield from self._follow(state, eras, who, node)
            yield from self._fence(state, eras, who, node)
            yield from self._promote(state, eras, who, node)
            yield from self._join(state, eras, who, node)
        for who, node in enumerate(state.nodes):
            if node.leads:
                yield from self._join(state, eras, who, node)

    def _put(self, state: State, who: int, node: Node) -> Iterator[tuple[str, State]]:
        if state.puts < self._bounds.puts:
            log = (*node.log, (*node.era, state.puts))
            after = _with(state, who, node._replace(log=log, synced=len(log)))
            yield f"{who} puts", after._replace(puts=state.puts + 1)

    def _follow(self, state: State, eras: dict[Era, Told], who: int, node: Node) -> Iterator[tuple[str, State]]:
        takes = not node.fence or self._flaw == "marked behind the fence"
        leaders = [each for each in state.nodes if each.leads and self._serves(each, node) and not node.fence]
        if takes and node.fence:
            leaders = [each for each in state.nodes if each.leads and each.era == node.era]
        for leader in leaders:
            if who not in eras[leader.era].followers:
                continue
            if len(node.log) < len(leader.log) and leader.log[: len(node.log)] == node.log:
                copied = node._replace(log=leader.log[: len(node.log) + 1])
                if self._in_detail:
                    yield f"{who} copies", _with(state, who, copied)
                else:
                    end = len(copied.log)
                    after = _with(state, who, copied._replace(synced=end))
                    yield f"{who} copies and marks {end}", self._marked(after, leader.era, who, end, leader.log)
            mark = len(node.log) if self._flaw == "marked before the sync" else node.synced
            if leader.log[:mark] == node.log[:mark] and mark > eras[leader.era].marks[who]:
                yield f"{who} marks {mark}", self._marked(state, leader.era, who, mark, leader.log)
        if node.synced < len(node.log):
            yield f"{who} syncs", _with(state, who, node._replace(synced=len(node.log)))
            if state.cuts < self._bounds.cuts:
                after = _with(state, who, node._replace(log=node.log[: node.synced]))
                yield f"{who} loses power", after._replace(cuts=state.cuts + 1)
        if state.losses < self._bounds.losses:
            anew = Node(False, node.era, lost=self._flaw != "made anew", fences=node.fences)
            yield f"{who} loses its disk", _with(state, who, anew)._replace(losses=state.losses + 1)

    def _serves(self, leader: Node, node: Node) -> bool:
        return leader.era == node.era or (self._flaw == "an older era" and leader.era[0] < node.era[0])

    def _marked(self, state: State, era: Era, who: int, mark: int, log: Log) -> State:
        eras = []
        for told in state.eras:
            if told.era != era:
                eras.append(told)
                continue
            marks = (*told.marks[:who], mark, *told.marks[who + 1 :])
            sure = sorted((marks[each] for each in told.followers), reverse=True)[self._n - 1]
            longest = max(told.log, log, key=len)
            eras.append(told._replace(marks=marks, acked=max(told.acked, sure), log=longest))
        return state._replace(eras=tuple(eras))

    def _fence(self, state: State, eras: dict[Era, Told], who: int, node: Node) -> Iterator[tuple[str, State]]:
        if not node.fence:
            if node.fences < node.era[0] + self._bounds.lifts:
                fenced = node._replace(fence=node.fences + 1, fences=node.fences + 1, log=node.log[: node.synced])
                yield f"{who} is fenced", _with(state, who, fenced)
            return
        if state.lifts < self._bounds.lifts and (node.given == NOBODY or self._flaw == "of an older fence"):
            lifted = node._replace(fence=0, given=NOBODY)
            yield f"{who} is fenced no more", _with(state, who, lifted)._replace(lifts=state.lifts + 1)
        if not self._has_begun(eras, node):
            return
        for candidate, other in enumerate(state.nodes):
            if candidate == who or other.leads or other.era != node.era:
                continue
            if node.given not in (NOBODY, candidate) and self._flaw != "given twice":
                continue
            if len(node.log) > len(other.log) and self._flaw != "shorter":
                continue
            receipt = Receipt(who, node.era, node.fence, candidate, node.log)
            after = _with(state, who, node._replace(given=candidate))
            yield f"{who} gives its receipt to {candidate}", after._replace(receipts=state.receipts | {receipt})

    def _promote(self, state: State, eras: dict[Era, Told], who: int, node: Node) -> Iterator[tuple[str, State]]:
        told = eras[node.era]
        if not self._has_begun(eras, node):
            return
        if len(state.eras) > self._bounds.promotions or who not in told.followers:
            return
        if node.given != NOBODY and self._flaw != "given twice":
            return
        needed = len(told.followers) - self._n + 1 - (self._flaw == "one receipt too few")
        good = [each for each in state.receipts if self._counts(each, who, node)]
        for count in range(max(needed - 1, 0), len(told.followers)):
            for some in itertools.combinations(sorted(good), count):
                if len({each.voter for each in some}) == count:
                    yield f"{who} is promoted", self._promoted(state, told, who, node)

    def _has_begun(self, eras: dict[Era, Told], node: Node) -> bool:
        """Whether it has what was there when its era began: before that it has no voice in it."""
        return node.synced >= len(eras[node.era].base) or self._flaw == "before it has all of before"

    def _counts(self, receipt: Receipt, who: int, node: Node) -> bool:
        if receipt.era != node.era or receipt.voter == who:
            return False
        if receipt.candidate != who:
            return self._flaw == "for somebody else" and node.log[: len(receipt.end)] == receipt.end
        return node.log[: len(receipt.end)] == receipt.end or self._flaw == "shorter"

    def _promoted(self, state: State, told: Told, who: int, node: Node) -> State:
        era = (told.era[0] + 1, who)
        if any(each.era == era for each in state.eras):
            return state
        source = next(index for index in range(len(state.nodes)) if index not in told.followers)
        names = tuple(sorted({*told.followers, source} - {who}))
        promoted = told.promoted | {(told.era, who)}
        new = Told(era, told.era, node.log, names, promoted, (0,) * len(state.nodes), 0, ())
        led = node._replace(leads=True, era=era, fence=0, given=NOBODY, synced=len(node.log))
        return _with(state, who, led)._replace(eras=(*state.eras, new))

    def _join(self, state: State, eras: dict[Era, Told], who: int, node: Node) -> Iterator[tuple[str, State]]:
        """It follows a queue of a later era, with what both have; if it gave its receipt, once that one was."""
        for leader in state.nodes:
            if not leader.leads or leader.era[0] <= node.era[0] or who not in eras[leader.era].followers:
                continue
            if node.given != NOBODY and (node.era, node.given) not in eras[leader.era].promoted:
                continue
            same = 0
            for here, there in zip(node.log, leader.log, strict=False):
                if here != there:
                    break
                same += 1
            kept = node.log[:same]
            new = Node(False, leader.era, kept, min(node.synced, same), fences=node.fences)
            after = _with(state, who, new)
            if not self._in_detail:
                after = self._marked(after, leader.era, who, same, leader.log)
            yield f"{who} follows era {leader.era}", after


def _with(state: State, who: int, node: Node) -> State:
    return state._replace(nodes=(*state.nodes[:who], node, *state.nodes[who + 1 :]))


def _line(eras: dict[Era, Told], era: Era) -> set[Era]:
    """That era, and those that it comes from."""
    found: set[Era] = set()
    at: Era | None = era
    while at is not None:
        found.add(at)
        at = eras[at].parent
    return found


def _way(came: dict[State, tuple[State | None, str]], to: State) -> list[str]:
    steps = []
    at: State | None = to
    while at is not None:
        at, what = came[at]
        steps.append(what)
    return steps[-2::-1]
