"""What is walked of groups, of bounds, of what is joined from aside, and of space that is used again."""

from __future__ import annotations

from typing import Any

from . import groups, joining, space
from .walker import Scenario

Operations = "tuple[Operation, ...]"

CREATE = (("create",),)
MEMBER = ("member", "m")
OTHER = ("member", "n")
MADE = (*CREATE, MEMBER, ("part", "m"))
TWELVE = (*MADE, ("put_many", *(4,) * 12))
OPEN = (("open",),)
JOINED = (*OPEN, MEMBER)
AUTO = {"ack": "auto"}
NEXT = (("open",), ("member", "r"), ("fetch", "r", 1000), ("put", 3), ("close",))
"""What the next member does where its recovery is killed, too."""
OPENING = (("open",), ("close",))
DROPPING = (("max_messages", groups.BOUND), ("full", "drop_oldest"))
BRIEFLY = {"lease": 0.05}
"""A lease that is over when the walk comes to look: a walk takes longer, and so may whoever is judged by it."""
BY_KEY = {"ordered_by": "key"}
KEYED = (*CREATE, ("member", "m", BY_KEY), ("part", "m"))
FOUR_KEYS = (*KEYED, ("put_keyed", "aabbacc-dab"))
"""One worker can hold 0, 2, 5, 7 and 8 of them at once."""
UNWANTED = ("put_unwanted", 4)
FILTERED = (*CREATE, ("member", "m", {"filtered": True}), ("part", "m"))
PICKY = (*FILTERED, UNWANTED, ("put", 4), UNWANTED, UNWANTED, ("put", 4), ("put", 9), UNWANTED)
MANY_UNWANTED = (*FILTERED, *(UNWANTED,) * 70, ("put", 4))
WINDOWFUL = (*MADE, ("put_many", *(4,) * 70))


def group(
    name: str,
    walked: tuple[Any, ...],
    *says: str,
    setup: tuple[Any, ...] = TWELVE,
    before: tuple[Any, ...] = JOINED,
    seat: int = 0,
    made_with: tuple[Any, ...] = (),
) -> Scenario:
    """A walk of a member."""
    seated = name if seat == 0 else f"{name}, beside another"
    return Scenario(
        f"group: {seated}",
        setup,
        before,
        walked,
        seat=seat,
        made_with=made_with,
        judge=groups.judge,
        says=says,
        recovery=NEXT,
    )


