"""
Following Kestrel through what the real program did to its files, call by call, without the program.

Each file in `recorded/` is one of its sessions with journals of a few hundred bytes, as strace has seen it: `create`,
`write` (to what has that name then), `rename` and `unlink`. It rotates, packs in the background and rewrites.
"""

import random
from pathlib import Path

import pytest

from shmq.errors import Corrupt
from shmq.formats.kestrel.follow import Tail
from shmq.formats.kestrel.journal import Journal, Rules
from shmq.formats.kestrel.records import ADDS

RECORDED = sorted((Path(__file__).parent / "recorded").glob("kestrel-*.txt"))


class Session:
    """The real program's calls, done one after another in a folder."""

    def __init__(self, recorded, folder):
        self._calls = [line.split() for line in recorded.read_text().splitlines()]
        self._folder = folder
        self.added = []
        """The payloads that went into the current journal, but for those that a rewrite repeats there."""

    def __iter__(self):
        for call, name, *more in self._calls:
            path = self._folder / name
            if call == "create":
                path.touch()
            elif call == "write":
                with path.open("ab") as file:
                    file.write(bytes.fromhex(more[0]))
                if name == "cars":
                    self.added += self._payloads(bytes.fromhex(more[0]))
            elif call == "rename":
                path.rename(self._folder / more[0])
            else:
                path.unlink()
            yield call

    def _payloads(self, data):
        (self._folder.parent / "one").write_bytes(data)
        journal = Journal(self._folder.parent / "one", Rules())
        one = journal.one()
        found = [journal.entry(one).payload] if one.op in ADDS else []
        journal.close()
        return found


@pytest.fixture
def folder(tmp_path):
    (tmp_path / "spool").mkdir()
    return tmp_path / "spool"


def followed(session, folder, is_look):
    """What a follower delivers that looks at the files after those calls, and its Corrupt."""
    tail, found, calls = None, [], iter(session)
    for call in calls:
        if call == "create":
            break
    tail = Tail(folder, "cars", Rules())
    try:
        list(tail.available())
        for number, call in enumerate(calls):
            if is_look(number, call):
                found += [entry.payload for entry in tail.available()]
        found += [entry.payload for entry in tail.available()]
    except Corrupt as error:
        for _ in calls:
            pass
        return found, error
    finally:
        tail.close()
    return found, None


@pytest.mark.parametrize("recorded", RECORDED, ids=lambda path: path.stem)
def test_whoever_looks_after_each_call_misses_nothing(folder, recorded):
    session = Session(recorded, folder)
    assert any(".pack" in line and line.startswith("rename cars~~") for line in recorded.read_text().splitlines())
    assert followed(session, folder, lambda *_: True) == (session.added, None)
    assert len(session.added) > 50


@pytest.mark.parametrize("recorded", RECORDED, ids=lambda path: path.stem)
@pytest.mark.parametrize("share", [0.5, 0.2, 0.05, 0.01])
def test_whoever_looks_now_and_then_misses_nothing_or_says_so(folder, recorded, share):
    dice = random.Random(share)
    session = Session(recorded, folder)
    found, error = followed(session, folder, lambda *_: dice.random() < share)
    assert found == session.added[: len(found)]
    assert error is not None or found == session.added


@pytest.mark.parametrize("recorded", RECORDED, ids=lambda path: path.stem)
def test_whoever_looks_once_for_each_journal_misses_nothing(folder, recorded):
    """That is what it takes: a look between two that begin."""
    session = Session(recorded, folder)
    assert followed(session, folder, lambda _, call: call in ("create", "rename")) == (session.added, None)
