"""What is walked: every operation, in the places where it could go wrong."""

from __future__ import annotations

import dataclasses

from . import group_scenarios
from .operations import Operation
from .walker import Scenario

SMALL = (0, 1, 8, 63, 64, 65)
LARGE = (127, 128, 1000, 2047, 2048, 4096, 4097)
Operations = tuple[Operation, ...]


def puts(*lengths: int) -> Operations:
    """One put for each length."""
    return tuple(("put", length) for length in lengths)


CREATE: Operations = (("create",),)
SOME: Operations = (*CREATE, *puts(5, 0, 30), ("put_many", 3, 0, 70))
"""Six messages in the first chunk."""
NAMES: Operations = (*SOME, ("consumer", "a"), ("consumer", "e", "explicit"))
OPEN: Operations = (("open",),)
BOTH: Operations = (*OPEN, ("consumer", "a"), ("consumer", "e", "explicit"))
JOIN: Operations = (("join",),)
DEAD: Operations = (
    *CREATE,
    ("put", 5),
    ("consumer", "a"),
    ("consumer", "e", "explicit"),
    ("close",),
    ("dead", 40),
    ("dead", 200, 4),
    ("open",),
    ("put", 6),
)
"""Two claims of processes that died, one of them a batch's, the first of them in slot 0 of a queue nobody else has."""
DEAD_BESIDE: Operations = (*(each for each in DEAD if each[0] not in ("close", "open")), ("dead", 0))
"""The same, in the slot beside somebody who lives."""
FILTERED: Operations = (
    *CREATE,
    ("filtered", "f"),
    ("release", "f"),
    *(("put_unwanted", 4), ("put", 5), ("put_unwanted", 0), ("put_unwanted", 70)) * 2,
    ("put", 6),
    ("put_unwanted", 9),
)
"""Three messages that the name wants, among seven that it does not."""
FULL: Operations = (*CREATE, ("consumer", "a"), ("consumer", "e", "explicit"), ("put_many", *(1200,) * 9), ("put", 600))
"""A chunk with room for one more message of 392 bytes, or for two of 344 and 8."""
ROUND: Operations = (("put_many", *(1200,) * 9), ("take_many", "a", 100), ("take_many", "a", 100))
GRAINED: Operations = (*CREATE, ("grains",), ("consumer", "a"), *ROUND * 5, ("put", 5), *ROUND)
"""A chunk with a grain, in a file that was one before; it has room for another 700 bytes, and there is a used file."""
LARGER: Operation = ("reserve", 13000, 40)
"""What no chunk of 16 KiB can take. Not a put: `rep movsb` stops after each byte, and each is a state."""


def core(
    name: str, walked: Operations, *, setup: Operations = SOME, before: Operations = (), seat: int = 0
) -> Scenario:
    """A walk through the C API."""
    seated = name if seat == 0 else f"{name}, beside another"
    return Scenario(f"core: {seated}", setup, (*JOIN, *before), walked, core=True, seat=seat)


def python(
    name: str,
    walked: Operations,
    *,
    setup: Operations = SOME,
    before: Operations = OPEN,
    seat: int = 0,
    chunk_bytes: int = 16384,
) -> Scenario:
    """A walk through the Python API."""
    seated = name if seat == 0 else f"{name}, beside another"
    return Scenario(f"python: {seated}", setup, before, walked, seat=seat, chunk_bytes=chunk_bytes)


