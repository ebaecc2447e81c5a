"""
shmq.formats.chronicle against the real Chronicle Queue: it writes and we read, we write and it reads, both at once.

    python tests/formats/real/against_chronicle.py --sources DIR --work DIR [--trials N] [--seed S] [--only TRIAL]

DIR holds checkouts of eight of OpenHFT's repositories under their own names: Chronicle-Queue (5.26ea8 is what the
trials were made with), Chronicle-Core, -Bytes, -Wire, -Threads, Java-Runtime-Compiler, Java-Thread-Affinity and Posix;
the newest commits of October 2024 compile together. Debian has the rest: openjdk-17-jdk-headless and lib*-java of
slf4j, jna, jna-platform, asm, javapoet, xstream, jetbrains-annotations, commons-cli, jffi, jnr-ffi and jnr-constants.
All is compiled by one javac into the work folder, without a change and without a stand-in; tests and demonstrations are
left out.

Each trial prints one line that repeats it when it fails.
"""

import argparse
import os
import random
import signal
import struct
import subprocess
import sys
import tempfile
import threading
import time
import uuid
from pathlib import Path

from against import ANSWER_SECONDS, DifferentError, Program, call, copy, hexed, numbered, same, unhex

from shmq import ShmqError
from shmq.formats import Entry, chronicle
from shmq.formats.chronicle import binary
from shmq.formats.chronicle.values import (
    Date,
    DateTime,
    Event,
    Float32,
    Hex64,
    Long,
    Pairs,
    Time,
    Typed,
    TypeLiteral,
    Values,
    ZonedDateTime,
)

HERE = Path(__file__).resolve().parent
MODULES = (
    "Chronicle-Core Chronicle-Bytes Chronicle-Wire Chronicle-Threads Chronicle-Queue Java-Runtime-Compiler Java- "
    "Thread-Affinity/affinity Posix"
)
JARS = (
    "slf4j-api slf4j-simple jna jna-platform asm asm-commons asm-util asm-tree asm-analysis javapoet xstream "
    "org.jetbrains.annotations-java8 org.jetbrains.annotations-common jffi jnr-ffi jnr-constants jnr-x86asm "
    "commons-cli"
)
EXPORTS = (
    "java.base/jdk.internal.misc java.base/jdk.internal.ref java.base/sun.nio.ch jdk.compiler/com.sun.tools.javac.file"
)
OPENS = (
    "jdk.compiler/com.sun.tools.javac java.base/java.lang java.base/java.lang.reflect java.base/java.io "
    "java.base/java.util java.base/java.nio java.base/sun.nio.ch"
)
SECONDS = 20
"""After which it is taken to wait for ever."""

SHOWN = 20
"""Of so many trials of a kind what was different is printed."""

DAY_MS = 86_400_000
T_MS = 1_700_000_000_000


# ---------------------------------------------------------------------------------------------- building
def build(sources, work):
    """Build the program; return the command that runs it."""
    classes = work / "chronicle"
    path = ":".join(f"/usr/share/java/{jar}.jar" for jar in JARS.split())
    exports = [f"--add-exports={name}=ALL-UNNAMED" for name in EXPORTS.split()]
    if not classes.exists():
        files = [
            file
            for module in MODULES.split()
            for file in sorted((sources / module / "src/main/java").rglob("*.java"))
            if file.name != "module-info.java"
        ]
        files += (sources / "Chronicle-Core/assertions-enabled").rglob("*.java")
        listed = work / "chronicle.files"
        listed.write_text("\n".join(map(str, files)))
        flags = ["-nowarn", "-proc:none", "-encoding", "UTF-8", "-XDignore.symbol.file", *exports, "-cp", path]
        call("javac", *flags, "-d", classes, f"@{listed}")
    driver = work / "chronicle-driver"
    if not driver.exists() or driver.stat().st_mtime < (HERE / "Chronicle.java").stat().st_mtime:
        call("javac", "-nowarn", "-cp", f"{path}:{classes}", "-d", driver, HERE / "Chronicle.java")
        driver.touch()
    opens = [f"--add-opens={name}=ALL-UNNAMED" for name in OPENS.split()]
    still = ["chronicle.announcer.disable=true", "chronicle.analytics.disable=true"]
    still.append("org.slf4j.simpleLogger.defaultLogLevel=off")
    jvm = [
        "-Xmx256m",
        "-XX:TieredStopAtLevel=1",
        "-XX:+UseSerialGC",
        *(f"-D{name}" for name in still),
    ]
    return ["java", *exports, *opens, *jvm, "-cp", f"{driver}:{classes}:{path}", "shmq.Chronicle"]


# ---------------------------------------------------------------------------------------------- making messages
def spelled(text):
    """A text as the driver takes it."""
    return hexed(text.encode("utf-16-be", "surrogatepass"))


TEXTS = ("", "a", "hello", "x" * 31, "x" * 32, "é" * 16, "snow ☃", "\U0001f600", "a b: c", "'\"\n", "y" * 300)


def some_text(dice):
    return dice.choice(TEXTS) if dice.random() < 0.7 else "".join(map(chr, dice.choices(range(1, 0x2FF), k=9)))


def some_int(dice, bits):
    edge = 1 << dice.randrange(bits)
    value = dice.choice([0, 1, -1, edge, -edge, edge - 1, -edge - 1, dice.randrange(-edge, edge + 1)])
    return max(-(1 << bits - 1), min((1 << bits - 1) - 1, value))


def some_float(dice):
    return dice.choice([0.0, 1.5, 0.1, 1e300, 2.0**40, -3.0, 1e-9, 12345.678, dice.uniform(-1e6, 1e6), float("inf")])


SCALARS = "i8 u8 i16 u16 i32 u32 i64 hex64 f32 f64 bool null text char bytes date time datetime zoned uuid type"
WRITTEN = "i64 i64 hex64 f32 f64 bool null text bytes date time datetime zoned uuid type"
"""Those of which a value in Python says all."""