def of_groups() -> list[Scenario]:
    """Every verb of a member, and every way in which one meets what a dead one has left."""
    holding = (*JOINED, ("fetch", "m", 5))
    letter = (*TWELVE, ("letters",), MEMBER, ("fetch", "m", 2), ("reject", "m", 0), ("part", "m"))
    return [
        group("create", (MEMBER, ("fetch", "m", 2)), setup=(*CREATE, ("put_many", 4, 4)), before=OPEN),
        group("join", (MEMBER,)),
        group("claim", (("fetch", "m", 1), ("fetch", "m", 20)), seat=1),
        group("ack", (("finish", "m", 1), ("finish", "m", 0), ("finish", "m", 2)), before=holding, seat=1),
        group("ack many", (("finish", "m", 1, 2, 3), ("finish", "m", 0, 4)), before=holding),
        group("ack all of a batch", (("finish", "m", *range(5)),), before=holding),
        group(
            "nack",
            (("back", "m", 0), ("later", "m", 2), ("fetch", "m", 20), ("fetch", "m", 20), ("finish", "m", 0)),
            before=holding,
        ),
        group("extend", (("extend", "m", 1), ("finish", "m", 1)), before=holding),
        group(
            "reject",
            (("reject", "m", 1), ("reject", "m", 3)),
            setup=letter,
            before=(*JOINED, ("fetch", "m", 5), ("fetch", "m", 5)),
        ),
        group(
            "take over the dead",
            (("fetch", "m", 2), ("finish", "m", 0, 1)),
            setup=(*TWELVE, ("die_holding", 3, True)),
            seat=1,
        ),
        group(
            "sit down where a dead one sat",
            (MEMBER,),
            setup=(*TWELVE, ("die_holding", 3)),
            before=OPEN,
        ),
        group(
            "open where a dead one sat",
            (*OPEN, MEMBER),
            setup=(*TWELVE, ("die_holding", 3)),
            before=(),
        ),
        group("leave", (("part", "m"),), before=holding),
        group(
            "walk over padding",
            (("fetch", "m", 20), ("finish", "m", 0, 2, 6)),
            setup=(*MADE, ("put", 4), ("abort", 20), ("put", 4), ("dead", 200, 3), ("put", 4)),
            seat=1,
        ),
        group(
            "delayed and expired",
            (("fetch", "m", 20), ("finish", "m", 0, 3)),
            setup=(*MADE, ("put", 4), ("put_later", 4), ("put_dull", 4), ("put", 4)),
        ),
        group(
            "what a filter leaves out",
            (("fetch", "m", 1), ("finish", "m", 1), ("fetch", "m", 20), ("finish", "m", 4, 5)),
            setup=PICKY,
            seat=1,
        ),
        group(
            "the window's edge",
            (("fetch", "m", 3), ("finish", "m", 0), ("fetch", "m", 3)),
            setup=WINDOWFUL,
            before=(*JOINED, ("fetch", "m", 64), ("finish", "m", *range(1, 62))),
        ),
        group(
            "what another holds at the window's edge",
            (("fetch", "n", 2), ("finish", "m", 0, 5), ("finish", "n", 64), ("fetch", "n", 1)),
            setup=WINDOWFUL,
            before=(*JOINED, OTHER, ("fetch", "m", 64), ("fetch", "n", 1), ("pause", 0.01)),
        ),
        group(
            "the window moves",
            (("finish", "m", 0, 62, 63), ("fetch", "m", 6), ("finish", "m", *range(64, 70))),
            setup=WINDOWFUL,
            before=(*JOINED, ("fetch", "m", 64), ("finish", "m", *range(1, 62))),
        ),
        group(
            "a lease that ended",
            (("fetch", "n", 2), ("lost", "m", 0), ("finish", "n", 0)),
            "lease",
            setup=(*CREATE, ("member", "m", BRIEFLY), ("part", "m"), ("put_many", 4, 4)),
            before=(*JOINED, OTHER, ("fetch", "m", 2), ("pause", 0.2)),
        ),
        group(
            "auto",
            (("sweep", "m", 1), ("sweep", "m", 20)),
            setup=(*CREATE, ("member", "m", AUTO), ("part", "m"), ("put_many", *(4,) * 6)),
            before=(*OPEN, ("member", "m", AUTO)),
        ),
        group(
            "from chunk to chunk",
            (("fetch", "m", 3), ("finish", "m", *range(9)), ("finish", "m", 9)),
            setup=(*MADE, ("put_many", *(1200,) * 9), ("put", 1200), ("put_many", 4, 4)),
            before=(*JOINED, ("fetch", "m", 9)),
        ),
        group("drop", (("drop_group",),), before=OPEN),
        group(
            "purge",
            (("purge_group",), ("put", 4)),
            before=(*holding, ("later", "m", 2), ("back", "m", 0)),
            seat=1,
        ),
        group("drop the oldest", (("full",), *(("put_over", 4),) * 3), before=OPEN, made_with=DROPPING),
        group(
            "drop the oldest that were put aside",
            (("full",), *(("put_over", 4),) * 3),
            before=(*JOINED, ("fetch", "m", 2), ("later", "m", 1), ("back", "m", 0), ("part", "m")),
            made_with=DROPPING,
        ),
    ]


