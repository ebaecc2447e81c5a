"""`shmq chaos`: the judge sees what is wrong, a short run keeps its promises, and nothing is left behind."""

import contextlib
import json
import os
import signal
import subprocess
import sys

import pytest
from support import in_child, until

from shmq.cli import main
from shmq.cli.experiment import crowd, disk, notes
from shmq.cli.experiment.judge import MEMBER, PRODUCER, SINGLE, History, Life, judge
from shmq.cli.experiment.notes import ACKED, BAD, GOT, PUT, TRIED, Note

COMMAND = [sys.executable, "-m", "shmq", "chaos"]


# ---------------------------------------------------------------- the judge
class Story:
    """
    A history in which all is well: producer 1 was killed in its third put, which had not returned; producer 2 has put
    two at once. Consumer 3 was killed with message 0 in hand, which 4 then had; 5 was killed with message 1.
    """

    def __init__(self):
        self.log = {0: (1, 0, 1), 1: (1, 1, 1), 2: (2, 0, 2), 3: (2, 1, 2), 4: (1, 2, 1)}
        self.killed = {1, 3, 5}
        self.notes = {life: [] for life in range(1, 7)}
        for index, (producer, number, together) in self.log.items():
            self.add(producer, TRIED, producer, number, together, 10 + index)
            if index != 4:
                self.add(producer, PUT, producer, number, index, 10 + index)
        self.hand(3, 0, 20)
        for index in self.log:
            self.hand(4, index, 30 + 2 * index)
            self.add(4, ACKED, 0, 0, index, 31 + 2 * index)
        self.hand(5, 0, 20)
        for index in (2, 3, 4):
            self.hand(6, index, 40 + index)

    def add(self, life, *note):
        self.notes[life].append(Note(*note))

    def hand(self, life, index, time):
        self.add(life, GOT, *self.log[index][:2], index, time)

    def verdict(self):
        roles = dict(zip(range(1, 7), [PRODUCER, PRODUCER, MEMBER, MEMBER, SINGLE, SINGLE], strict=True))
        lives = {life: Life(role, life in self.killed, self.notes[life]) for life, role in roles.items()}
        return judge(History(lives, self.log))


def drop(story, life, kind, place):
    story.notes[life] = [note for note in story.notes[life] if (note.kind, note.place) != (kind, place)]


def missing(story):
    del story.log[1]


def missing_and_nobody_saw_it(story):
    for life in (4, 5, 6):
        drop(story, life, GOT, 3)
    drop(story, 4, ACKED, 3)
    story.log = {0: (1, 0, 1), 1: (1, 1, 1), 2: (2, 0, 1), 4: (1, 2, 1)}


def doubled(story):
    story.log[5] = (1, 1, 1)
    story.hand(4, 5, 60)
    story.hand(6, 5, 60)


def out_of_order(story):
    story.log[0], story.log[1] = story.log[1], story.log[0]


def half_a_batch(story):
    del story.log[3]
    drop(story, 2, PUT, 3)
    for life in (4, 6):
        drop(story, life, GOT, 3)


def bytes_of_nobody(story):
    story.log[4] = None


def never_tried(story):
    drop(story, 1, TRIED, 1)
    story.notes[1] = [note for note in story.notes[1] if note.number != 2 or note.kind != TRIED]


def handed_to_two_that_live(story):
    story.killed.remove(3)


def handed_after_its_ack(story):
    story.killed.add(4)
    story.hand(3, 2, 90)


def handed_to_nobody(story):
    drop(story, 4, GOT, 2)
    drop(story, 4, ACKED, 2)


def handed_out_as_another(story):
    story.add(4, GOT, 2, 1, 2, 50)


def bytes_handed_out(story):
    story.add(4, BAD, 0, 0, 2, 50)


def again_at_most_once(story):
    story.hand(6, 2, 50)


def backward(story):
    story.hand(6, 1, 50)


def more_than_in_hand(story):
    drop(story, 6, GOT, 4)