OBJECTS = "i32 i64 f32 f64 bool null text bytes date time datetime zoned uuid"
"""Those that an object of Java says."""


TEXTUAL = "i64 i64 f64 bool null text text bytes date time"
"""Those that come back from its text as what they were, but for infinity."""


def some_scalar(dice, kinds):
    """(a word for one scalar of one of these *kinds*, what it is in Python)."""
    kind = dice.choice(kinds.split())
    if kind[0] in "iu" and kind[1:].isdigit():
        bits = int(kind[1:])
        value = some_int(dice, bits) % (1 << bits) if kind[0] == "u" else some_int(dice, bits)
        return f"{kind}:{value}", Long(value) if kinds == OBJECTS and kind == "i64" else value
    if kind in ("f32", "f64"):
        bits = some_float_bits(dice, kind)
        value = struct.unpack(">d" if kind == "f64" else ">f", bits.to_bytes(8 if kind == "f64" else 4))[0]
        return f"{kind}:{bits:x}", value if kind == "f64" else Float32(value)
    if kind in ("text", "char"):
        text = some_text(dice) if kind == "text" else dice.choice("aé☃")
        return f"{kind}:{spelled(text)}", text
    if kind == "bool":
        value = dice.choice([True, False, None])
        return f"bool:{str(value).lower() if value is not None else 'null'}", value
    if kind == "bytes":
        data = dice.randbytes(dice.choice([0, 1, 5, 250, 300, 70_000 if dice.random() < 0.05 else 3]))
        return f"bytes:{hexed(data)}", data
    if kind == "uuid":
        value = uuid.UUID(int=dice.getrandbits(128))
        return f"uuid:{value}", value
    day, time = (
        f"20{dice.randrange(10, 99)}-02-{dice.randrange(10, 28)}",
        f"{dice.randrange(10, 23)}:30:0{dice.randrange(1, 9)}",
    )
    name = dice.choice(["int", "some.Type", "String"])
    return {
        "hex64": lambda value: (f"hex64:{value}", Hex64(value)),
        "null": lambda _: ("null", None),
        "date": lambda _: (f"date:{day}", Date(day)),
        "time": lambda _: (f"time:{time}", Time(time)),
        "datetime": lambda _: (f"datetime:{day}T{time}", DateTime(f"{day}T{time}")),
        "zoned": lambda _: (f"zoned:{day}T{time}Z", ZonedDateTime(f"{day}T{time}Z")),
        "type": lambda _: (f"type:{name}", TypeLiteral(name)),
    }[kind](some_int(dice, 64))


def some_float_bits(dice, kind):
    if kind == "f64":
        return float_bits(some_float(dice))
    return dice.choice([dice.getrandbits(32), 0, 0x3FC00000, 0x40000000, 0x7FC00000, 0x42F6E979])


def float_bits(value):
    return int.from_bytes(struct.pack(">d", value))


def some_value(dice, kinds=SCALARS, depth=0):
    how = dice.random()
    if depth > 3 or how < 0.75:
        return some_scalar(dice, kinds)
    if how < 0.85:
        found = [some_value(dice, kinds, depth + 1) for _ in range(dice.randrange(4))]
        return " ".join(["seq(", *(word for word, _ in found), ")"]), [value for _, value in found]
    words, value = some_pairs(dice, kinds, depth + 1)
    inner = " ".join(["map(", *([words] if words else []), ")"])
    if how < 0.95 or kinds in (OBJECTS, TEXTUAL):
        return inner, value
    name = dice.choice(["Foo", "net.some.Bar"])
    return f"typed:{name} {inner}", Typed(name, value)


NAMES = ("a", "b", "name", "a long name with blanks in it", "x" * 32, "é", "7", "12345", "")


def some_pairs(dice, kinds=SCALARS, depth=0):
    found = [(name, *some_value(dice, kinds, depth)) for name in dice.sample(NAMES, dice.randrange(4))]
    return " ".join(f"{spelled(name)} {word}" for name, word, _ in found), {name: value for name, _, value in found}


def plain(value):
    """A value in one shape, whatever the wire made of it: its numbers are a float's where Java took one."""
    if isinstance(value, dict | Pairs):
        found = list(value.items()) if isinstance(value, dict) else list(value)
        return {str(name): plain(each) for name, each in found} if found else "empty"
    if isinstance(value, list | Values):
        return [plain(each) for each in value] if value else "empty"
    if isinstance(value, Typed):
        return (value.type, plain(value.value))
    if isinstance(value, bool) or value is None or not isinstance(value, int | float):
        return value
    if value != value:
        return "nan"
    # Long.MAX_VALUE goes through a float and back; what is past it stays at it.
    return f"{max(-(1 << 63), min((1 << 63) - 1, value)) if abs(value) < 1e19 else value:.17g}".removesuffix(".0")


def some_document(dice):
    """What a document holds, as the driver takes it."""
    kind = dice.choice(["raw", "raw", "raw", "values", "fields", "events", "comment", "nothing", "history"])
    if kind == "raw":
        return f"raw {hexed(dice.randbytes(dice.choice([1, 2, 3, 4, 5, 30, 200, 3000])))}"
    if kind == "values":
        return " ".join(["values", *(some_value(dice)[0] for _ in range(dice.randrange(1, 4)))])
    if kind == "comment":
        return f"comment {spelled('a comment')} {some_pairs(dice)[0]}".strip()
    if kind == "history":
        return f"history {dice.randrange(4)} {some_pairs(dice)[0]}".strip()
    return "nothing" if kind == "nothing" else f"{kind} {some_pairs(dice)[0]}".strip()


def some_call(dice):
    return dice.choice(
        [
            f"say {spelled(some_text(dice))}",
            f"count {some_int(dice, 64)}",
            f"weigh {float_bits(some_float(dice)):x}",
            f"pair {spelled(some_text(dice))} {some_int(dice, 32)}",
            f"order {spelled('EUR')} {some_int(dice, 64)} {dice.randrange(99)} 1",
            "stop",
        ]
    )


