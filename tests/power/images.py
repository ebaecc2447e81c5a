"""
What a power cut may leave: any part of what is pending, in any order, torn anywhere.

For each file with something pending: the durable words, and of each pending word any value it had since. What is kept
is chosen by time, page, sector, word or byte. A size that was not synced may be shorter. Of the names that were not
synced, any may be missing, but the same name's or the same file's changes come in their order, as in a journal.
"""

from __future__ import annotations

import dataclasses
import os
from typing import TYPE_CHECKING

import numpy as np

from .history import ROOT, File, History, Named, State, apply_names

if TYPE_CHECKING:
    from collections.abc import Iterator

    from numpy.random import Generator
    from numpy.typing import NDArray

PAGE_WORDS, SECTOR_WORDS = 512, 64
TORN_MAX = 3


@dataclasses.dataclass
class Image:
    """One directory tree: the modes of its folders, contents and modes of its files, by path, parents first."""

    folders: dict[str, int]
    files: dict[str, tuple[bytes, int]]
    mark: int
    """A hash of the choices made: equal marks of one moment are equal images."""


def lay_out(image: Image, root: str) -> None:
    """Write it below *root*, which is empty."""
    for name, mode in image.folders.items():
        os.mkdir(f"{root}/{name}", mode)
    for name, (content, mode) in image.files.items():
        fd = os.open(f"{root}/{name}", os.O_CREAT | os.O_EXCL | os.O_WRONLY, mode)
        os.write(fd, content)
        os.close(fd)


def clear(root: str) -> None:
    """Remove everything below *root*."""
    for entry in os.scandir(root):
        if entry.is_dir(follow_symlinks=False):
            clear(entry.path)
            os.rmdir(entry.path)
        else:
            os.unlink(entry.path)


# ---------------------------------------------------------------- names
def _names(state: State, kept: list[bool]) -> dict[tuple[int, str], int]:
    names = dict(state.names)
    lost: set[object] = set()
    for keep, (_, named) in zip(kept, state.pending_names, strict=True):
        touched = _touched(named)
        if keep and not touched & lost:
            apply_names(names, named)
        else:
            lost |= touched
    return names


def _touched(named: Named) -> set[object]:
    return {*named.changes, *(number for number in named.changes.values() if number is not None)}


def _choose_names(state: State, chance: Generator) -> list[bool]:
    count = len(state.pending_names)
    if not count or chance.random() < 0.4:
        return [True] * count
    if chance.random() < 0.4:
        upto = int(chance.integers(count + 1))
        return [at < upto for at in range(count)]
    return [bool(keep) for keep in chance.random(count) < chance.choice([0.1, 0.5, 0.9])]


# ---------------------------------------------------------------- contents
WAYS = ("all", "none", "time", "page", "sector", "word", "some", "most", "few", "torn")


def _kept(way: str, file: File, chance: Generator) -> NDArray[np.bool_]:
    """Which of the pending changes reached the disk; the last one kept of a word is what it holds."""
    places, _, moments = file.flat()
    count = len(places)
    if way == "all":
        return np.ones(count, np.bool_)
    if way == "none":
        return np.zeros(count, np.bool_)
    if way in ("some", "most", "few", "torn"):
        return chance.random(count) < {"some": 0.5, "most": 0.97, "few": 0.03, "torn": 0.7}[way]
    seen = np.unique(moments)
    if way == "time":
        return moments < seen[chance.integers(len(seen))] + chance.integers(2)
    unit = places // {"page": PAGE_WORDS, "sector": SECTOR_WORDS, "word": 1}[way]
    each, which = np.unique(unit, return_inverse=True)
    return moments < (np.append(seen, seen[-1] + 1)[chance.integers(0, len(seen) + 1, len(each))])[which]


