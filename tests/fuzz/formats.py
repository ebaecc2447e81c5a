"""
Fuzz the readers of foreign formats: whatever the bytes, a reader ends, in bounded steps, without a crash.

    python tests/fuzz/formats.py [--format NAME] [--seconds N] [--seed N]

With atheris installed it drives the mutations by coverage; without it, a plain loop mutates small valid queues. Each
round asks four things of a mutated queue: reading, state and verify end with a result or with a `ShmqError`; no more
entries come out than the bytes can hold; `strict` and not strict agree up to the first damage; and where `state` has a
result, `repair` has one too: a clean queue that holds what reading delivers, beside an original that is as it was. A
failure prints the seed and leaves the files in a directory that it names.
"""

import argparse
import importlib.util
import random
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))
sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "formats"))

from chronicle_files import DAY, END_MARK, cq4, table

from shmq import formats
from shmq.errors import ShmqError
from shmq.formats import Entry, kestrel

Files = dict[str, bytes]
SHM = Path("/dev/shm")
WINDOW_ROOM = 1 << 20
"""More than any reader's window: what its memory may differ by."""


def tree(folder: Path) -> Files:
    """{relative name: bytes} of every file under *folder*."""
    return {str(path.relative_to(folder)): path.read_bytes() for path in sorted(folder.rglob("*")) if path.is_file()}


def place(folder: Path, files: Files) -> None:
    """Write {relative name: bytes} under *folder*."""
    for name, data in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)


def _seed_libkestrel(folder: Path) -> None:
    entries = [Entry(b"x" * n, n + 1, n * 10**9, n * 10**10 if n % 3 == 0 else None, attempts=n % 2) for n in range(12)]
    readers = {"": (3, (5, 7)), "audit": (0, ())}
    formats.write(folder, entries, "libkestrel", "jobs", readers, journal_bytes=200, name_ms=1)


def _seed_sej(folder: Path) -> None:
    entries = [Entry(b"v" * n, n, n, key=b"k" * (n % 4), type=n) for n in range(12)]
    formats.write(folder, entries, "sej", None, {"r": (4, ()), "never": (None, ())}, segment_bytes=150)


def _seed_qewqew(folder: Path) -> None:
    folder.mkdir()
    formats.write(folder / "q", [Entry(b"e" * n) for n in range(12)], "qewqew", chunk_bytes=40)


def _seed_kestrel(folder: Path) -> None:
    entries = [Entry(b"i" * n, None, n * 10**9, extra={"xid": n} if n < 3 else None) for n in range(12)]
    formats.write(folder, entries, "kestrel", "cars", {"x": (2, ())}, layout="rotated", rotate_bytes=150, name_ms=5)
    one = Entry(b"c", None, 5)
    extra = [
        kestrel.record(kestrel.REMOVE),
        kestrel.record(kestrel.REMOVE_TENTATIVE_XID, xid=9),
        kestrel.record(kestrel.CONTINUE, xid=9, entry=one),
        kestrel.record(kestrel.REMOVE_TENTATIVE),
        kestrel.record(kestrel.UNREMOVE, xid=1),
        kestrel.record(kestrel.ADD, entry=one),
        kestrel.record(kestrel.ADD_XID, xid=70, entry=one),
        kestrel.record(kestrel.STATE_DUMP, xid=9, count=1),
        kestrel.record(kestrel.ADD_XID, xid=7, entry=one),
        kestrel.record(kestrel.REMOVE_TENTATIVE),
    ]
    with (folder / "cars").open("ab") as file:
        file.write(b"".join(extra))


def _seed_chronicle(folder: Path) -> None:
    files = {
        "20231115T1.cq4": cq4([b"e" * n for n in range(1, 11)], end=END_MARK, meta={2: [b"\xb9\x04user\xa1\x05"]}),
        "20231116T1.cq4": cq4([b"\xe3abc", b"\x8f"]),
        "20231118T1.cq4": cq4([b"left open"], end=b"\x23\x01\x00\x80half"),
    }
    keys = {"listing.highestCycle": DAY + 3, "chronicle.write.lock": -(1 << 63), "index.a": DAY << 32 | 3, "index.b": 0}
    place(folder, files | {"metadata.cq4t": table(keys, pattern=b"yyyyMMdd'T1'")[:-240]})


