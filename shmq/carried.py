"""For whoever sends messages on to another machine: what few of them have, found without a look at each."""

from __future__ import annotations

from shmq.message import carried as carried  # noqa: PLC0414  # exported
