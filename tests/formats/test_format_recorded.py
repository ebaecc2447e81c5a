"""
What the real sej and libkestrel did to their files, played again step by step beside followers, readers and imports.

`tests/formats/real/record.py` records it: buffers flushed in the middle of a message, segments, checkpoints, writers
that were killed, and what their successors cut off. No program is needed here.
"""

import json
from pathlib import Path

import pytest

import shmq
from shmq import formats
from shmq.formats.libkestrel.queue import Tail
from shmq.formats.sej.read import _tail

RECORDED = Path(__file__).parent / "recorded"
FORMATS = ["sej", "libkestrel"]


class Recorded:
    """One recording, and the folder where it is played."""

    def __init__(self, name, folder):
        found = json.loads((RECORDED / f"{name}.json").read_text())
        self.payloads = [bytes.fromhex(text) for text in found["payloads"]]
        self.steps = found["steps"]
        self.folder = folder

    def play(self, every=1):
        """After every so many steps, and the last one: how many messages a reader has to have then, at least."""
        least = 0
        for number, step in enumerate(self.steps, 1):
            for what, name, *rest in step["changes"]:
                self._change(what, self.folder / name, *rest)
            least = max(least, step["delivered"] or 0)
            if number % every == 0 or number == len(self.steps):
                yield least

    def _change(self, what, path, *rest):
        path.parent.mkdir(parents=True, exist_ok=True)
        if what == "put":
            path.write_bytes(bytes.fromhex(rest[0]))
        elif what == "replace":
            new = path.with_name(path.name + "~~new")
            new.write_bytes(bytes.fromhex(rest[0]))
            new.replace(path)
        elif what == "remove":
            path.unlink()
        else:
            with path.open("r+b") as file:
                if what == "cut":
                    file.truncate(rest[0])
                else:
                    file.seek(rest[0])
                    file.write(bytes.fromhex(rest[1]))


@pytest.fixture(params=FORMATS)
def recorded(request, tmp_path):
    return Recorded(request.param, tmp_path / request.param)


def tail_of(it):
    if it.folder.name == "sej":
        return _tail(it.folder, None, None, None, growing=True)
    return Tail(it.folder, "jobs", as_program=False, growing=True, strict=False)


@pytest.mark.parametrize("every", [1, 2, 7, 1000])
def test_a_follower_gets_every_message_once_however_slow_it_is(recorded, every):
    tail, found = None, []
    for least in recorded.play(every):
        tail = tail or tail_of(recorded)
        found += [entry.payload for entry in tail.available()]
        assert found == recorded.payloads[: len(found)]
        assert len(found) >= least
    tail.close()
    assert found == recorded.payloads


def test_a_reader_at_rest_gets_what_is_whole_at_any_time(recorded):
    for least in recorded.play():
        found = [entry.payload for entry in formats.read(recorded.folder)]
        assert found == recorded.payloads[: len(found)]
        assert len(found) >= least


def test_imports_meanwhile_bring_every_message_once(recorded, tmp_path):
    with shmq.open(tmp_path / "q") as queue:
        for _ in recorded.play(3):
            formats.import_queue(recorded.folder, queue, resume=True, lossy=True, consumers=False)
        with queue.reader() as reader:
            assert [message.payload for message in reader] == recorded.payloads


def test_what_is_left_has_no_problem_that_its_program_did_not_make(recorded):
    """libkestrel's killed writer leaves its last segment as long as it was mapped: zeros, which are no problem."""
    for _ in recorded.play():
        pass
    assert formats.verify(recorded.folder) == []
    assert formats.state(recorded.folder, as_program=True).messages == len(recorded.payloads)


def test_a_recording_has_what_it_is_for():
    """Messages cut in the middle, files cut, replaced and left behind, more than one segment."""
    changes = {name: [change for step in Recorded(name, None).steps for change in step["changes"]] for name in FORMATS}
    assert [sum(what == "cut" for what, *_ in changes[name]) > 1 for name in FORMATS] == [True, True]
    assert {name for _, name, *_ in changes["libkestrel"]} > {"jobs.read.r", "jobs.read.late"}
    for name in FORMATS:
        assert len({path for what, path, *_ in changes[name] if what == "put" and ".read." not in path}) > 2
    sizes = [len(rest[-1]) // 2 for what, _, *rest in changes["sej"] if what == "patch"]
    assert sum(size % 4096 == 0 for size in sizes) > 1