SEEDS: dict[str, Callable[[Path], None]] = {
    "libkestrel": _seed_libkestrel,
    "sej": _seed_sej,
    "qewqew": _seed_qewqew,
    "kestrel": _seed_kestrel,
    "chronicle": _seed_chronicle,
}
TARGETS = {
    "libkestrel": ("", "jobs"),
    "sej": ("", None),
    "qewqew": ("q", None),
    "kestrel": ("", "cars"),
    "chronicle": ("", None),
}
WAYS: dict[str, tuple[dict[str, object], ...]] = {
    "chronicle": (
        {"backward": True},
        {"meta": True},
        {"consumer": "a"},
        *({"index": DAY << 32 | n, "backward": back} for n in (9, 1 << 32) for back in (False, True)),
    ),
}
"""More ways to read a format than all have."""
_NASTY = [
    b"\0",
    b"\xff",
    b"\x7f\xff\xff\xff",
    b"\xff\xff\xff\xff",
    b"\xff\xff\xff\x7f",
    b"\x80\0\0\0",
    bytes(40),
    b"\x10" * 300,
]


def seed(name: str) -> Files:
    """A small valid queue of the format *name*, with everything in it that the format has."""
    with tempfile.TemporaryDirectory() as folder:
        SEEDS[name](Path(folder) / "seed")
        return tree(Path(folder) / "seed")


def small(name: str) -> Files:
    """As `seed`, with so few messages that every bit can have its turn."""
    if name == "chronicle":
        keys = {"index.a": DAY << 32 | 1}
        files = {"20231115T1.cq4": cq4([b"a", b"bc"], end=END_MARK), "20231116T1.cq4": cq4([b"d"])}
        return files | {"metadata.cq4t": table(keys, pattern=b"yyyyMMdd'T1'")[:-240]}
    entries = [Entry(b"ab"[:n], None, 10**18, key=b"k"[:n], type=n) for n in (1, 2, 1)]
    options = {"libkestrel": 70, "sej": 60, "kestrel": 40, "qewqew": 16}
    size = {"libkestrel": "journal_bytes", "sej": "segment_bytes", "kestrel": "rotate_bytes", "qewqew": "chunk_bytes"}
    more: dict[str, object] = {"layout": "rotated", "name_ms": 1} if name == "kestrel" else {}
    if name == "libkestrel":
        more = {"name_ms": 1, "consumers": {"r": (1, (3,))}}
    elif name == "sej":
        more = {"consumers": {"r": (1, ())}}
    with tempfile.TemporaryDirectory() as folder:
        target, queue = TARGETS[name]
        formats.write(
            Path(folder) / target,
            entries,
            name,
            queue,
            lossy=True,
            **{size[name]: options[name]},
            **more,  # type: ignore[arg-type]
        )
        return tree(Path(folder))


def mutate(files: Files, chance: random.Random) -> Files:
    """Change one to four things: bytes, lengths, whole files."""
    files = dict(files)
    for _ in range(chance.randint(1, 4)):
        if not files:
            break
        name = chance.choice(sorted(files))
        data = bytearray(files[name])
        at = chance.randrange(len(data) + 1)
        kind = chance.randrange(8)
        if kind == 0 and data:
            data[at % len(data)] ^= 1 << chance.randrange(8)
        elif kind == 1:
            del data[at:]
        elif kind == 2:
            new = chance.choice(_NASTY)
            data[at : at + len(new)] = new
        elif kind == 3:
            data[at:at] = chance.choice(_NASTY)
        elif kind == 4:
            del data[at : at + chance.randrange(1, 30)]
        elif kind == 5:
            start = chance.randrange(len(data) + 1)
            data[at:at] = data[start : start + chance.randrange(60)]
        elif kind == 6:
            other = files[chance.choice(sorted(files))]
            data = bytearray(other)
        else:
            del files[name]
            continue
        files[name] = bytes(data)
    return files


def check(name: str, folder: Path, files: Files) -> int:
    """Read a mutated queue in every way; return how many entries came, or raise what must never be raised."""
    place(folder, files)
    target, queue = TARGETS[name]
    path = folder / target
    most = 2 * sum(map(len, files.values())) + 100
    formats.detect(folder)
    counts: dict[tuple[str, ...], int] = {}
    options: dict[str, object]
    for options in ({}, {"strict": True}, {"as_program": True}, *WAYS.get(name, ())):
        counts[tuple(options)] = _count(formats.read, path, name, queue, most, options)
    assert counts["strict",] <= counts[()], "strict delivered more than not strict"
    try:
        found = formats.state(path, queue, name)
    except ShmqError:
        return counts[()]
    assert found.messages == counts[()], f"{found.messages} messages by state, {counts[()]} by read"
    formats.verify(path, queue, name)
    _check_repair(name, folder, path, queue)
    return counts[()]


