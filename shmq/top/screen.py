"""
`shmq top` on a terminal: all queues; Enter for one of them; w for why it is stuck or slow. By textual, an extra.

It looks in a thread, so that keys are heard meanwhile.
"""

from __future__ import annotations

import asyncio
import collections
import contextlib
import signal
from typing import TYPE_CHECKING, Any, ClassVar

from rich.text import Text
from textual.app import App
from textual.binding import Binding
from textual.containers import VerticalScroll
from textual.coordinate import Coordinate
from textual.css.query import NoMatches
from textual.screen import Screen
from textual.widgets import DataTable, Footer, Sparkline, Static

from shmq import diagnosis, errors
from shmq.top import words

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence
    from types import FrameType

    from shmq.top.facts import ConsumerFacts, ProcessFacts, QueueFacts
    from shmq.top.looks import Look, Looks

_KEPT = 120
"""So many looks are drawn as a line."""
_BARS = " ▁▂▃▄▅▆▇█"
_BAD, _FAINT = "bold red", "dim"
_LEVELS = {"stuck": "bold red", "slow": "bold yellow", "note": "green"}
_QUEUES = ("QUEUE", "PUT/S", "DONE/S", "LAG", "OLDEST", "MESSAGES", "DISK", "NAMES", "OPEN", "STATE")
_CONSUMERS = ("CONSUMER", "KIND", "DONE/S", "LAG", "OLDEST", "PENDING", "PARKED", "BACK", "DEAD", "OPEN IN")
_PROCESSES = ("PROCESS", "STATE", "PUT/S", "TAKES", "COMMAND")
_SORTS: dict[str, Callable[[QueueFacts], Any]] = {
    "name": lambda each: each.path,
    "lag": lambda each: (-each.lag, each.path),
    "oldest": lambda each: (-(each.oldest or 0.0), each.path),
    "put/s": lambda each: (-(each.put_rate or 0.0), each.path),
    "disk": lambda each: (-each.disk_bytes, each.path),
}


def run(looks: Looks) -> int:
    """Show them until somebody types q; return the exit status."""
    app = Top(looks, end_by=(signal.SIGTERM,))
    app.run()
    return app.return_code or 0


class Grid(DataTable):  # type: ignore[misc]  # textual is an extra, Any where it is missing
    """A table whose cursor stays with what it is on, whatever moves."""

    def __init__(self, heads: Sequence[str], left: Sequence[str], **named: Any) -> None:
        """*left*: the columns that are flush left."""
        super().__init__(cursor_type="row", zebra_stripes=True, **named)
        self._heads, self._left = heads, left
        self.keys: list[object] = []

    def on_mount(self) -> None:
        """Have heads also where nothing is shown yet."""
        self._make_columns()

    def _make_columns(self) -> None:
        for head in () if self.columns else self._heads:
            self.add_column(Text(head, justify="left" if head in self._left else "right"), key=head)

    @property
    def chosen(self) -> Any:
        """The key of the row with the cursor; None without rows."""
        return self.keys[self.cursor_row] if 0 <= self.cursor_row < len(self.keys) else None

    def fill(self, rows: Iterable[tuple[object, Sequence[str | Text]]]) -> None:
        """Have it show these rows, each with its key."""
        self._make_columns()  # on a busy machine, facts may come before it is mounted
        chosen, there = self.chosen, list(rows)
        while self.row_count > len(there):
            self.remove_row(str(self.row_count - 1))
        for at, (_, cells) in enumerate(there):
            if at >= self.row_count:
                self.add_row(*map(self._cell, self._heads, cells), key=str(at))
                continue
            for column, (head, cell) in enumerate(zip(self._heads, cells, strict=True)):
                self.update_cell_at(Coordinate(at, column), self._cell(head, cell), update_width=True)
        self.keys = [key for key, _ in there]
        if chosen in self.keys and chosen != self.chosen:
            self.move_cursor(row=self.keys.index(chosen))

    def _cell(self, head: str, cell: str | Text) -> Text:
        text = cell.copy() if isinstance(cell, Text) else Text(cell)
        text.plain = words.plain(text.plain)
        text.justify = "left" if head in self._left else "right"
        return text