def of_keys() -> list[Scenario]:
    """The same in order by key: whoever dies wherever, what is left of a key comes one by one, in its order."""
    holding = (*JOINED, ("fetch", "m", 5))
    letter = (*FOUR_KEYS, ("letters",), MEMBER, ("fetch", "m", 1), ("reject", "m", 0), ("part", "m"))

    def keyed(
        name: str, walked: Any, *says: str, setup: Any = FOUR_KEYS, before: Any = holding, seat: int = 0
    ) -> Scenario:
        return group(f"by key: {name}", walked, *says, setup=setup, before=before, seat=seat)

    return [
        keyed("claim", (("fetch", "m", 1), ("fetch", "m", 20)), before=JOINED, seat=1),
        keyed(
            "ack and the next",
            (("finish", "m", 0), ("fetch", "m", 1), ("finish", "m", 1), ("fetch", "m", 20), ("finish", "m", 8)),
            seat=1,
        ),
        keyed("ack all of a batch", (("finish", "m", 0, 2, 5, 7, 8), ("fetch", "m", 20))),
        keyed("nack", (("back", "m", 0), ("fetch", "m", 20), ("finish", "m", 2), ("fetch", "m", 20))),
        keyed("nack for an hour", (("later", "m", 2), ("later", "m", 8), ("fetch", "m", 20))),
        keyed("extend", (("extend", "m", 0), ("finish", "m", 0))),
        keyed("reject", (("reject", "m", 2), ("fetch", "m", 20)), setup=letter),
        keyed(
            "take over the dead",
            (("fetch", "m", 20), ("finish", "m", 0, 2), ("fetch", "m", 20)),
            setup=(*FOUR_KEYS, ("die_holding", 3, True)),
            before=JOINED,
            seat=1,
        ),
        keyed("sit down where a dead one sat", (MEMBER,), setup=(*FOUR_KEYS, ("die_holding", 3)), before=OPEN),
        keyed("leave", (("part", "m"),)),
        keyed(
            "a lease that ended",
            (("fetch", "n", 1), ("lost", "m", 0), ("finish", "n", 0), ("fetch", "n", 1)),
            "lease",
            setup=(*CREATE, ("member", "m", {**BY_KEY, **BRIEFLY}), ("part", "m"), ("put_keyed", "aaa")),
            before=(*JOINED, OTHER, ("fetch", "m", 1), ("pause", 0.2)),
        ),
        keyed(
            "delayed",
            (("fetch", "m", 20), ("finish", "m", 0)),
            setup=(*KEYED, ("put_keyed", "ab"), ("put_keyed_later", "b"), ("put_keyed", "ba")),
            before=JOINED,
        ),
        keyed(
            "the window's edge",
            (("fetch", "m", 1), ("finish", "m", 0), ("fetch", "m", 1)),
            setup=(*KEYED, ("put_keyed", "aaa" + "-" * 61 + "ab")),
            before=(*JOINED, ("fetch", "m", 64), ("finish", "m", *range(3, 64)), ("fetch", "m", 1), ("pause", 0.01)),
        ),
    ]


def of_bounds() -> list[Scenario]:
    """A claim against each bound, the claim that a death left in the way, and bounds that are changed."""
    names = (("consumer", "a"), ("consumer", "e", "explicit"))
    made = (*CREATE, *names, ("put_many", *(space.LENGTH,) * 3))
    more = (("put", space.LENGTH), ("put", space.LENGTH), ("try", space.LENGTH))
    holding = (*OPEN, *names)
    found = []
    for kind, options in (
        ("messages", {"max_messages": space.BOUND, "full": "raise"}),
        ("bytes", {"max_bytes": space.BYTES, "full": "raise"}),
    ):

        def bound(
            name: str,
            walked: Any,
            setup: Any = made,
            before: Any = OPEN,
            seat: int = 0,
            kind: str = kind,
            options: Any = options,
        ) -> Scenario:
            with_bounds = tuple(options.items())
            return Scenario(
                f"bounds by {kind}: {name}",
                setup,
                before,
                walked,
                seat=seat,
                made_with=with_bounds,
                judge=space.judge_bound,
                recovery=OPENING,
            )

        found += [
            bound("put to the bound", more),
            bound(
                "take and put",
                (("take", "a"), ("get", "e"), ("ack", "e"), ("put", space.LENGTH)),
                setup=(*made, *more[:2]),
                before=holding,
            ),
            bound(
                "put over the dead", more[:1] * 3, setup=(*CREATE, *names, ("dead", space.LENGTH), *more[:2]), seat=1
            ),
            bound("a batch", (("put_many", space.LENGTH, space.LENGTH), more[2])),
        ]
    dropping = (("max_messages", space.BOUND), ("full", "drop_oldest"))
    return [
        *found,
        Scenario(
            "bounds: change them",
            made,
            OPEN,
            (("set_bounds", 7, None), ("put", space.LENGTH), ("set_bounds", 2, None), more[2]),
            made_with=(("max_messages", space.BOUND), ("full", "raise")),
            judge=space.judge_bound,
            recovery=OPENING,
        ),
        Scenario(
            "bounds: drop the oldest",
            (*made, *more[:2]),
            OPEN,
            more[:1] * 3,
            made_with=dropping,
            judge=space.judge_dropping,
            recovery=OPENING,
        ),
    ]


