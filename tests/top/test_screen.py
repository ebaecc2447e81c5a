"""`shmq top` on a terminal: by textual's own pilot, and by a real terminal whose keys are typed."""

from __future__ import annotations

import asyncio
import contextlib
import os
import pty
import signal
import subprocess
import sys
import termios
from pathlib import Path
from types import SimpleNamespace

import pytest
from support import DEADLINE, Child, hold_until_killed, readable

pytest.importorskip("textual")

import shmq
from shmq.top import facts, screen, words
from shmq.top.looks import Look

PATIENCE = 4 * DEADLINE
"""A program that imports all of textual, and draws."""


def having_a_name(say, path):
    with shmq.open(path).consumer("billing"):
        say("ready")
        hold_until_killed(say)


def drive(looks, work, size=(140, 30)):
    """Have *work*(app, pilot) done on a terminal that is none."""

    async def run():
        app = screen.Top(looks)
        async with app.run_test(size=size) as pilot:
            await work(app, pilot)

    asyncio.run(run())


async def until_so(true):
    async with asyncio.timeout(PATIENCE):
        while not true():
            await asyncio.sleep(0.1)  # what is on the screen rings no bell


async def until_it_says(pilot, word):
    """Wait until that is on the screen."""
    await until_so(lambda: word in shown(pilot.app))


def shown(app):
    """What is on the screen, as text."""
    lines = app.screen._compositor.render_strips()
    return "\n".join("".join(segment.text for segment in line) for line in lines)


@pytest.fixture
def looks(tmp_path):
    with shmq.top.Looks([str(tmp_path)], every=0.05) as made:
        yield made


def test_found_facts_that_come_before_a_table_is_mounted_end_nobody(looks):
    """On a busy machine they did: the table had no columns yet."""

    async def work(app, pilot):
        grid = screen.Grid(("NAME", "LAG"), ("NAME",))
        grid.fill([("billing", ("billing", "3"))])
        await app.screen.mount(grid)
        await pilot.pause()
        assert (grid.row_count, len(grid.columns)) == (1, 2)

    drive(looks, work)


def test_queues_one_of_them_and_why_by_keys(tmp_path, looks):
    path = str(tmp_path / "orders")
    with shmq.open(path) as queue, shmq.open(tmp_path / "other"), Child(having_a_name, path) as child:
        child.hear()
        queue.put_many([b"x"] * 1234)

        async def work(app, pilot):
            await until_it_says(pilot, "2 queues")
            await until_it_says(pilot, "orders")
            assert "1,234" in shown(app)
            await pilot.press("enter")
            await until_it_says(pilot, "indexes 0 to 1,234")
            assert "billing" in shown(app)
            assert str(child.pid) in shown(app)
            queue.put(b"x")
            await until_it_says(pilot, "indexes 0 to 1,235")  # live
            child.signal(signal.SIGSTOP)
            await until_it_says(pilot, "stopped")
            await pilot.press("w")
            await until_it_says(pilot, f"kill -CONT {child.pid}")
            assert "STUCK (stopped)" in shown(app)
            await pilot.press("escape")
            await until_it_says(pilot, "indexes 0 to")
            child.kill()
            await until_it_says(pilot, "nobody")
            await pilot.press("escape")
            await until_it_says(pilot, "2 queues")
            await pilot.press("q")
            assert not app.is_running

        drive(looks, work)


def test_the_cursor_stays_with_its_queue_when_rows_move(tmp_path, looks):
    for name in ("a", "b", "c"):
        shmq.open(tmp_path / name).close()
    with shmq.open(tmp_path / "b") as queue:
        queue.consumer("billing").close()

        async def work(app, pilot):
            await until_it_says(pilot, "3 queues")
            grid = app.screen.query_one(screen.Grid)
            assert [Path(key).name for key in grid.keys] == ["a", "b", "c"]
            await pilot.press("down")
            assert grid.chosen == str(tmp_path / "b")
            await pilot.press("s")  # by lag: all have none
            queue.put(b"x")
            await until_so(lambda: Path(grid.keys[0]).name == "b")
            assert "sorted by lag" in shown(app)
            assert (grid.chosen, grid.cursor_row) == (str(tmp_path / "b"), 0)
            shmq.delete(tmp_path / "c")
            await until_it_says(pilot, "2 queues")
            assert grid.row_count == 2

        drive(looks, work)


