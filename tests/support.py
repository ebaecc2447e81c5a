"""
What the suites share: real child processes, and the bytes of a queue read without the library.

The reading here is a second, independent one: it knows docs/format.md and nothing of shmq.
"""

from __future__ import annotations

import contextlib
import ctypes
import fcntl
import os
import random
import select
import shutil
import signal
import struct
import subprocess
import sys
import time
import traceback
import warnings
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterator, Sequence

DEADLINE = 20.0
"""Seconds after which something that should happen at once is taken not to happen."""

FREE, CLAIMED, DONE, META, PAD, SEAL = range(6)
PAGE = 4096
HINT = 128  # in a chunk's header
FIRST_LIVE, NEWEST = 256, 320  # in the control page
HEAD, HANDED = 192, 200  # in a checkpoint

Each = TypeVar("Each")

WHOLE = "SHMQ_WHOLE" in os.environ
ONE_IN = 1 if WHOLE else 3
"""How much of a long sweep the suite does: one in so many; all of it with SHMQ_WHOLE=1."""


def share(of_all: int) -> int:
    """That many of *of_all*, rounded up."""
    return -(-of_all // ONE_IN)


def dice() -> random.Random:
    """What a test draws its share with. The seed is printed, which pytest shows beside a failure."""
    seed = int(os.environ.get("SHMQ_SEED", time.time_ns() // 1_000_000))
    print(f"drawn with SHMQ_SEED={seed}")
    return random.Random(seed)


def drawn(of_all: Sequence[Each]) -> list[Each]:
    """A share of them in their order, another one in each run."""
    chosen = dice().sample(range(len(of_all)), share(len(of_all)))
    return [of_all[each] for each in sorted(chosen)]


def strides() -> Iterator[int]:
    """How far to go, again and again, in a sweep whose end is not known: a share of all steps, drawn anew each run."""
    chance = dice()
    while True:
        yield chance.randint(1, 2 * ONE_IN - 1)


@contextlib.contextmanager
def alone(made: Path) -> Iterator[None]:
    """One process at a time makes what is to lie there: whoever has waited finds it, and need not compile it again."""
    made.parent.mkdir(parents=True, exist_ok=True)
    with open(f"{made}.lock", "w", encoding="utf-8") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


# ---------------------------------------------------------------- the bytes
class Word(NamedTuple):
    """One word of a chunk and where it stands."""

    position: int
    state: int
    count: int
    owner: int
    span: int


def unpack_word(position: int, word: int) -> Word:
    """The four fields of a word."""
    return Word(position, word >> 61, word >> 48 & 0x1FFF, word >> 27 & 0x1FFFFF, word & 0x7FFFFFF)


def chunk_files(path) -> list[Path]:
    """The chunk files of the queue at *path*, in order."""
    return sorted(Path(path, "chunks").glob("*.chunk"), key=lambda file: file.name.split("-")[1])


def chunk_bytes(path, which: int = 0) -> bytes:
    """The bytes of one chunk file."""
    return chunk_files(path)[which].read_bytes()


def words(path, which: int = 0, *, meta: bool = False) -> list[Word]:
    """What a walk visits in one chunk, up to and with its SEAL; the header and index2index only if asked for."""
    content = chunk_bytes(path, which)
    found = []
    position = 0
    while position + 8 <= len(content):
        (word,) = struct.unpack_from("<Q", content, position)
        if not word:
            break
        each = unpack_word(position, word)
        if meta or each.state != META:
            found.append(each)
        if each.state == SEAL:
            break
        position += each.span * 8
    return found


def states(path, which: int = 0) -> list[int]:
    """The states of the words in one chunk."""
    return [word.state for word in words(path, which)]


class Record(NamedTuple):
    """One message as it lies in its chunk."""

    length: int
    crc: int
    ordinal: int
    place: int
    batch: int
    time_ns: int
    type: int
    flags: int
    key: bytes
    extra: bytes
    payload: bytes


def record_at(content: bytes, position: int) -> Record:
    """The message whose word stands at *position*."""
    length, crc, ordinal, place, batch, time_ns, kind, flags, key_length, extra = struct.unpack_from(
        "<IIIHHqHHHH", content, position + 8
    )
    at = position + 40
    extra_bytes = content[at : at + extra * 8]
    at += extra * 8
    key = content[at : at + key_length]
    at += -(-key_length // 8) * 8
    payload = content[at : position + length]
    return Record(length, crc, ordinal, place, batch, time_ns, kind, flags, key, extra_bytes, payload)


def records(path, which: int = 0) -> list[Record]:
    """Every message of one chunk."""
    content = chunk_bytes(path, which)
    return [record_at(content, word.position) for word in words(path, which) if word.state == DONE]


def patch(file, position: int, data: bytes) -> None:
    """Overwrite bytes of a file where it lies."""
    fd = os.open(file, os.O_WRONLY)
    try:
        os.pwrite(fd, data, position)
    finally:
        os.close(fd)


def flip(file, position: int, bit: int = 0) -> None:
    """Flip one bit of a file."""
    with open(file, "rb") as handle:
        handle.seek(position)
        (byte,) = handle.read(1)
    patch(file, position, bytes([byte ^ 1 << bit]))


def kept_locks(path: str = "/") -> list[str]:
    """Files below *path* whose locks this process keeps by a mapping, which no forked child has."""
    lines = Path("/proc/self/maps").read_text().splitlines()
    return [name for line in lines if "---s" in line and (name := line.split(maxsplit=5)[5]).startswith(path)]


def lose_locks(file: str) -> None:
    """Unmap what keeps this process's locks on *file*, as nobody should."""
    for line in Path("/proc/self/maps").read_text().splitlines():
        if "---s" in line and line.endswith(file):
            begin, end = (int(at, 16) for at in line.split()[0].split("-"))
            assert ctypes.CDLL(None).munmap(ctypes.c_void_p(begin), ctypes.c_size_t(end - begin)) == 0


def peek(file, position: int) -> int:
    """The 64-bit number at *position* of a file."""
    with open(file, "rb") as handle:
        handle.seek(position)
        return int.from_bytes(handle.read(8), "little")


def crc32c_by_bits(data: bytes, crc: int = 0) -> int:
    """CRC-32C, a bit at a time, from its definition."""
    crc ^= 0xFFFFFFFF
    for byte in data:
        crc ^= byte
        for _ in range(8):
            crc = crc >> 1 ^ (0x82F63B78 if crc & 1 else 0)
    return crc ^ 0xFFFFFFFF


def journal_slots(path) -> list[tuple[int, bytes]]:
    """(position, bytes) of the valid slots of the journal, the newest last."""
    content = Path(path, "queue.shmq").read_bytes()
    found = []
    for at in (PAGE, 2 * PAGE):
        slot = content[at : at + 104]
        if slot[:8] != bytes(8) and crc32c_by_bits(slot[:100]) == int.from_bytes(slot[100:], "little"):
            found.append((at, slot))
    return sorted(found, key=lambda each: int.from_bytes(each[1][:8], "little"))


def change_journal(path, at: int, data: bytes) -> None:
    """Overwrite bytes of every valid slot of the journal, and mend its checksum."""
    for position, slot in journal_slots(path):
        changed = slot[:at] + data + slot[at + len(data) : 100]
        patch(Path(path, "queue.shmq"), position, changed + crc32c_by_bits(changed).to_bytes(4, "little"))


def make_unclean(path) -> None:
    """Have the queue look as if it was last open in another boot."""
    change_journal(path, 16, b"another boot id!")


def set_watermark(path, chunk_sequence: int, position: int, index: int, epoch: int = 1) -> None:
    """Write a watermark, the newest."""
    slot = struct.pack("<QQQQQI", 1 << 40, epoch, chunk_sequence, position, index, 0)
    patch(Path(path, "queue.shmq"), 3 * PAGE, slot + crc32c_by_bits(slot).to_bytes(4, "little"))


# ---------------------------------------------------------------- other processes
def readable(fd: int, seconds: float) -> bool:
    """Whether there is something to read in time; of any number, which select() does not take."""
    poll = select.poll()
    poll.register(fd, select.POLLIN)
    return bool(poll.poll(seconds * 1000))


def fork() -> int:
    """The child's pid, and 0 in the child: for those who both go on. `start` is for all others."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # 3.12 on, about threads: the child leaves them alone
        return os.fork()


def start(work, *arguments) -> int:
    """
    Have *work*(*arguments*) done in a child, and no more there; its pid.

    The child ends with 0, or with 1 and what was raised on stderr, and closes nothing that its caller holds.
    """
    _flush()  # or the child, too, would write what was printed before
    pid = fork()
    if pid == 0:
        status = 1
        try:
            work(*arguments)
            status = 0
        except BaseException:  # noqa: BLE001  # the parent sees the exit status
            traceback.print_exc()
        finally:
            try:
                _flush()
            finally:
                os._exit(status)
    return pid


def _flush() -> None:
    sys.stdout.flush()
    sys.stderr.flush()


class Child:
    """A forked process at work. It says words; the parent waits for them."""

    def __init__(self, work, *arguments) -> None:
        """Fork, and have *work*(say, *arguments*) run in the child."""
        self._read, write = os.pipe()

        def say(what: object) -> None:
            os.write(write, f"{what}\n".encode())

        def live() -> None:
            os.close(self._read)
            work(say, *arguments)

        self.pid = start(live)
        os.close(write)
        self._said = b""
        self._status: int | None = None

    def hear(self, deadline: float = DEADLINE) -> str:
        """The next word the child says."""
        until = time.monotonic() + deadline
        while b"\n" not in self._said:
            ready = readable(self._read, max(until - time.monotonic(), 0))
            assert ready, f"child {self.pid} said nothing for {deadline} s"
            part = os.read(self._read, 65536)
            assert part, f"child {self.pid} ended and said nothing"
            self._said += part
        line, _, self._said = self._said.partition(b"\n")
        return line.decode()

    def has_spoken(self) -> bool:
        """Whether there is something to hear, or it has ended."""
        return self.speaks_within(0)

    def speaks_within(self, seconds: float) -> bool:
        """Wait so long for something to hear, or its end: whether it came."""
        return b"\n" in self._said or readable(self._read, seconds)

    def signal(self, number: int) -> None:
        """Send a signal."""
        os.kill(self.pid, number)

    def kill(self) -> None:
        """kill -9, and wait until it is gone."""
        self.signal(signal.SIGKILL)
        self.join()

    def join(self, deadline: float = DEADLINE) -> int:
        """Wait for its end: exit status, or minus the signal that ended it."""
        until = time.monotonic() + deadline
        while self._status is None:
            pid, status = os.waitpid(self.pid, os.WNOHANG)
            if pid:
                self._status = os.waitstatus_to_exitcode(status)
                os.close(self._read)
            else:
                assert time.monotonic() < until, f"child {self.pid} did not end"
                time.sleep(0.002)
        return self._status

    def __enter__(self):
        return self

    def __exit__(self, *_: object) -> None:
        if self._status is None:
            with contextlib.suppress(ProcessLookupError):
                self.signal(signal.SIGKILL)
            self.join()


def in_child(work, *arguments) -> str:
    """What *work*(*arguments*) answers in a forked process."""

    def answer(say) -> None:
        say(work(*arguments))

    with Child(answer) as child:
        answered = child.hear()
        assert child.join() == 0
        return answered


def run_python(code: str, *arguments: object, **options) -> str:
    """What a fresh interpreter prints for *code*."""
    options.setdefault("cwd", "/")  # not where a folder called shmq may lie
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", code, *map(str, arguments)],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
        **options,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def turn_is_free(path) -> bool:
    """Whether nobody has the turn to make a chunk in that folder."""
    fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    finally:
        os.close(fd)
    return True


def until(condition, deadline: float = DEADLINE) -> None:
    """Wait for *condition*() to hold."""
    end = time.monotonic() + deadline
    while not condition():
        assert time.monotonic() < end, "it never happened"
        time.sleep(0.002)


def hold_until_killed(say) -> None:
    """For the end of a child's work: say that it is done, and stay."""
    say("ready")
    while True:
        time.sleep(60)


CHANGING = {
    "fchmod", "fdatasync", "flush", "fsync", "link", "mkdir", "open", "posix_fallocate", "pwrite", "rename", "rmdir",
    "truncate", "unlink", "shmq_chunk_format", "shmq_cut", "shmq_newest_raise", "shmq_rename_new", "shmq_seal",
    "shmq_seal_adopt", "shmq_set_in_order",
}  # fmt: skip
"""Calls by which a process changes a queue, whoever makes them."""


def killed_at(step: int, work: Callable[[], object], calls: Collection[str] = frozenset(CHANGING)) -> bool:
    """Run *work* in a child that is killed before its n-th call that changes something: whether it was."""

    def job(say: Callable[[object], None]) -> None:
        left = [step]

        def watch(frame: object, event: str, function: object) -> None:
            if event == "c_call" and getattr(function, "__name__", "") in calls:
                left[0] -= 1
                if left[0] < 0:
                    os.kill(os.getpid(), signal.SIGKILL)

        sys.setprofile(watch)
        work()
        sys.setprofile(None)

    with Child(job) as child:
        return child.join() == -signal.SIGKILL


# ---------------------------------------------------------------- where indexes are high
def begin_at(path, index: int) -> None:
    """Have a queue that nobody has open, and in which nothing was put, begin at that index."""
    assert chunk_files(path) == []
    change_journal(path, 32, struct.pack("<QQQ", index, 0, index))


# ---------------------------------------------------------------- a small /dev/shm
TINY = """
import os, sys, subprocess
subprocess.run(["mount", "-t", "tmpfs", "-o", "size=%s", "tmpfs", "/dev/shm"], check=True)
import shmq
"""


def in_tiny(code: str, size: str) -> str:
    """What *code* prints where /dev/shm is that small; skips where no such place can be made."""
    import pytest  # who has no tests uses this module too

    words = ["unshare", "-rm"] if os.geteuid() else ["unshare", "-m"]
    if shutil.which("unshare") is None:
        pytest.skip("there is no unshare here")
    probe = subprocess.run([*words, "mount", "-t", "tmpfs", "tmpfs", "/dev/shm"], capture_output=True, check=False)
    if probe.returncode:
        pytest.skip(f"a /dev/shm of our own cannot be mounted here: {probe.stderr.decode().strip()}")
    done = subprocess.run(
        [*words, sys.executable, "-c", TINY % size + code],
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout
