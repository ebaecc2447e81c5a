"""Hostile bytes: every reader ends, in bounded steps and bounded memory, with a result or one of our errors."""

import importlib.util
import os
import random
import struct
import time
import tracemalloc
from contextlib import suppress

import pytest
from chronicle_files import EOF, META, NOT_READY, cq4, document, header, longs, slot, table, word
from format_fixtures import FIXTURES, PROJECT, place, tree
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from support import drawn, share

from shmq import formats
from shmq.errors import ShmqError, TooLarge
from shmq.formats import Entry, kestrel, libkestrel, qewqew, sej

_spec = importlib.util.spec_from_file_location("fuzz_formats", PROJECT / "tests" / "fuzz" / "formats.py")
fuzz = importlib.util.module_from_spec(_spec)
_spec.loader.exec_module(fuzz)

NAMES = sorted(fuzz.SEEDS)
BOUNDED = settings(deadline=None, max_examples=share(120), suppress_health_check=list(HealthCheck), database=None)


@pytest.fixture(scope="module")
def seeds():
    return {name: fuzz.seed(name) for name in NAMES}


@pytest.mark.parametrize("name", NAMES)
@BOUNDED
@given(number=st.integers(0, 2**32))
def test_mutated_queues_are_read_or_refused(seeds, name, number):
    fuzz.once(name, seeds[name], number)


@pytest.mark.parametrize("name", NAMES)
@BOUNDED
@given(data=st.binary(max_size=400), which=st.integers(0, 99), keep=st.integers(0, 60))
def test_any_bytes_in_the_place_of_a_file_are_read_or_refused(seeds, name, data, which, keep):
    files = dict(seeds[name])
    file = sorted(files)[which % len(files)]
    fuzz.checked(name, files | {file: files[file][:keep] + data}, "these bytes")


@pytest.mark.parametrize("name", NAMES)
def test_a_file_cut_at_every_length_is_read(seeds, name, tmp_path):
    files = seeds[name]
    file = max(files, key=lambda one: len(files[one]))
    # A header of Chronicle's has many bytes that say nothing.
    for length in drawn(range(0, len(files[file]), 9 if name == "chronicle" else 1)):
        fuzz.check(name, tmp_path, files | {file: files[file][:length]})


@pytest.mark.parametrize(
    "bits", [pytest.param(range(8), marks=pytest.mark.slow, id="every"), pytest.param(None, id="one")]
)
@pytest.mark.parametrize("name", NAMES)
def test_a_bit_flipped_anywhere_is_read_and_mended(tmp_path, name, bits):
    """One of bytes that are drawn, in every file of a queue of a few messages; every single one in the long run."""
    files = fuzz.small(name)
    # Chronicle's files are long, and most of their bytes are slots.
    step = (7 if bits is None else 5) if name == "chronicle" else 1
    for file, data in files.items():
        places = range(0, len(data), step)
        for at in places if bits else drawn(places):
            for bit in bits or (at * 3 % 8,):
                flipped = bytearray(data)
                flipped[at] ^= 1 << bit
                fuzz.checked(name, files | {file: bytes(flipped)}, f"{file}, bit {bit} of byte {at}")


def test_mutated_fixtures_are_read_or_refused(tmp_path):
    chance = random.Random(7)
    found = 0
    for name in NAMES:
        for folder in sorted((FIXTURES / name / "given").glob("*")):
            files = tree(folder) if folder.is_dir() else {}
            if not files or sum(map(len, files.values())) > 40_000:
                continue
            found += 1
            for number in range(3):
                place(tmp_path / f"{name}-{found}-{number}", fuzz.mutate(files, chance))
                queue = {"kestrel": "cars", "libkestrel": "jobs", "qewqew": "queue.dat"}.get(name)
                for verb in (lambda *a, **k: list(formats.read(*a, **k)), formats.state, formats.verify):
                    try:
                        verb(tmp_path / f"{name}-{found}-{number}", queue=queue, format=name)
                    except ShmqError:
                        continue
    if not found:
        pytest.skip(f"no fixtures in {FIXTURES} (set SHMQ_FIXTURES)")