class Queues(Screen):  # type: ignore[misc]  # see Grid
    """All of them, a row each."""

    BINDINGS: ClassVar = [
        Binding("enter", "drill", "Queue", priority=True),  # before the table's own
        ("w", "why", "Why"),
        ("s", "sort", "Sort"),
    ]
    sort = "name"

    def compose(self) -> Iterator[Any]:
        """A line with the sums, and the table."""
        yield Static(id="sums")
        yield Grid(_QUEUES, ("QUEUE", "STATE"), id="queues")
        yield Footer()

    def on_mount(self) -> None:
        """Show what is known."""
        self.app.show()

    def show(self, look: Look) -> None:
        """Show that look."""
        self.query_one("#sums", Static).update(_sums(look, self.sort))
        ordered = sorted(look.queues, key=_SORTS[self.sort])
        self.query_one(Grid).fill((each.path, _queue_row(each)) for each in ordered)

    def on_data_table_row_selected(self) -> None:
        """Enter, or a click."""
        self.action_drill()

    def action_drill(self) -> None:
        """Show the queue under the cursor."""
        path = self.query_one(Grid).chosen
        if path is not None:
            self.app.push_screen(One(path))

    def action_why(self) -> None:
        """Say why the queue under the cursor is stuck or slow."""
        path = self.query_one(Grid).chosen
        if path is not None:
            self.app.push_screen(Why(path))

    def action_sort(self) -> None:
        """Sort by the next column."""
        names = list(_SORTS)
        self.sort = names[(names.index(self.sort) + 1) % len(names)]
        self.app.show()


class One(Screen):  # type: ignore[misc]  # see Grid
    """One queue: its figures, lines of the last minutes, its names and its processes."""

    BINDINGS: ClassVar = [("escape", "app.pop_screen", "Back"), ("w", "why", "Why")]

    def __init__(self, path: str) -> None:
        """The queue at *path*."""
        super().__init__()
        self.path = path

    def compose(self) -> Iterator[Any]:
        """From above: figures, lines, tables."""
        yield Static(id="figures")
        yield Static(id="latency")
        yield Static(id="put-title")
        yield Sparkline(id="put")
        yield Static(id="lag-title")
        yield Sparkline(id="lag")
        yield Grid(_CONSUMERS, ("CONSUMER", "KIND", "OPEN IN"), id="consumers")
        yield Grid(_PROCESSES, ("PROCESS", "STATE", "TAKES", "COMMAND"), id="processes")
        yield Footer()

    def on_mount(self) -> None:
        """Show what is known."""
        self.app.show()

    def show(self, look: Look) -> None:
        """Show that look at it."""
        found = next((each for each in look.queues if each.path == self.path), None)
        self.query_one("#figures", Static).update(_figures(self.path, found))
        if found is None or found.problem is not None:
            found = None
        self.query_one("#latency", Static).update(_bars(found.latency if found else None))
        puts, lags = self.app.history(self.path)
        self.query_one("#put-title", Static).update(_line_title("put/s", puts, words.rate))
        self.query_one("#put", Sparkline).data = puts
        self.query_one("#lag-title", Static).update(_line_title("lag", lags, words.count))
        self.query_one("#lag", Sparkline).data = lags
        consumers, processes = (found.consumers, found.processes) if found else ([], [])
        states = {each.pid: each.state for each in processes}
        self.query_one("#consumers", Grid).fill((each.name, _consumer_row(each, states)) for each in consumers)
        ordered = sorted(processes, key=lambda each: (-(each.put_rate or 0.0), each.pid))
        self.query_one("#processes", Grid).fill((each.pid, _process_row(each)) for each in ordered)

    def action_why(self) -> None:
        """Say why it is stuck or slow."""
        self.app.push_screen(Why(self.path))


