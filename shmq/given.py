"""
What callers give: each kind of argument is checked in one place, before anything is changed.

A wrong type is a TypeError, a value that means nothing a ValueError. The text names the argument, shows what was given
and says what is wanted. Not for the fast path: the built-ins look at the usual kinds themselves, and come here with
whatever else they were given.
"""

from __future__ import annotations

import operator
import os

from shmq import later
from shmq.hints import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any, TypeAlias

    Progress: TypeAlias = Callable[[str, int, float], object]
    """What is done, to how many messages so far, and what share of all that is, from 0 to 1."""

_INFINITE = float("inf")
_LETTERS = frozenset("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_.-")
_SHOWN_MAX = 200
_PRODUCER_MAX = 1024
_SEQUENCE_MAX = (1 << 63) - 1
REMOTE = ("csp://", "csp+unix://")
"""How the address of a queue at a server begins."""
TIMEOUT = "a number of seconds, or None for as long as it takes,"
_NO_BLOCK = (
    "; there is no block= as in queue.Queue: timeout=None waits as long as it takes, and timeout=0 does not wait at all"
)


def is_name(text: str, most: int) -> bool:
    """Whether that is 1 to *most* of A-Z a-z 0-9 _ . - and has no dot in front, as names of many things are."""
    return 0 < len(text) <= most and text[0] != "." and _LETTERS.issuperset(text)


def shown(given: object) -> str:
    """What was given, in so few characters that a line has room for it."""
    text = repr(given)
    return text if len(text) <= _SHOWN_MAX else f"{text[:_SHOWN_MAX]}..."


def wrong_type(name: str, given: object, wanted: str, hint: str = "") -> TypeError:
    """The error for an argument of a wrong type."""
    return TypeError(f"{name}={shown(given)}: {wanted} is wanted, not {type(given).__name__}{hint}")


def flag(name: str, given: object, hint: str = "", wanted: str = "True or False") -> bool:
    """
    True or False, and nothing that is only taken for one: "no" is true.

    Raises:
        TypeError: it is neither.
    """
    if given is True or given is False:
        return given
    raise wrong_type(name, given, wanted, hint)


def whole(name: str, given: Any, least: int | None = None, most: int | None = None, wanted: str = "an int") -> int:
    """
    A whole number, which True is not, from *least* to *most*.

    Raises:
        TypeError, ValueError: it is none, or another.
    """
    try:
        number = operator.index(given)
    except TypeError:
        raise wrong_type(name, given, wanted) from None
    if isinstance(given, bool):
        raise wrong_type(name, given, wanted)
    if (least is not None and number < least) or (most is not None and number > most):
        upto = f"{least} or more" if most is None else f"up to {most}" if least is None else f"from {least} to {most}"
        raise ValueError(f"{name}={shown(given)}: {upto}")
    return number


def seconds(name: str, given: Any, *, none: bool = False, hint: str = "") -> float:
    """
    A number of seconds, 0 or more; more than 0 if it is not to be *none*.

    Raises:
        TypeError, ValueError: it is no number, or none of these, or for ever.
    """
    time = _number(name, given, "a number of seconds", hint)
    if not (time >= 0 if none else time > 0) or time == _INFINITE:
        least = "0 or more" if none else "more than 0"
        raise ValueError(f"{name}={shown(given)}: seconds, {least}{', not for ever' * (time == _INFINITE)}{hint}")
    return time


def timeout(given: Any) -> float | None:
    """
    How long to wait: a number of seconds, 0 or more, or None; what is infinite is None, too.

    Raises:
        TypeError, ValueError: it means nothing.
    """
    if given is None:
        return None
    time = _number("timeout", given, TIMEOUT, _NO_BLOCK if isinstance(given, bool) else "")
    if not time >= 0:
        raise ValueError(f"timeout={shown(given)}: {TIMEOUT} is wanted; 0 does not wait")
    return None if time == _INFINITE else time


def no_pickle(thing: object, what: str, again: str) -> TypeError:
    """The error for what belongs to the process that opened it."""
    return TypeError(
        f"cannot pickle {what}: a {type(thing).__name__} is of the process that opened it; pass the queue, and open "
        f"it there with queue.{again}"
    )