# ------------------------------------------------------------------------------------------ numbers at the edges

SIZES = [-(1 << 31), -1, 0, 1, 15, (1 << 31) - 17, (1 << 31) - 1]
NUMBERS = [-(1 << 63), -1, 0, (1 << 31) - 1, 1 << 31, (1 << 63) - 1]


def edges():
    """Every length, count and index of every format, at the edges of its field, in an otherwise whole queue."""
    good = {
        "libkestrel": libkestrel.WRITER_MAGIC + libkestrel.PUT_FIELDS.pack(0x86, 1, 0, 1, 5) + b"x",
        "sej": sej.message(0, Entry(b"x", 0, 5)),
        "kestrel": kestrel.record(2, entry=Entry(b"x", None, 5)),
    }
    for size in SIZES:
        yield "libkestrel", {"jobs.1": good["libkestrel"] + libkestrel.PUT_FIELDS.pack(0x86, size, 0, 2, 5) + bytes(40)}
        yield "libkestrel", {"jobs.1": good["libkestrel"] + struct.pack("<Biiqqq", 0x87, size, size, 2, 5, 5)}
        yield "libkestrel", {"jobs.1": good["libkestrel"], "jobs.read.": libkestrel.READER_MAGIC + b"\x91" + i32(size)}
        yield "sej", {"jnl/0000000000000000.jnl": good["sej"] + struct.pack(">QqBbi", 1, 5, 0, 0, size) + bytes(40)}
        yield "sej", {"jnl/0000000000000000.jnl": good["sej"][:-4] + struct.pack(">i", size)}
        yield "kestrel", {"cars": good["kestrel"] + struct.pack("<Bi", 2, size) + bytes(40)}
        yield "kestrel", {"cars": good["kestrel"] + struct.pack("<Bi", 0, size) + bytes(40)}
        yield "kestrel", {"cars": good["kestrel"] + struct.pack("<Bii", 8, 1, size) + bytes(40)}
        yield "kestrel", {"cars": good["kestrel"] + struct.pack("<Bi", 9, size) + struct.pack("<Bi", 5, size)}
        yield "kestrel", {"cars": good["kestrel"] + struct.pack("<Bi", 4, size) + b"\x03"}
        yield "qewqew", {"q": b"\0\1", "q.1": struct.pack(">iiH", size, 10, 0) + bytes(40)}
        yield "qewqew", {"q": b"\0\1", "q.1": struct.pack(">iiH", 10, size, 0) + bytes(40)}
        yield "qewqew", {"q": b"\0\1", "q.1": struct.pack(">iiHi", 10, 50, 0, size) + bytes(40)}
    for number in NUMBERS:
        times = struct.pack("<Biqq", 2, 17, number, number) + b"x"
        yield "kestrel", {"cars": times, f"cars.{number}": times, f"cars.{number}.pack": times}
        yield (
            "libkestrel",
            {"jobs.1": good["libkestrel"] + libkestrel.PUT_FIELDS.pack(0x86, 1, 0, number, number) + b"x"},
        )
        yield "libkestrel", {f"jobs.{number}": good["libkestrel"], "jobs.1": good["libkestrel"]}
        yield (
            "libkestrel",
            {"jobs.1": good["libkestrel"], "jobs.read.": libkestrel.READER_MAGIC + b"\x00" + struct.pack("<q", number)},
        )
        index = number % (1 << 64)
        yield "sej", {f"jnl/{index:016x}.jnl": sej.message(index, Entry(b"x", index, number)) * 2}
        yield "sej", {"jnl/0000000000000000.jnl": good["sej"], "ofs/r.ofs": struct.pack(">q", number)}
        yield (
            "chronicle",
            {CYCLE: cq4([b"x"]), "metadata.cq4t": table({"index.a": number, "chronicle.write.lock": number})},
        )
        yield "chronicle", {CYCLE: cq4([b"x"]), "metadata.cq4t": table((), 86_400_000, b"yyyyMMdd'F'", number)}
        for address in (0x40, 0x48, 0x98, 0xB0):
            yield "chronicle", {CYCLE: patched(cq4([b"x"] * 20), address, number)}
        for at in (0, 1):  # used, and the first slot, of both kinds of pages
            yield "chronicle", {CYCLE: patched(cq4([b"x"] * 20), SLOTS[at] - 8, number)}
            yield "chronicle", {CYCLE: patched(cq4([b"x"] * 20), SLOTS[at] - 16, number)}
            yield "chronicle", {CYCLE: patched(cq4([b"x"] * 20), SLOTS[at], number)}
    for each in (1, META - 1, META, META | 5, NOT_READY - 1, NOT_READY, NOT_READY | 1, EOF, EOF | 1, (1 << 32) - 1):
        yield "chronicle", {CYCLE: cq4([b"x"], end=word(each) + bytes(40))}
        yield "chronicle", {CYCLE: word(each) + cq4([b"x"])[4:]}
        yield "chronicle", {CYCLE: cq4([b"x"]), "metadata.cq4t": word(each) + table()[4:]}
        yield "chronicle", {CYCLE: cq4([b"x"]), "metadata.cq4t": table()[:-256] + word(each) + bytes(40)}
    for count, spacing in ((0, 0), (7, 3), (1, 1), (8, 0), (1 << 15, 1 << 30), ((1 << 31) - 1, (1 << 31) - 1)):
        yield "chronicle", {CYCLE: header(count, spacing) + document(b"x")}
    # Chains of files that lead to themselves or to each other.
    yield "qewqew", {"q": b"\0\1", "q.1": struct.pack(">iiH", 10, 10, 1)}
    yield (
        "qewqew",
        {"q": b"\0\1", "q.1": struct.pack(">iiH", 10, 10, 2), "q.2": struct.pack(">iiH", 10, 10, 1)},
    )
    yield "qewqew", {"q": b"\xff\xff", "q.65535": struct.pack(">iiH", 10, 10, 65535)}


