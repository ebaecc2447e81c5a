"""
A Python process that does a script's operations through the public API, and marks its way for stepper.c.

    python tracee.py SYS_PATH DIRECTORY CHUNK_BYTES SCRIPT

The script (a file, or - for stdin) is JSON: the first operation's number, what to do before the walk, what to do in it.
"""

from __future__ import annotations

import ctypes
import json
import os
import signal
import sys
from pathlib import Path


def main() -> None:
    """Prepare, stop, and go on under the stepper's eyes."""
    sys.path[:0] = [str(Path(__file__).resolve().parent.parent), *json.loads(sys.argv[1])]
    import msgspec  # noqa: F401  # what the library imports late is not what is walked

    import shmq.later
    import shmq.putting.staged
    import shmq.storage.dedup
    import shmq.taking.aside
    import shmq.taking.dead
    import shmq.taking.group
    from crash.operations import Hands

    # The stepper follows one thread: what another one would do in a moment, this one does at once.
    shmq.taking.aside.Aside.move_soon = shmq.taking.aside.Aside.move
    shmq.later._have_imported = shmq.later._import

    syscall = ctypes.CDLL(None).syscall
    getppid, mark = 110, 0x73686D71
    script = sys.stdin.read() if sys.argv[4] == "-" else Path(sys.argv[4]).read_text()
    number, before, walked = json.loads(script)
    hands = Hands(sys.argv[2], int(sys.argv[3]))
    for operation in before:
        hands.perform(operation, number)
        number += 1
    syscall(getppid, 0, 0, 0)  # its first call is slower
    os.kill(os.getpid(), signal.SIGSTOP)
    for done, operation in enumerate(walked, 1):
        hands.perform(operation, number)
        number += 1
        syscall(getppid, mark, ord("r"), done)
    syscall(getppid, mark, ord("e"), 0)


main()