@pytest.mark.parametrize(
    ("spoil", "figure", "said"),
    [
        (missing, "lost", "message 1 of producer 1 is not in the queue, though its put returned 1"),
        (missing_and_nobody_saw_it, "lost", "message 1 of producer 2 is not in the queue"),
        (doubled, "doubled", "message 1 of producer 1 is in the queue 2 times, at 1, 5"),
        (out_of_order, "disordered", "before its message 0"),
        (half_a_batch, "broken", "of 2 messages that were put at once, from message 0 of producer 2 on, 1 are there"),
        (bytes_of_nobody, "broken", "message 4 is in the queue, and nobody has put these bytes"),
        (never_tried, "broken", "message 2 of producer 1 is in the queue, and nobody has tried to put it"),
        (handed_to_two_that_live, "doubled", "message 0 was handed to another one while process 3"),
        (handed_after_its_ack, "doubled", "message 2 was handed to process 3 after it was acknowledged"),
        (handed_to_nobody, "lost", "message 2 is in the queue, and no consumer of the group was handed it"),
        (handed_out_as_another, "broken", "message 1 of producer 2 was handed out as message 2, which is another"),
        (bytes_handed_out, "broken", "process 4 was handed bytes that nobody put"),
        (again_at_most_once, "doubled", "message 2 was handed out again to the consumer that has each at most once"),
        (backward, "disordered", "message 1 was handed out after message 4"),
        (more_than_in_hand, "lost", "2 messages never came to the consumer alone, of which 1 processes were killed"),
    ],
)
def test_the_judge_sees_what_is_wrong(spoil, figure, said):
    story = Story()
    spoil(story)
    verdict = story.verdict()
    assert getattr(verdict, figure) > 0
    assert any(said in sentence for sentence in verdict.wrong), verdict.wrong


def test_the_judge_lets_pass_what_is_right():
    verdict = Story().verdict()
    assert verdict.wrong == []
    assert (verdict.returned, verdict.again, verdict.in_hand) == (4, 1, 1)


def test_of_notes_and_messages_only_whole_ones_count(tmp_path):
    path = str(tmp_path / "notes")
    book = notes.Notebook(path)
    book.note_all(TRIED, 7, [1, 2], [2, 2])
    book.note(PUT, 7, 1, 5)
    with open(path, "ab") as file:
        file.write(b"cut short")
    assert [note[:4] for note in notes.read(path)] == [(TRIED, 7, 1, 2), (TRIED, 7, 2, 2), (PUT, 7, 1, 5)]
    for number in range(20):
        data = notes.payload(3, number, 5)
        assert notes.told(data) == (3, number, 5)
        assert notes.told(data[:-1]) is None
        assert notes.told(data[:-1] + bytes([data[-1] ^ 1])) != (3, number, 5)


def test_a_seed_repeats_its_schedule():
    assert crowd.schedule(1, 30, 5) == crowd.schedule(1, 30, 5)
    assert crowd.schedule(1, 30, 5) != crowd.schedule(2, 30, 5)
    assert {event.slot for event in crowd.schedule(1, 30, 5)} == set(range(5))


# ---------------------------------------------------------------- the real thing
def test_a_short_run_keeps_its_promises_and_leaves_nothing(tmp_path):
    words = [*COMMAND, str(tmp_path), "--seconds", "1", "--seed", "7", "--workers", "1", "--json"]
    done = subprocess.run(words, capture_output=True, text=True, check=False, timeout=280)
    assert done.returncode == 0, done.stdout + done.stderr
    found = json.loads(done.stdout)
    assert found["kept_its_promises"]
    assert found["ours"]["kills"] == sum(event.kill for event in crowd.schedule(7, 1, 3)) > 0
    assert found["ours"]["verdict"]["returned"] > 0
    assert found["left"][0] == found["items"] > found["left"][1]
    assert list(tmp_path.iterdir()) == []


@pytest.mark.slow
def test_a_longer_run_kills_many_and_writes_its_report(tmp_path):
    words = [*COMMAND, ".", "--seconds", "20", "--seed", "8", "--durability", "sync", "--report", "page.md"]
    done = subprocess.run(words, capture_output=True, text=True, check=False, timeout=280, cwd=tmp_path)
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.startswith("shmq kept its promises")
    assert done.stdout in (tmp_path / "page.md").read_text().replace("```\n", "\n")
    assert [path.name for path in tmp_path.iterdir()] == ["page.md"]


