"""
Queues as a reboot may find them, each with work for other steps of a recovery; and the process that recovers one.

    python unclean.py SYS_PATH PATH walk|say     under the stepper's eyes; or beside another, telling what it is at
"""

from __future__ import annotations

import contextlib
import ctypes
import functools
import json
import os
import signal
import sys
import weakref
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

BOOT, EARLIER = b"this boot's id..", b"another boot id!"
_CHUNK = 16384


@contextlib.contextmanager
def pretend(boot: bytes = BOOT) -> Iterator[None]:
    """Have everybody in this process who asks for the boot's id be told this one, and make new rings small."""
    from shmq import _native
    from shmq.storage import boots
    from shmq.taking import group_options

    before: list[tuple[Any, str, Any]] = [(boots, "boot_id", boots.boot_id)]
    before += [(group_options, "WINDOW", group_options.WINDOW), (_native, "SIDE_BLOCKS", _native.SIDE_BLOCKS)]
    for module, name, real in before:
        setattr(module, name, (lambda: boot) if callable(real) else 64 if name == "WINDOW" else 1)
    try:
        yield
    finally:
        for module, name, real in before:
            setattr(module, name, real)


def recover(path: str) -> Any:
    """What recovers the queue at *path*, once it is called."""
    from shmq.storage import directory
    from shmq.storage.recover import apply

    home = directory.Directory(path, read_only=False)
    weakref.finalize(recovery := functools.partial(apply.recover, home), home.close)
    return recovery if home.unclean() else (lambda: None)


# ---------------------------------------------------------------- cases
def _options(**more: Any) -> Any:
    import shmq

    return shmq.Options(chunk_bytes=_CHUNK, **more)


def _child(work: Callable[[], None]) -> None:
    """Do it in a process that ends without closing anything."""
    from tests.support import start

    _, status = os.waitpid(start(work), 0)
    if status:
        raise AssertionError("the process that was to leave something did not")


def _flip(path: str, payload: bytes) -> None:
    """Damage the message with that payload."""
    for file in Path(path, "chunks").glob("*.chunk"):
        at = file.read_bytes().find(payload)
        if at >= 0:
            with file.open("r+b") as opened:
                os.pwrite(opened.fileno(), b"!", at)


def torn(path: str) -> None:
    """Damage in a chunk with others behind it; names that are ahead, a group with parked messages, a spare."""
    import shmq

    with shmq.open(path, options=_options()) as queue:
        for number in range(30):
            queue.put(b"%04d" % number + bytes(1500))
        with queue.consumer("c") as consumer:
            consumer.take_many(100)
            consumer.take_many(100)
            consumer.take_many(100)
        with queue.consumer("e", ack="explicit") as consumer:
            consumer.get().ack()
        with queue.consumer("g", group=True, ack="explicit") as member:
            first, second, third, *others = member.get_many(7)
            second.nack(delay=3600)
            member.ack(third, *others)
            del first
            queue.sync()
            member.get().ack()
    _flip(path, b"0014")
    os.pwrite(fd := os.open(f"{path}/queue.shmq", os.O_RDWR), bytes(2 * 4096), 3 * 4096)  # or it would be damage
    os.close(fd)
    Path(path, "chunks", "retired-00").write_bytes(bytes(_CHUNK))


def open_claim(path: str) -> None:
    """A claim that was never committed ends the only chunk, with messages behind it."""
    import shmq

    with shmq.open(path, options=_options(durability=shmq.Durability.SYNC)) as queue:
        queue.put_many([b"before"] * 3)
        queue.consumer("e", ack="explicit").get().ack()
        queue.sync()

    def leave() -> None:
        own = shmq.open(path)
        slot = own.reserve(300)
        with contextlib.suppress(shmq.SyncPending):
            own.put_many([b"behind it"] * 4, timeout=0)
        os._exit(len(slot.buffer) * 0)

    _child(leave)


def sets(path: str) -> None:
    """A set that a SEAL has committed and that still lies aside, one that waits for its token, an orphan, a ledger."""
    import shmq
    from shmq.storage import staging

    with shmq.open(path, options=_options()) as queue:
        queue.put(b"first")
        with queue.stage() as staged:
            staged.put(b"adopted before")
            queue.adopt(staged, dedup=("p", 1))
        queue.put(b"dedup", dedup=("d", 1))
        with queue.stage() as staged:
            staged.put(b"handed over")
            staged.hand_over()

    def adopt() -> None:
        staging.Set.place = lambda *_: os._exit(0)  # type: ignore[method-assign]
        own = shmq.open(path)
        with own.stage() as aside:
            for number in range(12):
                aside.put(b"%02d" % number + bytes(1500))
            own.adopt(aside, dedup=("p", 2))

    def orphan() -> None:
        shmq.open(path).stage().put(b"never")
        os._exit(0)

    _child(orphan)
    _child(adopt)


def lost(path: str) -> None:
    """No chunk has reached the disk, nor the content of a checkpoint; the control file is too short."""
    import shmq

    with shmq.open(path, options=_options()) as queue:
        queue.put(b"never on the disk")
        queue.consumer("c").take()
        queue.consumer("z").close()
        queue.consumer("g", group=True, ack="explicit").get(0).ack()
    for file in Path(path, "chunks").glob("*.chunk"):
        file.unlink()
    checkpoint = Path(path, "consumers", "z.checkpoint")
    checkpoint.write_bytes(bytes(checkpoint.stat().st_size))
    os.truncate(f"{path}/control.shmq", 8192)


CASES: dict[str, Callable[[str], None]] = {"torn": torn, "open claim": open_claim, "sets": sets, "lost": lost}


def make(case: str, path: str) -> None:
    """That queue at *path*, last open in another boot."""
    from shmq import _native

    with pretend(b"the boot before."):
        CASES[case](path)
    with open(f"{path}/queue.shmq", "r+b") as file:
        content = file.read()
        for page in (1, 2):
            journal = _native.check_journal(content[page * 4096 : (page + 1) * 4096])
            if journal is not None:
                os.pwrite(file.fileno(), _native.format_journal(journal._replace(device=0, inode=0)), page * 4096)


def main() -> None:
    """Be a process that recovers the queue at PATH."""
    sys.path[:0] = json.loads(sys.argv[1])
    path, how = sys.argv[2:]

    from shmq import errors, later

    later._have_imported = later._import  # the stepper follows one thread
    with pretend():
        work = recover(path)
        if how == "say":
            print("tries", flush=True)
            while True:
                with contextlib.suppress(errors.Busy):
                    print("recovered" if work() is not None else "found it done", flush=True)
                    return
        syscall = ctypes.CDLL(None).syscall
        getppid, mark = 110, 0x73686D71
        syscall(getppid, 0, 0, 0)  # its first call is slower
        os.kill(os.getpid(), signal.SIGSTOP)
        work()
        syscall(getppid, mark, ord("r"), 1)
        syscall(getppid, mark, ord("e"), 0)


if __name__ == "__main__":
    main()
