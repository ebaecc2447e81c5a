"""The judge accepts a good history, and rejects each of these bad ones for the right reason."""

from __future__ import annotations

import pytest

from tests.history.judge import History, Operation, judge, parse


def message(number):
    return number, number * 31 % 2**32


def put(process, begin, end, first, *numbers, verb="put", outcome="ok"):
    sent = tuple(map(message, numbers))
    return Operation(
        process, verb, begin, end, outcome, sent, () if first is None else tuple(range(first, first + len(sent)))
    )


def died(process, begin, *numbers, verb="put"):
    return Operation(process, verb, begin, None, "", tuple(map(message, numbers)))


def opened(process, at, head):
    return Operation(process, "open", at, at + 1, "ok", indexes=(head,))


def got(process, begin, *pairs, verb="get", end=None):
    seen = tuple((index, *message(number)) for index, number in pairs)
    return Operation(process, verb, begin, end or begin + 1, "ok", seen=seen, limit=max(len(seen), 1))


def acked(process, begin, *indexes, end=None):
    return Operation(process, "ack", begin, end or begin + 1, "ok", indexes=indexes)


def lied(process, begin, outcome="empty"):
    return Operation(process, "get", begin, begin + 1, outcome, limit=1)


def entry(index, number):
    return (index, *message(number))


def good(**changes):
    """Three messages at 0, 1 and 3; index 2 belonged to a producer that died; one consumer of each kind."""
    whole = {
        "puts": [
            put("p.0", 10, 11, 0, 100),
            put("p.0", 20, 21, 1, 101),
            died("p.0", 30, 102),
            put("p.1", 40, 41, 3, 103),
        ],
        "names": {
            "auto0": [
                opened("a.0", 5, 0),
                lied("a.0", 6),
                got("a.0", 50, (0, 100), (1, 101)),
                got("a.0", 60, (None, 103)),
            ],
            "explicit0": [
                opened("e.0", 5, 0),
                got("e.0", 50, (0, 100), (1, 101)),
                acked("e.0", 52, 1),
                opened("e.1", 60, 0),
                got("e.1", 61, (0, 100), (3, 103)),
                acked("e.1", 63, 0, 3),
            ],
        },
        "modes": {"auto0": "auto", "explicit0": "explicit"},
        "deaths": {"p.0": 35, "e.0": 55},
        "log": [entry(0, 100), entry(1, 101), entry(3, 103)],
        "end": 4,
    }
    return History(**whole | changes)


def auto(*operations):
    return good(names={"auto0": list(operations)})


def explicit(*operations):
    return good(names={"explicit0": list(operations)})


def test_a_good_history_is_accepted():
    assert judge(good()) == []


