"""
Fuzz the files of a living queue: in place, with right checksums and wrong, at rest, open, and while others work.

    python tests/fuzz/living.py [--seconds N] [--cases N] [--mutants N] [--seed N]

A mutant is a change to some shared files of the queue itself, not of a copy. Each case makes one at rest, or 17
one after the other, most of them after the one before was put right; behind each, things are called on handles that
were open before, and behind the last one everything on new ones, in each mode. Every call must end: with a result,
or an error of ours. Cases run in processes of their own, so a crash or a call that never ends is one case only; its
seed is told, and `--seed N --cases 1` repeats it, but for what depends on who comes first.
"""

from __future__ import annotations

import argparse
import contextlib
import gc
import logging
import mmap
import os
import random
import shutil
import signal
import struct
import sys
import tempfile
import time
import traceback
import warnings
from pathlib import Path
from typing import TYPE_CHECKING, Any

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

import shmq
from shmq import _native
from tests.support import start

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

SHM = Path("/dev/shm")
PAGE = 4096
PATIENCE = 60.0
"""Seconds after which a case that says nothing hangs. A call that waits is interrupted long before."""
CALL_SECONDS = 2.0
"""Of this process, after which a call does not end; of the clock, for one that may wait for others."""
WAIT_SECONDS = 0.01
"""For room and the like: enough for somebody to ring, or for a sleeper to look twice."""
BATCH = 25
"""Cases of one process."""
MESSAGES = 30
MOST = 600
CALLS = 9
"""Of all there are, for each opening."""
ROUNDS = 16
"""Mutants of a queue that is open."""
EXTREMES = [0, 1, 2, 7, 8, 63, 64, 255, 1 << 15, (1 << 16) - 1, 1 << 20, 1 << 27, (1 << 31) - 1, 1 << 31, (1 << 32) - 1]
EXTREMES += [1 << 40, 1 << 61, 1 << 62, (1 << 63) - 1, 1 << 63, (1 << 64) - 8, (1 << 64) - 1]
CHECKSUMS = {  # by the end of a file's name: (where the checksum stands, first byte covered, first one not covered)
    ".chunk": [(12, 16, 128)],
    "queue.shmq": [(52, 0, PAGE), *((page * PAGE + 100, page * PAGE, page * PAGE + 100) for page in (1, 2))],
    ".checkpoint": [(60, 0, 128)],
}
CHECKSUMS["queue.shmq"] += [(page * PAGE + 44, page * PAGE, page * PAGE + 44) for page in (3, 4)]
PAYLOADS = {b"%d" % number for number in range(MESSAGES)} | {b"batch", b"adopted", b"waits", b"new"}
"""What was put, without zeros at its end."""


FILTER = shmq.Filter(key_prefix=b"k", types={0, 9}, headers={"on": True})


class Enough(BaseException):
    """A call has waited for long enough."""


def build(path: Path) -> None:
    """A queue with something of everything in it, and as little as fills more than one chunk; closed."""
    _native.RING_BUCKETS = 64  # of keys: the more, the longer it takes to put them back
    options = shmq.Options(chunk_bytes=16384, retention=shmq.Retention.forever())
    with shmq.open(path, options=options) as queue:
        for number in range(MESSAGES):
            headers = {"n": number, "deep": [{"k": b"raw"}, None], "on": number % 2 == 0}
            queue.put(b"%d" % number + bytes(150 * (number % 10)), key=b"k%d" % (number % 3), headers=headers)
        queue.put_many([b"batch"] * 9)
        queue.reserve(50).abort()
        with queue.stage() as staged:
            staged.put(b"adopted")
            queue.adopt(staged, dedup=("p", 1))
        queue.put(b"new", dedup=("p", 2))
        waiting = queue.stage()
        waiting.put(b"waits")
        waiting.hand_over(owner="me")
        for name, given in {"c": {}, "e": {"ack": "explicit"}, "h": {"hold": True}}.items():
            with queue.consumer(name, **given) as consumer:
                consumer.get_many(5, timeout=0)
        queue.consumer("f", filter=FILTER, expires=1e6).close()
        queue.consumer("w", group=True, ack="explicit", window=64, filter=FILTER).close()
        for name, given in {"g": {"lease": 5.0, "max_attempts": 3}, "k": {"ordered_by": "key"}}.items():
            with queue.consumer(name, group=True, ack="explicit", window=64, **given) as group:
                group.get(timeout=0).nack(delay=0.001)
                group.get(timeout=0).ack()
        queue.sync()