def some_message(dice):
    kind = dice.choice(["bytes", "text", "map", "call", "meta", "rollback", "document", "document"])
    if kind == "bytes":
        return f"bytes {hexed(dice.randbytes(dice.choice([1, 2, 3, 8, 30, 200])))}"
    if kind == "text":
        return f"text {spelled(some_text(dice))}"
    if kind == "map":
        return f"map {some_pairs(dice, OBJECTS)[0]}".strip()
    if kind == "call":
        return f"call {some_call(dice)}"
    return some_document(dice) if kind == "document" else f"{kind} {some_document(dice)}"


# ---------------------------------------------------------------------------------------------- it writes, we read
CYCLES = (
    "FIVE_MINUTELY TEN_MINUTELY TWENTY_MINUTELY HALF_HOURLY FAST_HOURLY TWO_HOURLY FOUR_HOURLY SIX_HOURLY "
    "FAST_DAILY MINUTELY HOURLY DAILY LARGE_HOURLY LARGE_DAILY XLARGE_DAILY HUGE_DAILY SMALL_DAILY "
    "LARGE_HOURLY_SPARSE LARGE_HOURLY_XSPARSE HUGE_DAILY_XSPARSE TEST_SECONDLY TEST4_SECONDLY TEST_HOURLY "
    "TEST_DAILY TEST2_DAILY TEST4_DAILY TEST8_DAILY"
)
"""All but WEEKLY, whose names the program cannot read back itself."""


def length_ms(cycle):
    if cycle.endswith("SECONDLY"):
        return 1000
    minutes = {
        "FIVE_": 5,
        "TEN_": 10,
        "TWENTY_": 20,
        "MINUTELY": 1,
        "HALF_": 30,
        "TWO_": 120,
        "FOUR_": 240,
        "SIX_": 360,
    }
    for name, count in minutes.items():
        if cycle.startswith(name):
            return 60_000 * count
    return DAY_MS if "DAILY" in cycle else 3_600_000


def some_geometry(dice):
    """Words for `open`: a roll cycle and what goes with it, and the length of its cycles."""
    cycle = dice.choice(CYCLES.split())
    found = [f"cycle={cycle}"]
    if dice.random() < 0.3:
        found.append(f"count={dice.choice([8, 16, 64, 128])}")
    if dice.random() < 0.3:
        found.append(f"spacing={dice.choice([1, 2, 4, 8, 16])}")
    if dice.random() < 0.2 and length_ms(cycle) == DAY_MS:
        found.append(f"time={dice.randrange(10, 24)}:{dice.randrange(10, 60)}")
    elif dice.random() < 0.2:
        found.append(f"epoch={dice.choice([1, 3_600_000, 75_600_000, T_MS - 12_345, -DAY_MS])}")
    if dice.random() < 0.2:
        found.append(f"source={dice.randrange(1, 99)}")
    return found, length_ms(cycle)


class Queue:
    """A queue that the program writes under a clock of ours."""

    def __init__(self, dice, program, folder, geometry=None):
        self.dice, self.program, self.folder = dice, program, folder
        self.geometry, self.length = geometry or some_geometry(dice)
        self.now = T_MS + dice.randrange(10 * DAY_MS)
        self.capacity = self.left = None
        self.open()

    def open(self):
        self.program.ask("open", self.folder, *self.geometry, f"clock={self.now}")

    def close(self):
        self.program.ask("close")

    def put(self, count):
        """Some messages, and a roll now and then; what the program says of one that is too many is left to it."""
        for _ in range(count):
            self.program.try_to("put", some_message(self.dice))
            if self.dice.random() < 0.04:
                self.roll()

    def roll(self):
        self.now += self.dice.choice([1, self.length, self.length, 2 * self.length, 40 * self.length])
        self.program.ask("clock", self.now)

    def made(self):
        """Several sittings of it, and named tailers."""
        self.put(self.dice.choice([0, 1, 5, 40, 150]))
        if self.dice.random() < 0.3:
            self.close()
            self.open()
            self.put(self.dice.choice([1, 20]))
        self.places = {}
        for name in self.dice.sample(["a", "B", "some name".replace(" ", "_"), "z"], self.dice.randrange(3)):
            _, answer = self.program.ask("tail", "forward", name, self.dice.choice([0, 1, 7, 1000]))
            self.places[name] = int(answer.split()[0], 16)
        return self


def signed(text):
    value = int(text, 16)
    return value - (1 << 64) if value >> 63 else value


def pairs_of(items):
    return [(None if index == "meta" else signed(index), unhex(data)) for index, data in items]


def ours(folder, **options):
    return [(entry.index, entry.payload) for entry in chronicle.read(folder, **options)]


def kept_back(folder):
    """A new file in which all was rolled back gets no EOF from it when it rolls on, and its own tailers stop there."""
    return any("no EOF" in problem.reason for problem in chronicle.state(folder).problems)


def read(dice, program, folder):
    """All that it says of its queue, and what we say of it."""
    queue = Queue(dice, program, folder).made()
    items, _ = program.ask("tail", "forward", "-", 10_000)
    all_of_them = pairs_of(items)
    same("as the program", ours(folder, as_program=True), all_of_them)
    if kept_back(folder):
        all_of_them = ours(folder)
    else:
        same("problems", chronicle.verify(folder), [])
    same("forward", ours(folder), all_of_them)
    items, _ = program.ask("tail", "backward", "-", 10_000)
    same("backward", ours(folder, backward=True), pairs_of(items))
    same("state", [chronicle.state(folder).messages], [len(all_of_them)])
    for index, _ in dice.sample(all_of_them, min(6, len(all_of_them))):
        items, _ = program.ask("tail", "from", "-", f"{index:x}", 5)
        found = ours(folder, start=index)
        same(f"from {index:x}", ours(folder, start=index, as_program=True)[:5], pairs_of(items))
        same(f"from {index:x} on", found, [each for each in all_of_them if each[0] >= index])
    places = {name: (place, ()) for name, place in queue.places.items()}
    same("tailers", chronicle.consumers(folder), places)
    for name, place in queue.places.items():
        items, _ = program.ask("tail", "forward", name, 1000)
        same(f"tailer {name} at {place:x}", ours(folder, consumer=name)[:0], [])
    queue.close()