def no_block(verb: str, more: tuple[Any, ...], named: Any) -> None:
    """
    Refuse what a verb has no argument for, and say so to whoever means the `block` of `queue.Queue`.

    Raises:
        TypeError: there is something.
    """
    if more or "block" in named:
        what = "block=" if "block" in named else f"such argument without a name ({shown(more[0])})"
        raise TypeError(f"{verb}() takes no {what}{_NO_BLOCK}")
    raise TypeError(f"{verb}() got an unexpected keyword argument {next(iter(named))!r}")


def _number(name: str, given: Any, wanted: str, hint: str = "") -> float:
    if isinstance(given, float) or (isinstance(given, int) and not isinstance(given, bool)):
        return given
    later.ready("numbers")
    import numbers  # noqa: PLC0415  # rare: numpy's, and fractions

    if isinstance(given, bool) or not isinstance(given, numbers.Real):
        raise wrong_type(name, given, wanted, hint)
    return float(given)


def text(name: str, given: Any, wanted: str = "a str") -> str:
    """
    A text.

    Raises:
        TypeError: it is none.
    """
    if not isinstance(given, str):
        raise wrong_type(name, given, wanted)
    return given


def path(name: str, given: Any) -> str:
    """
    A path as a string, with the home directory in the place of "~".

    Raises:
        TypeError, ValueError: it is no path.
    """
    found = os.fspath(given) if hasattr(type(given), "__fspath__") else given
    if not isinstance(found, str):
        raise wrong_type(name, given, "a path (str or os.PathLike)")
    if not found or "\0" in found:
        raise ValueError(f"{name}={shown(given)} is not a path")
    return os.path.expanduser(found)


def directory(name: str, given: Any) -> str:
    """
    The same of a directory here: what would be the name of a volatile queue, or the address of one at a server, where a
    queue is opened, is none.

    Raises:
        TypeError, ValueError: it is no path, or one of those.
    """
    found = path(name, given)
    if found.startswith(("shm:", *REMOTE)):
        what = "the name of a volatile queue" if found.startswith("shm:") else "the address of a queue at a server"
        raise ValueError(
            f"{name}={shown(given)} is {what}, and a directory is wanted; nothing was done. A path of that name begins "
            "with ./"
        )
    return found


def names(name: str, given: Any) -> tuple[str, ...]:
    """
    Names in an order; one alone may be a str.

    Raises:
        TypeError: they are none.
    """
    if isinstance(given, str):
        return (given,)
    found = tuple(given) if hasattr(type(given), "__iter__") else (given,)
    if isinstance(given, (bytes, bytearray, dict)) or not all(isinstance(each, str) for each in found):
        raise wrong_type(name, given, "a list of names")
    return found


def nobody(*_: object) -> None:
    """Who is told how far the work is where nobody wants to know."""


def progress(offered: Progress | None) -> Progress:
    """
    Who is told how far the work is.

    Raises:
        TypeError: it cannot be called.
    """
    if offered is None:
        return nobody
    if not callable(offered):
        raise wrong_type("progress", offered, "a function of what is done, a count and a share")
    return offered


def producer(offered: str | bytes, name: str = "producer") -> bytes:
    """
    A producer's name as it is kept.

    Raises:
        TypeError, ValueError: it cannot be kept.
    """
    if not isinstance(offered, (str, bytes)):
        raise wrong_type(name, offered, "a str or bytes")
    raw = offered.encode() if isinstance(offered, str) else offered
    if not 0 < len(raw) <= _PRODUCER_MAX:
        raise ValueError(f"{name}: a name of {len(raw)} bytes; 1 to {_PRODUCER_MAX} are kept")
    return raw


def dedup(offered: tuple[str | bytes, int] | None) -> tuple[bytes, int]:
    """
    Producer and sequence as they are kept; no name for None.

    Raises:
        TypeError, ValueError: they cannot be kept.
    """
    if offered is None:
        return b"", 0
    if not isinstance(offered, (tuple, list)) or len(offered) != 2:
        raise wrong_type("dedup", offered, "a pair (producer, sequence)")
    name, sequence = offered
    number = whole("dedup: sequence", sequence, 0, _SEQUENCE_MAX)
    return producer(name, "dedup: producer"), number