def contents(path: Path) -> dict[str, bytes]:
    """What is in every file."""
    return {str(file.relative_to(path)): file.read_bytes() for file in sorted(path.rglob("*")) if file.is_file()}


def restore(path: Path, pristine: dict[str, bytes]) -> None:
    """Have every file as it was, and the same file where it is there; with another control file, all is made anew."""
    inode = os.stat(path / "control.shmq").st_ino if (path / "control.shmq").exists() else 0
    for file in path.parent.rglob("*"):
        name = os.path.relpath(file, path)
        if file.is_file() and name not in pristine:
            file.unlink()
    for name, content in pristine.items():
        (path / name).parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        with open(os.open(path / name, os.O_RDWR | os.O_CREAT, 0o600), "r+b") as file:
            file.truncate(len(content))
            file.write(content)
    if os.stat(path / "control.shmq").st_ino != inode:
        shutil.rmtree(path)
        build(path)
        pristine.clear()
        pristine.update(contents(path))


def put_back(path: Path, pristine: dict[str, bytes]) -> None:
    """Have the content of what is there as it was; what has come or gone stays so."""
    for name, content in pristine.items():
        with contextlib.suppress(FileNotFoundError), writing(path / name) as fd:
            os.pwrite(fd, content, 0)


@contextlib.contextmanager
def writing(path: Path | str) -> Iterator[int]:
    """A descriptor of a file."""
    fd = os.open(path, os.O_RDWR)
    try:
        yield fd
    finally:
        os.close(fd)


def files_below(path: Path) -> list[str]:
    """The paths of all that are not empty, in the order of their names."""
    found = (os.path.join(folder, name) for folder, _, names in os.walk(path) for name in names)
    return sorted(name for name in found if _size(name))


def _size(name: str) -> int:
    try:
        return os.stat(name).st_size
    except FileNotFoundError:  # retired, or used again, meanwhile
        return 0


# ---------------------------------------------------------------- a case
def mutate(path: Path, chance: random.Random, *, living: bool) -> None:
    """Change words of one to three files where they lie, and mend some checksums; cut one short only while it rests."""
    files = files_below(path)
    for _ in range(chance.randint(1, 3)):
        file = chance.choice(files)
        with contextlib.suppress(FileNotFoundError), writing(file) as fd:
            content = os.pread(fd, os.fstat(fd).st_size, 0)
            if not living and chance.random() < 0.03:
                size = chance.randrange(len(content) + 1) if content else 8192
                if not is_mapped(file):
                    os.truncate(fd, size)
                continue
            changed = bytearray(content)
            for _ in range(chance.choice([1, 1, 1, 2, 5])):
                change(changed, chance)
            if chance.random() < 0.6:
                mend(os.path.basename(file), changed)
            for at in differing(content, changed):
                os.pwrite(fd, changed[at : at + 8], at)


def is_mapped(file: str) -> bool:
    """Whether something of an earlier case still has it: who cuts a file under a mapping kills with SIGBUS."""
    gc.collect()
    return file in Path("/proc/self/maps").read_text()


def differing(content: bytes, changed: bytearray) -> Iterator[int]:
    """Where the words are that are others now: only those are written, for others may have stored into the rest."""
    for block in range(0, len(changed), 512):
        if content[block : block + 512] != changed[block : block + 512]:
            for at in range(block, min(block + 512, len(changed)), 8):
                if content[at : at + 8] != changed[at : at + 8]:
                    yield at