# ---------------------------------------------------------------------------------------------- damaged
NOT_READY, EOF = 0x80000000, 0xC0000000
DEAD_PID = 4_000_000
"""Above what any system here gives."""


def documents(data):
    """(position, word) of each document of a file, and of the word behind the last."""
    at, found = 0, []
    while at + 4 <= len(data):
        word = int.from_bytes(data[at : at + 4], "little")
        found.append((at, word))
        if word == 0 or word & NOT_READY:
            break
        at += 4 + (word & 0x3FFFFFFF)
        at += -at & 3
    return found


class Damage:
    """One data file of a queue, and what is done to it."""

    def __init__(self, dice, folder):
        self.dice, self.folder = dice, folder
        self.file = dice.choice(sorted(file for file in folder.glob("*.cq4") if file.stat().st_size >= 8))
        self.data = bytearray(self.file.read_bytes())
        self.documents = documents(self.data)
        self.messages = [at for at, word in self.documents if word and not word & EOF]
        self.end, self.last_word = self.documents[-1]

    def put(self, at, number, width=4):
        self.data[at : at + width] = (number % (1 << 8 * width)).to_bytes(width, "little")

    def number(self, at, width=8):
        return int.from_bytes(self.data[at : at + width], "little")

    def done(self, what):
        self.file.write_bytes(self.data)
        return f"{what} in {self.file.name}"

    # ---- what a crash leaves
    def nothing(self):
        return "nothing"

    def junk(self):
        """A writer died inside its document: bytes, and no word."""
        if self.last_word == 0:
            junk = self.dice.randbytes(self.dice.randrange(1, 200))
            self.data[self.end + 4 : self.end + 4 + len(junk)] = junk
        return "bytes behind the end"

    def not_ready(self):
        if self.last_word == 0:
            self.put(self.end, self.dice.choice([NOT_READY, NOT_READY | 0x123, NOT_READY | 8]))
            if self.dice.random() < 0.5:
                self.junk()
        return "a word that is not ready at the end"

    def unmarked(self):
        if self.last_word == EOF:
            self.data[self.end : self.end + 8] = bytes(8)
        return "no EOF"

    def behind(self):
        """It died before it told the header of its last messages."""
        at = self.dice.choice([0, *self.messages])
        self.put(0x40, at, 8)
        if self.dice.random() < 0.5 or at == 0:
            self.put(0x48, 0, 8)
        return f"the pair at {at}"

    def held(self):
        """The one that held the lock is gone."""
        table = self.folder / "metadata.cq4t"
        data = bytearray(table.read_bytes())
        at = data.index(b"chronicle.write.lock") + 20
        at += data[at : at + 16].index(0xA7) + 1
        data[at : at + 8] = DEAD_PID.to_bytes(8, "little")
        table.write_bytes(data)
        return "the lock is a dead process's"

    def unlisted(self):
        (self.folder / "metadata.cq4t").unlink()
        return "no table"

    def short(self):
        """A copy without the zeros behind."""
        self.data = self.data[: self.end + 8]
        return "without what is behind the end"

    CRASHES = (nothing, junk, not_ready, unmarked, behind, held, short)

    # ---- what no program does
    def flip(self):
        at = self.dice.randrange(min(len(self.data), self.end + 20))
        self.data[at] ^= 1 << self.dice.randrange(8)
        return f"bit of {at}"

    def cut(self):
        at = self.dice.choice([self.dice.randrange(self.end + 8), self.dice.choice([self.end, *self.messages])])
        self.data = self.data[:at]
        return f"cut at {at}"

    def word(self):
        at, word = self.dice.choice(self.documents)
        new = [0, NOT_READY, EOF, 1, 0x3FFFFFFF, word | NOT_READY, word ^ 0x40000000, word + 4, word - 4, word + 1]
        new = self.dice.choice(new)
        self.put(at, new)
        return f"word {new & 0xFFFFFFFF:x} at {at}"

    def long(self):
        at = self.dice.choice([0x30, 0x38, 0x40, 0x48, 0x98, 0xB0, *range(0xC8, 0x200, 8)])
        new = self.dice.choice([0, 1, 8, -1, 1 << 62, self.end, 0xC8, *self.messages])
        self.put(at, new, 8)
        return f"{new} at {at}"

    def emptied(self):
        self.data = bytearray(self.dice.choice([0, 4, 200, len(self.data)]))
        return "emptied"

    WILD = (flip, flip, cut, word, word, long, emptied)


def one_damage(kind):
    def apply(dice, folder):
        damage = Damage(dice, folder)
        what = kind(damage)
        return damage.done(what)

    return apply


def as_its_tailer(folder):
    found = []
    try:
        found.extend((entry.index, entry.payload) for entry in chronicle.read(folder, as_program=True))
    except ShmqError as error:
        return found, str(error)
    return found, None


def its_tailer(program, folder, words):
    """What its tailer delivers, and what it then says went wrong."""
    there = copy(folder, "copy")
    try:
        _, answer = program.try_to("open", there, *words, "timeout=200", seconds=SECONDS)
        if answer is None:
            return [], "did not open"
        items, answer = program.try_to("tail", "forward", "-", 10_000, seconds=SECONDS)
    finally:
        program.try_to("close", seconds=SECONDS)
    if answer is None:
        items = program.before
    return pairs_of(items), None if answer else "threw"