CYCLE = "20231115F.cq4"
SLOTS = (240, 336)
"""Where the slots of index2index and of the first page begin, in a file with 8 of each."""


def patched(data, at, number):
    """*data* with a number of eight bytes at *at*."""
    return data[:at] + struct.pack("<q", number) + data[at + 8 :]


def i32(number):
    return struct.pack("<i", number)


@pytest.mark.parametrize(
    ("name", "files"), [pytest.param(*each, id=f"{n}-{each[0]}") for n, each in enumerate(edges())]
)
def test_numbers_at_the_edges_of_their_fields_are_read_or_refused(tmp_path, name, files):
    fuzz.check(name, tmp_path, files)


@pytest.mark.parametrize("name", NAMES)
def test_a_file_that_is_a_link_to_itself_or_a_directory_is_refused(tmp_path, name):
    """A cycle of links, a pipe or a directory where a journal belongs: never followed, never waited for."""
    file = {
        "libkestrel": "jobs.1",
        "sej": "jnl/0000000000000000.jnl",
        "kestrel": "cars",
        "qewqew": "q.1",
        "chronicle": CYCLE,
    }[name]
    target, queue = fuzz.TARGETS[name]
    for number, make in enumerate((lambda path: path.symlink_to(path.name), os.mkfifo, lambda path: path.mkdir())):
        folder = place(tmp_path / str(number), {"q": b"\0\1"} if name == "qewqew" else {})
        (folder / file).parent.mkdir(parents=True, exist_ok=True)
        make(folder / file)
        for verb in (lambda *words: list(formats.read(words[0], name, words[1])), formats.state, formats.verify):
            with suppress(ShmqError):
                verb(folder / target, queue)
        formats.detect(folder)


