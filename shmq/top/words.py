"""How figures are said on the terminal: short, and with nothing in them that a terminal obeys."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

_UNITS = ("B", "KiB", "MiB", "GiB", "TiB", "PiB")


def count(number: float | None) -> str:
    """A number of messages; "-" for nothing."""
    return "-" if number is None else f"{number:,.0f}"


def rate(number: float | None) -> str:
    """A number a second; what is small has a decimal."""
    return "-" if number is None else f"{number:,.1f}" if 0 < number < 10 else f"{number:,.0f}"


def size(number: float) -> str:
    """Bytes, in the unit that suits."""
    unit = 0
    while number >= 1024 and unit < len(_UNITS) - 1:
        number, unit = number / 1024, unit + 1
    return f"{number:,.1f} {_UNITS[unit]}" if unit and number < 100 else f"{number:,.0f} {_UNITS[unit]}"


def age(seconds: float | None) -> str:
    """How old something is, in the unit that suits; "-" for nothing."""
    if seconds is None:
        return "-"
    if seconds < 0.1:
        return f"{seconds * 1000:,.1f} ms" if seconds >= 0.001 else f"{seconds * 1e6:,.0f} µs"
    for limit, unit, name in ((120, 1, "s"), (7200, 60, "min"), (172_800, 3600, "h")):
        if seconds < limit:
            return f"{seconds / unit:,.1f} {name}" if seconds < 10 else f"{seconds / unit:,.0f} {name}"
    return f"{seconds / 86400:,.0f} d"


def quantile(latency: Sequence[tuple[float, int]], share: float) -> float | None:
    """What that share of them was at most, by the bounds of their buckets; None when there are none."""
    wanted = share * sum(number for _, number in latency)
    reached = 0
    for bound, number in latency:
        reached += number
        if number and reached >= wanted:
            return bound
    return None


def quantiles(latency: Sequence[tuple[float, int]] | None) -> str:
    """What half of them was at most, and 99 of 100; "-" for nothing."""
    if latency is None or (half := quantile(latency, 0.5)) is None:
        return "-"
    return f"50% {age(half)} 99% {age(quantile(latency, 0.99))}"


def many(number: int, what: str) -> str:
    """So many of something."""
    plural = f"{what}es" if what.endswith("s") else f"{what}s"
    return f"{number:,} {what if number == 1 else plural}"


def short(path: str, most: int = 44) -> str:
    """The end of a path that is long: there is room for figures, too."""
    return path if len(path) <= most else f"\N{HORIZONTAL ELLIPSIS}{path[-most + 1 :]}"


def plain(text: str) -> str:
    """Without what a terminal would obey, or cannot show: a path may have anything in it."""
    return "".join(char if char.isprintable() else "\N{REPLACEMENT CHARACTER}" for char in text)
