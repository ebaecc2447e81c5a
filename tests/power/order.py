"""
Holds what a history synced, and when, against the table "What is synced, and in which order" of docs/format.md.

Each rule is looked at whenever what stands in its column "Only then" happens; `Order.seen` counts how often, so that a
rule that was never tested is told from one that held.
"""

from __future__ import annotations

import argparse
import collections
import json
import struct
import sys
from typing import TYPE_CHECKING, Any

import numpy as np

from .history import ROOT, History, Named, Said, State, Stored, apply_names
from .shim import Shim, scratch
from .workloads import PROFILES, Returned, record

if TYPE_CHECKING:
    from collections.abc import Iterator

PAGE_WORDS = 512
JOURNAL_PAGES, MARK_PAGES, SNAPSHOTS = (1, 2), (3, 4), (4096, 16384)
HEADER_WORDS = 512
"""Words of a chunk's header; behind its first 128 bytes there are only hints."""


class Order:
    """Follows one history."""

    def __init__(self, history: History) -> None:
        self.seen: collections.Counter[str] = collections.Counter()
        self.broken: list[str] = []
        self._history = history
        self._state = State(history)
        self._names: dict[tuple[int, str], int] = {}
        self._uncovered: str | None = None  # a chunk whose name no ceiling covers

    def follow(self, *, sync: bool) -> Order:
        """All of it; *sync* when each put waits for the disk."""
        while self._state.moment < len(self._history.events):
            event = self._history.events[self._state.moment]
            if isinstance(event, Named):
                self._named(event)
                apply_names(self._names, event)
            elif isinstance(event, Stored):
                self._stored(event)
            elif isinstance(event, Said) and isinstance(event.what, Returned):
                self._returned(event.what, sync=sync)
            self._state.step()
        return self

    def _rule(self, name: str, held: bool, what: Any) -> None:
        self.seen[name] += 1
        if not held:
            self.broken.append(f"{name}: {what}, at event {self._state.moment}")

    # ---- what is there
    def _path(self, folder: int) -> str:
        if folder == ROOT:
            return ""
        at = {number: key for key, number in self._names.items() if number in self._history.folders}
        parts: list[str] = []
        while folder != ROOT and folder in at:
            folder, name = at[folder]
            parts.insert(0, name)
        return "/".join(parts)

    def _number(self, path: str) -> int | None:
        folder = ROOT
        for part in path.split("/"):
            if (folder, part) not in self._names:
                return None
            folder = self._names[folder, part]
        return folder

    def _is_durable(self, path: str) -> bool:
        folder = ROOT
        for part in path.split("/"):
            if (folder, part) not in self._state.names:
                return False
            folder = self._state.names[folder, part]
        return True

    def _unsynced(self, number: int) -> bool:
        return number in self._state.files and self._state.files[number].is_pending

    def _content(self, number: int) -> np.ndarray[Any, Any]:
        file = self._state.files[number]
        places, values, _ = file.flat()
        words = np.zeros(
            max([len(file.words), *(place + 1 for place in places[-1:]), int(places.max(initial=0)) + 1]), np.uint64
        )
        words[: len(file.words)] = file.words
        words[places] = values
        return words

    def _chunks(self) -> Iterator[tuple[int, int, str, int]]:
        """(sequence, base, path, number) of each chunk that has its name."""
        folder = self._number("q/chunks")
        for (above, name), number in self._names.items():
            if above == folder and name.endswith(".chunk"):
                base, sequence = name.removesuffix(".chunk").split("-")
                yield int(sequence, 16), int(base, 16), f"q/chunks/{name}", number

    def _journal(self) -> tuple[int, int]:
        """(ceiling, first_live) of the newest journal that is durable."""
        number = self._number("q/queue.shmq")
        raw = self._state.files[number].durable() if number in self._state.files else b""
        slots = [struct.unpack_from("<QQ16sQQ", raw, page * 4096) for page in JOURNAL_PAGES if len(raw) >= 4096 * 3]
        newest = max(slots, default=(0, 0, b"", 0, 0))
        return newest[3], newest[4]

    def _hints_only(self, number: int, below: int | None = None) -> bool:
        """Whether nothing but hints is pending in a chunk, below word *below*."""
        file = self._state.files.get(number)
        if file is None:
            return True
        places = file.flat()[0]
        return not np.any(
            ((places < 16) | (places >= HEADER_WORDS)) & (places < (below or len(file.words) + (1 << 40)))
        )

    # ---- names
    def _named(self, event: Named) -> None:
        moves = event.changes.items()
        for (folder, name), number in event.changes.items():
            path = f"{self._path(folder)}/{name}"
            if number is None:
                self._gone(folder, path)
            elif path in ("q/queue.shmq", "q/control.shmq"):
                self._rule("created", not self._unsynced(number), path)
                if name == "queue.shmq":
                    there = all((folder, each) in self._state.names for each in ("chunks", "consumers", "control.shmq"))
                    self._rule("folders", there, path)
            elif path.startswith("q/consumers/") and name.endswith(".checkpoint"):
                self._rule("checkpoint", not self._unsynced(number), path)
                self._beside(path.removesuffix(".checkpoint"), folder, name.removesuffix(".checkpoint"))
            elif path.startswith("q/chunks/") and name.endswith(".chunk"):
                self._linked(path, number)
                if any(gone is None and self._path(above).startswith("q/staging/") for (above, _), gone in moves):
                    places = [number for (_, name), number in self._names.items() if name == "placed"]
                    self._rule("placed", not any(map(self._unsynced, places)), path)
            elif path.startswith("q/staging/") and name == "manifest":
                self._rule("staged", not any(map(self._unsynced, self._staged(folder))), path)

    def _beside(self, path: str, folder: int, name: str) -> None:
        """A group's files come before its checkpoint, and what else a name was made with."""
        files = [self._names.get((folder, f"{name}{ending}")) for ending in (".ring", ".group")]
        for number, ending in zip(files, (".ring", ".group"), strict=True):
            if number is not None:
                self._rule("group", not self._unsynced(number), path + ending)
                self._rule("group names", self._is_durable(path + ending), path + ending)

        number = self._names.get((folder, f"{name}.subscription"))
        if number is not None:
            self._rule("subscription", not self._unsynced(number), f"{path}.subscription")
            self._rule("subscription names", self._is_durable(f"{path}.subscription"), f"{path}.subscription")

    def _staged(self, folder: int) -> list[int]:
        return [number for (above, name), number in self._names.items() if above == folder and name.endswith(".chunk")]

    def _linked(self, path: str, number: int) -> None:
        self._rule("named", self._is_durable("q/queue.shmq") and self._is_durable("q/control.shmq"), path)
        base = int(path.rpartition("/")[2].split("-")[0], 16)
        size = self._state.files[number].sizes[-1:] if number in self._state.files else []
        capacity = size[0][1] if size else self._state.files[number].size
        self._uncovered = None if self._journal()[0] >= base + capacity // 40 else path
        self._rule("ceiling", self._journal()[0] > 0, path)

    def _gone(self, folder: int, path: str) -> None:
        name = path.rpartition("/")[2]
        if path.startswith("q/chunks/") and name.endswith(".chunk"):
            sequence = int(name.removesuffix(".chunk").split("-")[1], 16)
            self._rule("first live", self._journal()[1] > sequence, path)
        elif path.startswith("q/staging/") and path.count("/") == 2 and self._number("q/ledger.shmq") is not None:
            ledger = self._number("q/ledger.shmq")
            self._rule("ledger", self._is_durable("q/ledger.shmq") and not self._unsynced(ledger or 0), path)

    # ---- bytes
    def _stored(self, event: Stored) -> None:
        path = next(
            (self._path(folder) + "/" + name for (folder, name), n in self._names.items() if n == event.file), ""
        )
        if path == "q/queue.shmq":
            self._slots("journal slots", event, [(page * PAGE_WORDS, PAGE_WORDS) for page in JOURNAL_PAGES])
            self._slots("mark slots", event, [(page * PAGE_WORDS, PAGE_WORDS) for page in MARK_PAGES])
            if np.any(event.places >= MARK_PAGES[0] * PAGE_WORDS):
                self._marked(event)
        elif path.endswith(".checkpoint"):
            self._slots("snapshot slots", event, [(at // 8, 12288 // 8) for at in SNAPSHOTS])
        elif path.endswith(".chunk") and path.startswith("q/chunks/"):
            self._chunk_stored(event, path)
        elif path.startswith("q/staging/") and path.endswith("/placed") and np.any(event.values):
            sealed = max(self._chunks(), default=None)
            self._rule("adopted", sealed is not None and self._hints_only(sealed[3]), path)
            self._rule("manifest", self._is_durable(path.removesuffix("placed") + "manifest"), path)

    def _slots(self, rule: str, event: Stored, slots: list[tuple[int, int]]) -> None:
        """Of two slots, one is written while the other is on the disk."""
        for mine, other in (slots, slots[::-1]):
            if np.any((event.places >= mine[0]) & (event.places < mine[0] + mine[1])):
                file = self._state.files.get(event.file)
                places = file.flat()[0] if file else event.places[:0]
                within = (places >= other[0]) & (places < other[0] + other[1])
                self._rule(rule, not np.any(within), f"slot at word {mine[0]}")

    def _marked(self, event: Stored) -> None:
        for page in MARK_PAGES:
            fields = {
                int(place) - page * PAGE_WORDS: int(value)
                for place, value in zip(event.places, event.values, strict=True)
            }
            if 0 not in fields:
                continue
            number = event.file
            raw = self._content(number).copy()
            room = max(int(event.places.max()) + 1, len(raw))
            raw = np.concatenate([raw, np.zeros(room - len(raw), np.uint64)])
            raw[event.places] = event.values
            sequence, position = (int(raw[page * PAGE_WORDS + at]) for at in (2, 3))
            for chunk, _, path, file in self._chunks():
                if chunk <= sequence:
                    below = position // 8 if chunk == sequence else None
                    held = self._hints_only(file, below) and self._is_durable(path)
                    self._rule("mark", held, f"{path} below {position if chunk == sequence else 'its end'}")

    def _chunk_stored(self, event: Stored, path: str) -> None:
        if self._uncovered == path and np.any(event.places >= HEADER_WORDS):
            self._rule("linked", self._is_durable(path), path)

    def _returned(self, returned: Returned, *, sync: bool) -> None:
        if returned.durable < 0 or not sync:
            return
        for _, base, path, number in self._chunks():
            if base < returned.durable:
                self._rule("chain", self._is_durable(path), path)
                file = self._state.files.get(number)
                if file is not None and base <= returned.durable - 1:
                    self._rule("records", self._hints_only(number), f"{path} when {returned.durable} had returned")


# ---------------------------------------------------------------- every profile
def main() -> int:
    """Follow one history of each profile; what was seen and what is broken as JSON on standard output."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--fault", default="")
    given = parser.parse_args()
    seen: collections.Counter[str] = collections.Counter()
    broken: list[str] = []
    for profile in PROFILES:
        with scratch() as root:
            history = record(profile, f"{root}/live", given.seed, Shim(), given.fault)
        promised = profile.durability == "sync" and "overtake" not in profile.verbs
        order = Order(history).follow(sync=promised)
        seen += order.seen
        broken += [f"{profile.name}: {each}" for each in order.broken]
    print(json.dumps({"seen": seen, "broken": broken[:20], "findings": []}))
    return 0


if __name__ == "__main__":
    sys.exit(main())