class Why(Screen):  # type: ignore[misc]  # see Grid
    """What `shmq why` says of one queue."""

    BINDINGS: ClassVar = [("escape", "app.pop_screen", "Back"), ("w", "again", "Look again")]

    def __init__(self, path: str) -> None:
        """The queue at *path*."""
        super().__init__()
        self.path = path

    def compose(self) -> Iterator[Any]:
        """Sentences."""
        with VerticalScroll():
            yield Static(id="findings")
        yield Footer()

    def on_mount(self) -> None:
        """Begin to look."""
        self.action_again()

    def action_again(self) -> None:
        """Look again."""
        self.query_one("#findings", Static).update(Text(f"looking at {words.plain(self.path)} ...", _FAINT))
        self.run_worker(self._find(), exclusive=True)

    async def _find(self) -> None:
        try:
            found = await asyncio.to_thread(diagnosis.why, self.path)
            text = _findings(self.path, found)
        except (errors.ShmqError, OSError) as problem:
            text = Text(words.plain(str(problem)), _BAD)
        self.query_one("#findings", Static).update(text)


class Top(App):  # type: ignore[misc]  # see Grid
    """The whole of it. The screen that is on top shows each look."""

    TITLE = "shmq top"
    ENABLE_COMMAND_PALETTE = False
    BINDINGS: ClassVar = [
        Binding("q", "quit", "Quit"),
        Binding("ctrl+c", "quit", "Quit", show=False, priority=True),  # before a screen copies text
    ]
    CSS = """
    #sums, #figures, #latency, #put-title, #lag-title { height: auto; padding: 0 1; }
    #put, #lag { height: 2; margin: 0 1; }
    #consumers { height: 1fr; border-top: solid $primary; }
    #processes { height: 1fr; border-top: solid $primary; }
    #queues { height: 1fr; }
    #findings { padding: 0 1; }
    """

    def __init__(self, looks: Looks, end_by: Sequence[int] = ()) -> None:
        """*looks* stays the caller's; *end_by*: signals that end it, and leave the terminal as it was."""
        super().__init__()
        self._looks = looks
        self._end_by = end_by
        self._look: Look | None = None
        self._history: dict[str, collections.deque[tuple[float, int]]] = {}

    def on_mount(self) -> None:
        """Begin to look."""
        for number in self._end_by:
            asyncio.get_running_loop().add_signal_handler(number, self.exit)
        self._take_the_terminal_once()
        self.push_screen(Queues())
        self.run_worker(self._keep_looking())

    def _take_the_terminal_once(self) -> None:
        """
        Have SIGCONT take the terminal only where SIGTSTP has given it back.

        After SIGSTOP, which nobody hears of, textual would take it a second time, and have two threads that read keys.
        """
        suspend, resume = signal.getsignal(signal.SIGTSTP), signal.getsignal(signal.SIGCONT)
        if not callable(suspend) or not callable(resume):  # it is no terminal
            return
        given_back: list[bool] = []

        def stop(number: int, frame: FrameType | None) -> None:
            given_back.append(True)
            suspend(number, frame)

        def go_on(number: int, frame: FrameType | None) -> None:
            if given_back:
                given_back.clear()
                resume(number, frame)

        signal.signal(signal.SIGTSTP, stop)
        signal.signal(signal.SIGCONT, go_on)

    async def _keep_looking(self) -> None:
        while True:
            self._take(await asyncio.to_thread(self._looks.look))
            await asyncio.sleep(self._looks.pause())

    def _take(self, look: Look) -> None:
        self._look = look
        there = {each.path: each for each in look.queues}
        self._history = {path: self._history.get(path) or collections.deque(maxlen=_KEPT) for path in there}
        for path, each in there.items():
            if each.put_rate is not None:
                self._history[path].append((each.put_rate, each.lag))
        self.show()

    def show(self) -> None:
        """Have the screen on top show the last look."""
        if self._look is not None and isinstance(self.screen, Queues | One):
            with contextlib.suppress(NoMatches):  # it is being made, or taken away
                self.screen.show(self._look)

    def history(self, path: str) -> tuple[list[float], list[float]]:
        """Of that queue: messages put a second, and lags, at the last looks."""
        known = self._history.get(path, ())
        return [put for put, _ in known], [float(lag) for _, lag in known]


# ---------------------------------------------------------------- what they say
def _sums(look: Look, sort: str) -> Text:
    good = [each for each in look.queues if each.problem is None]
    rooms = {each.disk_size: each.disk_free for each in good}
    said = [
        words.many(len(look.queues), "queue"),
        f"{words.rate(sum(each.put_rate or 0.0 for each in good))} put/s",
        f"{words.rate(sum(each.take_rate or 0.0 for each in good))} done/s",
        *(f"{words.size(free)} of {words.size(size)} free" for size, free in sorted(rooms.items())),
        f"sorted by {sort}",
        f"a look takes {words.age(look.took)}",
    ]
    return Text("   ".join(said))