def test_nothing_in_a_name_is_obeyed_by_the_terminal(tmp_path, looks):
    name = os.fsdecode(b"[red]a\x1b[2J\xff")
    shmq.open(tmp_path / name).close()

    async def work(app, pilot):
        await until_it_says(pilot, "1 queue")
        assert "[red]a\N{REPLACEMENT CHARACTER}[2J\N{REPLACEMENT CHARACTER}" in shown(app)
        await pilot.press("enter")
        await until_it_says(pilot, "indexes 0 to 0")
        await pilot.press("w")
        await until_it_says(pilot, "NOTE (idle)")
        assert "\x1b" not in shown(app)

    drive(looks, work)


def test_a_queue_that_cannot_be_read_and_one_that_goes(tmp_path, looks):
    (tmp_path / "bad").mkdir()
    (tmp_path / "bad" / "queue.shmq").write_bytes(b"not ours")
    shmq.open(tmp_path / "good").close()

    async def work(app, pilot):
        await until_it_says(pilot, "cannot open")
        await pilot.press("enter")
        await until_it_says(pilot, "Back")
        assert "cannot open" in shown(app)
        await pilot.press("escape", "down", "enter")
        await until_it_says(pilot, "indexes 0 to 0")
        shmq.delete(tmp_path / "good")
        await until_it_says(pilot, "is not there any more")

    drive(looks, work, size=(250, 30))


def test_a_latency_is_a_line_of_bars(tmp_path):
    one = facts.QueueFacts("orders", 0.0, latency=[(1e-6, 0), (2e-6, 5), (4e-6, 10), (8e-6, 0)])
    looks = SimpleNamespace(look=lambda: Look(0.0, 0.0, [one]), pause=lambda: 0.05)

    async def work(app, pilot):
        await until_it_says(pilot, "orders")
        await pilot.press("enter")
        await until_it_says(pilot, "latency: 2 µs ▄█ 4 µs   50% 4 µs 99% 4 µs")

    drive(looks, work)


@pytest.mark.parametrize(
    ("said", "expected"),
    [
        (words.age(0.00042), "420 µs"),
        (words.age(0.042), "42.0 ms"),
        (words.age(4.24), "4.2 s"),
        (words.age(119), "119 s"),
        (words.age(600), "10 min"),
        (words.age(86400), "24 h"),
        (words.age(864000), "10 d"),
        (words.size(1023), "1,023 B"),
        (words.size(1536), "1.5 KiB"),
        (words.size(2 << 40), "2.0 TiB"),
        (words.rate(0.25), "0.2"),
        (words.rate(12345.6), "12,346"),
        (words.rate(None), "-"),
        (words.short("a/" * 30), "\N{HORIZONTAL ELLIPSIS}/" + "a/" * 21),
        (words.many(1, "process"), "1 process"),
        (words.many(2, "process"), "2 processes"),
    ],
)
def test_figures_are_short(said, expected):
    assert said == expected


# ---------------------------------------------------------------- what breaks on purpose got by
def test_the_columns_that_it_sorts_by():
    """The greatest first, and those that are alike by name; what is not known counts as nothing."""
    one = facts.QueueFacts("b", 0.0, lag=1, oldest=30.0, put_rate=None, disk_bytes=10)
    two = facts.QueueFacts("c", 0.0, lag=3, oldest=None, put_rate=5.0, disk_bytes=10)
    three = facts.QueueFacts("a", 0.0, lag=2, oldest=40.0, put_rate=7.0, disk_bytes=20)
    found = {
        name: "".join(each.path for each in sorted([one, two, three], key=key)) for name, key in screen._SORTS.items()
    }
    assert found == {"name": "abc", "lag": "cab", "oldest": "abc", "put/s": "acb", "disk": "abc"}


def test_the_sums_are_of_what_can_be_read_and_each_disk_counts_once():
    good = [
        facts.QueueFacts(name, 0.0, put_rate=rate, take_rate=2 * rate, disk_free=1 << 20, disk_size=4 << 20)
        for name, rate in (("a", 1.0), ("b", 2.0))
    ]
    bad = facts.QueueFacts("c", 0.0, "no", put_rate=100.0, disk_free=5, disk_size=6)
    said = screen._sums(Look(0.0, 0.25, [*good, bad]), "lag").plain
    assert said.split("   ") == [
        "3 queues", "3.0 put/s", "6.0 done/s", "1.0 MiB of 4.0 MiB free", "sorted by lag", "a look takes 0.2 s",
    ]  # fmt: skip


