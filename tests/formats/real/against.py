"""
shmq.formats against the real programs: what we write, they recover; what they write, whole or damaged, we read alike.

    python tests/formats/real/against.py --sources DIR [--work DIR] [--trials N] [--seed S] [FORMAT ...]

DIR holds a checkout of each: `kestrel` (twitter-archive), `libkestrel` (twitter-archive), `sej` (h12w), `qewqew`
(pschichtel). They are built into the work folder with Debian's scala, default-jdk, golang-go,
golang-github-fsnotify-fsnotify-dev and golang-github-pkg-errors-dev. The two Scala projects are compiled against
Standins.scala, which replaces what they use of Twitter's utilities (times, futures, logs, counters) and holds no logic
of theirs; `buffer.position` gets the `()` that newer JDKs want. Every journal, queue and recovery class is theirs.

Each trial prints one line that repeats it when it fails.
"""

import argparse
import collections
import contextlib
import os
import random
import re
import shutil
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

import shmq
from shmq import Busy, Corrupt, ShmqError, formats
from shmq.formats import Entry, kestrel, qewqew
from shmq.formats.qewqew import lock

HERE = Path(__file__).resolve().parent
FAR_MS = 4_000_000_000_000
T_MS = 1_300_000_000_000
MS = 1_000_000
NO_TIME = -(1 << 63)
JAR = "/usr/share/java/scala-library.jar"
ANSWER_SECONDS = 120
SPIN_SECONDS = 4
"""After which a program that reads a small damaged file is taken to read it for ever."""


class DifferentError(Exception):
    """The two do not agree."""


# ---------------------------------------------------------------------------------------------- building
def build(name, sources, work):
    """Build one program; return the command that runs it."""
    return {"sej": build_sej, "qewqew": build_qewqew, "kestrel": build_kestrel, "libkestrel": build_libkestrel}[name](
        sources / name, work / f"build-{name}"
    )


def call(*words, **more):
    subprocess.run([str(word) for word in words], check=True, **more)


def build_sej(source, work):
    place = work / "src/h12.io"
    if not (work / "drive").exists():
        shutil.copytree(source, place / "sej")
        (place / "drive").mkdir()
        shutil.copy(HERE / "Sej.go", place / "drive/main.go")
        about = {"GOPATH": f"{work}:/usr/share/gocode", "GO111MODULE": "off", "GOCACHE": f"{work}/cache"}
        call("go", "build", "-o", work / "drive", ".", cwd=place / "drive", env=os.environ | about)
    return [work / "drive"]


def build_qewqew(source, work):
    if not work.exists():
        files = sorted((source / "src/main/java/tel/schich/qewqew").glob("*.java"))
        call("javac", "-d", work, *files, HERE / "QewQewDrive.java")
    return ["java", "-cp", work, "QewQewDrive"]


def build_scala(work, files, driver, main):
    if not work.exists():
        (work / "src").mkdir(parents=True)
        for file in files:
            text = re.sub(
                r"\b(reader|data|b|buffer|header|buf|byteBuffer|dataBuffer|blob)\.(position|limit)\b(?!\()",
                r"\1.\2()",
                file.read_text(),
            )
            if file.name == "PeriodicSyncFile.scala":  # two writers in it, of which one is a ByteBuffer
                text = re.sub(r"(def position = |val startPos = )writer\.position\b", r"\1writer.position()", text)
                text = text.replace("f.setLength(writer.position)", "f.setLength(writer.position())")
            (work / "src" / file.name).write_text(text)
        (work / "classes").mkdir()
        flags = ["-nowarn", "-language:implicitConversions", "-d", work / "classes"]
        call("scalac", *flags, HERE / "Standins.scala", *sorted((work / "src").iterdir()), HERE / driver)
    return ["java", "-cp", f"{JAR}:{work}/classes", main]


def build_kestrel(source, work):
    place = source / "src/main/scala/net/lag/kestrel"
    names = (
        "Journal PersistentQueue QItem QueueCollection PeriodicSyncStorage LocalDirectory PersistentStreamContainer "
        "JournalPacker ItemIdList DeadlineWaitQueue AliasedQueue config/QueueConfig config/AliasConfig "
        "config/ConfigValue"
    )
    files = [place / f"{name}.scala" for name in names.split()]
    return build_scala(work, files, "Kestrel.scala", "net.lag.kestrel.Drive")


def build_libkestrel(source, work):
    place = source / "src/main/scala/com/twitter/libkestrel"
    files = [*place.glob("*.scala"), *place.glob("config/*.scala")]
    return build_scala(work, files, "Libkestrel.scala", "com.twitter.libkestrel.Drive")


