"""From two looks at a queue to findings: what did not move between them, and who keeps it from moving."""

from __future__ import annotations

import contextlib
import os
import shlex
import time
from typing import TYPE_CHECKING, Any

from shmq import _native, errors, roots, whose
from shmq.diagnosis import facts, words
from shmq.diagnosis.finding import LEVELS, Finding
from shmq.durability import end_of_messages

if TYPE_CHECKING:
    from collections.abc import Iterator

    from shmq.diagnosis.facts import Look, Name
    from shmq.message import Message
    from shmq.session import Session

_SMALL_SHARE = 0.05
"""A disk with a smaller share of it free is nearly full."""


def findings(session: Session, before: Look, now: Look) -> list[Finding]:
    """All there are, the worst first."""
    return sorted(Causes(session, before, now).all(), key=lambda each: LEVELS.index(each.level))


class Causes:
    """Two looks at one queue."""

    def __init__(self, session: Session, before: Look, now: Look) -> None:
        """*before* was the first look."""
        self._session = session
        self._before = before
        self._now = now
        self._end = now.stats.next_index
        self._claimed = {each[:3] for each in before.claims}

    def all(self) -> Iterator[Finding]:
        """Each finding, in no order."""
        some = False
        for look in (
            self._claims,
            self._full,
            self._names,
            self._disk,
            self._watermark,
            self._followers,
            self._locks,
            self._state,
        ):
            for each in look():
                some = True
                yield each
        if not some:
            users = words.many(self._now.stats.participants, "process")
            lag = sum(each.stats.lag for each in self._now.names.values())
            said = f"{lag:,} messages are on their way" if lag else "there is nothing to get"
            yield self._finding(
                "idle",
                "note",
                f"Nothing is wrong: {said}; {words.many(len(self._now.names), 'consumer name')}, and open in {users}.",
            )

    def _finding(self, kind: str, level: str, sentence: str, advice: str = "", **told: Any) -> Finding:
        return Finding(kind, level, self._session.place, sentence, advice, told)

    # ---- who puts
    def _claims(self) -> Iterator[Finding]:
        for claim in self._now.claims:
            if claim[:3] not in self._claimed:
                continue
            process = facts.who(self._session, claim.owner)
            if process is None or process.state == whose.DEAD:
                continue  # whoever comes there makes it padding
            waiting = [name for name, each in self._now.names.items() if each.stats.head == claim.at_index]
            age = words.age(claim.time_ns)
            since = "" if age is None else f" for {words.seconds(age)}"
            waits = f"; {words.listed(waits_for)} for it" if (waits_for := waiting) else ""
            stopped = process.state == whose.STOPPED
            yield self._finding(
                "claim",
                "stuck" if stopped or waiting or claim.behind else "note",
                f"{words.subject(process)} has been inside a put or a reserve of "
                f"index {claim.at_index}{since}; "
                f"{words.many(claim.behind, 'message')} behind it cannot be read before that ends{waits}.",
                f"Continue it (kill -CONT {process.pid}), or end it (kill -9 {process.pid}): its claim "
                "becomes padding then."
                if stopped
                else "Have it leave the `with reserve()` block, or end it: its claim becomes padding then.",
                **words.facts_of(process),
                index=claim.at_index,
                count=claim.messages,
                bytes=claim.bytes,
                age_s=age,
                behind=claim.behind,
                waiting=waiting,
            )

    def _full(self) -> Iterator[Finding]:
        stats, (messages, size) = self._now.stats, self._now.used
        over = [
            f"{count:,} of {bound:,} {what}"
            for count, bound, what in ((messages, stats.max_messages, "messages"), (size, stats.max_bytes, "bytes"))
            if bound and count >= bound - (bound // 20 if what == "bytes" else 0)
        ]
        if not over or self._follows() or self._session.current_options().full == "drop_oldest":
            return
        counting = {name: each for name, each in self._now.names.items() if each.stats.hold != "nothing"}
        floor = min((each.stats.floor for each in counting.values()), default=0)
        last = sorted(name for name, each in counting.items() if each.stats.floor == floor)
        unread = [name for name in last if not counting[name].open]
        because = (
            f"{words.listed(last, 'holds', 'hold')} everything back, at index {floor}"
            if last
            else "no name takes anything"
        )
        advice = "Have it served faster"
        if unread:
            because += f", and nobody has {' or '.join(map(repr, unread))} open"
            advice = f"Start what reads it, or give it up: {self._give_up(unread[0])}"
        yield self._finding(
            "full",
            "stuck",
            f"The queue is full ({', '.join(over)}): {because}; puts wait, or raise Full.",
            f"{advice}; or raise the bound: configure(max_messages=..., max_bytes=...).",
            messages=messages,
            bytes=size,
            max_messages=stats.max_messages,
            max_bytes=stats.max_bytes,
            names=last,
            unread=unread,
            waiters=self._now.room_waiters,
        )

    # ---- who takes
    def _names(self) -> Iterator[Finding]:
        for name, each in self._now.names.items():
            if each.stats.problem is not None:
                yield self._finding(
                    "damaged", "stuck", f"{each.stats.problem}.", f"Give the name up: {self._give_up(name)}.", name=name
                )
                continue
            if self._follows():  # nobody can have it open: it shows where the other queue's name stood
                continue
            yield from self._held(name, each)
            yield from self._behind(name, each)
            yield from self._group(name, each)

    def _held(self, name: str, each: Name) -> Iterator[Finding]:
        known = self._before.names[name].held if name in self._before.names else []
        stayed = {held[:2] for held in known} & {held[:2] for held in each.held}
        for owner in sorted({owner for _, owner in stayed}):
            process = facts.who(self._session, owner)
            theirs = [held for held in each.held if held.owner == owner]
            first = min(theirs)
            late = min((held.lease_ns for held in theirs if held.lease_ns), default=0)
            over = (_native.boottime_ns() - late) / 1e9 if late else None
            age = self._age_of(first.at_index)
            stopped = process is None or process.state in (whose.STOPPED, whose.DEAD)
            past = over is not None and over > 0
            lease = (
                ""
                if over is None
                else f", {words.seconds(abs(over))} {'past' if over > 0 else 'before the end of'} its lease"
            )
            put = "" if age is None else f", put {words.seconds(age)} ago"
            pid = 0 if process is None else process.pid
            advice = "Ask it what takes so long; a lease= would hand its messages to others."
            if process is None or process.state == whose.DEAD:
                advice = "Have somebody open the name: what the dead had comes again then."
            elif stopped:
                advice = f"Continue it (kill -CONT {pid}), or end it (kill -9 {pid}): its messages come again then."
            elif past:
                advice = "The next member that gets takes it over; whoever needs longer extends its lease."
            yield self._finding(
                "held",
                "stuck" if stopped else "slow" if past or self._stands(name) else "note",
                f"{words.subject(process)} has {words.many(len(theirs), 'message')} of {name!r} and has not finished "
                f"{'it' if len(theirs) == 1 else 'them'}: the first is index {first.at_index}{put}{lease}.",
                advice,
                name=name,
                **words.facts_of(process),
                index=first.at_index,
                held=len(theirs),
                age_s=age,
                past_lease_s=over,
            )

    def _behind(self, name: str, each: Name) -> Iterator[Finding]:
        stats = each.stats
        if not stats.lag or any(claim.at_index == stats.head for claim in self._now.claims):
            return
        due, delayed = self._due(each), self._delayed(each)
        if due is not None:
            yield self._finding(
                "delayed",
                "note",
                f"{name!r} has {words.many(stats.lag, 'message')} that {'waits' if stats.lag == 1 else 'wait'} for "
                f"{'its' if stats.lag == 1 else 'their'} time; the next is due in {words.seconds(due)}.",
                name=name,
                lag=stats.lag,
                due_s=due,
            )
            return
        if delayed is not None:
            rest = stats.lag - 1
            waits = (
                f", and {words.many(rest, 'message')} behind it {'waits' if rest == 1 else 'wait'}, too" if rest else ""
            )
            yield self._finding(
                "delayed",
                "slow" if rest else "note",
                f"{name!r} waits for index {stats.head}, which is due in {words.seconds(delayed)}{waits}.",
                'A group, or a name with ack="explicit", goes on with what is behind a delayed message.'
                if rest
                else "",
                name=name,
                lag=stats.lag,
                due_s=delayed,
            )
            return
        old = "" if stats.oldest is None else f", the oldest {words.seconds(stats.oldest)} old"
        behind = f"{name!r} is {words.many(stats.lag, 'message')} behind{old}"
        told = {"name": name, "lag": stats.lag, "oldest_s": stats.oldest, **words.facts_of(each.holder)}
        if not each.open:
            yield self._finding(
                "unread",
                "slow",
                f"{behind}, and nobody has it open.",
                f"Start what reads it, or give it up: {self._give_up(name)}.",
                **told,
            )
        elif each.holder is not None and each.holder.state == whose.STOPPED:
            yield self._finding(
                "stopped",
                "stuck",
                f"{behind}, and {whose.told(each.holder)}, has it open.",
                f"Continue it (kill -CONT {each.holder.pid}), or end it, and another may have the name.",
                **told,
            )
        elif not each.held:  # else that says it
            who = "" if each.holder is None else f"; {whose.told(each.holder)} has it open"
            pace = "it has finished nothing while this looked" if self._stands(name) else "it is moving"
            yield self._finding(
                "behind",
                "slow" if self._stands(name) else "note",
                f"{behind}; {pace}{who}.",
                "See what it does; with group=True several processes share the work." if self._stands(name) else "",
                **told,
            )

    def _group(self, name: str, each: Name) -> Iterator[Finding]:
        group = each.stats.group
        if group is None:
            return
        if group.full:
            yield self._finding(
                "window",
                "stuck",
                f"{name!r} has as many messages in flight as its window has ({group.window:,}); nobody gets more.",
                "Finish what is held (see above), or make another name with a larger window.",
                name=name,
                window=group.window,
                pending=group.pending,
            )
        earlier = self._before.names[name].stats.group if name in self._before.names else None
        if group.unmoved:
            yield self._finding(
                "unmoved",
                "slow",
                f"Messages of {name!r} could not be moved to their dead letters {group.unmoved:,} times since boot.",
                "Look whether that queue is there, has room, and may be written; they are tried again.",
                name=name,
                times=group.unmoved,
            )
        if group.moved:
            grows = earlier is not None and group.moved > earlier.moved
            yield self._finding(
                "dead-letters",
                "slow" if grows else "note",
                f"{words.many(group.moved, 'message')} of {name!r} went to its dead letters since boot"
                f"{', and more go there now' if grows else ''}.",
                "`shmq dead` shows them with their reasons, and puts them back.",
                name=name,
                moved=group.moved,
                grows=grows,
            )

    # ---- the rest
    def _disk(self) -> Iterator[Finding]:
        room = os.statvfs(self._session.path)
        free, size = room.f_bavail * room.f_frsize, room.f_blocks * room.f_frsize
        chunk = min(self._session.options.chunk_bytes, size)
        if free >= min(2 * chunk, size) and free >= size * _SMALL_SHARE:
            return
        held = self._now.stats.held_by
        blame = "" if held is None else f" {held.name!r} alone holds back {held.bytes:,} bytes of chunks."
        yield self._finding(
            "disk",
            "stuck" if free < chunk // 8 else "slow",
            f"The disk is nearly full: {free:,} of {size:,} bytes are free, and a new chunk takes up to "
            f"{chunk:,}.{blame}",
            "Free space, have what is behind catch up, or retain less: configure(retention=...).",
            free=free,
            size=size,
            chunk_bytes=chunk,
            held_by=None if held is None else held.name,
        )

    def _watermark(self) -> Iterator[Finding]:
        now, before = self._now, self._before
        if now.sync_failed:
            yield self._finding(
                "sync-failed",
                "stuck",
                "A sync failed: what was put since may not be on the disk, and no put that waits for the disk "
                "succeeds.",
                "Look at the disk (dmesg); close the queue everywhere, and open it again, which verifies it.",
            )
        kind = self._session.current_options().durability.kind
        if kind == "process" or not before.durable == now.durable < before.stats.next_index:
            return
        leader = facts.who(self._session, now.leader) if now.leader else None
        claims = [claim for claim in now.claims if claim[:3] in self._claimed]
        why, advice, process = "nobody syncs", "Open it in a process that puts, or call sync().", leader
        if claims:
            process = facts.who(self._session, claims[0].owner)
            why, advice = (
                f"it waits for index {claims[0].at_index} of {whose.told(process)}",
                "End that put; see above.",
            )
        elif leader is not None:
            why = f"{whose.told(leader)} leads the sync"
            advice = "Continue it, or end it." if leader.state == whose.STOPPED else "The disk is slow."
        yield self._finding(
            "frozen",
            "stuck",
            f"The watermark stands at index {now.durable}, {self._end - now.durable:,} below the end of the queue: "
            f"{why}.",
            advice,
            durable=now.durable,
            next_index=self._end,
            **words.facts_of(process),
        )

    def _followers(self) -> Iterator[Finding]:
        """Puts that wait for followers."""
        now, before = self._now.followers, self._before.followers
        options = self._session.current_options()
        if not now or self._now.stats.role == "fenced":
            return
        n = options.durability.n
        end = min(self._before.stats.next_index, end_of_messages(self._session.home))
        late = [name for name in now if now[name] < end and now[name] == before.get(name)]
        if len(late) > len(now) - n:
            yield self._finding(
                "followers",
                "stuck",
                f"Puts wait for {n} of {', '.join(now)}: "
                f"{', '.join(f'{name} has all before index {now[name]:,}' for name in now)}, and "
                f"{' and '.join(late)} got nothing more.",
                "Look whether `shmq replicate` to it runs, and what that says.",
                followers=now,
                n=n,
            )

    def _locks(self) -> Iterator[Finding]:
        stopped = [each for each in self._now.people if each.state == whose.STOPPED]
        maybe = f"; of those who have the queue open, {words.people(stopped)} stopped" if stopped else ""
        advice = f"Continue it: kill -CONT {stopped[0].pid}" if stopped else "Wait, or see which process it is."
        for held, kind, what in (
            (
                self._now.admin and self._before.admin,
                "admin",
                "the administrative lock: no name and no chunk is made or taken away",
            ),
            (
                self._now.dedup and self._before.dedup,
                "dedup",
                "the turn of a producer with dedup: others of that name wait",
            ),
        ):
            if held:
                yield self._finding(
                    kind,
                    "stuck" if stopped else "slow",
                    f"Somebody keeps {what}{maybe}.",
                    advice,
                    stopped=[each.pid for each in stopped],
                )

    def _state(self) -> Iterator[Finding]:
        stats = self._now.stats
        if stats.role in {"follower", "fenced"}:
            yield self._finding("role", "note", f"It is {stats.role}: nobody puts here.", "Put into the other queue.")
        if stats.shut_down or stats.finished:
            yield self._ended()
        for problem in stats.damaged.values():
            yield self._finding("damaged", "stuck", f"{problem}.", "Nothing it may need is retired before that.")
        for problem in self._now.refused:
            yield self._finding("damaged", "stuck", f"{problem}, so who needs it is refused.", self._clean_copy())
        if stats.held_by is not None and stats.held_by.much and not self._follows():
            held = stats.held_by
            yield self._finding(
                "kept",
                "slow",
                f"{held.name!r} alone keeps {held.messages:,} messages from being retired: {held.bytes:,} bytes of "
                "chunks.",
                f"Have it catch up, or give it up: {self._give_up(held.name)}.",
                name=held.name,
                messages=held.messages,
                bytes=held.bytes,
            )

    # ---- helpers
    def _follows(self) -> bool:
        """Whether it follows another queue: then names, bounds and retention are that one's business."""
        return self._now.stats.role == "follower"

    def _ended(self) -> Finding:
        """That it takes no puts, and what ends that."""
        stats = self._now.stats
        if stats.finished and roots.is_shard(self._session.place):
            return self._finding(
                "ended",
                "note",
                "It is a shard that was finished, and stays so: nothing is put there any more.",
                "Where its root has grown, puts go to the shards that are open; what is here can be taken.",
            )
        said = f"It was {'finished' if stats.finished else 'shut down'}: puts raise ShutDown."
        if stats.role == "fenced":
            return self._finding("ended", "slow", said, "It stays so: put into the queue that was promoted.")
        if stats.finished and not any(each.lag for each in stats.consumers.values()):
            return self._finding("ended", "note", f"{said} Nobody has anything left to take.", "That is how it ends.")
        advice = "Open it again for writing." if stats.finished else "It opens again when all have closed it."
        return self._finding("ended", "slow", said, advice)

    def _give_up(self, name: str) -> str:
        """How to drop a name: from a shell, and in Python."""
        return f"`shmq consumer rm {shlex.quote(str(self._session.place))} {name}`, or drop_consumer({name!r})"

    def _clean_copy(self) -> str:
        """What helps where a file of the queue is none."""
        place = shlex.quote(str(self._session.place))
        return f"Put the queue's own file back, or have a clean copy written beside it: `shmq repair {place}`."

    def _stands(self, name: str) -> bool:
        """Whether the name finished nothing between the looks."""
        before, now = self._before.names.get(name), self._now.names[name]
        done = self._end - now.stats.lag
        return before is not None and done <= self._before.stats.next_index - before.stats.lag

    def _due(self, each: Name) -> float | None:
        """In how many seconds the next message of that name is due, where all it has are delayed."""
        group = each.stats.group
        if group is not None and each.due_ns is not None and group.parked == each.stats.lag:
            left = (each.due_ns - _native.boottime_ns()) / 1e9
            return left if left > 0 else None
        return None

    def _delayed(self, each: Name) -> float | None:
        """In how many seconds the next message is due, where one that takes alone, with ack="auto", waits for it."""
        stats = each.stats
        if not each.open or stats.group is not None or stats.ack != "auto":
            return None
        message = self._message(stats.head)
        left = 0.0 if message is None else (message.due_ns - time.time_ns()) / 1e9
        return left if left > 0 else None

    def _age_of(self, index: int) -> float | None:
        message = self._message(index)
        return None if message is None else words.age(message.time_ns)

    def _message(self, index: int) -> Message | None:
        """That one, if it is there and whole; of damage `verify` tells."""
        with contextlib.suppress(errors.ShmqError, FileNotFoundError):
            return next(iter(self._session.access().forward(index, index + 1)), None)
        return None