def of_space() -> list[Scenario]:
    """Chunks that go and come again, purging, and the index beside the messages."""
    chunkful = ("put_many", *(1500,) * 8)
    names = (("consumer", "a"), ("consumer", "e", "explicit"))
    kept = (*CREATE, *names, chunkful, chunkful, chunkful)
    acked = (("retention", ("acked",)),)
    entries = (("index_spacing", 1),)
    return [
        Scenario(
            "space: retire and use again",
            kept,
            (*OPEN, *names, *(("take_many", "a", 30),) * 3, *(("get", "e", 8),) * 2, ("take", "a")),
            (("ack", "e"), ("get", "e", 9), ("ack", "e"), chunkful, ("put", 3)),
            made_with=acked,
            judge=space.judge_kept,
            recovery=OPENING,
        ),
        Scenario(
            "space: go on in a mapped file",
            (*CREATE, ("grains",), names[0]),
            (("grains",), *OPEN, names[0], *(chunkful, ("take_many", "a", 30), ("take_many", "a", 30)) * 4),
            (chunkful, ("put", 3)),
            made_with=acked,
            judge=space.judge_kept,
            recovery=OPENING,
        ),
        Scenario(
            "space: retire by size",
            (*CREATE, names[0], chunkful, chunkful),
            OPEN,
            (chunkful, ("put", 3)),
            made_with=(("retention", ("bytes", 40000)),),
            judge=space.judge_kept,
            says=("by size",),
            recovery=OPENING,
        ),
        Scenario(
            "space: purge",
            kept,
            OPEN,
            (("purge",), ("put", 3)),
            made_with=acked,
            judge=space.judge_kept,
            recovery=OPENING,
        ),
        Scenario(
            "index: the first block",
            (*CREATE, ("put_many", *(0,) * 2)),
            OPEN,
            (("put", 0), ("put", 0)),
            made_with=entries,
            judge=space.judge_index,
            recovery=OPENING,
        ),
        Scenario(
            "index: the next block",
            (*CREATE, ("put_many", *(0,) * 510)),
            OPEN,
            (("put", 0),) * 4,
            made_with=entries,
            chunk_bytes=65536,
            judge=space.judge_index,
            recovery=OPENING,
        ),
    ]


def of_joining() -> list[Scenario]:
    """A SEAL that joins, several sets by one, and putting once."""

    def join(name: str, walked: Any, setup: Any = (*CREATE, ("put_many", 4, 4)), seat: int = 0) -> Scenario:
        seated = name if seat == 0 else f"{name}, beside another"
        return Scenario(f"join: {seated}", setup, OPEN, walked, seat=seat, judge=joining.judge, recovery=OPENING)

    waiting = (*CREATE, ("put", 4), ("hand_over", 4, 4), ("hand_over", 4, 4, 4))
    return [
        join("adopt", (("adopt", 1, 4, 4, 4), ("put", 4))),
        join("adopt into an empty queue", (("adopt_plainly", 4, 4),), setup=CREATE),
        join("adopt several chunks", (("adopt", 1, *(1500,) * 12), ("adopt", 1, 4)), seat=1),
        join("hand over", (("hand_over", 4, 4),)),
        join("adopt what was handed over", (("adopt_all", 3), ("put", 4)), setup=waiting),
        join("put once", (("put_once", 1, 4), ("put_once", 1, 4), ("put_once", 2, 4, 4), ("put_once", 3, 4))),
        join(
            "put once over a chunk's end",
            (("put_once", 7, 1500, 1500), ("put_once", 7, 1), ("put_once", 8, 4)),
            setup=(*CREATE, ("put_once", 6, *(1500,) * 7)),
        ),
    ]


def every() -> list[Scenario]:
    """All of them."""
    return [*of_groups(), *of_keys(), *of_bounds(), *of_space(), *of_joining()]


def longer() -> list[Scenario]:
    """What only the campaign walks."""
    walked = (("fetch", "m", 9), ("finish", "m", 70))
    return [group("more than a window of what a filter leaves out", walked, setup=MANY_UNWANTED)]