def _check_repair(name: str, folder: Path, path: Path, queue: str | None) -> None:
    """What `state` can walk, `repair` can mend: nothing that is delivered is lost, and nothing of the original."""
    before = tree(folder)
    with tempfile.TemporaryDirectory(dir=folder.parent) as beside:
        done = formats.repair(path, queue, name, to=Path(beside) / "clean")
        named = None if name == "qewqew" else queue
        assert formats.verify(done.path, named, name) == [], "what was repaired is not clean"
        mended = [entry.payload for entry in formats.read(done.path, name, named)]
    whole = [entry.payload for entry in formats.read(path, name, queue)]
    # Behind them a QewQew may have elements of chunks that nothing led to.
    assert whole == (mended[: len(whole)] if name == "qewqew" else mended), "repair lost or changed something"
    assert before == tree(folder), "repair changed the original"


def _count(
    read: Callable[..., object], path: Path, name: str, queue: str | None, most: int, options: dict[str, object]
) -> int:
    count = 0
    try:
        for entry in read(path, name, queue, **options):  # type: ignore[attr-defined]
            count += 1
            assert count <= most, f"more than {most} entries out of these bytes"
            assert isinstance(entry.payload, bytes)
    except ShmqError:
        pass
    return count


def loop(names: list[str], seconds: float, first_seed: int) -> int:
    """Mutate and check for *seconds*; return how many rounds there were."""
    seeds = {name: seed(name) for name in names}
    end = time.monotonic() + seconds
    rounds = 0
    while time.monotonic() < end:
        number = first_seed + rounds
        name = names[rounds % len(names)]
        once(name, seeds[name], number)
        rounds += 1
    return rounds


def once(name: str, files: Files, number: int) -> None:
    """One round, from one seed number."""
    checked(name, mutate(files, random.Random(number)), f"seed {number}")


def checked(name: str, files: Files, what: str) -> None:
    """Check one set of files, and keep them if that fails."""
    folder = Path(tempfile.mkdtemp(prefix=f"fuzz-{name}-", dir=SHM if SHM.is_dir() else None))
    try:
        check(name, folder, files)
    except BaseException:
        print(f"{name}: {what} fails; its files are in {folder}", file=sys.stderr)
        raise
    shutil.rmtree(folder)


def _has_atheris() -> bool:
    return importlib.util.find_spec("atheris") is not None


def _by_coverage(names: list[str], corpus: Path, arguments: list[str]) -> None:
    """Let atheris change the files of small valid queues, one at a time, by what code they reach. Ends the process."""
    import atheris  # type: ignore[import-not-found]

    queues = {name: seed(name) for name in names}
    choices = [(name, file) for name in names for file in sorted(queues[name])]
    for number, (name, file) in enumerate(choices):
        (corpus / str(number)).write_bytes(bytes((number,)) + queues[name][file])

    def one_input(data: bytes) -> None:
        if data:
            name, file = choices[data[0] % len(choices)]
            checked(name, queues[name] | {file: data[1:]}, "its input")

    atheris.instrument_all()
    atheris.Setup([sys.argv[0], *arguments, "-max_len=4096", "-len_control=0", str(corpus)], one_input)
    atheris.Fuzz()


def _apart(names: list[str], seconds: float) -> int:
    """Run `_by_coverage` in a child, for it ends its process and leaves its corpus; return the child's exit status."""
    with tempfile.TemporaryDirectory() as corpus:
        words = [word for name in names for word in ("--format", name)]
        return subprocess.run(
            [sys.executable, __file__, *words, "--seconds", str(seconds), "--corpus", corpus], check=False
        ).returncode


def main() -> None:
    """The command."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--format", choices=sorted(SEEDS), action="append", help="only this one (may be repeated)")
    parser.add_argument("--seconds", type=float, default=60)
    parser.add_argument("--seed", type=int, default=0, help="the first seed of the plain loop")
    parser.add_argument("--plain", action="store_true", help="the plain loop, also when atheris is installed")
    parser.add_argument("--corpus", type=Path, help=argparse.SUPPRESS)
    options = parser.parse_args()
    names = options.format or sorted(SEEDS)
    if options.corpus:
        _by_coverage(names, options.corpus, [f"-max_total_time={int(options.seconds)}"])
    elif _has_atheris() and not options.plain:
        raise SystemExit(_apart(names, options.seconds))
    else:
        rounds = loop(names, options.seconds, options.seed)
        print(f"{rounds} rounds over {', '.join(names)}: no crash, no endless loop, nothing out of bounds")


if __name__ == "__main__":
    main()