# ---------------------------------------------------------------------------------------------- talking
class Program:
    """A real program that waits for commands."""

    def __init__(self, command):
        self.command = [str(word) for word in command]
        self._child = None
        self.before = []
        """The items that came before the last error."""

    def ask(self, *words):
        """Its items (each a list of words) and its answer; DifferentError if it says that something went wrong."""
        items, answer = self.try_to(*words)
        if answer is None:
            raise DifferentError(f"{' '.join(map(str, words))[:300]}: {items}")
        return items, answer

    def try_to(self, *words, seconds=ANSWER_SECONDS):
        """As `ask`; (what went wrong, None) if something did. Too long an answer ends it: (its items, None)."""
        if self._child is None or self._child.poll() is not None:
            self._child = subprocess.Popen(self.command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        child = self._child
        timer = threading.Timer(seconds, child.kill)
        timer.start()
        items = []
        try:
            child.stdin.write(" ".join(map(str, words)) + "\n")
            child.stdin.flush()
            for line in child.stdout:
                kind, *rest = line.split()
                if kind == "item":
                    items.append(rest)
                elif kind == "ok":
                    return items, " ".join(rest)
                else:
                    self.before = items
                    return " ".join(rest), None
        finally:
            timer.cancel()
        child.wait()
        return items, None

    @property
    def pid(self):
        """The process that runs it."""
        return self._child.pid

    def kill(self):
        """End it by kill -9; the next command starts another one."""
        self._child.kill()
        self._child.wait()

    def close(self):
        if self._child is not None:
            with contextlib.suppress(BrokenPipeError):
                self._child.stdin.close()
            self._child.wait()
            self._child = None


def hexed(data):
    return data.hex() if data else "-"


def unhex(text):
    return b"" if text == "-" else bytes.fromhex(text)


def same(what, ours, theirs):
    if ours is None or theirs is None:
        raise DifferentError(f"{what}: {'theirs' if theirs is None else 'ours'} did not start")
    if isinstance(ours, dict) and isinstance(theirs, dict):
        same(f"{what}, names", sorted(ours), sorted(theirs))
        for name in ours:
            same(f"{what} {name}", list(ours[name]), list(theirs[name]))
    elif ours != theirs:
        at = next(
            (n for n, (a, b) in enumerate(zip(ours, theirs, strict=False)) if a != b), min(len(ours), len(theirs))
        )
        different = f"different from {at} on: ours {ours[at : at + 2]}, theirs {theirs[at : at + 2]}"
        raise DifferentError(f"{what}: {len(ours)} and {len(theirs)}, {different}")


def payload(dice):
    return dice.randbytes(dice.choice([0, 1, 2, 7, 30, 200]))


def copy(folder, name):
    other = folder.parent / name
    shutil.copytree(folder, other)
    return other


def damage(dice, folder, names):
    """Cut, flip, append to or zero one of the files."""
    file = folder / dice.choice(names)
    content = bytearray(file.read_bytes())
    how = dice.choice(["cut", "flip", "append", "zeros", "insert"])
    at = dice.randrange(len(content) + 1)
    if how == "cut":
        del content[at:]
    elif how == "append":
        content += dice.randbytes(dice.randrange(1, 20))
    elif how == "zeros":
        content += bytes(dice.randrange(1, 40))
    elif how == "insert":
        content[at:at] = dice.randbytes(dice.randrange(1, 4))
    elif content:
        content[at - 1] ^= 1 << dice.randrange(8)
    file.write_bytes(content)
    return f"{how} {file.name} at {at}"


class Follower:
    """A reader that follows what a program writes, meanwhile; *busy* says for how long it works on an entry."""

    def __init__(self, folder, name, queue, busy=lambda: 0):
        self._found = []
        self._wanted = None
        self._busy = busy
        self._began = threading.Event()
        self.corrupt = None
        self._thread = threading.Thread(target=self._read, args=(folder, name, queue))
        self._thread.start()

    def _read(self, folder, name, queue):
        with contextlib.closing(formats.read(folder, name, queue, follow=True, timeout=20)) as entries:
            try:
                for entry in entries:
                    self._found.append(entry.payload)
                    self._began.set()
                    if self._wanted is not None and len(self._found) >= self._wanted:
                        return
                    time.sleep(self._busy())
            except Corrupt as error:
                self.corrupt = error
            except ShmqError as error:
                self._found.append(str(error))
            finally:
                self._began.set()

    def began(self):
        """Wait for its first entry: what was taken before it came is not its to deliver."""
        self._began.wait()

    def expect(self, many):
        """End with that many: to be said before the last of them comes."""
        self._wanted = many

    def same(self, written):
        """What it has followed is what was written, in that order."""
        self._wanted = len(written)
        self._thread.join()
        if self.corrupt is not None:
            raise DifferentError(str(self.corrupt))
        same("followed", self._found, written)

    def same_or_corrupt(self, written):
        """As `same`; or it has ended with Corrupt, and until then it was."""
        self._wanted = len(written)
        self._thread.join()
        if self.corrupt is None:
            same("followed", self._found, written)
            return None
        same("followed until it said so", self._found, written[: len(self._found)])
        return "said to be corrupt"


def numbered(dice, number):
    return b"%d " % number + payload(dice)


# ---------------------------------------------------------------------------------------------- kestrel
def kestrel_items(items):
    return [(int(added), int(expires), unhex(data)) for added, expires, data, _ in items]


def kestrel_recovered(program, folder, name):
    """What the real program has after a start, or None when it does not start."""
    _, answer = program.try_to("open", folder, name, 1 << 27, 1 << 30, 1 << 24, seconds=2 * SPIN_SECONDS)
    if answer is None:
        return None
    items, _ = program.ask("drain")
    program.try_to("close", seconds=SPIN_SECONDS)
    return kestrel_items(items)


def kestrel_ours(folder, name, **options):
    found = formats.read(folder, "kestrel", name, **options)
    return [((e.time_ns or 0) // MS, 0 if e.expires_ns is None else e.expires_ns // MS, e.payload) for e in found]


def kestrel_entries(dice):
    entries, open_ids = [], dice.sample(range(-5, 30), dice.choice([0, 0, 1, 5]))
    for number in range(dice.choice([0, 1, 5, 60])):
        extra = {"xid": open_ids.pop()} if open_ids and open_ids[-1] else None
        expires = (FAR_MS + number) * MS if dice.random() < 0.3 else None
        entries.append(Entry(payload(dice), None, (T_MS + number) * MS, expires, extra=extra))
    return sorted(entries, key=lambda e: e.extra is None)


def kestrel_written(dice, program, folder):
    """We write, it recovers."""
    layout, dialect = dice.choice(["current", "rotated", "pack"]), dice.choice(["2", "2", "2", "1", "starling"])
    entries = kestrel_entries(dice)
    if dialect == "starling":
        entries = [e._replace(time_ns=None, extra=None) for e in entries]
        entries = [e._replace(expires_ns=2_000_000_000_000_000_000 if e.expires_ns else None) for e in entries]
    children = {"fan": (dice.randrange(len(entries) + 1), ())} if dice.random() < 0.5 else None
    formats.write(
        folder, entries, "kestrel", "cars", children, layout=layout, dialect=dialect, rotate_bytes=300, name_ms=T_MS
    )
    for name in ["cars", *(["cars+fan"] if children else [])]:
        old = dialect == "1"
        ours = kestrel_ours(folder, name, as_program=old)
        if not old:
            same(f"our own reading of {name}", len(ours), len(entries) - (children["fan"][0] if name != "cars" else 0))
        theirs = kestrel_recovered(program, copy(folder, f"copy-{name}"), name)
        if dialect == "starling":  # no add time: each reader's own clock
            ours, theirs = ([item[1:] for item in ours], [item[1:] for item in theirs])
        same(f"written {layout} {dialect} {name}", ours, theirs)


def kestrel_operations(dice, program, folder):
    """Every operation there is, in any order, in current, rotated and pack files: it recovers what we replay."""
    folder.mkdir()
    names = dice.choice([["cars"], ["cars.9", "cars.10", "cars"], ["cars.9", "cars.10.pack", "cars.11"]])
    for name in names:
        operations = b"".join(kestrel_operation(dice) for _ in range(dice.choice([0, 3, 40, 200])))
        (folder / name).write_bytes(operations)
    ours = [item[1:] for item in kestrel_ours(folder, "cars", as_program=True)]  # ADD has no add time
    theirs = kestrel_recovered(program, copy(folder, "copy"), "cars")
    same(f"operations in {names}", ours, None if theirs is None else [item[1:] for item in theirs])


def kestrel_operation(dice):
    k = kestrel
    weights = {
        k.ADD: 4,
        k.ADDX: 12,
        k.ADD_XID: 3,
        k.CONTINUE: 3,
        k.REMOVE: 4,
        k.REMOVE_TENTATIVE: 2,
        k.REMOVE_TENTATIVE_XID: 6,
        k.SAVE_XID: 1,
        k.UNREMOVE: 3,
        k.CONFIRM_REMOVE: 3,
    }
    op = dice.choices(list(weights), list(weights.values()))[0]
    if op == k.CONTINUE and dice.random() < 0.01:
        return k.record(k.STATE_DUMP, xid=dice.randrange(9), count=dice.randrange(4))
    xid = dice.choice([-(1 << 31), -1, 1, 2, 3, 4, 5, (1 << 31) - 1])
    expires = dice.choice([None, None, 2_000_000_000_000_000_000])
    entry = Entry(payload(dice), None, (T_MS + dice.randrange(1000)) * MS, expires)
    return k.record(op, xid=xid, entry=entry if op in (k.ADD, k.ADDX, k.ADD_XID, k.CONTINUE) else None)


def kestrel_made(dice, program, folder):
    """Have the real program work on a queue, and close it; the queue's name."""
    folder.mkdir()
    sizes = dice.choice([(1 << 27, 1 << 30, 1 << 24), (400, 1 << 30, 1 << 24), (300, 900, 200), (2000, 1500, 500)])
    program.ask("open", folder, "cars", *sizes)
    with contextlib.suppress(DifferentError):  # it has bugs of its own: a lagging reader dies of None.get (issue #148)
        kestrel_work(dice, program, folder, sizes)
    program.try_to("close")


def kestrel_work(dice, program, folder, sizes):
    opened = set()
    for number in range(dice.choice([5, 40, 150])):
        what = dice.choices(
            ["add", "remove", "tremove", "confirm", "unremove", "continue", "rewrite", "again"],
            [40, 10, 14, 7, 5, 5, 1, 1],
        )[0]
        expires = dice.choice([0, 0, FAR_MS])
        if what == "add":
            program.ask("add", hexed(payload(dice)), T_MS + number, expires)
        elif what in ("remove", "rewrite"):
            program.ask(what)
        elif what == "tremove":
            _, answer = program.ask("tremove")
            if answer != "none":
                opened.add(int(answer.split()[-1]))
        elif what == "again":
            program.ask("close")
            program.ask("open", folder, "cars", *sizes)
            opened.clear()
        elif opened:
            xid = dice.choice(sorted(opened))
            opened.discard(xid)
            program.ask(what, xid, *([hexed(payload(dice)), expires] if what == "continue" else []))


def kestrel_read(dice, program, folder):
    """It writes, we read what it recovers."""
    kestrel_made(dice, program, folder)
    ours, as_program = (kestrel_ours(folder, "cars", as_program=flag) for flag in (False, True))
    theirs = kestrel_recovered(program, copy(folder, "copy"), "cars")
    same("read", ours, theirs)
    same("read as the program", as_program, theirs)


def kestrel_damaged(dice, program, folder):
    """It writes, something is broken, we read as it recovers."""
    kestrel_made(dice, program, folder)
    names = [name for name in os.listdir(folder) if "~~" not in name]
    how = damage(dice, folder, names)
    try:
        ours = kestrel_ours(folder, "cars", as_program=True)
    except ShmqError as error:
        ours = None
        how += f" ({error})"
    theirs = kestrel_recovered(program, copy(folder, "copy"), "cars")
    if ours != theirs and ours is not None and theirs is not None:
        ours, theirs = (sorted(e for e in each if e[1] in (0, FAR_MS)) for each in (ours, theirs))  # a flipped expiry
    same(f"damaged: {how}", ours if ours is not None else ["refused"], theirs if theirs is not None else ["refused"])


def kestrel_followed(dice, program, folder):
    """We follow, while it adds, takes, rotates and rewrites: every item once, in the order of the adds."""
    folder.mkdir()
    sizes = dice.choice([(1 << 27, 1 << 30, 1 << 24), (400, 1 << 30, 1 << 24)])
    program.ask("open", folder, "cars", *sizes)
    written = [numbered(dice, 0)]
    program.ask("add", hexed(written[0]), T_MS, 0)
    follower = Follower(folder, "kestrel", "cars")
    follower.began()
    for number in range(1, dice.choice([5, 60, 200])):
        what = dice.choices(["add", "remove", "rewrite"], [60, 30, 1 if sizes[0] > 400 else 0])[0]
        if what == "add":
            written.append(numbered(dice, number))
            program.ask("add", hexed(written[-1]), T_MS + number, 0)
        else:
            program.ask(what)
    kestrel_last(program, follower, written)
    follower.same(written)
    program.try_to("close")


def kestrel_last(program, follower, written):
    """One more item, with which the follower ends."""
    follower.expect(len(written) + 1)
    written.append(b"last")
    program.ask("add", hexed(b"last"), T_MS, 0)


def kestrel_packed(dice, program, folder):
    """We follow, busy, while it adds, takes, rotates, packs and rewrites: all of it in order, or Corrupt."""
    folder.mkdir()
    sizes = dice.choice([(400, 1 << 30, 1 << 24), (300, 900, 200), (600, 1800, 300), (2000, 1500, 500)])
    program.ask("open", folder, "cars", *sizes)
    written = [numbered(dice, 0)]
    program.ask("add", hexed(written[0]), T_MS, 0)
    most = dice.choice([0, 0, 0.001, 0.01])
    follower = Follower(folder, "kestrel", "cars", lambda: dice.random() * most)
    follower.began()
    with contextlib.suppress(DifferentError):  # a lagging reader of its own dies of None.get (issue #148)
        for number in range(1, dice.choice([60, 200, 400])):
            what = dice.choices(["add", "remove", "tremove", "rewrite"], [60, 45, 5, 1])[0]
            if what == "add":
                data = numbered(dice, number)
                program.ask("add", hexed(data), T_MS + dice.randrange(2000), 0)  # by a clock that goes back at times
                written.append(data)
            elif what != "rewrite" or sizes[0] >= 2000:  # forced while it lags behind itself, it would lose items
                program.ask(what)
            if dice.random() < 0.2:
                time.sleep(dice.random() * 0.01)
    with contextlib.suppress(DifferentError):
        kestrel_last(program, follower, written)
    found = follower.same_or_corrupt(written)
    program.try_to("close", seconds=SPIN_SECONDS)
    return found


def kestrel_in_place(dice, program, folder):
    """It and we work on one queue by turns, and it is killed: each finds what the other has left."""
    folder.mkdir()
    waiting, number = [], 0
    for _ in range(dice.choice([2, 6, 12])):
        opened, ours = {}, dice.random() < 0.5
        with contextlib.ExitStack() as stack:
            if ours:
                cars = stack.enter_context(kestrel.open(folder, "cars", sync=dice.random() < 0.2))
                for xid in sorted(cars.open, reverse=True):  # as the program does when it starts
                    cars.abort(xid)
            else:
                sizes = dice.choice([(1 << 27, 1 << 30, 1 << 24), (400, 1 << 30, 1 << 24)])
                program.ask("open", folder, "cars", *sizes)
            for _ in range(dice.choice([0, 1, 10, 40])):
                what = dice.choices(["add", "remove", "tremove", "confirm", "unremove"], [40, 15, 15, 7, 5])[0]
                number += 1
                kestrel_step(dice, what, cars if ours else program, waiting, opened, numbered(dice, number), ours=ours)
            if not ours:
                program.ask("close") if dice.random() < 0.5 else program.kill()
        waiting[:0] = [opened[xid] for xid in sorted(opened)]
        same("ours of both", [item[2] for item in kestrel_ours(folder, "cars")], waiting)
    same("theirs of both", waiting, [item[2] for item in kestrel_recovered(program, copy(folder, "copy"), "cars")])


def kestrel_step(dice, what, it, waiting, opened, data, *, ours):
    """One operation by us or by the program, and by two lists."""
    if what == "add":
        it.put(data) if ours else it.ask("add", hexed(data), T_MS, 0)
        waiting.append(data)
    elif what in ("remove", "tremove"):
        if ours:
            entry = it.take() if what == "remove" else it.begin()
            taken, xid = (None, None) if entry is None else (entry.payload, (entry.extra or {}).get("xid"))
        else:
            _, answer = it.ask(what)
            fields = answer.split()
            taken, xid = (None, None) if answer == "none" else (unhex(fields[2]), int(fields[3]))
        same("taken", [taken], [waiting[0] if waiting else None])
        del waiting[:1]
        if what == "tremove" and taken is not None:
            opened[xid] = taken
    elif opened:
        xid = dice.choice(sorted(opened))
        data = opened.pop(xid)
        if what == "unremove":
            waiting.insert(0, data)
        (it.confirm if what == "confirm" else it.abort)(xid) if ours else it.ask(what, xid)


# ---------------------------------------------------------------------------------------------- libkestrel
def libkestrel_items(items):
    return [
        (int(index), int(errors), int(added), None if expires == "none" else int(expires), unhex(data))
        for index, errors, added, expires, data in items
    ]


def libkestrel_recovered(program, folder, name, readers, size=1 << 24, seconds=ANSWER_SECONDS):
    _, answer = program.try_to("open", folder, name, size, seconds=seconds)
    if answer is None:
        return None
    found = {}
    for reader in readers:
        items, answer = program.try_to("drain", reader or "-", seconds=seconds)
        found[reader] = "failed" if answer is None else libkestrel_items(items)
    program.try_to("close", seconds=seconds)
    return found


def libkestrel_ours(folder, name, readers, **options):
    found = {}
    for reader in readers:
        entries = formats.read(folder, "libkestrel", name, consumer=reader, **options)
        found[reader] = [
            (e.index, e.attempts, e.time_ns // MS, None if e.expires_ns is None else e.expires_ns // MS, e.payload)
            for e in entries
        ]
    return found


def libkestrel_written(dice, program, folder):
    index = dice.choice([0, 0, 1000])
    entries = []
    for number in range(dice.choice([1, 5, 60])):
        index += dice.choice([1, 1, 1, 5])
        expires = (FAR_MS + number) * MS if dice.random() < 0.3 else None
        entries.append(Entry(payload(dice), index, (T_MS + number) * MS, expires, None, None, dice.choice([0, 0, 3])))
    gaps = entries[-1].index - entries[0].index >= len(entries)
    ids = [e.index for e in entries]
    consumers = {}
    for name in dice.choice([[""], ["a", "b.c"]]):
        head = dice.choice([0, ids[0] - 1, *ids])
        consumers[name] = (
            head,
            tuple(
                sorted(dice.sample([i for i in ids if i > head], dice.randrange(len([i for i in ids if i > head]) + 1)))
            ),
        )
    formats.write(
        folder,
        entries,
        "libkestrel",
        "jobs",
        consumers,
        journal_bytes=1 << 24 if gaps else dice.choice([400, 1 << 24]),
        name_ms=T_MS,
    )
    # The program does not honour READ_DONE, so it is compared as it is; and what it writes back must keep the ids.
    theirs = libkestrel_recovered(program, copy(folder, "copy"), "jobs", consumers)
    same("written", libkestrel_ours(folder, "jobs", consumers, as_program=True), theirs)
    again = copy(folder, "again")
    program.ask("open", again, "jobs", 1 << 24)
    program.ask("close")
    same(
        "places that it wrote back",
        *(dict(sorted(formats.state(each, "jobs").consumers.items())) for each in (folder, again)),
    )


def libkestrel_made(dice, program, folder):
    folder.mkdir()
    size = dice.choice([600, 1500, 1 << 24])
    program.ask("open", folder, "jobs", size)
    readers = dice.choice([[""], ["a"], ["a", "b.c", "late"]])
    for reader in readers[:2]:
        program.ask("reader", reader or "-")
    opened = set()
    for number in range(dice.choice([3, 30, 120])):
        what = dice.choices(["put", "get", "commit", "unget", "checkpoint", "again"], [40, 20, 15, 4, 3, 1])[0]
        if what == "put":
            program.ask(
                "put", hexed(payload(dice)), T_MS + number, dice.choice(["none", "none", FAR_MS]), dice.choice([0, 2])
            )
        elif what == "get":
            reader = dice.choice(readers)
            _, answer = program.ask("get", reader or "-")
            if answer != "none":
                opened.add((reader, int(answer.split()[0])))
        elif what == "checkpoint":
            program.ask("checkpoint")
        elif what == "again":
            program.ask("close")
            program.ask("open", folder, "jobs", size)
            opened.clear()
        elif opened:
            it = dice.choice(sorted(opened))
            opened.discard(it)
            program.ask(what, it[0] or "-", it[1])
    program.ask("close")
    return size


def libkestrel_readers(folder):
    return [
        name.removeprefix("jobs.read.")
        for name in os.listdir(folder)
        if name.startswith("jobs.read.") and "~" not in name
    ]


def libkestrel_read(dice, program, folder):
    size = libkestrel_made(dice, program, folder)
    readers = libkestrel_readers(folder)
    ours = libkestrel_ours(folder, "jobs", readers, as_program=True)
    same("read", ours, libkestrel_recovered(program, copy(folder, "copy"), "jobs", readers, size))
    # What they confirmed is the difference between the two ways to read.
    state = formats.state(folder, "jobs")
    for reader, entries in libkestrel_ours(folder, "jobs", readers).items():
        same("done", [e for e in ours[reader] if e[0] not in state.consumers[reader][1]], entries)


def libkestrel_damaged(dice, program, folder):
    size = libkestrel_made(dice, program, folder)
    readers = libkestrel_readers(folder)
    names = [name for name in os.listdir(folder) if dice.random() < 0.3 or not name.startswith("jobs.read.")]
    how = damage(dice, folder, names)
    ours = None
    try:
        ours = libkestrel_ours(folder, "jobs", readers, as_program=True)
    except ShmqError as error:
        how += f" ({error})"
    theirs = libkestrel_recovered(program, copy(folder, "copy"), "jobs", readers, size, SPIN_SECONDS)
    if theirs is None or ours is None:
        return "refused"
    live = {
        reader: [e for e in entries if e[3] is None or e[3] > 1e12] if entries != "failed" else entries
        for reader, entries in theirs.items()
    }
    ours = {reader: [e for e in entries if e[3] is None or e[3] > 1e12] for reader, entries in ours.items()}
    same(f"damaged: {how}", ours, live)
    return None


def libkestrel_followed(dice, program, folder):
    """We follow, while it puts, through a mapping and through its segments."""
    folder.mkdir()
    program.ask("open", folder, "jobs", dice.choice([600, 1500, 1 << 20]))
    program.ask("reader", "r")
    written = [numbered(dice, 0)]
    program.ask("put", hexed(written[0]), T_MS, "none", 0)
    follower = Follower(folder, "libkestrel", "jobs")
    for number in range(1, dice.choice([5, 60, 200])):
        written.append(numbered(dice, number))
        program.ask("put", hexed(written[-1]), T_MS + number, dice.choice(["none", FAR_MS]), 0)
    follower.same(written)
    program.ask("close")


def libkestrel_renumbered(dice, program, folder):
    """It writes, ids and heads get values that no writer gives, we read as it delivers: its tail, gaps and circles."""
    size = libkestrel_made(dice, program, folder)
    readers = libkestrel_readers(folder)
    how = [new_id(dice, folder) for _ in range(dice.choice([1, 1, 2, 3]))]
    if any("which is used" in problem.reason for problem in formats.state(folder, "jobs").problems):
        return  # of two segments with one first id it takes the one that the listing shows last, whichever that is
    ours = libkestrel_ours(folder, "jobs", readers, as_program=True)
    theirs = libkestrel_recovered(program, copy(folder, "copy"), "jobs", readers, size, SPIN_SECONDS)
    if theirs is None:
        return
    for reader in readers:
        if theirs[reader] == "failed":  # it goes round in circles, and was ended
            problems = formats.state(folder, "jobs", as_program=True).problems
            same(f"circle: {how}", ["again and again" in problems[-1].reason], [True])
            return
        live = [[e for e in each[reader] if e[3] is None or e[3] > 1e12] for each in (ours, theirs)]
        same(f"renumbered: {how}, reader {reader!r}", *live)


def new_id(dice, folder):
    """Change the id of one put, or the head of one reader."""
    file = folder / dice.choice([name for name in sorted(os.listdir(folder)) if "~" not in name])
    content = bytearray(file.read_bytes())
    places, at = [], 4
    if file.name.startswith("jobs.read."):
        places, at = [5], len(content)
    while at < len(content) and content[at]:
        places.append(at + 9)
        at += 25 + 8 * (content[at] == 0x88) + int.from_bytes(content[at + 1 : at + 5], "little")
    if not places:
        return "nothing"
    at = dice.choice([places[0], places[-1], dice.choice(places)])
    old = int.from_bytes(content[at : at + 8], "little", signed=True)
    edges = [0, 1, 2, -1, -2, -7, old - 1, old + 1, old + 2, old - 3, old + 100, 1000, -(1 << 63), (1 << 63) - 1]
    new = dice.choice([edge for edge in edges if -(1 << 63) <= edge < 1 << 63])
    content[at : at + 8] = new.to_bytes(8, "little", signed=True)
    file.write_bytes(content)
    return f"id {new} for {old} at {at} of {file.name}"


def libkestrel_appended(dice, program, folder):
    """It and we put in turns, and commit for its readers: it delivers what it should, and ids go on."""
    size = libkestrel_made(dice, program, folder)
    for _ in range(dice.choice([1, 3])):
        before = list(formats.read(folder, "libkestrel", "jobs"))
        readers = libkestrel_readers(folder)
        more = [Entry(payload(dice), None, T_MS * MS) for _ in range(dice.choice([1, 5, 40]))]
        told = []
        program.ask("open", folder, "jobs", size)
        try:
            formats.append(folder, more, "jobs", "libkestrel", journal_bytes=size, tell=told.append)
        except Busy as busy:
            same("who", str(program.pid) in str(busy), True)
        else:
            raise DifferentError("appended to what the program has open")
        program.ask("put", hexed(b"between"), T_MS, "none", 0)
        program.ask("close")
        program.close()  # its mappings are there until it collects its garbage
        formats.append(folder, more, "jobs", "libkestrel", journal_bytes=size, tell=told.append)
        for reader in readers:
            head = formats.state(folder, "jobs", "libkestrel").consumers[reader][0]
            formats.commit(folder, reader, dice.randrange(head, before[-1].index + 1) if before else head, (), "jobs")
        ours = libkestrel_ours(folder, "jobs", readers, as_program=True)
        same("as it", ours, libkestrel_ours(folder, "jobs", readers))
        theirs = libkestrel_recovered(program, copy(folder, f"copy-{len(told)}-{dice.random()}"), "jobs", readers, size)
        same("delivered", ours, theirs)
        for reader in readers:
            same("the last", [item[4] for item in theirs[reader][-len(more) :]], [entry.payload for entry in more])


def libkestrel_segments(dice, program, folder):
    """Thousands of segments: followed, and read at rest, in order."""
    folder.mkdir()
    count = dice.choice([1000, 2000])
    program.ask("open", folder, "jobs", 60)
    program.ask("reader", "r")
    program.ask("many", 0, 1)
    follower = Follower(folder, "libkestrel", "jobs")
    follower.expect(count + 1)
    program.ask("many", 1, count)
    written = [b"%d" % number for number in range(count + 1)]
    follower.same(written)
    same("at rest", [e.payload for e in formats.read(folder, "libkestrel", "jobs", strict=True)], written)
    program.ask("close")


# ---------------------------------------------------------------------------------------------- sej
def sej_items(items):
    return [
        (int(offset), NO_TIME if when == "zero" else int(when), int(kind), unhex(key), unhex(value))
        for offset, when, kind, key, value in items
    ]


def sej_ours(folder, **options):
    return [(e.index, e.time_ns, e.type, e.key, e.payload) for e in formats.read(folder, "sej", **options)]


def sej_entries(dice):
    return [
        Entry(
            payload(dice),
            None,
            dice.choice([NO_TIME, T_MS * MS + n, -n, (1 << 63) - 1]),
            None,
            dice.choice([None, b"k", b"x" * 127]),
            dice.randrange(256),
        )
        for n in range(dice.choice([0, 1, 10, 100]))
    ]


def sej_written(dice, program, folder):
    first, entries = dice.choice([0, 7]), sej_entries(dice)
    places = {"r": (first + dice.randrange(len(entries) + 1), ()), "new": (None, ())}
    formats.write(folder, entries, "sej", None, places, segment_bytes=dice.choice([1, 300, 1 << 30]), first=first)
    items, _ = program.ask("scan", folder, 0)
    same("written", sej_ours(folder, as_program=True), sej_items(items))
    for name, (offset, _) in places.items():
        _, answer = program.ask("offset", folder, name)
        same(f"offset {name}", [first if offset is None else offset], [int(answer)])
    program.ask("open", folder, 1 << 30)
    program.ask("append", "zero", 1, "-", "ff")
    _, following = program.ask("next")
    program.ask("close")
    same("append", [first + len(entries) + 1], [int(following)])
    same("appended", [b"\xff"], [item[4] for item in sej_ours(folder)[-1:]])


def sej_made(dice, program, folder):
    for _ in range(dice.choice([1, 2])):
        program.ask("open", folder, dice.choice([1, 200, 1 << 30]))
        for entry in sej_entries(dice):
            when = "zero" if entry.time_ns == NO_TIME else entry.time_ns
            program.ask("append", when, entry.type, hexed(entry.key or b""), hexed(entry.payload))
        program.ask("close")


def sej_read(dice, program, folder):
    sej_made(dice, program, folder)
    items, _ = program.ask("scan", folder, 0)
    same("read as the program", sej_ours(folder, as_program=True), sej_items(items))
    count = len(items)
    place = dice.randrange(count + 1)
    program.ask("offset", folder, "r", place)
    same("offset", [place or None], [formats.consumers(folder, format="sej")["r"][0]])
    same("from the offset", [item[0] for item in sej_ours(folder, consumer="r")], list(range(place, count)))
    again = folder.parent / "again"
    formats.write(again, formats.read(folder, "sej"), "sej", segment_bytes=1 << 30)
    items, _ = program.ask("scan", again, 0)
    same("rewritten", sej_ours(folder, as_program=True), sej_items(items))


def sej_followed(dice, program, folder):
    """We follow, while it appends, through buffers that are cut anywhere and through its segments."""
    program.ask("open", folder, dice.choice([1, 300, 1 << 30]))
    follower = Follower(folder, "sej", None)
    written = []
    for number in range(dice.choice([5, 60, 200])):
        written.append(numbered(dice, number))
        program.ask("append", T_MS * MS + number, 1, dice.choice(["-", hexed(b"key")]), hexed(written[-1]))
        if dice.random() < 0.1:
            program.ask("flush")
    program.ask("flush")
    follower.same(written)
    program.ask("close")


def sej_segments(dice, program, folder):
    """Thousands of segments, one message each: followed, and imported meanwhile, nothing is passed over."""
    count = dice.choice([1000, 3000])
    program.ask("open", folder, 1)
    follower = Follower(folder, "sej", None)
    follower.expect(count)
    into = folder.parent / "into"
    imported, stop = [], threading.Event()

    def bring():
        while not stop.is_set():
            formats.import_queue(folder, into, "sej", resume=True, lossy=True, tell=imported.append)

    importer = threading.Thread(target=bring)
    importer.start()
    try:
        program.ask("many", 0, count)
        written = [b"%d" % number for number in range(count)]
        follower.same(written)
    finally:
        stop.set()
        importer.join()
    program.ask("close")
    formats.import_queue(folder, into, "sej", resume=True)
    with shmq.open(into, read_only=True) as queue, queue.reader() as messages:
        same("imported", [message.payload for message in messages], written)
    same("told", imported, [])


def sej_locked(dice, program, folder):
    """Nothing is moved from under a writer or a reader that has a lock: what they acknowledge stays."""
    program.ask("open", folder, 1 << 30)
    program.ask("many", 0, 5)
    program.ask("reader", folder, "r")
    program.ask("commit", 3)
    for which in ("writer", "reader"):
        try:
            formats.repair(folder, format="sej", in_place=True)
        except Busy as busy:
            same("who", str(busy).split(" holds ")[0].split()[-1], str(program.pid))
        else:
            raise DifferentError(f"repaired in place beside the {which}")
        if which == "writer":
            program.ask("many", 5, 3)
            program.ask("close")
    program.ask("commit", 4)
    program.ask("reader")
    same("acknowledged", [e.payload for e in formats.read(folder, "sej")], [b"%d" % n for n in range(8)])
    formats.repair(folder, format="sej", in_place=True)
    program.ask("open", folder, 1 << 30)
    program.ask("many", 8, 2)
    program.ask("close")
    items, _ = program.ask("scan", folder, 4)
    same("after it", [unhex(item[4]) for item in items], [b"%d" % n for n in range(4, 10)])


def sej_appended(dice, program, folder):
    """The real writer and ours in turns, each killed now and then; its offsets and ours; each reads what all wrote."""
    size = dice.choice([1, 200, 1 << 30])
    written = []
    program.ask("open", folder, size)
    counts = [dice.choice([1, 7, 60]) for _ in range(dice.choice([3, 8]))]
    follower = Follower(folder, "sej", None)
    follower.expect(sum(counts))
    for turn, count in enumerate(counts):
        texts = [b"%d" % number for number in range(len(written), len(written) + count)]
        if turn % 2 == 0:
            program.ask("many", len(written), count)
            try:
                formats.append(folder, [Entry(b"no")], format="sej")
            except Busy as busy:
                same("who", str(program.pid) in str(busy), True)
            else:
                raise DifferentError("appended beside the real writer")
            if dice.random() < 0.3:
                program.kill()
            else:
                program.ask("close")
        else:
            end = "os.kill(os.getpid(), 9)" if dice.random() < 0.5 else "appender.close()"
            code = (
                "import os, sys\nfrom shmq.formats import Entry, sej\n"
                f"appender = sej.Appender({str(folder)!r}, segment_bytes={size})\n"
                f"appender.append(*[Entry(text, None, 7) for text in {texts!r}])\n{end}\n"
            )
            subprocess.run([sys.executable, "-c", code], check=False)
            program.ask("open", folder, size)
        written += texts
        if turn % 2 == 0 and turn:
            formats.commit(folder, "r", turn, format="sej")
            same("our offset", program.ask("offset", folder, "r")[1], str(turn))
    if program.ask("offset", folder, "s", 3)[1] == "3":
        same("its offset", formats.consumers(folder, format="sej")["s"], (3, ()))
    follower.same(written)
    with contextlib.suppress(DifferentError):
        program.ask("close")
    same("it reads", [unhex(item[4]) for item in program.ask("scan", folder, 0)[0]], written)
    same("we read", [entry.payload for entry in formats.read(folder, "sej", strict=True)], written)
    same("problems", formats.verify(folder, format="sej"), [])


def sej_watched(dice, program, folder):
    """The watcher of a root takes nothing of ours for a journal that is none."""
    root = folder / "root"
    folder.mkdir()
    root.mkdir()
    program.ask("watch", root)
    bit = dice.choice([0, 1])
    places = [f"o.1.00{index}" for index in range(2)] if bit else ["o"]
    entries = [Entry(payload(dice), None, T_MS * MS + n, None, b"k%d" % n) for n in range(dice.choice([400, 2000]))]

    def slowly():
        for number, entry in enumerate(entries):
            if number % 200 == 0:
                time.sleep(0.005)
            yield entry

    formats.write(root, slowly(), "sej", shard_bit=bit, prefix="o")
    for place in places:
        segment = next((root / place / "jnl").iterdir())
        segment.write_bytes(segment.read_bytes() + b"torn")
    if dice.random() < 0.5:
        formats.repair(root, format="sej", in_place=True)
    else:
        for place in places:
            if dice.random() < 0.5:
                formats.repair(root / place, format="sej", in_place=True)
            else:  # the copy of a shard is made beside the root by default
                formats.repair(root / place, format="sej", to=None if bit else folder / "clean")
    found, _ = program.ask("watched")
    same("watched", sorted(Path(item[0]).name for item in found), places)
    read = [item for place in places for item in program.ask("scan", root / place, 0)[0]]
    same("read", sorted(unhex(item[4]) for item in read), sorted(entry.payload for entry in entries))


def sej_shards(dice, program, folder):
    bit, prefix = dice.choice([0, 1, 2, 4]), dice.choice(["-", "orders"])
    if bit == 0 and prefix == "-":
        prefix = "solo"
    entries = [Entry(payload(dice), None, T_MS * MS + n, None, b"k%d" % dice.randrange(9), n % 256) for n in range(40)]
    folder.mkdir()
    program.ask("shards", folder, prefix, bit)
    for e in entries:
        program.ask("sappend", e.time_ns, e.type, hexed(e.key), hexed(e.payload))
    program.ask("sclose")
    same("shards read", [e._replace(index=None, extra=None) for e in formats.read(folder, "sej")], entries)
    ours = folder.parent / "ours"
    formats.write(ours, entries, "sej", shard_bit=bit, prefix="" if prefix == "-" else prefix)
    files = [{str(p.relative_to(f)): p.read_bytes() for p in f.rglob("*.jnl")} for f in (ours, folder)]
    same(
        "shards written, byte for byte",
        sorted(item for item in files[0].items() if item[1]),
        sorted(item for item in files[1].items() if item[1]),
    )


def sej_damaged(dice, program, folder):
    sej_made(dice, program, folder)
    names = sorted(os.listdir(folder / "jnl"))
    how = damage(dice, folder / "jnl", names)
    items, _ = program.try_to("scan", folder, 0, seconds=SPIN_SECONDS)
    same(f"damaged: {how}", sej_ours(folder, as_program=True), sej_items(items) if isinstance(items, list) else [])


# ---------------------------------------------------------------------------------------------- qewqew
def qewqew_recovered(program, header, size, most=10_000):
    _, answer = program.try_to("open", header, size)
    if answer is None:
        return None
    items, answer = program.try_to("drain", most)
    program.close()  # locks and mappings
    return None if answer is None else [unhex(item[0]) for item in items]


def qewqew_damaged(dice, program, folder):
    """It writes, something is broken, we read as it drains; what it has mapped where a file is too short is zeros."""
    size = qewqew_made(dice, program, folder)
    program.close()
    names = sorted(os.listdir(folder))
    if not names:
        return
    how = [damage(dice, folder, names)]
    if len(names) > 2 and dice.random() < 0.3:
        lost = folder / dice.choice(names[1:])
        lost.unlink()
        how.append(f"without {lost.name}")
    if dice.random() < 0.5:
        how.append(repointed(dice, folder, sorted(os.listdir(folder))))
    options = {"as_program": True, "chunk_bytes": size}
    ours = None
    try:
        ours = qewqew_ours(folder / "q", **options)
    except ShmqError as error:
        how.append(str(error))
    theirs = qewqew_recovered(program, copy(folder, "copy") / "q", size)
    program.close()
    same(f"damaged: {how}", *(["refused"] if found is None else found for found in (ours, theirs)))


def repointed(dice, folder, names):
    """Give one of a chunk's pointers another value, of those that are near to a good one or to an edge."""
    file = folder / dice.choice(names)
    content = bytearray(file.read_bytes())
    if len(content) < 10:
        return "nothing more"
    offset, width = dice.choice([(0, 4), (4, 4), (8, 2)])
    size = len(content)
    value = dice.choice([0, 1, 2, 9, 10, 11, 12, 100, size - 3, size - 2, size - 1, size, size + 1, -1, -(1 << 31)])
    content[offset : offset + width] = (value % (1 << 8 * width)).to_bytes(width)
    file.write_bytes(content)
    return f"{value} at {offset} of {file.name}"


def qewqew_ours(header, **options):
    return [e.payload for e in formats.read(header, "qewqew", **options)]


def qewqew_written(dice, program, folder):
    folder.mkdir()
    size = dice.choice([213, 1000, 1 << 20])
    entries = [Entry(payload(dice)) for _ in range(dice.choice([0, 1, 10, 100]))]
    formats.write(folder / "q", entries, "qewqew", chunk_bytes=size, first_chunk=dice.choice([1, 65_530]))
    same("written", [e.payload for e in entries], qewqew_recovered(program, folder / "q", size))


def qewqew_made(dice, program, folder):
    folder.mkdir()
    size = dice.choice([213, 700])
    for _ in range(dice.choice([1, 2, 3])):
        program.ask("open", folder / "q", size)
        for _ in range(dice.choice([1, 10, 60])):
            program.ask("put", hexed(payload(dice)))
        program.ask("close")
        program.ask("open", folder / "q", size)
        for _ in range(dice.choice([0, 3, 30])):
            program.ask("dequeue")
        program.ask("close")
    return size


def qewqew_read(dice, program, folder):
    size = qewqew_made(dice, program, folder)
    program.close()
    ours = qewqew_ours(folder / "q")
    same("read as the program", qewqew_ours(folder / "q", as_program=True), ours)
    same("read", ours, qewqew_recovered(program, copy(folder, "copy") / "q", size))


def qewqew_locked(dice, program, folder):
    """While it has a queue open, that is not repaired in place; and while we do, it cannot open it."""
    size = qewqew_made(dice, program, folder)
    header = folder / "q"
    program.ask("open", header, size)
    program.ask("put", "00")
    try:
        formats.repair(header, format="qewqew", in_place=True)
    except Busy:
        pass
    else:
        raise DifferentError("repaired in place, and its program had it open")
    program.close()
    before = qewqew_ours(header)
    with lock.held(header, "try"):
        said, _ = program.try_to("open", header, size)
        same("while we held its lock, it said", said, "tel.schich.qewqew.QewAlreadyOpenException")
    same("repaired in place", formats.repair(header, format="qewqew", in_place=True).messages, len(before))
    same("and opened", before, qewqew_recovered(program, header, size))


def qewqew_in_place(dice, program, folder):
    """It and we put and take by turns, and end at any step or whole: each reads what the other has left."""
    folder.mkdir()
    header, size, wanted, number = folder / "q", dice.choice([220, 700]), [], 0
    for _ in range(dice.choice([2, 6, 12])):
        ours = dice.random() < 0.5
        with contextlib.ExitStack() as stack:
            if ours:
                queue = stack.enter_context(qewqew.open(header, chunk_bytes=size, sync=dice.random() < 0.2))
            else:
                program.ask("open", header, size)
            for _ in range(dice.choice([0, 1, 10, 40])):
                if dice.random() < 0.55:
                    number += 1
                    wanted.append(numbered(dice, number))
                    queue.put(wanted[-1]) if ours else program.ask("put", hexed(wanted[-1]))
                elif ours:
                    same("taken", [queue.take()], [wanted.pop(0) if wanted else None])
                elif wanted and len(list(folder.iterdir())) <= 2:  # it cannot take in the session that rolled
                    program.ask("dequeue")
                    wanted.pop(0)
            if not ours and dice.random() < 0.5:
                program.ask("close")
            elif not ours:
                program.kill()
        program.close()
        same("ours of both", qewqew_ours(header), wanted)
    same("theirs of both", wanted, qewqew_recovered(program, header, size))


TRIALS = {
    "kestrel": (
        kestrel_written,
        kestrel_operations,
        kestrel_read,
        kestrel_damaged,
        kestrel_followed,
        kestrel_packed,
        kestrel_in_place,
    ),
    "libkestrel": (
        libkestrel_written,
        libkestrel_read,
        libkestrel_damaged,
        libkestrel_renumbered,
        libkestrel_appended,
        libkestrel_followed,
        libkestrel_segments,
    ),
    "sej": (
        sej_written,
        sej_read,
        sej_shards,
        sej_damaged,
        sej_followed,
        sej_segments,
        sej_locked,
        sej_appended,
        sej_watched,
    ),
    "qewqew": (qewqew_written, qewqew_read, qewqew_damaged, qewqew_locked, qewqew_in_place),
}


def one(trial, program, seed, work, words):
    """One trial: None, or what was different. What a trial has to say besides is counted in *words*."""
    dice = random.Random(f"{trial.__name__} {seed}")
    with tempfile.TemporaryDirectory(dir=work) as folder:
        try:
            word = trial(dice, program, Path(folder) / "queue")
            if word:
                words[word] += 1
        except DifferentError as error:
            return str(error)
    return None


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("formats", nargs="*", metavar="FORMAT", help="those of which a checkout is there, by default")
    parser.add_argument("--sources", type=Path, required=True)
    parser.add_argument("--work", type=Path, help="built programs and the trials' files; a temporary folder by default")
    parser.add_argument("--trials", type=int, default=200, help="of each kind")
    parser.add_argument("--seed", type=int, help="this trial only")
    parser.add_argument("--only", help="this kind only")
    options = parser.parse_args()
    work = options.work or Path(tempfile.mkdtemp(prefix="shmq-real-"))
    work.mkdir(exist_ok=True)
    wrong = 0
    for name in options.formats or [name for name in TRIALS if (options.sources / name).is_dir()]:
        program = Program(build(name, options.sources, work))
        for trial in TRIALS[name]:
            if options.only and options.only != trial.__name__:
                continue
            failed, words = 0, collections.Counter()
            seeds = range(options.trials) if options.seed is None else [options.seed]
            for seed in seeds:
                found = one(trial, program, seed, work, words)
                if found:
                    failed += 1
                    print(f"{name} --only {trial.__name__} --seed {seed}: {found[:600]}", flush=True)
            more = "".join(f", {count} {word}" for word, count in words.items())
            print(f"{name:11} {trial.__name__:20} {len(seeds)} trials, {failed} different{more}", flush=True)
            wrong += failed
        program.close()
    return bool(wrong)


if __name__ == "__main__":
    raise SystemExit(main())