def change(content: bytearray, chance: random.Random) -> None:
    """One thing, mostly near a beginning, where headers are."""
    if not content:
        return
    near = chance.choice([128, 512, 1024, PAGE, 2 * PAGE, len(content)])
    at = chance.randrange(min(len(content), near))
    kind = chance.randrange(6)
    if kind == 0:
        content[at] ^= 1 << chance.randrange(8)
    elif kind in (1, 2):
        size = chance.choice([4, 8])
        at -= at % size
        value = chance.choice(EXTREMES) & (1 << 8 * size) - 1
        content[at : at + size] = value.to_bytes(size, "little")[: len(content) - at]
    elif kind == 3:
        at -= at % 8
        value = (int.from_bytes(content[at : at + 8], "little") + chance.choice([-64, -8, -1, 1, 8, 64, 4096])) % (
            1 << 64
        )
        content[at : at + 8] = value.to_bytes(8, "little")[: len(content) - at]
    elif kind == 4:
        at -= at % 8
        other = chance.randrange(min(len(content), PAGE)) & -8
        content[at : at + 8] = content[other : other + len(content[at : at + 8])].ljust(
            len(content[at : at + 8]), b"\0"
        )
    else:
        size = len(content[at : at + chance.choice([1, 8, 64, 512])])
        content[at : at + size] = bytes(size) if chance.random() < 0.5 else chance.randbytes(size)


def mend(name: str, content: bytearray) -> None:
    """Make the checksums of a file agree with what it says now."""
    if content[:8] == b"shmqadpt" and len(content) >= 16:
        struct.pack_into("<II", content, 8, len(content) - 16, _native.crc32c(bytes(content[16:])))
    if name.endswith((".group", ".subscription")) and len(content) >= 32:
        struct.pack_into("<II", content, 24, len(content) - 32, _native.crc32c(bytes(content[32:])))
    for end, places in CHECKSUMS.items():
        for crc, first, behind in places if name.endswith(end) else []:
            if len(content) >= behind and any(content[first:behind]):
                if first <= crc < behind:
                    content[crc : crc + 4] = bytes(4)
                content[crc : crc + 4] = _native.crc32c(bytes(content[first:behind])).to_bytes(4, "little")


class Timer:
    """Ends the call of this process by raising Enough. A machine that does something else meanwhile is no reason."""

    waits = False
    begun = ends = 0.0

    @classmethod
    def begin(cls, *, waits: bool) -> None:
        cls.waits, cls.begun, cls.ends = waits, time.process_time(), time.monotonic() + PATIENCE / 2
        signal.setitimer(signal.ITIMER_REAL, CALL_SECONDS)

    @classmethod
    def heard(cls, *_: object) -> None:
        """The handler of its signal."""
        if not cls.waits and time.process_time() - cls.begun < CALL_SECONDS and time.monotonic() < cls.ends:
            signal.setitimer(signal.ITIMER_REAL, CALL_SECONDS)
        else:
            raise Enough


class Trial:
    """The calls of one case: what they may raise, and how long they may wait."""

    def __init__(self, chance: random.Random) -> None:
        """None yet."""
        self.chance = chance
        self.wrong: list[str] = []

    def call(self, what: str, work: Callable[[], Any], *, waits: bool = False) -> Any:
        """Call it: it ends with a result or an error of ours; where it may wait for others, it can be interrupted."""
        Timer.begin(waits=waits)
        try:
            return work()
        except (shmq.ShmqError, IndexError):
            pass
        except OSError as problem:
            if problem.errno is None:
                self.wrong.append(f"{what}: {problem!r}")
        except Enough:
            if not waits:
                self.wrong.append(f"{what}: it does not end\n{traceback.format_exc()}")
        except Exception:  # noqa: BLE001  # that is what is looked for
            self.wrong.append(f"{what}: {traceback.format_exc()}")
        finally:
            signal.setitimer(signal.ITIMER_REAL, 0)
        return None

    def use(self, queue: shmq.Queue, handles: dict[str, Any], *, read_only: bool = False, most: int = CALLS) -> None:
        """Call some of everything, in any order."""
        calls = [
            ("read", lambda: read(queue, skip_corrupt=False), False),
            ("read on", lambda: read(queue, skip_corrupt=True), False),
            ("filter", lambda: read(queue, skip_corrupt=True, filter=FILTER), False),
            ("index", lambda: [queue[at].payload for at in (0, 15, 29, 35, -1)], False),
            ("at", lambda: queue.at(time.time()), False),
            ("stats", queue.stats, False),
            ("len", lambda: len(queue), False),
            ("place", lambda: queue.group_place(self.chance.choice("gk")), False),
            ("sets", queue.staged_sets, False),
            ("adopted", lambda: queue.adopted("p"), False),
            ("verify", queue.verify, False),
        ]
        if not read_only:
            calls += [
                ("put", lambda: queue.put(b"new", timeout=WAIT_SECONDS), True),
                ("batch", lambda: queue.put_many([b"batch"] * 9, timeout=WAIT_SECONDS), True),
                ("roll", lambda: queue.put(b"new" + bytes(6000), timeout=WAIT_SECONDS), True),
                ("dedup", lambda: queue.put(b"new", dedup=("p", 3), timeout=WAIT_SECONDS), True),
                ("sync", queue.sync, True),
                ("bounds", lambda: queue.set_bounds(max_messages=1000), True),
                ("purge", queue.purge, True),
            ]
            calls += [(name, lambda handle=handle: take(handle), True) for name, handle in handles.items()]
        self.chance.shuffle(calls)
        for what, work, waits in calls[:most]:
            self.call(what, work, waits=waits)


