"""Which process an owner is: its pid, its command line, and whether it runs, as far as that can be seen from here."""

from __future__ import annotations

import contextlib
import os

from shmq import _native
from shmq.hints import NamedTuple

_COMMAND_MAX = 120
RUNS, STOPPED, DEAD, UNSEEN = "runs", "stopped", "dead", "unseen"


class Process(NamedTuple):
    """
    A process that has, or had, a queue open.

    Attributes:
        pid: as it sees itself.
        command: its command line, up to 120 characters; "" where that cannot be read.
        state: "runs", "stopped", "dead", or "unseen": it lives in another pid namespace, or hides.
    """

    pid: int
    command: str
    state: str


def of_owner(control: _native.Control, member: _native.Member, owner: int) -> Process | None:
    """The process that signs as *owner*; None where its seat has had another tenant since."""
    for slot, generation, pid, namespace, began in control.participants():
        if slot << 11 | generation == owner:
            if not member.alive(owner):
                return Process(pid, "", DEAD)
            return _seen(pid, namespace, began)
    return None


def living(control: _native.Control, member: _native.Member) -> dict[int, Process]:
    """Everybody who has a seat, by the owner that each signs as."""
    seats = ((_native.owner_of(slot, generation), rest) for slot, generation, *rest in control.participants())
    return {owner: _seen(*rest) for owner, rest in seats if member.alive(owner)}


def _seen(pid: int, namespace: int, began: int) -> Process:
    with contextlib.suppress(OSError, ValueError, IndexError):
        if namespace == os.stat("/proc/self/ns/pid").st_ino:
            with open(f"/proc/{pid}/stat", "rb") as file:
                fields = file.read().rpartition(b") ")[2].split()
            if int(fields[19]) == began:
                return Process(pid, command_of(pid), STOPPED if fields[0] in (b"T", b"t") else RUNS)
    return Process(pid, "", UNSEEN)


def command_of(pid: int) -> str:
    """The command line of that process, on one line; "" where it cannot be read."""
    with contextlib.suppress(OSError):
        with open(f"/proc/{pid}/cmdline", "rb") as file:
            words = file.read(4096).decode("utf-8", "replace").rstrip("\0").split("\0")
        said = " ".join("".join(char if char.isprintable() else " " for char in word) for word in words)
        return said if len(said) <= _COMMAND_MAX else f"{said[: _COMMAND_MAX - 3]}..."
    return ""


def told(process: Process | None) -> str:
    """The process in words: "process 4711 (python worker.py), which is stopped"."""
    if process is None:
        return "a process that is gone"
    command = f" ({process.command})" if process.command else ""
    states = {RUNS: "", STOPPED: ", which is stopped", DEAD: ", which is dead", UNSEEN: " of another pid namespace"}
    return f"process {process.pid}{command}{states[process.state]}"
