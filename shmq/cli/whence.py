"""Where in a queue a word says to begin or to end; the one place that knows how such words are written."""

from __future__ import annotations

import contextlib
import datetime
import re
from typing import TYPE_CHECKING

from shmq.cli import show

if TYPE_CHECKING:
    import shmq

WORDS = (
    'an index; "earliest"; "latest"; or a time: 2026-01-31T08:00 (local unless it names a zone), "yesterday 14:00", '
    '"monday", "10 minutes ago", or seconds since 1970 with a point'
)
_DAYS = ("monday", "tuesday", "wednesday", "thursday", "friday", "saturday", "sunday")
_AGO = re.compile(r"(\d+(?:\.\d+)?)\s*([a-z]+?)s?\s+ago")
_CLOCK = re.compile(r"(\d{1,2}):(\d\d)(?::(\d\d))?")
_UNITS = {
    "s": "seconds", "sec": "seconds", "second": "seconds", "m": "minutes", "min": "minutes", "minute": "minutes",
    "h": "hours", "hour": "hours", "d": "days", "day": "days", "w": "weeks", "week": "weeks",
}  # fmt: skip


def index_at(queue: shmq.Queue, option: str, word: str) -> int:
    """
    The index that *word* stands for: an index, which counts from the end when it is negative, "earliest", "latest", or
    the first message of a time or later.

    Raises:
        Misuse: it is none of these.
    """
    place = place_of(option, word)
    if isinstance(place, str):
        return queue.first_index if place == "earliest" else queue.committed_index
    if isinstance(place, int):
        return place if place >= 0 else max(queue.next_index + place, 0)
    return queue.at(place)


def place_of(option: str, word: str) -> int | float | str | datetime.datetime:
    """
    What *word* stands for: an index, seconds since 1970, a time, "earliest" or "latest".

    Raises:
        Misuse: it is none of these.
    """
    if word in {"earliest", "latest"}:
        return word
    if re.fullmatch(r"-?[0-9]+", word):
        return int(word)
    if re.fullmatch(r"[0-9]+\.[0-9]+", word):
        return float(word)
    with contextlib.suppress(ValueError, OverflowError):
        return time_of(word)
    raise show.Misuse(
        f"{option} {word!r} is not an index, a time like 2026-01-31T08:00, 'yesterday 14:00', '10 minutes ago' or "
        '1769846400.0, "earliest" or "latest"'
    )


def lasting(queue: shmq.Queue, option: str, word: str) -> str:
    """The same word where it will mean the same tomorrow, else the index that it stands for now."""
    with contextlib.suppress(ValueError):
        datetime.datetime.fromisoformat(word)
        return word
    return str(index_at(queue, option, word)) if isinstance(place_of(option, word), datetime.datetime) else word


def time_of(word: str, now: datetime.datetime | None = None) -> datetime.datetime:
    """
    A time as people write it, local where it names no zone. One without a day is of today; a weekday is the last one.

    Raises:
        ValueError, OverflowError: it is none.
    """
    now = datetime.datetime.now() if now is None else now  # noqa: DTZ005  # local, as it is typed
    with contextlib.suppress(ValueError):
        return datetime.datetime.fromisoformat(word)
    text = " ".join(word.lower().split())
    if text == "now":
        return now
    if (ago := _AGO.fullmatch(text)) and ago[2] in _UNITS:
        return now - datetime.timedelta(**{_UNITS[ago[2]]: float(ago[1])})
    day, _, clock = text.partition(" ")
    if _CLOCK.fullmatch(day) and not clock:
        day, clock = "today", day
    midnight = now.replace(hour=0, minute=0, second=0, microsecond=0)
    if clock:
        if (read := _CLOCK.fullmatch(clock)) is None:
            raise ValueError(f"{word!r} is not a time")
        midnight = midnight.replace(hour=int(read[1]), minute=int(read[2]), second=int(read[3] or 0))
    if day == "today":
        return midnight
    if day == "yesterday":
        return midnight - datetime.timedelta(days=1)
    if day in _DAYS:
        back = (now.weekday() - _DAYS.index(day)) % 7
        return midnight - datetime.timedelta(days=back or 7 * (midnight > now))
    raise ValueError(f"{word!r} is not a time")