# ------------------------------------------------------------------------------------------ bombs

MIB = 1 << 20
BOMB = 1 << 18


def bomb_of_pages():
    """A root that leads each of its 32768 slots to one page of as many empty slots, or to its own middle."""
    many = 1 << 15
    data = bytearray(header(many, 1))
    data += document(longs(b"index2index", len(data), [0] * many, many), META)
    page = len(data)
    data += document(longs(b"index", page, [0] * many, many), META)
    for number in range(many):
        slot(data, 200, number, page - 8 * (number % 2))
    return bytes(data) + document(b"x") * 100


def bomb_of_slots():
    """A page whose slots lead to one another's bytes, upward by the smallest steps."""
    many = 1 << 14
    data = bytearray(header(many, 1))
    data += document(longs(b"index2index", len(data), [0] * many, many), META)
    page = len(data)
    data += document(longs(b"index", page, [page + 60 + 4 * n for n in range(many)], many), META)
    slot(data, 200, 0, page)
    return bytes(data) + document(b"x") * 100


@pytest.mark.parametrize(
    ("name", "files"),
    [
        ("libkestrel", {"jobs.1": libkestrel.WRITER_MAGIC + b"\x10" * BOMB}),
        ("libkestrel", {"jobs.1": libkestrel.WRITER_MAGIC + bytes.fromhex("9100000000") * (BOMB // 5)}),
        ("libkestrel", {"jobs.1": libkestrel.WRITER_MAGIC + bytes.fromhex("870000000000000000") * (BOMB // 9)}),
        ("libkestrel", {"jobs.read.": libkestrel.READER_MAGIC + b"\x10" * (BOMB // 8), "jobs.1": b""}),
        ("kestrel", {"cars": b"\x01" * BOMB}),
        ("kestrel", {"cars": b"\x03" * BOMB}),
        ("kestrel", {"cars": kestrel.record(0, entry=Entry(b"")) * (BOMB // 9)}),
        ("kestrel", {"cars": (kestrel.record(7, xid=0, entry=Entry(b"")) + b"\x03") * (BOMB // 90)}),
        (
            "kestrel",
            {
                "cars": kestrel.record(2, entry=Entry(b"")) * 8_000
                + b"".join(struct.pack("<Bi", 9, n) for n in range(8_000))
            },
        ),
        (
            "kestrel",
            {
                "cars": (kestrel.record(2, entry=Entry(b"")) + b"\x03") * 4_000
                + (b"\x04" + bytes(4) + kestrel.record(2, entry=Entry(b"")) + b"\x03") * 4_000
            },
        ),
        ("sej", {f"jnl/{n:016x}.jnl": b"" for n in range(1000)}),
        ("qewqew", {"q": b"\0\1", "q.1": struct.pack(">iiH", 10, BOMB, 0) + bytes(BOMB)}),
        ("chronicle", {CYCLE: header() + word(META) * (BOMB // 4)}),
        ("chronicle", {CYCLE: header(index2index=0) + document(b"x") * (BOMB // 8)}),
        ("chronicle", {CYCLE: bomb_of_pages()}),
        ("chronicle", {CYCLE: bomb_of_slots()}),
        ("chronicle", {"metadata.cq4t": table({f"index.{n}": n for n in range(BOMB // 32)})}),
        ("chronicle", {f"202{n // 10_000}{n % 12 + 1:02}{n % 28 + 1:02}F.cq4": b"" for n in range(1000)}),
        ("chronicle", {f"{2000 + n}0101F.cq4": cq4([b"x"]) for n in range(500)}),
        ("qewqew", {"q": b"\0\1"} | {f"q.{n}": struct.pack(">iiH", 10, 10, n % 3000 + 1) for n in range(1, 3001)}),
    ],
)
def test_a_quarter_megabyte_made_to_be_slow_is_read_in_seconds(tmp_path, name, files):
    """Each of these was chosen to take the reader's slow path, or to fill its memory, at every byte."""
    place(tmp_path, files)
    target, queue = fuzz.TARGETS[name]
    begin = time.process_time()
    for options in ({}, {"as_program": True}, *fuzz.WAYS.get(name, ())):
        try:
            sum(1 for _ in formats.read(tmp_path / target, name, queue, **options))
        except ShmqError:
            continue
    formats.verify(tmp_path / target, queue, name)
    assert time.process_time() - begin < 30


def sparse(path, head, size):
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("wb") as file:
        file.write(head)
        file.truncate(size)


@pytest.mark.parametrize("name", NAMES)
def test_a_record_that_claims_gigabytes_of_a_sparse_file_is_not_loaded(tmp_path, name):
    """Sizes are checked before anything is allocated: a hole of 2 GiB costs nothing on the disk."""
    size = (1 << 31) - 1
    heads = {
        "libkestrel": ("jobs.1", libkestrel.WRITER_MAGIC + struct.pack("<Biiqq", 0x86, size - 64, 0, 1, 0)),
        "sej": ("jnl/0000000000000000.jnl", struct.pack(">QqBbi", 0, 0, 0, 0, size - 64)),
        "kestrel": ("cars", struct.pack("<Biqq", 2, size - 64, 0, 0)),
        "qewqew": ("q.1", struct.pack(">iiH", size - 100_000, size, 0)),
        "chronicle": (CYCLE, header() + word(META - 1)),
    }
    file, head = heads[name]
    place(tmp_path, {"q": b"\0\1"} if name == "qewqew" else {})
    sparse(tmp_path / file, head, size)
    target, queue = fuzz.TARGETS[name]
    tracemalloc.start()
    try:
        count = sum(1 for _ in formats.read(tmp_path / target, name, queue))
    except TooLarge:
        count = 0
    finally:
        peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
    assert count <= 50_000
    assert peak < 8 * MIB


@pytest.mark.parametrize("name", ["libkestrel", "kestrel", "sej", "chronicle"])
def test_a_terabyte_of_holes_is_passed_over(tmp_path, name):
    files = {
        "libkestrel": ("jobs.1", libkestrel.WRITER_MAGIC),
        "sej": ("jnl/0000000000000000.jnl", sej.message(0, Entry(b"x"))),
        "kestrel": ("cars", kestrel.record(2, entry=Entry(b"x"))),
        "chronicle": (CYCLE, cq4([b"x"])),
    }
    try:
        sparse(tmp_path / files[name][0], files[name][1], 1 << 40)
    except OSError:
        pytest.skip("this file system cannot hold a sparse terabyte")
    begin = time.process_time()
    target, queue = fuzz.TARGETS[name]
    assert len(list(formats.read(tmp_path / target, name, queue))) <= 1
    formats.verify(tmp_path / target, queue, name)
    assert time.process_time() - begin < 10


def test_memory_does_not_grow_with_the_queue(tmp_path):
    """What reading holds at its highest is the same for ten times the messages."""
    peaks = {}
    for count in (2_000, 20_000):
        entries = [Entry(b"x" * 30, None, n) for n in range(count)]
        sej.write(tmp_path / f"s{count}", entries)
        libkestrel.write(tmp_path / f"l{count}", entries, "jobs")
        kestrel.write(tmp_path / f"k{count}", entries, "cars")
        (tmp_path / f"q{count}").mkdir()
        qewqew.write(tmp_path / f"q{count}" / "q", entries, lossy=True)
        del entries
        for letter, module, name in (("s", sej, ""), ("l", libkestrel, ""), ("k", kestrel, ""), ("q", qewqew, "q")):
            tracemalloc.start()
            assert count == sum(1 for _ in module.read(tmp_path / f"{letter}{count}" / name))
            peaks[letter, count] = tracemalloc.get_traced_memory()[1]
            tracemalloc.stop()
    for letter in "slkq":
        assert peaks[letter, 20_000] < peaks[letter, 2_000] + fuzz.WINDOW_ROOM
