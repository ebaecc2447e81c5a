"""
Record what the real sej and libkestrel do to their files, for the tests that run where no program is.

    python tests/formats/real/record.py --sources DIR [--work DIR] [--seed N] [FORMAT ...]

After each command the folder is looked at, and what has changed is one step: a list of [what, name, ...], as
tests/formats/test_format_recorded.py plays it again. Beside it stands how many messages a reader has had then, in the
order of their numbers. What is recorded are file contents of random payloads; none of the programs' code is in it.
"""

import argparse
import json
import random
import tempfile
from pathlib import Path

from against import Program, build, hexed

HERE = Path(__file__).resolve().parent
RECORDED = HERE.parent / "recorded"
SEGMENT = 8000
T_MS = 1_300_000_000_000


class Watched:
    """A folder, and what has changed in it since the last look."""

    def __init__(self, folder):
        self._folder = folder
        self._before = {}

    def changes(self):
        """Steps that lead from what was there to what is there; an inode of its own is a file of its own."""
        now = {
            str(path.relative_to(self._folder)): (path.stat().st_ino, path.read_bytes())
            for path in sorted(self._folder.rglob("*"))
            if path.is_file()
        }
        before, self._before = self._before, now
        steps = [["remove", name] for name in before if name not in now]
        for name, (inode, data) in now.items():
            was = before.get(name)
            if was is None or was[0] != inode:
                steps.append(["put" if was is None else "replace", name, data.hex()])
            elif was[1] != data:
                steps += _patches(name, was[1], data)
        return steps


def _patches(name, was, data):
    if data.startswith(was):
        return [["patch", name, len(was), data[len(was) :].hex()]]
    cut = [["cut", name, len(data)]] if len(data) < len(was) else []
    was = was[: len(data)]
    first = next((at for at, (a, b) in enumerate(zip(was, data, strict=False)) if a != b), len(was))
    last = max((at + 1 for at, (a, b) in enumerate(zip(was, data, strict=False)) if a != b), default=first)
    stop = len(data) if len(data) > len(was) else last
    return cut + ([["patch", name, first, data[first:stop].hex()]] if stop > first else [])


class Recording:
    """Commands to a program, and what each does to the folder."""

    def __init__(self, program, folder):
        self._program = program
        self._watched = Watched(folder)
        self.steps = []
        self.payloads = []

    def do(self, *words, delivered=None):
        """One command; *delivered*: so many messages are there for a reader afterwards, of all that were sent."""
        _, answer = self._program.ask(*words)
        self.look(delivered)
        return answer

    def opens(self, folder, size):
        """Open what a killed writer left; False: it has cut off a message that was not whole, and says so."""
        _, answer = self._program.try_to("open", folder, size)
        self.look(None)
        return answer is not None

    def kill(self):
        """Kill -9."""
        self._program.kill()
        self.look(None)

    def look(self, delivered):
        changes = self._watched.changes()
        if changes:
            self.steps.append({"changes": changes, "delivered": delivered})
        elif self.steps and delivered is not None:
            self.steps[-1]["delivered"] = delivered


def sej(dice, program, folder):
    """Buffers that are cut anywhere, segments, a writer that is killed, and what its successor cuts off."""
    it = Recording(program, folder)
    it.do("open", folder, SEGMENT)
    for turn in range(5):
        for _ in range(10):
            payload = dice.randbytes(dice.choice([0, 3, 40, 400]))
            it.payloads.append(payload.hex())
            it.do("append", T_MS, 1, "-", hexed(payload))
            if dice.random() < 0.3:
                it.do("flush", delivered=len(it.payloads))
        it.do("flush", delivered=len(it.payloads))
        lost = dice.randbytes(5000)
        it.do("append", T_MS, 1, "-", hexed(lost))  # 4096 of these bytes are in the file
        if turn % 3 == 1:
            it.do("close", delivered=len(it.payloads) + 1)
            it.payloads.append(lost.hex())
        else:
            it.kill()
            if it.opens(folder, SEGMENT):  # that segment had been full, and was written to its end
                it.payloads.append(lost.hex())
                continue
        it.do("open", folder, SEGMENT)
    it.do("close", delivered=len(it.payloads))
    return it


def libkestrel(dice, program, folder):
    """Puts through a mapping, segments, checkpoints, items that are consumed, kill -9, and a close that cuts."""
    it = Recording(program, folder)
    for turn in range(3):
        it.do("open", folder, "jobs", 600)
        it.do("reader", "r")
        it.do("reader", "late")
        for _ in range(12):
            payload = dice.randbytes(dice.choice([0, 3, 40, 200]))
            it.payloads.append(payload.hex())
            it.do("put", hexed(payload), T_MS, "none", 0, delivered=len(it.payloads))
            if dice.random() < 0.3:
                answer = it.do("get", "r")
                if answer != "none":
                    it.do("commit", "r", answer.split()[0])
            if dice.random() < 0.2:
                it.do("checkpoint")
        if turn == 1:
            it.kill()
        else:
            it.do("close")
    return it


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("formats", nargs="*", metavar="FORMAT", default=["sej", "libkestrel"])
    parser.add_argument("--sources", type=Path, required=True)
    parser.add_argument("--work", type=Path, required=True)
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    RECORDED.mkdir(exist_ok=True)
    for name in options.formats:
        program = Program(build(name, options.sources, options.work))
        with tempfile.TemporaryDirectory(dir=options.work) as folder:
            it = {"sej": sej, "libkestrel": libkestrel}[name](random.Random(options.seed), program, Path(folder))
        program.close()
        lines = [json.dumps(step) for step in it.steps]
        text = f'{{"payloads": {json.dumps(it.payloads)},\n"steps": [\n' + ",\n".join(lines) + "\n]}\n"
        (RECORDED / f"{name}.json").write_text(text)
        print(f"{name}: {len(it.steps)} steps, {len(it.payloads)} messages, {len(text):,} bytes")


if __name__ == "__main__":
    main()
