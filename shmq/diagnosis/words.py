"""How processes, names, numbers and times are said in a finding."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

from shmq import whose

if TYPE_CHECKING:
    from shmq.whose import Process


def age(time_ns: int) -> float | None:
    """How many seconds ago that was; None for 0."""
    return None if not time_ns else max(time.time_ns() - time_ns, 0) / 1e9


def facts_of(process: Process | None) -> dict[str, Any]:
    """A process as facts."""
    if process is None:
        return {}
    return {"pid": process.pid, "command": process.command, "state": process.state}


def people(processes: list[Process]) -> str:
    """Processes, and the verb behind them."""
    said = " and ".join(f"process {each.pid} ({each.command})" for each in processes)
    return f"{said} {'is' if len(processes) == 1 else 'are'}"


def listed(names: list[str], one: str = "waits", several: str = "wait") -> str:
    """Names, and the verb behind them."""
    return f"{' and '.join(map(repr, names))} {one if len(names) == 1 else several}"


def many(count: int, what: str) -> str:
    """So many of something."""
    plural = f"{what}es" if what.endswith("s") else f"{what}s"
    return f"{count:,} {what if count == 1 else plural}"


def seconds(seconds: float) -> str:
    """A time in the unit that suits."""
    return f"{seconds:,.1f} s" if seconds < 120 else f"{seconds / 60:,.0f} min"


def subject(process: Process | None) -> str:
    """A process as what a sentence begins with."""
    said = whose.told(process)
    return f"{said[:1].upper()}{said[1:]}{',' * (', which' in said)}"