def test_a_row_has_what_is_there_and_not_what_was():
    row = screen._queue_row(facts.QueueFacts("q", 0.0, first_index=100, next_index=150, disk_bytes=2048, lag=7))
    said = dict(zip(screen._QUEUES, map(str, row), strict=True))
    assert (said["MESSAGES"], said["DISK"], said["LAG"], said["PUT/S"]) == ("50", "2.0 KiB", "7", "-")


def test_the_lines_are_of_the_looks_so_far():
    app = screen.Top(SimpleNamespace())
    app.show = lambda: None
    for rate, lag in ((None, 9), (2.0, 3), (5.0, 4), (1.0, 0)):
        app._take(Look(0.0, 0.0, [facts.QueueFacts("q", 0.0, put_rate=rate, lag=lag)]))
    assert app.history("q") == ([2.0, 5.0, 1.0], [3.0, 4.0, 0.0])
    assert screen._line_title("put/s", app.history("q")[0], words.rate).plain == "put/s: 1.0 now, 5.0 at most"
    app._take(Look(0.0, 0.0, []))
    assert app.history("q") == ([], [])


# ---------------------------------------------------------------- a real terminal
class Terminal:
    """`shmq top` in a terminal of its own, as behind ssh."""

    def __init__(self, where):
        ours, theirs = pty.openpty()
        termios.tcsetwinsize(ours, (30, 120))
        self.fd, self.said = ours, b""
        self._process = subprocess.Popen(
            [sys.executable, "-m", "shmq", "top"],
            stdin=theirs, stdout=theirs, stderr=theirs, cwd=where, start_new_session=True,
            env={**os.environ, "TERM": "xterm-256color"},
        )  # fmt: skip
        os.close(theirs)

    def until_it_says(self, word):
        while word not in self.said:
            assert readable(self.fd, PATIENCE), self.said[-2000:]
            self.said += os.read(self.fd, 65536)

    def signal(self, number):
        self._process.send_signal(number)

    def end(self):
        """The exit status; all that was written until then is in `said`."""
        with contextlib.suppress(OSError):  # the other side is closed
            while readable(self.fd, PATIENCE):
                self.said += os.read(self.fd, 65536)
        return self._process.wait(PATIENCE)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self._process.kill()
        self._process.wait()
        os.close(self.fd)


def test_found_after_a_stop_the_terminal_was_taken_twice_and_a_key_could_end_nothing(tmp_path):
    """SIGSTOP is heard by nobody, and what SIGCONT brought back had not been given away: two threads read keys."""
    with shmq.open(tmp_path / "orders") as queue:
        queue.put_many([b"x"] * 4321)
    with Terminal(tmp_path) as terminal:
        terminal.until_it_says(b"4,321")
        terminal.signal(signal.SIGSTOP)
        terminal.signal(signal.SIGCONT)
        os.write(terminal.fd, b"\r")
        terminal.until_it_says(b"PROCESS")
        os.write(terminal.fd, b"q")
        assert terminal.end() == 0
        assert terminal.said.count(b"\x1b[?1049h") == 1


@pytest.mark.parametrize("how", ["q", "ctrl-c", "SIGTERM"])
def test_on_a_real_terminal_it_ends_as_it_is_told_and_leaves_it_as_it_was(tmp_path, how):
    with shmq.open(tmp_path / "orders") as queue:
        queue.put_many([b"x"] * 4321)
    with Terminal(tmp_path) as terminal:
        before = termios.tcgetattr(terminal.fd)
        terminal.until_it_says(b"4,321")
        if how == "SIGTERM":
            terminal.signal(signal.SIGTERM)
        else:
            os.write(terminal.fd, b"q" if how == "q" else b"\x03")
        assert terminal.end() == 0
        assert terminal.said.rindex(b"\x1b[?1049l") > terminal.said.rindex(b"\x1b[?1049h")  # the other screen is back
        assert terminal.said.rindex(b"\x1b[?25h") > terminal.said.rindex(b"\x1b[?25l")  # and the cursor
        with contextlib.suppress(termios.error):
            assert termios.tcgetattr(terminal.fd) == before