def read(queue: shmq.Queue, *, skip_corrupt: bool, filter: shmq.Filter | None = None) -> None:  # noqa: A002
    """What comes out was put in, and it ends."""
    for count, message in enumerate(queue.reader(skip_corrupt=skip_corrupt, filter=filter)):
        if count > MOST:  # somebody puts meanwhile
            return
        assert message.payload.rstrip(b"\0") in PAYLOADS, "a payload from nowhere"
        message.headers  # noqa: B018


def take(handle: Any) -> None:
    """Some of what a consumer has to do."""
    for message in handle.get_many(3, timeout=0):
        if getattr(message, "ack", None) is not None:
            message.ack()
    handle.lag  # noqa: B018


def opened(queue: shmq.Queue, trial: Trial) -> dict[str, Any]:
    """A handle on each name, as far as it can be had."""
    explicit: dict[str, Any] = {"group": True, "ack": "explicit"}
    wanted: dict[str, dict[str, Any]] = {"c": {}, "e": {"ack": "explicit"}, "h": {}, "g": explicit, "k": explicit}
    wanted |= {"f": {}, "w": explicit}
    found = {}
    for name, given in wanted.items():
        handle = trial.call(
            f"consumer {name}", lambda name=name, given=given: queue.consumer(name, **given), waits=True
        )
        if handle is not None:
            found[name] = handle
    return found


@contextlib.contextmanager
def at_work(path: Path) -> Iterator[Callable[[], int]]:
    """Another process that puts and takes; asked in the end whether something killed it."""
    ready, tell = os.pipe()

    def work() -> None:
        signal.setitimer(signal.ITIMER_REAL, 0)
        with (
            contextlib.suppress(BaseException),
            shmq.open(path, create=False) as queue,
            queue.consumer("worker", group=True, ack="explicit") as group,
        ):
            os.write(tell, b".")
            while True:
                with contextlib.suppress(shmq.ShmqError, OSError, IndexError):
                    queue.put(b"new", timeout=WAIT_SECONDS)
                    for message in group.get_many(5, timeout=0):
                        message.ack()

    pid = start(work)
    os.close(tell)
    os.read(ready, 1)
    os.close(ready)

    def ended() -> int:
        os.kill(pid, signal.SIGKILL)
        _, status = os.waitpid(pid, 0)
        number = os.waitstatus_to_exitcode(status)
        return 0 if number in (0, -signal.SIGKILL) else number

    yield ended


def kind_of(number: int) -> str:
    """How the queue is when it is written to."""
    return ("at rest", "open", "open", "busy")[number % 4]


def mutants(number: int) -> int:
    """Of one case."""
    return 1 if kind_of(number) == "at rest" else ROUNDS + 1


def once(path: Path, pristine: dict[str, bytes], number: int) -> list[str]:
    """One case, from one seed: what was wrong."""
    chance = random.Random(number)
    trial = Trial(chance)
    kind = kind_of(number)
    with contextlib.ExitStack() as stack:
        ended = stack.enter_context(at_work(path)) if kind == "busy" else None
        if kind != "at rest":
            queue = shmq.open(path, create=False)
            handles = opened(queue, trial)
            for _ in range(ROUNDS):
                mutate(path, chance, living=True)
                trial.use(queue, handles, most=3)
                if chance.random() < 0.7:
                    put_back(path, pristine)
            mutate(path, chance, living=True)
            for each in (*handles.values(), queue):
                trial.call("close", each.close, waits=True)
        else:
            mutate(path, chance, living=False)
        if chance.random() < 0.3:
            trial.call("verify it", lambda: shmq.verify(path))
            trial.call("repair it", lambda: shmq.repair(path))
        for read_only in (True, False):
            fresh = trial.call(
                "open", lambda read_only=read_only: shmq.open(path, create=False, read_only=read_only), waits=True
            )
            if fresh is not None:
                handles = {} if read_only else opened(fresh, trial)
                trial.use(fresh, handles, read_only=read_only)
                for each in (*handles.values(), fresh):
                    trial.call("close", each.close, waits=True)
        if ended is not None and (killed := ended()):
            trial.wrong.append(f"the one at work: ended by {killed}")
    restore(path, pristine)
    return trial.wrong