def _core(sizes: tuple[int, ...], filling: tuple[int, ...]) -> list[Scenario]:
    found: list[Scenario] = []
    for seat in (0, 1):
        found += [
            core("put", puts(*sizes), seat=seat),
            core("put_many", (("put_many", *sizes), ("put_many", 7), ("put_many", 0, 0, 0)), seat=seat),
            core("put_many of four", (("put_many", 9, 9, 9, 9), ("put_many", 3, *(8,) * 5)), seat=seat),
            core(
                "reserve",
                (*(("reserve", 64, used) for used in (64, 63, 57, 56, 8, 1, 0)), ("reserve", 0, 0), ("put", 9)),
                seat=seat,
            ),
            core("abort", (("abort", 64), ("put", 1), ("abort", 0), ("abort", 300)), seat=seat),
            core("overflow", (("overflow", 393), ("seal",)), setup=(*FULL,), seat=seat),
            core("seal", (("seal",), ("seal",), ("overflow", 1)), seat=seat),
            core("put to the edge", (*puts(344, 8), ("overflow", 0)), setup=FULL, seat=seat),
            core("fill", puts(*filling), setup=CREATE + puts(0), seat=seat),
        ]
    found += [
        core("put beside what was left", puts(*sizes[:4], 250), setup=GRAINED),
        core("put_many beside what was left", (("put_many", *sizes), ("put_many", 7)), setup=GRAINED, seat=1),
        core("reserve beside what was left", (("reserve", 64, 64), ("reserve", 64, 1), ("abort", 64)), setup=GRAINED),
    ]
    takes: Operations = tuple(("take", "a") for _ in range(7))
    return [
        *found,
        core("take", takes, setup=NAMES),
        core("take_many of four", (("take_many", "a", 9),), setup=(*NAMES, ("put_many", *(8,) * 9))),
        core("take_many", (("take_many", "a", 4), ("take_many", "a", 100), ("take_many", "a", 1)), setup=NAMES),
        core("take over the dead", takes[:4], setup=DEAD_BESIDE, seat=1),
        core("put behind the dead", puts(3, 4), setup=DEAD_BESIDE, seat=1),
        Scenario("core: join and bury", DEAD, (), (*JOIN, ("put", 3), ("leave",)), core=True),
        Scenario("core: join and leave", SOME, (), (*JOIN, ("leave",)), core=True, seat=1),
    ]


def _python(sizes: tuple[int, ...]) -> list[Scenario]:
    many: Operations = (
        *CREATE,
        ("put_many", *(0,) * 290),
        ("consumer", "a"),
        ("take_many", "a", 280),
        ("release", "a"),
    )
    far: Operations = (*CREATE, ("consumer", "a"), ("put_many", *(0,) * 290), *(("take", "a"),) * 270)
    rolls: Operations = (("put", 1200), ("put", 5))
    return [
        Scenario("python: create", (), (), (*CREATE, ("put", 5))),
        python("open", (*OPEN, ("close",)), setup=NAMES, before=()),
        python("open", (*OPEN, ("close",)), setup=NAMES, before=(), seat=1),
        python("open after a death", (*OPEN, ("put", 3), ("close",)), setup=DEAD, before=()),
        python("put", puts(*sizes), seat=1),
        python("put_many", (("put_many", *sizes), ("put_many", 0, 0))),
        python("reserve", (("reserve", 64, 64), ("reserve", 64, 3), ("abort", 20), ("put", 1)), seat=1),
        python("roll", rolls, setup=FULL),
        python("roll", rolls, setup=FULL, seat=1),
        python("roll into a used file", rolls, setup=GRAINED, before=(("grains",), *OPEN)),
        python("roll into a used file", rolls, setup=GRAINED, before=(("grains",), *OPEN), seat=1),
        python("roll to a larger chunk", (LARGER, ("put", 5)), setup=NAMES),
        python("roll over an empty chunk", (LARGER, ("put", 5)), setup=(*FULL, ("put", 1200)), before=OPEN),
        python("roll with a batch", (("put_many", 1200, 0, 5), ("put", 5)), setup=FULL),
        python("roll with a reserve", (("reserve", 1200, 300), ("put", 5)), setup=FULL),
        python("new consumer", (("consumer", "a"), ("consumer", "e", "explicit"), ("consumer", "b", "auto", "latest"))),
        python(
            "open consumer",
            (("consumer", "a"), ("release", "a"), ("consumer", "e", "explicit"), ("release", "e")),
            setup=NAMES,
        ),
        python("take", (*(("take", "a"),) * 8, ("release", "a")), setup=NAMES, before=BOTH, seat=1),
        python("take_many", (("take_many", "a", 4), ("take_many", "a", 9), ("release", "a")), setup=NAMES, before=BOTH),
        python(
            "get and ack",
            (("get", "e"), ("ack", "e"), ("get", "e", 3), ("get", "e"), ("ack", "e"), ("release", "e")),
            setup=NAMES,
            before=BOTH,
        ),
        python(
            "take explicitly",
            (*(("take", "e"),) * 3, ("take_many", "e", 2), ("release", "e")),
            setup=NAMES,
            before=BOTH,
        ),
        python(
            "take what a filter wants",
            (*(("take", "f"),) * 3, ("take_many", "f", 9), ("release", "f")),
            setup=FILTERED,
            before=(*OPEN, ("filtered", "f")),
            seat=1,
        ),
        python("new consumer with a filter", (("filtered", "f"), ("take", "f")), setup=(*FILTERED, ("drop", "f"))),
        python(
            "take over a roll",
            (*(("take", "a"),) * 3, ("release", "a")),
            before=(*BOTH, ("take_many", "a", 9)),
            setup=(*FULL, *puts(1200, 5)),
        ),
        python(
            "take from a cursor",
            (*(("take", "a"),) * 3, ("release", "a")),
            setup=(*far, ("close",), *OPEN),
            before=(*OPEN, ("consumer", "a")),
        ),
        python(
            "take_many from a cursor",
            (("take_many", "a", 3), ("release", "a")),
            setup=many,
            before=(*OPEN, ("consumer", "a")),
        ),
        python(
            "take over the dead",
            (*(("take", "a"),) * 3, ("get", "e"), ("ack", "e"), ("get", "e")),
            before=BOTH,
            setup=DEAD_BESIDE,
            seat=1,
        ),
        python(
            "seek",
            (
                ("seek", "a", 4),
                ("take", "a"),
                ("seek", "a", 1),
                ("take", "a"),
                ("seek", "e", 6),
                ("seek", "e", 0),
                ("get", "e"),
                ("ack", "e"),
            ),
            setup=NAMES,
            before=BOTH,
        ),
        python("drop", (("drop", "a"), ("drop", "e")), setup=NAMES),
        python("close", (("close",),), setup=NAMES, before=(*BOTH, ("put", 3), ("take", "a"))),
        python("shutdown", (("shutdown",), ("close",)), setup=NAMES),
        python("delete", (("delete",),), setup=NAMES, before=()),
    ]