def damaged_queue(dice, program, folder):
    queue = Queue(dice, program, folder)
    queue.put(dice.choice([5, 40, 120]))
    queue.program.try_to("put", "bytes", "00")
    queue.close()
    return queue


def crashed(dice, program, folder):
    """What a crash may leave: we deliver what its tailer does."""
    queue = damaged_queue(dice, program, folder)
    how = [one_damage(dice.choice(Damage.CRASHES))(dice, folder) for _ in range(dice.choice([1, 1, 2]))]
    compare_damaged(program, queue, folder, how)


def repaired(dice, program, folder):
    """What a crash may leave: we repair it as its next appender does."""
    queue = damaged_queue(dice, program, folder)
    how = [one_damage(dice.choice(Damage.CRASHES))(dice, folder) for _ in range(dice.choice([1, 1, 2]))]
    there = copy(folder, "opened")
    program.ask("open", there, *queue.geometry, f"clock={queue.now}", "timeout=200")
    program.ask("put", "bytes", "0102")
    theirs = read_whole(program)
    program.ask("close")
    found = chronicle.repair(folder)
    same(f"repaired {how}", ours(found.path), theirs[:-1])
    same(f"and nothing is wrong {how}", chronicle.verify(found.path), [])
    queue.folder = found.path
    goes_on(dice, program, queue)


def damaged(dice, program, folder):
    """Bytes that no program leaves."""
    queue = damaged_queue(dice, program, folder)
    how = [one_damage(dice.choice(Damage.WILD))(dice, folder) for _ in range(dice.choice([1, 1, 2]))]
    compare_damaged(program, queue, folder, how, wild=True)


def compare_damaged(program, queue, folder, how, *, wild=False):
    mine, problem = as_its_tailer(folder)
    theirs, threw = its_tailer(program, folder, [*queue.geometry, f"clock={queue.now}"])
    if wild:
        # Where it gives up we may know more. A document that is cut short it delivers with zeros, and we do not.
        most = min(len(mine), len(theirs))
        if threw or any("cut" in each or "emptied" in each for each in how):
            mine, theirs = mine[:most], theirs[:most]
    same(f"{how} ({problem}, {threw})", mine, theirs)


# ---------------------------------------------------------------------------------------------- we write, it reads
COUNTED = {"listing.modcount", "normalisedeofsto"}
"""Keys of the table whose numbers depend on how often the program was opened."""


def options_of(words):
    """The options of `write` for what `open` was told."""
    names = {"count": "index_count", "spacing": "index_spacing", "source": "source_id", "epoch": "epoch"}
    found = {"block_bytes": 1 << 16}
    for word in words:
        name, _, value = word.partition("=")
        if name in names:
            found[names[name]] = int(value)
        else:
            found[{"cycle": "roll_cycle", "time": "roll_time"}[name]] = value
    return found


def read_whole(program):
    return pairs_of(program.ask("tail", "forward", "-", 10_000)[0])


def copied(dice, program, folder):
    """Its queue, written again by us, byte for byte but for counters; it goes on in ours as if it were its own."""
    queue = Queue(dice, program, folder).made()
    queue.close()
    entries = list(chronicle.read(folder, meta=True))
    there = folder.parent / "ours"
    chronicle.write(there, entries, None, chronicle.consumers(folder), **options_of(queue.geometry))
    bare = {file.name for file in folder.glob("*.cq4")} - {entry.extra["file"] for entry in entries}
    same("names", sorted(file.name for file in there.iterdir()), sorted({f.name for f in folder.iterdir()} - bare))
    own = any(word.startswith(("count", "spacing")) for word in queue.geometry)
    for name in sorted({entry.extra["file"] for entry in entries}):
        if max(bare, default="") < name:  # else it has an EOF for a later file, in which there is nothing
            same_bytes(name, *(masked(place / name, own) for place in (there, folder)))
    if not bare:
        same_tables(there, folder)
    queue.folder = there
    goes_on(dice, program, queue)


def masked(file, own):
    """
    Its bytes, but for the second number of the pair where a file has its *own* index count or spacing.

    Whoever made it shifts the position there by the roll cycle's numbers, and who opens it by the file's own; either
    takes the other's for a hint that does not fit.
    """
    data = bytearray(file.read_bytes())
    if own:
        data[0x48:0x50] = bytes(8)
    return bytes(data)


def same_bytes(name, mine, theirs):
    same(f"length of {name}", [len(mine)], [len(theirs)])
    if mine != theirs:
        at = next(at for at in range(0, len(mine), 8) if mine[at : at + 8] != theirs[at : at + 8])
        raise DifferentError(f"{name} at {at}: ours {mine[at : at + 16].hex()}, theirs {theirs[at : at + 16].hex()}")


def same_tables(there, folder):
    mine, theirs = (table_of(place / "metadata.cq4t") for place in (there, folder))
    same("head of the table", [mine.pop("")], [theirs.pop("")])
    same("table", mine, theirs)


def table_of(file):
    """{key in lower case: number} of a table, and its head."""
    data = file.read_bytes()
    at = 4 + (int.from_bytes(data[:4], "little") & 0x3FFFFFFF)
    found = {"": data[:at]}
    while length := int.from_bytes(data[at : at + 4], "little"):
        document = data[at + 4 : at + 4 + length]
        name = document[2 : 2 + document[1]].decode().lower()
        if name not in COUNTED:
            found[name] = [int.from_bytes(document[-8:], "little", signed=True)]
        at += 4 + length + (-length & 3)
    return found


def goes_on(dice, program, queue):
    """The program reads what is there, seeks in it, appends to it and rolls; what we read then is what it reads."""
    queue.open()
    before = read_whole(program)
    same("it reads ours", before, ours(queue.folder))
    asked = [index for index, _ in dice.sample(before, min(5, len(before)))]
    if asked:
        items, _ = program.ask("tail", "seek", "-", *(f"{index:x}" for index in asked))
        same("it seeks", [item[0] for item in items], ["true"] * len(asked))
    for name, (place, _) in chronicle.consumers(queue.folder).items():
        _, answer = program.ask("tail", "place", name)
        same(f"its tailer {name}", [signed(answer.split()[0])], [place])
    for _ in range(dice.choice([1, 3, 50])):
        queue.put(1)
    queue.roll()
    program.ask("put", "bytes", "00")
    after = read_whole(program)
    same("it has not lost", after[: len(before)], before)
    same("it went on", ours(queue.folder), after)
    queue.close()


