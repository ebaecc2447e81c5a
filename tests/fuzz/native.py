"""
Fuzz our own files: whatever the bytes, opening, recovering, reading, verifying and repairing end, and never crash.

    python tests/fuzz/native.py [--seconds N] [--seed N]

Each round takes a small queue with everything in it, changes bytes of some files, mends the checksums of half of what
it changed, and asks: does every verb end with a result or a `ShmqError`; does what is delivered carry only payloads
that were put; and is a repaired queue whole. A failure prints the seed and names the directory with the files. Run it
with a core that was built with sanitizers (CONTRIBUTING.md) for more than crashes.
"""

import argparse
import random
import shutil
import sys
import tempfile
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))
sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from support import crc32c_by_bits

import shmq
from shmq import ShmqError

SHM = Path("/dev/shm")
PAGE = 4096
EXTREMES = [
    0,
    1,
    7,
    8,
    0x7F,
    0xFF,
    0x7FFF,
    0xFFFF,
    1 << 27,
    (1 << 31) - 1,
    1 << 31,
    (1 << 32) - 1,
    1 << 62,
    (1 << 64) - 1,
]
CHECKSUMS = {  # by the end of a file's name: (where the checksum stands, first byte covered, first one not covered)
    ".chunk": [(12, 16, 128)],
    "queue.shmq": [(PAGE + 100, PAGE, PAGE + 100), (3 * PAGE + 44, 3 * PAGE, 3 * PAGE + 44)],
    ".checkpoint": [(60, 0, 128)],
}


FILTER = shmq.Filter(key_prefix=b"kk", types={0}, headers={"n": 1})


def seed(root: Path) -> tuple[Path, set[bytes]]:
    """A queue with chunks, a batch, padding, an adopted set, consumers and a recovery behind it; and what was put."""
    path = root / "seed"
    put = []
    with shmq.open(path, options=shmq.Options(chunk_bytes=16384, retention=shmq.Retention.forever())) as queue:
        for number in range(300):
            put.append(b"%d" % number + bytes(number % 50))
            queue.put(put[-1], key=b"k" * (number % 9), headers={"n": number % 2, "deep": [{}]} if number % 3 else None)
        batch = [b"batch %d" % number for number in range(9)]
        queue.put_many(batch)
        queue.reserve(50).abort()
        with queue.stage() as staged:
            staged.put(b"staged")
            queue.adopt(staged, dedup=("p", 1))
        queue.put(b"last")
        with queue.consumer("c") as consumer:
            consumer.take_many(5)
        queue.consumer("f", filter=FILTER).close()
    return path, {*put, *batch, b"staged", b"last"}


def mutate(path: Path, chance: random.Random) -> None:
    """Change bytes of one to four files, and mend some checksums."""
    files = sorted(file for file in path.rglob("*") if file.is_file() and file.stat().st_size)
    for _ in range(chance.randint(1, 4)):
        file = chance.choice(files)
        content = bytearray(file.read_bytes())
        if not content:
            continue
        at = chance.randrange(min(len(content), chance.choice([128, 4200, len(content)])))
        kind = chance.randrange(6)
        if kind == 0:
            content[at] ^= 1 << chance.randrange(8)
        elif kind in (1, 2):
            at -= at % 8
            content[at : at + 8] = chance.choice(EXTREMES).to_bytes(8, "little")
        elif kind == 3:
            size = chance.choice([8, 64, 512, PAGE])
            content[at : at + size] = bytes(len(content[at : at + size]))
        elif kind == 4:
            size = chance.choice([1, 8, 64])
            content[at : at + size] = chance.randbytes(len(content[at : at + size]))
        elif chance.random() < 0.3:
            del content[at:]
        if chance.random() < 0.5:
            mend(file.name, content)
        file.write_bytes(content)


def mend(name: str, content: bytearray) -> None:
    """Make the checksums of a file agree with what it says now."""
    for end, places in CHECKSUMS.items():
        for crc, first, behind in places if name.endswith(end) and len(content) >= PAGE else []:
            content[crc : crc + 4] = bytes(4) if first <= crc < behind else content[crc : crc + 4]
            content[crc : crc + 4] = crc32c_by_bits(bytes(content[first:behind])).to_bytes(4, "little")


def check(path: Path, put: set[bytes]) -> None:
    """Everything that may be done with such a queue."""
    most = 4 * len(put) + 100
    try:
        found = shmq.verify(path)
        assert found.messages <= most
        repaired = shmq.repair(path)
        assert shmq.verify(repaired.path), shmq.verify(repaired.path).problems
    except ShmqError:
        pass
    for flags in ({"read_only": True}, {}):
        for skip in (False, True):
            try:
                with shmq.open(path, create=False, **flags) as queue:
                    read(queue, put, most, skip_corrupt=skip)
                    if skip and not flags:
                        use(queue)
            except (ShmqError, IndexError):
                pass


def read(queue: shmq.Queue, put: set[bytes], most: int, *, skip_corrupt: bool) -> None:
    """What comes out was put in."""
    for count, message in enumerate(queue.reader(skip_corrupt=skip_corrupt)):
        assert count <= most, "more messages than bytes"
        assert message.payload in put, "a payload from nowhere"
    for message in queue.reader(skip_corrupt=skip_corrupt, filter=FILTER):
        assert message.payload in put, "a payload from nowhere"
    for index in (0, 150, 299, 305, -1):
        try:
            assert queue[index].payload in put
        except IndexError:
            continue


def use(queue: shmq.Queue) -> None:
    """And it can be used, or says why not."""
    with queue.consumer("c", skip_corrupt=True) as consumer:
        consumer.take_many(50, timeout=0)
    with queue.consumer("f", skip_corrupt=True) as consumer:
        assert consumer.lag <= consumer.behind
        consumer.take_many(50, timeout=0)
    queue.put(b"last")
    queue.put_many([b"last"] * 3)


def once(source: Path, put: set[bytes], number: int) -> None:
    """One round, from one seed number."""
    chance = random.Random(number)
    root = Path(tempfile.mkdtemp(prefix="fuzz-native-", dir=SHM if SHM.is_dir() else None))
    path = root / "q"
    shutil.copytree(source, path)
    mutate(path, chance)
    try:
        check(path, put)
    except BaseException:
        print(f"seed {number} fails; its files are in {root}", file=sys.stderr)
        raise
    shutil.rmtree(root)


def loop(first_seed: int, *, rounds: int | None = None, seconds: float = 0.0) -> int:
    """So many rounds, or as many as fit into *seconds*: how many there were."""
    with tempfile.TemporaryDirectory(dir=SHM if SHM.is_dir() else None) as root:
        source, put = seed(Path(root))
        end = time.monotonic() + seconds
        done = 0
        while done < rounds if rounds is not None else time.monotonic() < end:
            once(source, put, first_seed + done)
            done += 1
        return done


def main() -> None:
    """The command."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=60)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    print(f"{loop(options.seed, seconds=options.seconds)} rounds: no crash, no endless loop, nothing from nowhere")


if __name__ == "__main__":
    main()