ALL = [(0, 100), (1, 101), (3, 103)]
FIRST, SECOND, DEAD, LAST = good().puts
BAD = {
    "a call failed": (
        good(puts=[*good().puts, put("p.1", 50, 51, None, 104, outcome="error OSError: no")]),
        "ended with error OSError",
    ),
    "two puts were told the same index": (
        good(puts=[FIRST, SECOND, DEAD, LAST, put("p.2", 40, 41, 3, 104)]),
        "was returned to p.1 and to p.2",
    ),
    "a message is there twice": (good(log=[*good().log, entry(4, 103)], end=5), "is in the log twice"),
    "the log goes back": (good(log=[entry(1, 101), entry(0, 100), entry(3, 103)]), "the log goes from index 1 to 0"),
    "the log goes beyond its end": (good(end=3), "and ends at 3"),
    "a returned put is lost": (good(log=[entry(0, 100), entry(3, 103)]), "was put at 1, and is lost"),
    "a returned put has other bytes": (good(log=[entry(0, 100), (1, 101, 7), entry(3, 103)]), "was put at 1, where"),
    "a returned put is elsewhere": (
        good(log=[entry(0, 100), entry(2, 101), entry(3, 103)]),
        "was put at 1, and is lost",
    ),
    "something was never put": (good(log=[*good().log, entry(4, 555)], end=5), "was never put"),
    "an aborted message is there": (
        good(
            puts=[*good().puts, put("p.1", 50, 51, 4, 104, verb="reserve", outcome="aborted")],
            log=[*good().log, entry(4, 104)],
            end=5,
        ),
        "ended as aborted, and its message is at 4",
    ),
    "half a batch of a dead producer is there": (
        good(
            puts=[FIRST, SECOND, died("p.0", 30, 102, 104, verb="many"), LAST],
            log=[*good().log[:2], entry(2, 102), entry(3, 103)],
        ),
        "1 messages of an unreturned batch of 2",
    ),
    "a batch is torn apart": (
        good(
            puts=[FIRST, SECOND, LAST, died("p.2", 50, 104, 105, verb="many"), put("p.3", 60, 61, 5, 106)],
            log=[*good().log[:2], entry(2, 104), entry(3, 103), entry(4, 105), entry(5, 106)],
            end=6,
        ),
        "an unreturned batch lies at [2, 4]",
    ),
    "an unreturned put has other bytes": (
        good(log=[*good().log[:2], (2, 102, 9), entry(3, 103)]),
        "an unreturned put at 2 has other bytes",
    ),
    "a later put got a smaller index": (
        good(puts=[put("p.0", 10, 11, 1, 101), put("p.0", 20, 21, 0, 100), DEAD, LAST]),
        "put at 0 began after the one at 1",
    ),
    "a put came in before an earlier one's process was dead": (
        good(
            puts=[FIRST, put("p.1", 40, 41, 1, 101), died("p.0", 20, 102), LAST],
            log=[*good().log[:2], entry(2, 102), entry(3, 103)],
        ),
        "put at 1 began after the one at 2",
    ),
    "a gap without a claim": (good(puts=[FIRST, SECOND, LAST]), "index 2 is missing, and no claim explains it"),
    "a gap wider than its claim": (
        good(puts=[FIRST, SECOND, DEAD, put("p.1", 40, 41, 4, 103)], log=[*good().log[:2], entry(4, 103)], end=5),
        "is missing, and no claim explains it",
    ),
    "a gap before its claim began": (
        good(puts=[FIRST, SECOND, died("p.0", 45, 102), LAST]),
        "index 2 is missing, and no claim explains it",
    ),
    "a gap after its claimer's death": (
        good(puts=[FIRST, died("p.0", 12, 102), put("p.1", 40, 41, 1, 101), put("p.1", 42, 43, 3, 103)]),
        "index 2 is missing, and no claim explains it",
    ),
    "auto: one is skipped": (auto(opened("a.0", 5, 0), got("a.0", 50, (0, 100), (3, 103))), "index 3 came too early"),
    "auto: the first is skipped": (
        auto(opened("a.0", 5, 0), got("a.0", 50, (1, 101), (3, 103))),
        "index 1 came too early",
    ),
    "auto: one comes twice": (
        auto(opened("a.0", 5, 0), got("a.0", 50, *ALL), got("a.0", 60, (3, 103))),
        "index 3 came again",
    ),
    "auto: one comes twice, to a restarted consumer": (
        auto(opened("a.0", 5, 0), got("a.0", 50, (0, 100)), opened("a.1", 60, 0), got("a.1", 61, *ALL)),
        "index 0 came again",
    ),
    "auto: out of order": (
        auto(opened("a.0", 5, 0), got("a.0", 50, (1, 101), (0, 100), (3, 103))),
        "index 1 came too early",
    ),
    "auto: the rest is never seen": (auto(opened("a.0", 5, 0), got("a.0", 50, (0, 100))), "never saw index 1"),
    "auto: more is lost in a death than was asked for": (
        auto(
            opened("a.0", 5, 0),
            Operation("a.0", "get", 50, limit=1),
            opened("a.1", 60, 3),
            got("a.1", 61, (3, 103)),
        ),
        "index 3 came too early",
    ),
    "wrong bytes": (
        auto(opened("a.0", 5, 0), Operation("a.0", "get", 50, 51, "ok", seen=((0, 100, 1),), limit=1)),
        "saw (0,",
    ),
    "a message under another index": (auto(opened("a.0", 5, 0), got("a.0", 50, (0, 101))), "saw (0,"),
    "a message from nowhere": (auto(opened("a.0", 5, 0), got("a.0", 50, (None, 555))), "saw (None,"),
    "a padded index is delivered": (auto(opened("a.0", 5, 0), got("a.0", 50, (0, 100), (1, 101), (2, 102))), "saw (2,"),
    "seen before it was put": (auto(opened("a.0", 5, 0), got("a.0", 7, *ALL)), "before it was put"),
    "explicit: an unacknowledged one is skipped": (
        explicit(
            opened("e.0", 5, 0),
            got("e.0", 50, *ALL[:2]),
            acked("e.0", 52, 1),
            opened("e.1", 60, 3),
            got("e.1", 61, ALL[2]),
        ),
        "index 3 came too early",
    ),
    "explicit: an acknowledged one comes again": (
        explicit(
            opened("e.0", 5, 0),
            got("e.0", 50, *ALL[:2]),
            acked("e.0", 52, 0),
            opened("e.1", 60, 0),
            got("e.1", 61, *ALL),
        ),
        "index 0 came again",
    ),
    "explicit: one acknowledged out of order comes again": (
        explicit(
            opened("e.0", 5, 0),
            got("e.0", 50, *ALL),
            acked("e.0", 52, 1),
            opened("e.1", 60, 0),
            got("e.1", 61, *ALL),
        ),
        "index 1 came again",
    ),
    "explicit: it comes again to a holder that lives": (
        explicit(opened("e.0", 5, 0), got("e.0", 50, *ALL), got("e.0", 60, (3, 103)), acked("e.0", 70, 0, 1, 3)),
        "index 3 came again",
    ),
    "explicit: the end is never acknowledged": (
        explicit(opened("e.0", 5, 0), got("e.0", 50, *ALL), acked("e.0", 52, 0, 1)),
        "never saw index 3 or never finished it",
    ),
    "a false empty": (
        auto(opened("a.0", 5, 0), lied("a.0", 45), got("a.0", 50, *ALL)),
        "empty at 45, and index 0 was there",
    ),
    "a false end": (
        auto(opened("a.0", 5, 0), got("a.0", 50, *ALL[:2]), lied("a.0", 60, "shutdown")),
        "shutdown at 60, and index 3",
    ),
    "a false empty behind a dead claim": (
        auto(opened("a.0", 5, 0), got("a.0", 22, *ALL[:2]), lied("a.0", 45), got("a.0", 50, ALL[2])),
        "empty at 45, and index 3 was there",
    ),
    "explicit: a false empty behind what a take in flight at a death had": (
        explicit(
            opened("e.0", 5, 0),
            Operation("e.0", "take", 50, limit=2),
            opened("e.1", 60, 0),
            lied("e.1", 61),
            got("e.1", 62, ALL[2]),
            acked("e.1", 63, 3),
        ),
        "empty at 61, and index 3 was there",
    ),
    "the recorder saw a hang": (good(problems=["hang: consumers do not come to the end"]), "hang"),
}