def written(dice, program, folder):
    """Messages of ours, with times or indices of ours."""
    words, length = some_geometry(dice)
    now = T_MS + dice.randrange(DAY_MS)
    cycle = next(word[6:] for word in words if word.startswith("cycle="))
    capacity = some_capacity(words, cycle)
    entries, inside, start = [], 0, now
    for _ in range(dice.choice([0, 1, 30, 300])):
        if inside >= capacity - 1 or dice.random() < 0.05:
            now += length * dice.choice([1, 1, 3])
            inside = 0
        inside += 1
        entries.append(Entry(dice.randbytes(dice.choice([1, 2, 3, 4, 60, 61, 9_000])), time_ns=now * 1_000_000))
    there = chronicle.write(folder, entries, None, None, **options_of(words))
    same("written", [there], [len(entries)])
    same("read again", [payload for _, payload in ours(folder)], [entry.payload for entry in entries])
    queue = Queue.__new__(Queue)
    queue.dice, queue.program, queue.folder, queue.geometry, queue.length = dice, program, folder, words, length
    queue.now = max(now, start)
    goes_on(dice, program, queue)


def some_capacity(words, cycle):
    given = dict(word.split("=") for word in words)
    roll = chronicle.CYCLES[cycle]
    count = int(given.get("count", roll.index_count))
    return roll.capacity(count, int(given.get("spacing", roll.index_spacing)))


def values(dice, program, _):
    """Documents of every kind of value: what it was given is what we decode."""
    for _ in range(20):
        bare = [some_value(dice) for _ in range(dice.randrange(1, 4))]
        words, pairs = some_pairs(dice)
        command = dice.choice(["values", "fields", "events", "comment"])
        if command == "values":
            words, value = " ".join(word for word, _ in bare), [each for _, each in bare]
            value = value[0] if len(value) == 1 else value
        else:
            value = pairs
        start = f"comment {spelled('a comment')}" if command == "comment" else command
        _, answer = program.ask("encode", *f"{start} {words}".split())
        payload = unhex(answer)
        if payload:
            same(f"decoded {command} {words} {answer}", [plain(binary.decode(payload))], [plain(value)])


def encoded(dice, program, folder):
    """Values of ours, in the codes that the program takes for them."""
    for _ in range(20):
        found = [some_value(dice, WRITTEN) for _ in range(dice.randrange(1, 4))]
        if len(found) > 1 or not isinstance(found[0][1], dict):
            check_encoded(program, f"values {' '.join(word for word, _ in found)}", [value for _, value in found], None)
        words, value = some_pairs(dice, WRITTEN)
        check_encoded(program, f"fields {words}".strip(), None, value)
        events = {Event(name): each for name, each in value.items()}
        check_encoded(program, f"events {words}".strip(), None, events)
    program.ask("open", folder, "cycle=FAST_DAILY", "block=1048576")
    for _ in range(20):
        words, value = some_pairs(dice, OBJECTS)
        _, index = program.ask("put", *f"map {words}".split())
        items, _ = program.ask("tail", "from", "-", index, 1)
        same(f"map {words}", [chronicle.encode_map(value)], [unhex(items[0][1])])


def check_encoded(program, words, several, one):
    _, answer = program.ask("encode", *words.split())
    value = one if several is None else several[0] if len(several) == 1 else Values(several)
    if answer != "-":
        same(f"encoded {words}", [chronicle.encode(value).hex()], [answer])


# ---------------------------------------------------------------------------------------------- text
IN_JAVA = {Time: "LocalTime", Date: "LocalDate", DateTime: "LocalDateTime", ZonedDateTime: "ZonedDateTime"}


def spell(value):
    """A value in the words in which the driver says what it has read."""
    if value is None:
        return "null"
    if isinstance(value, dict | Pairs):
        items = value.items() if isinstance(value, dict) else value
        return " ".join(["map(", *(f"{spelled(str(name))} {spell(each)}" for name, each in items), ")"])
    if isinstance(value, list | Values):
        return " ".join(["seq(", *map(spell, value), ")"])
    if isinstance(value, bool):
        return f"bool:{str(value).lower()}"
    if isinstance(value, int):
        return f"int:{int(value)}"
    if isinstance(value, float):
        return f"f64:{float_bits(value):x}"
    if isinstance(value, str):
        return f"text:{spelled(value)}"
    if isinstance(value, bytes):
        return f"bytes:{hexed(value)}"
    if type(value) in IN_JAVA:
        return f"other:java.time.{IN_JAVA[type(value)]}:{spelled(value.text)}"
    return f"{value!r}"


def said_of(program, text):
    """What it takes a text of events for."""
    items, answer = program.try_to("parse", spelled(text), seconds=SECONDS)
    return None if answer is None else [(name, " ".join(rest)) for name, *rest in items]


def we_say_of(text):
    try:
        value = chronicle.parse(text)
    except ShmqError:
        return None
    return [(spelled(str(name)), spell(each)) for name, each in (value.items() if isinstance(value, dict) else value)]


def narrow(value):
    """Say whether no text in it has a character above U+00FF, and no number is infinite."""
    if isinstance(value, dict):
        return all(narrow(each) for each in (*value, *value.values()))
    if isinstance(value, list):
        return all(map(narrow, value))
    return value != float("inf") and (not isinstance(value, str) or max(value, default="") <= "\xff")


