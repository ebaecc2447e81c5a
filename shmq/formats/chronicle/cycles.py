"""
Roll cycles: how time is cut into files, how the files are named, and how a 64-bit index is cut into cycle and sequence.

Names and times are reckoned in integers and not with `datetime`: a cycle has 31 bits, and that is more days than
Python's calendar has.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from functools import lru_cache
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

DAY_MS = 86_400_000
MAX_CYCLE = (1 << 31) - 1

_EPOCH_WEEKDAY = 4
"""1970-01-01 was a Thursday, Sunday being 0."""

_WIDEST = 9
_TOKEN = re.compile(r"'([^']*)'|([A-Za-z])\2*|.", re.DOTALL)


@dataclass(frozen=True, slots=True)
class RollCycle:
    """One way of cutting time into files; its *index_count* and *index_spacing* also fix where an index is cut."""

    name: str
    pattern: str
    """The name of a file without `.cq4`, as Java's DateTimeFormatter reads it; `metadata.cq4t` calls it `format`."""
    length_ms: int
    index_count: int
    index_spacing: int
    default_epoch: int = 0
    shift: int = field(init=False)
    """The sequence has so many bits of an index, whatever count and spacing a file itself has."""
    max_messages: int = field(init=False)
    """So many fit into one cycle by default."""

    def __post_init__(self) -> None:
        """Reckon what follows from count and spacing."""
        indexed = self.index_count * self.index_count * self.index_spacing
        object.__setattr__(self, "shift", max(32, indexed.bit_length() - 1))
        object.__setattr__(self, "max_messages", self.capacity(self.index_count, self.index_spacing))

    def capacity(self, index_count: int, index_spacing: int) -> int:
        """How many messages fit into a file of this cycle with *index_count* and *index_spacing* of its own."""
        return min(index_count * index_count * index_spacing, (1 << self.shift) - 1)

    # ------------------------------------------------------------ time and names
    def epoch_or_default(self, epoch: int) -> int:
        """Return the epoch that counts, given the one in the metadata: WEEKLY stores 0 and means its own."""
        return epoch or self.default_epoch

    def cycle_at(self, ms: int, epoch: int = 0) -> int:
        """Return the cycle of the instant *ms*, in milliseconds since 1970; before the epoch it is negative."""
        return (ms - self.epoch_or_default(epoch)) // self.length_ms

    def start_ms(self, cycle: int, epoch: int = 0) -> int:
        """Return the first instant of *cycle*."""
        return cycle * self.length_ms + self.epoch_or_default(epoch)

    def file_name(self, cycle: int, epoch: int = 0) -> str:
        """Return the name of the file of *cycle*, without a directory."""
        return _printer(self.pattern)(cycle * self.length_ms + _whole_days(self.epoch_or_default(epoch))) + ".cq4"

    def cycle_of(self, file_name: str, epoch: int = 0) -> int | None:
        """Return the cycle that *file_name* belongs to, or None if no cycle's file has that name."""
        if not file_name.endswith(".cq4"):
            return None
        ms = _reader(self.pattern)(file_name[:-4])
        if ms is None:
            return None
        # Rounded up: a week's name gives its Sunday, and with an epoch of its own the cycle begins on a later day.
        cycle = -((_whole_days(self.epoch_or_default(epoch)) - ms) // self.length_ms)
        if not 0 <= cycle <= MAX_CYCLE or self.file_name(cycle, epoch) != file_name:
            return None
        return cycle

    # ------------------------------------------------------------ indices
    def index(self, cycle: int, sequence: int) -> int:
        """Return the index of message *sequence* of *cycle*: a signed number of 64 bits, as Java's long."""
        raw = ((cycle << self.shift) + sequence) & 0xFFFFFFFFFFFFFFFF
        return raw - (1 << 64) if raw >> 63 else raw

    def split(self, index: int) -> tuple[int, int]:
        """Return (cycle, sequence) of *index*; of a negative index the cycle is negative too."""
        return index >> self.shift, index & ((1 << self.shift) - 1)


def _whole_days(epoch: int) -> int:
    """
    Return *epoch* without its part of a day, as Java reckons it.

    Its remainder has the sign of the epoch, and any that is negative makes the day before 1970.
    """
    if epoch >= 0 or epoch % DAY_MS == 0:
        return epoch // DAY_MS * DAY_MS
    return -DAY_MS


CYCLES: dict[str, RollCycle] = {
    each.name: each
    for each in (
        # In the order in which Java tries them on a file name: the common ones, the old, the large, the sparse, the
        # ones of its tests.
        RollCycle("FIVE_MINUTELY", "yyyyMMdd-HHmm'V'", 300_000, 2048, 256),
        RollCycle("TEN_MINUTELY", "yyyyMMdd-HHmm'X'", 600_000, 2048, 256),
        RollCycle("TWENTY_MINUTELY", "yyyyMMdd-HHmm'XX'", 1_200_000, 2048, 256),
        RollCycle("HALF_HOURLY", "yyyyMMdd-HHmm'H'", 1_800_000, 2048, 256),
        RollCycle("FAST_HOURLY", "yyyyMMdd-HH'F'", 3_600_000, 4096, 256),
        RollCycle("TWO_HOURLY", "yyyyMMdd-HH'II'", 7_200_000, 4096, 256),
        RollCycle("FOUR_HOURLY", "yyyyMMdd-HH'IV'", 14_400_000, 4096, 256),
        RollCycle("SIX_HOURLY", "yyyyMMdd-HH'VI'", 21_600_000, 4096, 256),
        RollCycle("FAST_DAILY", "yyyyMMdd'F'", DAY_MS, 4096, 256),
        RollCycle("WEEKLY", "YYYY'W'ww", 7 * DAY_MS, 4096, 256, 3 * DAY_MS),
        RollCycle("MINUTELY", "yyyyMMdd-HHmm", 60_000, 2048, 16),
        RollCycle("HOURLY", "yyyyMMdd-HH", 3_600_000, 4096, 16),
        RollCycle("DAILY", "yyyyMMdd", DAY_MS, 8192, 64),
        RollCycle("LARGE_HOURLY", "yyyyMMdd-HH'L'", 3_600_000, 8192, 64),
        RollCycle("LARGE_DAILY", "yyyyMMdd'L'", DAY_MS, 32768, 128),
        RollCycle("XLARGE_DAILY", "yyyyMMdd'X'", DAY_MS, 32768, 256),
        RollCycle("HUGE_DAILY", "yyyyMMdd'H'", DAY_MS, 32768, 1024),
        RollCycle("SMALL_DAILY", "yyyyMMdd'S'", DAY_MS, 8192, 8),
        RollCycle("LARGE_HOURLY_SPARSE", "yyyyMMdd-HH'LS'", 3_600_000, 4096, 1024),
        RollCycle("LARGE_HOURLY_XSPARSE", "yyyyMMdd-HH'LX'", 3_600_000, 2048, 1 << 20),
        RollCycle("HUGE_DAILY_XSPARSE", "yyyyMMdd'HX'", DAY_MS, 16384, 1 << 20),
        RollCycle("TEST_SECONDLY", "yyyyMMdd-HHmmss'T'", 1000, 32768, 4),
        RollCycle("TEST4_SECONDLY", "yyyyMMdd-HHmmss'T4'", 1000, 32, 4),
        RollCycle("TEST_HOURLY", "yyyyMMdd-HH'T'", 3_600_000, 16, 4),
        RollCycle("TEST_DAILY", "yyyyMMdd'T1'", DAY_MS, 8, 1),
        RollCycle("TEST2_DAILY", "yyyyMMdd'T2'", DAY_MS, 16, 2),
        RollCycle("TEST4_DAILY", "yyyyMMdd'T4'", DAY_MS, 32, 4),
        RollCycle("TEST8_DAILY", "yyyyMMdd'T8'", DAY_MS, 128, 8),
    )
}
"""The roll cycles of the open source program, by name."""

DEFAULT = CYCLES["FAST_DAILY"]
"""What a queue of version 5 has when nobody says otherwise."""


def by_format(pattern: str, length_ms: int | None = None) -> RollCycle | None:
    """Return the cycle that the metadata calls by its *pattern* (and *length_ms*), or None if it is none of these."""
    for each in CYCLES.values():
        if each.pattern == pattern and length_ms in (None, each.length_ms):
            return each
    return None


def guess(file_names: Iterable[str]) -> RollCycle | None:
    """Return the cycle whose pattern the first of *file_names* fits, as Java takes it for a queue without metadata."""
    for name in sorted(file_names):
        for each in CYCLES.values():
            if each.cycle_of(name) is not None:
                return each
    return None


# ---------------------------------------------------------------- patterns
# Of Java's patterns the letters y M d H m s Y w, quoted text, and everything else as it stands.


@lru_cache(maxsize=64)
def _tokens(pattern: str) -> tuple[tuple[str, int, str], ...]:
    """Cut *pattern* into (letter, width, "") for a field and ("", 0, text) for text."""
    found: list[tuple[str, int, str]] = []
    for each in _TOKEN.finditer(pattern):
        quoted, letter = each.groups()
        if letter:
            found.append((letter, len(each.group()), ""))
        else:  # Two quotes with nothing between them are one.
            found.append(("", 0, each.group() if quoted is None else quoted or "'"))
    letters = [letter for letter, _, _ in found if letter]
    if not set(letters) <= set("yMdHmsYw") or len(set(letters)) < len(letters) or not {"y", "Y"} & set(letters):
        msg = f"the pattern {pattern[:80]!r} of a roll cycle has no year, a part twice, or a letter unknown here"
        raise ValueError(msg)
    if max(width for _, width, _ in found) > _WIDEST:
        msg = f"the pattern {pattern[:80]!r} of a roll cycle has a part of more than {_WIDEST} digits"
        raise ValueError(msg)
    return tuple(found)


@lru_cache(maxsize=64)
def _printer(pattern: str) -> Callable[[int], str]:
    """Return what prints an instant, in ms since 1970, by *pattern*."""
    tokens = _tokens(pattern)
    weekly = any(letter in {"Y", "w"} for letter, _, _ in tokens)

    def printed(ms: int) -> str:
        day, in_day = divmod(ms, DAY_MS)
        year, month, of_month = _civil(day)
        second = in_day // 1000
        parts = {"y": year, "M": month, "d": of_month, "H": second // 3600, "m": second // 60 % 60, "s": second % 60}
        if weekly:
            parts["Y"], parts["w"] = _week(day)
        return "".join(text or _number(parts[letter], letter, width) for letter, width, text in tokens)

    return printed


def _number(value: int, letter: str, width: int) -> str:
    """Print a field as Java does: a year that is too long for its width begins with a plus."""
    if letter not in {"y", "Y"}:
        return f"{value:0{width}d}"
    if letter == "y" and value <= 0:
        value = 1 - value  # The year of the era, and the era itself is not in the name.
    return f"{value:0{width}d}" if value < 10**width else f"+{value}"


@lru_cache(maxsize=64)
def _reader(pattern: str) -> Callable[[str], int | None]:
    """Return what reads a name by *pattern* into ms since 1970; it returns None for what is no such name."""
    tokens = _tokens(pattern)
    expression = re.compile(
        "".join(re.escape(text) if text else _field(letter, width) for letter, width, text in tokens), re.ASCII
    )
    printed = _printer(pattern)

    def read(name: str) -> int | None:
        found = expression.fullmatch(name)
        if found is None:
            return None
        part = {letter: int(number) for letter, number in found.groupdict().items()}
        if "Y" in part:
            day = _first_of_week(part["Y"], part.get("w", 1))
        else:
            day = _days(part["y"], part.get("M", 1), part.get("d", 1))
        seconds = part.get("H", 0) * 3600 + part.get("m", 0) * 60 + part.get("s", 0)
        ms = day * DAY_MS + seconds * 1000
        # What does not come out again as it went in was no date: February 30th, 24 o'clock, week 54.
        return ms if printed(ms) == name else None

    return read


def _field(letter: str, width: int) -> str:
    if letter in {"y", "Y"}:
        return rf"(?P<{letter}>\d{{{width}}}|\+\d{{{width + 1},9}})"
    return rf"(?P<{letter}>\d{{{width}}})"


# ---------------------------------------------------------------- the calendar, without an end
def _days(year: int, month: int, day: int) -> int:
    """Return the days since 1970-01-01 of a date of the Gregorian calendar."""
    year -= month <= 2
    era, of_era = divmod(year, 400)
    of_year = (153 * ((month + 9) % 12) + 2) // 5 + day - 1
    return era * 146_097 + of_era * 365 + of_era // 4 - of_era // 100 + of_year - 719_468


def _civil(day: int) -> tuple[int, int, int]:
    """Return (year, month, day) of a number of days since 1970-01-01."""
    era, of_era = divmod(day + 719_468, 146_097)
    year = (of_era - of_era // 1460 + of_era // 36_524 - of_era // 146_096) // 365
    of_year = of_era - (365 * year + year // 4 - year // 100)
    shifted = (5 * of_year + 2) // 153
    month = shifted + 3 if shifted < 10 else shifted - 9
    return era * 400 + year + (month <= 2), month, of_year - (153 * shifted + 2) // 5 + 1


# The week that WEEKLY's `YYYY'W'ww` means depends on Java's locale. Taken here is what Java takes where no country is
# set, and in the United States: weeks begin on Sunday, and week 1 is the one with January 1st.


def _first_of_week(year: int, week: int) -> int:
    january = _days(year, 1, 1)
    return january - (january + _EPOCH_WEEKDAY) % 7 + 7 * (week - 1)


def _week(day: int) -> tuple[int, int]:
    sunday = day - (day + _EPOCH_WEEKDAY) % 7
    year = _civil(sunday + 6)[0]
    return year, (sunday - _first_of_week(year, 1)) // 7 + 1