@pytest.mark.parametrize("name", BAD)
def test_a_bad_history_is_rejected(name):
    history, reason = BAD[name]
    assert any(reason in line for line in judge(history)), judge(history)


GOOD = {
    "an unreturned put that is there": good(log=[*good().log[:2], entry(2, 102), entry(3, 103)], names={}),
    "an aborted claim": good(puts=[FIRST, SECOND, put("p.0", 30, 31, 2, 102, verb="reserve", outcome="aborted"), LAST]),
    "a fenced claim": good(puts=[FIRST, SECOND, put("p.0", 30, 31, 2, 102, verb="reserve", outcome="fenced"), LAST]),
    "auto: what was in flight at a death is lost": auto(
        opened("a.0", 5, 0), Operation("a.0", "get", 50, limit=2), opened("a.1", 60, 3), got("a.1", 61, (3, 103))
    ),
    "auto: what was in flight was not handed out": auto(
        opened("a.0", 5, 0), Operation("a.0", "get", 50, limit=2), opened("a.1", 60, 0), got("a.1", 61, *ALL)
    ),
    "explicit: an acknowledgement in flight counts": explicit(
        opened("e.0", 5, 0), got("e.0", 50, *ALL), Operation("e.0", "ack", 52, indexes=(0, 1)),
        opened("e.1", 60, 3), got("e.1", 61, (3, 103)), acked("e.1", 62, 3),
    ),
    "explicit: or does not": explicit(
        opened("e.0", 5, 0), got("e.0", 50, *ALL), Operation("e.0", "ack", 52, indexes=(0, 1)),
        opened("e.1", 60, 1), got("e.1", 61, *ALL[1:]), acked("e.1", 62, 1, 3),
    ),
    "explicit: out of order, and not again after a death": explicit(
        opened("e.0", 5, 0), got("e.0", 50, *ALL), acked("e.0", 52, 3), opened("e.1", 60, 0), got("e.1", 61, *ALL[:2]),
        acked("e.1", 62, 0), opened("e.2", 70, 1), got("e.2", 71, ALL[1]), acked("e.2", 72, 1),
    ),
    "explicit: take acknowledges": explicit(opened("e.0", 5, 0), got("e.0", 50, *ALL, verb="take")),
    "explicit: empty behind what a take in flight at a death had": explicit(
        opened("e.0", 5, 0), Operation("e.0", "take", 50, limit=3), opened("e.1", 60, 0), lied("e.1", 61)
    ),
    "empty while the next one is claimed": good(
        puts=[FIRST, SECOND, put("p.2", 30, 70, 2, 102), LAST], log=[*good().log[:2], entry(2, 102), entry(3, 103)],
        names={
            "auto0": [opened("a.0", 5, 0), got("a.0", 50, *ALL[:2]), lied("a.0", 60), got("a.0", 80, (2, 102), ALL[2])]
        },
    ),
    "empty while the claim before the next one lived": auto(
        opened("a.0", 5, 0), got("a.0", 22, *ALL[:2]), lied("a.0", 33), got("a.0", 50, ALL[2])
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", GOOD)
def test_a_strange_but_good_history_is_accepted(name):
    assert judge(GOOD[name]) == []


def test_what_a_killed_process_wrote_is_read_up_to_the_cut():
    text = "open 1 \n= 2 ok 0\nput 3 64:1f\n= 4 ok 7\nmany 5 65:1,66:2\n= 6 ok 8\n"
    text += "get 7 2\n= 8 ok 7:64:1f,:65:1\nget 9 1\n= 10 em"
    opening, one, many, get, cut = parse(text, "p")
    assert opening.indexes == (0,)
    assert (one.sent, one.indexes, one.end) == (((0x64, 0x1F),), (7,), 4)
    assert many.indexes == (8, 9)
    assert get.seen == ((7, 0x64, 0x1F), (None, 0x65, 1))
    assert (cut.begin, cut.end, cut.outcome) == (9, None, "")