def texts(dice, program, _):
    """
    Documents as text: what it prints we read as it does, what we print it reads as we do.

    It puts its texts into buffers of characters that it uses again, and those that have held one above U+00FF spoil
    what comes after: so none here does, in a program of its own.
    """
    program.close()
    for _ in range(40):
        words, value = some_pairs(dice, TEXTUAL)
        if not value or not narrow(value):
            continue
        _, answer = program.ask("encode", *f"events {words}".split())
        _, shown = program.ask("print", answer)
        printed = unhex(shown).decode("utf-16-be", "surrogatepass")
        same(f"read what it printed: {printed!r}", we_say_of(printed), said_of(program, printed))
        mine = chronicle.show(chronicle.decode(unhex(answer)))
        same(f"it reads what we print {mine!r}", we_say_of(mine), said_of(program, mine))


# ---------------------------------------------------------------------------------------------- following
class Follower(threading.Thread):
    """Follows a queue meanwhile, and remembers when each message was delivered."""

    def __init__(self, folder, **options):
        super().__init__()
        self._folder, self._options = folder, options
        self.found, self.times, self.problem = [], [], None

    def run(self):
        try:
            for entry in chronicle.read(self._folder, follow=True, timeout=10, **self._options):
                self.found.append((entry.index, entry.payload))
                self.times.append(time.monotonic())
                if entry.payload == b"last":
                    return
            self.problem = "nothing came any more"
        except Exception as error:  # noqa: BLE001
            self.problem = f"{type(error).__name__} {error}"


def followed(dice, program, folder):
    """It writes by the real clock and rolls each second; we follow from before its first file is there."""
    cycle = dice.choice(["TEST_SECONDLY", "TEST4_SECONDLY"])
    program.ask("open", folder, f"cycle={cycle}", *dice.choice([[], ["clock=1700000000000"]]))
    program.ask("put", "bytes", "00")
    followers = [Follower(folder), Follower(folder, as_program=True)]
    for each in followers:
        each.start()
    written, times = read_whole(program), [0]
    for number in range(dice.choice([3, 20, 100])):
        payload = numbered(dice, number)
        _, index = program.ask("put", "bytes", hexed(payload))
        times.append(time.monotonic())
        written.append((signed(index), payload))
        how = dice.random()
        if how < 0.1:
            time.sleep(dice.random() * 2.5)
        elif how < 0.2:
            program.try_to("clock", T_MS + number * dice.choice([1000, 5000]))
        elif how < 0.3:
            program.ask("put", "rollback", "raw", "0102")
            program.ask("put", "meta", "raw", "0102")
    _, index = program.ask("put", "bytes", hexed(b"last"))
    written.append((signed(index), b"last"))
    times.append(time.monotonic())
    for each in followers:
        each.join()
        same("followed", each.found, written)
        late = max(there - put for there, put in zip(each.times[1:], times[1:], strict=True))
        same(f"bounded delay, {late:.3f} s", [late < LATE], [True])


LATE = 2.0
"""Seconds after which a follower is late, on a machine that does more than this."""


def tailed(dice, program, folder):
    """Its tailer follows what we append, rolls and all, and a named one goes on where we commit it."""
    cycle = dice.choice(["TEST_SECONDLY", "TEST_SECONDLY", "FAST_DAILY"])
    with chronicle.Appender(folder, roll_cycle=cycle, block_bytes=1 << 16) as appender:
        written = [(appender.append(b"first"), b"first")]
        count = dice.choice([5, 50, 1000])
        tailer = Writer(program.command, "tailer", f"open {folder} timeout=2000\ntail follow t {count}\n")
        tailer.wait()
        while len(written) < count:
            payloads = [numbered(dice, len(written) + n) for n in range(dice.choice([1, 1, 7]))]
            written += zip(appender.append_many(payloads), payloads, strict=True)
            if dice.random() < 20 / count:
                time.sleep(dice.random())
            if dice.random() < 0.05:
                appender.append(b"meta", meta=True)
        found = [line.split()[1:] for line in tailer.end() if line.startswith("item")]
        same("it followed", pairs_of(found), written[:count])
        place = appender.roll_cycle.index(*appender.roll_cycle.split(written[count - 1][0] + 1))
        same("its named tailer", chronicle.consumers(folder), {"t": (place, ())})
        index, payload = dice.choice(written)
        appender.commit("T", index)
        program.ask("open", folder, "timeout=2000")
        same("committed", pairs_of(program.ask("tail", "forward", "t", 1)[0]), [(index, payload)])


# ---------------------------------------------------------------------------------------------- both at once
APPENDING = """
import sys, time
from shmq.formats import chronicle
folder, prefix, cycle, many, pause = sys.argv[1:]
k = 0
with chronicle.Appender(folder, roll_cycle=cycle, block_bytes=1 << 16, timeout=60) as appender:
    while True:
        for index in appender.append_many([f"{prefix} {n}".encode() for n in range(k, k + int(many))]):
            print("item", f"{index:x}", k, flush=True)
            k += 1
        time.sleep(float(pause))
"""