def short_core() -> list[Scenario]:
    """pytest's share through the C API: small payloads, every operation."""
    return _core(SMALL, tuple(i % 73 for i in range(75)))


def short_python() -> list[Scenario]:
    """And through Python."""
    return _python(SMALL)


def short() -> list[Scenario]:
    """Everything that pytest walks."""
    return [*short_core(), *short_python(), *group_scenarios.every()]


def recoveries(interrupted: Scenario, state: int) -> Scenario:
    """The recovery of a state that a killed process left, to be killed as well: open it, read it, put, close."""
    walked = interrupted.recovery
    if any(operation[0] in ("create", "delete") for operation in interrupted.walked):
        walked = (("create",), ("put", 3), ("close",))
    name = f"recovery of {interrupted.name}, state {state}"
    return dataclasses.replace(interrupted, name=name, setup=(), before=(), walked=walked, core=False, seat=0)


RECOVERED = (
    "core: put_many",
    "core: put_many, beside another",
    "core: abort, beside another",
    "python: create",
    "python: roll, beside another",
    "python: take over the dead, beside another",
    "python: delete",
    "group: ack, beside another",
    "group: the window's edge",
    "group: reject",
)
"""Walks whose states are recovered under the stepper's eyes in pytest's share; the campaign does it for all."""


def long() -> list[Scenario]:
    """The campaign's: payloads to 4,097 bytes, chunks filled to their end with every length."""
    filling = [tuple((start + i * 5) % 130 for i in range(100)) for start in range(5)]
    found = _core(SMALL + LARGE[:5], filling[0]) + _python(SMALL + LARGE[:4])
    found += group_scenarios.every() + group_scenarios.longer()
    for seat in (0, 1):
        found += [core(f"put {size}", puts(size, 1), seat=seat) for size in LARGE]
        found += [core(f"put_many of {size}", (("put_many", size, 1, size),), seat=seat) for size in LARGE]
        found += [core(f"fill from {fill[0]}", puts(*fill), setup=CREATE + puts(0), seat=seat) for fill in filling[1:]]
        found += [
            core(f"edge at {size}", (("put", size), ("overflow", 400)), setup=FULL, seat=seat)
            for size in range(330, 393)
        ]
    return found