def _queue_row(each: QueueFacts) -> list[str | Text]:
    if each.problem is not None:
        return [Text(words.short(each.path), _BAD), *["-"] * (len(_QUEUES) - 2), Text(each.problem, _BAD)]
    stopped = any(process.state == "stopped" for process in each.processes)
    return [
        words.short(each.path),
        words.rate(each.put_rate),
        words.rate(each.take_rate),
        _lag(each),
        words.age(each.oldest),
        words.count(each.next_index - each.first_index),
        words.size(each.disk_bytes),
        words.count(len(each.consumers)),
        words.count(len(each.processes)),
        Text(", ".join([*filter(None, [each.state]), *["a process is stopped"] * stopped]), "yellow"),
    ]


def _lag(each: QueueFacts | ConsumerFacts) -> str | Text:
    said = words.count(each.lag)
    return said if each.lag else Text(said, _FAINT)


def _figures(path: str, found: QueueFacts | None) -> Text:
    text = Text(words.plain(path), "bold")
    if found is None:
        return text.append("  is not there any more", _BAD)
    if found.problem is not None:
        return text.append(f"  {words.plain(found.problem)}", _BAD)
    said = [
        f"indexes {found.first_index:,} to {found.next_index:,}",
        f"{words.size(found.disk_bytes)} in files",
        f"{words.size(found.disk_free)} of {words.size(found.disk_size)} free",
    ]
    if found.max_messages:
        said.append(f"at most {found.max_messages:,} messages")
    if found.max_bytes:
        said.append(f"at most {words.size(found.max_bytes)} of messages")
    if found.held_by:
        said.append(f"{found.held_by} alone holds much back")
    if found.state:
        said.append(found.state)
    return text.append("\n" + "   ".join(said), "not bold")


def _line_title(name: str, values: Sequence[float], say: Callable[[float], str]) -> Text:
    return Text(f"{name}: {say(values[-1])} now, {say(max(values))} at most" if values else f"{name}:", _FAINT)


def _bars(latency: Sequence[tuple[float, int]] | None) -> Text:
    """A histogram on one line, a character for each bucket from the first to the last that has something."""
    if latency is None:
        return Text()
    there = [at for at, (_, number) in enumerate(latency) if number]
    shown = latency[there[0] : there[-1] + 1] if there else []
    most = max((number for _, number in shown), default=1)
    bars = "".join(_BARS[-(-number * (len(_BARS) - 1) // most)] for _, number in shown)
    ends = f"{words.age(shown[0][0])} {bars} {words.age(shown[-1][0])}   " if shown else ""
    return Text(f"latency: {ends}{words.quantiles(latency)}", _FAINT)


def _consumer_row(each: ConsumerFacts, states: dict[int, str]) -> list[str | Text]:
    pids = Text(", ").join(Text(str(pid), _BAD if states.get(pid) == "stopped" else "") for pid in each.pids)
    nobody = Text("somebody unseen" if each.open else "nobody", "" if each.open else "yellow")
    return [
        each.name if each.problem is None else Text(f"{each.name}: {each.problem}", _BAD),
        each.kind,
        words.rate(each.rate),
        _lag(each),
        words.age(each.oldest),
        words.count(each.pending),
        words.count(each.parked),
        words.count(each.returned),
        words.count(each.dead),
        pids if each.pids else nobody,
    ]


def _process_row(each: ProcessFacts) -> list[str | Text]:
    state = Text(each.state, _BAD) if each.state == "stopped" else each.state
    return [str(each.pid), state, words.rate(each.put_rate), ", ".join(each.consumers) or "-", each.command]


def _findings(path: str, found: Sequence[diagnosis.Finding]) -> Text:
    text = Text()
    for each in found:
        where = "" if each.path.endswith(path) else f" {each.path}"
        text.append(f"{each.level.upper()} ({each.kind}){words.plain(where)}: ", _LEVELS[each.level])
        text.append(f"{words.plain(each.sentence)}\n")
        if each.advice:
            text.append(f"    {words.plain(each.advice)}\n", _FAINT)
    return text