class Writer:
    """A process that appends for ever, and what it says of that."""

    def __init__(self, command, prefix, said=None):
        self.prefix, self.pieces = prefix, []
        self.errors = tempfile.TemporaryFile()  # noqa: SIM115  it is looked into when the process has ended
        self.child = subprocess.Popen(
            list(map(str, command)), stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=self.errors
        )
        if said:
            self.child.stdin.write(said.encode())
            self.child.stdin.flush()
        self.thread = threading.Thread(target=self.listen, daemon=True)
        self.thread.start()

    def listen(self):
        while piece := os.read(self.child.stdout.fileno(), 1 << 16):
            self.pieces.append(piece)

    def wait(self, seconds=ANSWER_SECONDS):
        """Until it has appended something."""
        deadline = time.monotonic() + seconds
        while not any(b"item" in piece for piece in self.pieces):
            if self.child.poll() is not None or time.monotonic() > deadline:
                raise DifferentError(f"{self.prefix} does not begin: {self.said()}")
            time.sleep(0.01)

    def stop(self):
        """Kill it, and return what it said it had appended."""
        self.child.kill()
        lives = self.child.wait() == -signal.SIGKILL
        self.thread.join()
        self.child.stdin.close()
        self.child.stdout.close()
        if not lives:
            raise DifferentError(f"{self.prefix} ended by itself: {self.said()}")
        whole = b"".join(self.pieces).rpartition(b"\n")[0].decode().split("\n")
        wrong = [line for line in whole if line.startswith("error")]
        if wrong:
            raise DifferentError(f"{self.prefix}: {wrong} {self.said()}")
        lines = [line.split() for line in whole if line.startswith("item")]
        return [(signed(index), f"{self.prefix} {k}".encode()) for _, index, k in lines]

    def end(self):
        """Wait for its end, and return its lines."""
        self.child.stdin.close()
        self.thread.join(ANSWER_SECONDS)
        self.child.kill()
        self.child.wait()
        return b"".join(self.pieces).decode().split("\n")

    def said(self):
        self.errors.seek(0)
        return self.errors.read()[-400:].decode()


def a_writer(dice, program, folder, cycle, number):
    """One of theirs or one of ours."""
    if dice.random() < 0.5:
        words = [f"J{number}", cycle, dice.choice([1, 1, 7, 300]), dice.choice([0, 0.001, 0.02])]
        words[0] = f"P{number}"
        return Writer([sys.executable, "-P", "-c", APPENDING, folder, *words], f"P{number}")
    pause = dice.choice([0, 100, 5000])
    said = f"open {folder} cycle={cycle} timeout=20000\nmany J{number} 0 {pause} 0\n"
    return Writer(program.command, f"J{number}", said)


def together(dice, program, folder):
    """Two to four append at once by the real clock, and are killed or stopped at any moment; others come after."""
    cycle = dice.choice(["TEST_SECONDLY", "TEST_SECONDLY", "FAST_DAILY", "MINUTELY", "LARGE_DAILY"])
    folder.mkdir()
    acknowledged, killed = [], 0
    writers = [a_writer(dice, program, folder, cycle, number) for number in range(dice.choice([2, 3]))]
    try:
        for number in range(dice.choice([1, 3])):
            for each in writers:
                each.wait()
            time.sleep(dice.random() * dice.choice([0.05, 0.5, 1.5]))
            if dice.random() < 0.3:
                each = dice.choice(writers)
                each.child.send_signal(signal.SIGSTOP)
                time.sleep(dice.random())
                each.child.send_signal(signal.SIGCONT)
            each = writers.pop(dice.randrange(len(writers)))
            acknowledged.append(each.stop())
            killed += 1
            writers.append(a_writer(dice, program, folder, cycle, 10 + number))
        for each in writers:
            each.wait()
    finally:
        for each in writers:
            each.child.kill()
    for each in writers:
        acknowledged.append(each.stop())
        killed += 1
    both_agree(dice, program, folder, acknowledged, killed)


def both_agree(dice, program, folder, acknowledged, killed):
    found = ours(folder)
    there = dict(found)
    same("no index twice", [len(there)], [len(found)])
    payloads = [payload for _, payload in found]
    same("nothing doubled", [len(set(payloads))], [len(payloads)])
    count = 0
    for each in acknowledged:
        count += len(each)
        same("acknowledged", [(index, there.get(index)) for index, _ in each], each)
    if len(found) > count + killed * 300:
        raise DifferentError(f"{len(found)} are there, {count} were acknowledged")
    program.ask("open", folder, "timeout=2000")
    _, index = program.ask("put", "bytes", hexed(b"last"))
    found.append((signed(index), b"last"))
    items, _ = program.ask("tail", "forward", "-", 10_000_000)
    same("its reading", found, pairs_of(items))
    same("ours again", ours(folder), found)
    same("ours as its", ours(folder, as_program=True), found)
    for index, payload in dice.sample(found, min(10, len(found))):
        items, _ = program.ask("tail", "from", "-", f"{index:x}", 1)
        same(f"it seeks {index:x}", [(index, payload)], pairs_of(items))
        same(f"we seek {index:x}", [next(chronicle.read(folder, start=index)).payload], [payload])
    program.ask("close")
    same("problems", chronicle.verify(folder), [])


TRIALS = (read, copied, written, values, encoded, texts, crashed, repaired, damaged, followed, tailed, together)


def one(trial, program, seed, work):
    """One trial: None, or what was different."""
    dice = random.Random(f"{trial.__name__} {seed}")
    with tempfile.TemporaryDirectory(dir=work) as folder:
        try:
            trial(dice, program, Path(folder) / "queue")
        except Exception as error:  # noqa: BLE001  whatever it is, the trial did not go as it should
            return f"{type(error).__name__} {error}"
        finally:
            program.try_to("close")
    return None


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sources", type=Path, required=True)
    parser.add_argument("--work", type=Path, required=True, help="the built program and the trials' files")
    parser.add_argument("--trials", type=int, default=200, help="of each kind")
    parser.add_argument("--seed", type=int, help="this trial only")
    parser.add_argument("--only", help="this kind only")
    options = parser.parse_args()
    options.work.mkdir(exist_ok=True)
    program = Program(build(options.sources.resolve(), options.work.resolve()))
    wrong = 0
    for trial in TRIALS:
        if options.only and options.only != trial.__name__:
            continue
        failed = 0
        seeds = range(options.trials) if options.seed is None else [options.seed]
        for seed in seeds:
            found = one(trial, program, seed, options.work)
            if found:
                failed += 1
                if failed <= SHOWN:
                    print(f"--only {trial.__name__} --seed {seed}: {found[:600]}", flush=True)
        print(f"{trial.__name__:20} {len(seeds)} trials, {failed} different", flush=True)
        wrong += failed
    program.close()
    return bool(wrong)


if __name__ == "__main__":
    raise SystemExit(main())