def test_what_is_lost_is_the_first_line_and_the_directory_stays(tmp_path, monkeypatch, capfd):
    """Of a real run, in which the judge is shown a queue that lacks its last message but one."""

    def spoiled(path):
        log = real(path)
        del log[max(log) - 1]
        return log

    real = crowd._log
    monkeypatch.setattr(crowd, "_log", spoiled)
    monkeypatch.setattr(crowd, "kill_after_puts", lambda place, items, theirs: items)
    monkeypatch.setattr(crowd, "trouble_theirs", lambda *_: crowd.Figures(judge(History({})), 1))
    monkeypatch.setattr(disk, "try_it", lambda _: disk.Full(tried=False, why="not here"))
    words = ["chaos", str(tmp_path), "--seconds", "1", "--seed", "9", "--workers", "1"]
    assert in_child(main, words) == "1"
    said = capfd.readouterr().out
    assert said.startswith("SHMQ LOST 1 MESSAGE: message ")
    (kept,) = tmp_path.iterdir()
    assert f"are kept in {kept}" in said
    assert (kept / "ours" / "queue" / "queue.shmq").exists()


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGKILL])
def test_whatever_ends_it_no_process_stays(tmp_path, number):
    words = [*COMMAND, str(tmp_path), "--seconds", "60"]
    with subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        until(lambda: list(tmp_path.glob("*/killed/notes-1")), 200)
        (child,) = map(int, open_children(process.pid))
        process.send_signal(number)
        said = process.communicate(timeout=200)
    until(lambda: not alive(child))
    assert said[0] == ""
    assert process.returncode == (-9 if number == signal.SIGKILL else 130)
    assert (list(tmp_path.iterdir()) == []) == (number != signal.SIGKILL)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_found_what_a_fork_had_swallowed_ended_nothing(tmp_path, monkeypatch, number):
    """What is called at a fork lets nothing out: the interrupt was printed, and the experiment went on to its end."""
    started, real = [], crowd.Crowd._start

    def swallows(self, slot):
        started.append(slot)
        if len(started) == 2:
            with contextlib.suppress(KeyboardInterrupt):
                signal.raise_signal(number)
        return real(self, slot)

    monkeypatch.setattr(crowd, "kill_after_puts", lambda place, items, theirs: items)
    monkeypatch.setattr(crowd.Crowd, "_start", swallows)
    monkeypatch.setattr(disk, "try_it", lambda _: disk.Full(tried=False, why="not here"))
    before = {each: signal.getsignal(each) for each in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)}
    assert main(["chaos", str(tmp_path), "--seconds", "60", "--workers", "1"]) == 130
    assert len(started) == 3  # and none of them a second time
    assert {each: signal.getsignal(each) for each in before} == before
    assert list(tmp_path.iterdir()) == []


def open_children(pid):
    with open(f"/proc/{pid}/task/{pid}/children") as file:
        return file.read().split()


def alive(pid):
    try:
        with open(f"/proc/{pid}/stat") as file:
            return file.read().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


def test_what_a_full_disk_has_said_names_no_path_that_is_nowhere(tmp_path, monkeypatch):
    """Of a directory that was named from here on, the rest of its path stayed, with the queue's name behind it."""
    monkeypatch.chdir(tmp_path.parent)
    found = disk.try_it(tmp_path.name)
    if not found.tried:
        pytest.skip(f"NO DISK CAN BE FILLED HERE: {found.why}")
    assert found.said.startswith("cannot put into queue: ")
    assert str(tmp_path.parent) not in found.said


def test_a_full_disk_is_tried_or_it_is_said_why_not(tmp_path, monkeypatch):
    found = disk.try_it(str(tmp_path))
    assert not found.wrong
    assert found.tried or found.why
    monkeypatch.setenv("PATH", str(tmp_path))
    assert disk.try_it(str(tmp_path)) == disk.Full(tried=False, why="there is no unshare (util-linux) here")
    assert disk.Full(tried=True, put=3, kept=2, again=10).wrong


@pytest.mark.parametrize(
    ("words", "said"),
    [(["missing"], "missing is not a directory"), ([".", "--report", "no/page.md"], "no such directory")],
)
def test_what_is_asked_for_wrongly_is_said(tmp_path, monkeypatch, capsys, words, said):
    monkeypatch.chdir(tmp_path)
    assert main(["chaos", *words]) == 2
    assert said in capsys.readouterr().err
    assert os.listdir() == []