# ---------------------------------------------------------------- many
def batch(path: Path, first: int, count: int, state: mmap.mmap, told: int) -> None:
    """In a process of its own: so many cases, and what was wrong with them."""
    os.setpgid(0, 0)
    warnings.simplefilter("ignore")
    logging.disable()
    signal.signal(signal.SIGALRM, Timer.heard)
    build(path)
    pristine = contents(path)
    for number in range(first, first + count):
        state[:8] = number.to_bytes(8, "little")
        made = int.from_bytes(state[8:16], "little") + mutants(number)
        wrongs = once(path, pristine, number)
        state[8:16] = made.to_bytes(8, "little")
        for wrong in wrongs:
            os.write(told, f"seed {number}: {wrong}\n".encode())
    state[:8] = (first + count).to_bytes(8, "little")


def run(first: int, count: int) -> tuple[int, int, list[str]]:
    """A batch of cases: how many were done, how many mutants were in them, and what was wrong."""
    state = mmap.mmap(-1, PAGE)
    state[:8] = first.to_bytes(8, "little")
    with tempfile.TemporaryDirectory(prefix="fuzz-living-", dir=SHM if SHM.is_dir() else None) as root, \
            tempfile.TemporaryFile() as told:  # fmt: skip
        pid = start(batch, Path(root, "q"), first, count, state, told.fileno())
        status = _wait(pid, state)
        with contextlib.suppress(ProcessLookupError):
            os.killpg(pid, signal.SIGKILL)
        at = int.from_bytes(state[:8], "little")
        told.seek(0)
        wrong = [told.read().decode("utf-8", "replace")]
        if status is None:
            wrong.append(f"seed {at}: a call cannot be interrupted: nothing for {PATIENCE} s")
        elif status < 0:
            wrong.append(f"seed {at}: killed by signal {-status}")
        elif status:  # the sanitizers end a process so
            wrong.append(f"seed {at}: ended with status {status}")
        made = int.from_bytes(state[8:16], "little")
        return min(at + 1, first + count) - first, made, [each for each in wrong if each]


def _wait(pid: int, state: mmap.mmap) -> int | None:
    """Its exit code; None when it was killed, since it said nothing for long."""
    seen, since = state[:8], time.monotonic()
    while True:
        done, status = os.waitpid(pid, os.WNOHANG)
        if done:
            return os.waitstatus_to_exitcode(status)
        if state[:8] != seen:
            seen, since = state[:8], time.monotonic()
        if time.monotonic() - since > PATIENCE:
            os.kill(pid, signal.SIGKILL)
            os.waitpid(pid, 0)
            return None
        time.sleep(0.01)


def loop(
    first: int, *, cases: int = 1 << 62, seconds: float = 1e9, size: int = BATCH, most: int = 1 << 62
) -> tuple[int, int, list[str]]:
    """So many cases, or *most* mutants, or what fits into *seconds*: how many cases, mutants, and what was wrong."""
    end, done, made = time.monotonic() + seconds, 0, 0
    wrong: list[str] = []
    while done < cases and made < most and time.monotonic() < end:
        count, more, found = run(first + done, min(size, cases - done))
        done, made = done + count, made + more
        wrong += found
        for each in found:
            print(each, file=sys.stderr, flush=True)
    return done, made, wrong


def main() -> int:
    """The command."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=60)
    parser.add_argument("--cases", type=int, default=1 << 62)
    parser.add_argument("--mutants", type=int, default=1 << 62, help="until there were so many")
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    done, made, wrong = loop(options.seed, cases=options.cases, seconds=options.seconds, most=options.mutants)
    print(f"{made:,} mutants in {done:,} cases from seed {options.seed}: {len(wrong)} with something wrong")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