def _size(file: File, chance: Generator | None) -> int:
    if not file.sizes:
        return file.size
    choices = [file.size, *(size for _, size in file.sizes)]
    full = choices[-1]
    if chance is None or chance.random() < 0.7:
        return full
    return int(chance.choice([*choices, chance.integers(0, full // 512 + 1) * 512]))


def _content(file: File, kept: NDArray[np.bool_], size: int, torn: Generator | None) -> bytes:
    places, values, _ = file.flat()
    words = np.zeros(max(-(-size // 8), len(file.words)), np.uint64)
    words[: len(file.words)] = file.words
    within = kept & (places < len(words))
    places, values = places[within], values[within]
    words[places] = values
    if torn is not None and len(places):
        raw = words.view(np.uint8)
        old = np.zeros(len(words), np.uint64)
        old[: len(file.words)] = file.words
        old_raw = old.view(np.uint8)
        for place in torn.choice(places, min(TORN_MAX, len(places))):
            first = int(torn.integers(8))
            last = int(torn.integers(first, 8)) + 1
            raw[place * 8 + first : place * 8 + last] = old_raw[place * 8 + first : place * 8 + last]
    return words.tobytes()[:size]


# ---------------------------------------------------------------- images
def _assemble(state: State, names: dict[tuple[int, str], int], contents: dict[int, bytes], mark: int) -> Image:
    history = state.history
    below: dict[int, list[tuple[str, int]]] = {}
    for (folder, name), number in names.items():
        below.setdefault(folder, []).append((name, number))
    image = Image({}, {}, mark)

    def walk(folder: int, prefix: str) -> None:
        for name, number in below.get(folder, ()):
            if number in history.folders:
                image.folders[prefix + name] = history.modes[number]
                walk(number, f"{prefix}{name}/")
            else:
                content = contents[number] if number in contents else _durable(state, number)
                image.files[prefix + name] = content, history.modes[number]

    walk(ROOT, "")
    return image


def _durable(state: State, number: int) -> bytes:
    file = state.files.get(number)
    return b"" if file is None else file.durable()


def random_image(state: State, chance: Generator) -> Image:
    """One of the images that a cut at this moment may leave."""
    kept_names = _choose_names(state, chance)
    names = _names(state, kept_names)
    one_way = str(chance.choice(WAYS)) if chance.random() < 0.5 else ""
    contents: dict[int, bytes] = {}
    marks: list[object] = [tuple(kept_names)]
    for number in dict.fromkeys(names.values()):
        file = state.files.get(number)
        if file is None or not file.is_pending:
            continue
        way = one_way or str(chance.choice(WAYS))
        kept = _kept(way, file, chance) if file.pending else np.zeros(0, np.bool_)
        content = contents[number] = _content(file, kept, _size(file, chance), chance if way == "torn" else None)
        marks += [number, content]
    return _assemble(state, names, contents, hash(tuple(marks)))


def whole_image(state: State) -> Image:
    """Everything that is pending was written: what a kill leaves, while the machine goes on."""
    names = _names(state, [True] * len(state.pending_names))
    contents = {}
    for number in set(names.values()):
        file = state.files.get(number)
        if file is not None and file.is_pending:
            contents[number] = _content(file, np.ones(len(file.flat()[0]), np.bool_), _size(file, None), None)
    return _assemble(state, names, contents, 0)


def every_image(state: State, most: int, suffix: str = ".chunk") -> Iterator[Image]:
    """All subsets of the last *most* pending words of the chunks; everything else that is pending was written."""
    names = _names(state, [True] * len(state.pending_names))
    chosen = {number: name for (_, name), number in names.items() if name.endswith(suffix)}
    pending = [
        (int(moment), number, at)
        for number in chosen
        if number in state.files
        for at, moment in enumerate(state.files[number].flat()[2])
    ]
    pending = sorted(pending)[-most:]
    files = {number: state.files[number] for number in names.values() if number in state.files}
    unsure = {number: file for number, file in files.items() if file.is_pending}
    masks = {number: np.ones(len(file.flat()[0]), np.bool_) for number, file in unsure.items()}
    whole = {number: _content(file, masks[number], _size(file, None), None) for number, file in unsure.items()}
    parted = {number for _, number, _ in pending}
    for subset in range(1 << len(pending)):
        for bit, (_, number, at) in enumerate(pending):
            masks[number][at] = bool(subset >> bit & 1)
        parts = {number: _content(files[number], masks[number], _size(files[number], None), None) for number in parted}
        yield _assemble(state, names, whole | parts, subset)


def state_at(history: History, moment: int) -> State:
    """The state after that many events."""
    state = State(history)
    while state.moment < moment:
        state.step()
    return state
