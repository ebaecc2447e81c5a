"""Functions for stages: of a module, so that every start method finds them. What they count, they count in files."""

from __future__ import annotations

import os
import random
import signal
import time


def same(item):
    return item


def double(item):
    return 2 * item


def double_all(items):
    return [2 * each for each in items]


def add_a_million(item):
    return item + 1_000_000


def some(item):
    """None for every fourth, a generator for every fifth, a list for every seventh."""
    if item % 4 == 0:
        return None
    if item % 5 == 0:
        return iter((item, None, item + 1))
    if item % 7 == 0:
        return [item, item]
    return item


def uneven(item):
    time.sleep(random.random() * 0.004)
    return item


def slow(item):
    time.sleep(0.01)
    return item


def noted(place):
    """How often a line was written there."""
    try:
        with open(place, encoding="utf-8") as file:
            return file.read().split()
    except FileNotFoundError:
        return []


def note(place, word):
    fd = os.open(place, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    try:
        os.write(fd, f"{word}\n".encode())
    finally:
        os.close(fd)


class Fails:
    """Raises for some items, so often."""

    __name__ = "fails"

    def __init__(self, place, items, times=1 << 30):
        self.place, self.items, self.times = str(place), frozenset(items), times

    def __call__(self, item):
        if isinstance(item, list):
            return [self(each) for each in item]
        if item in self.items:
            note(self.place, item)
            if noted(self.place).count(str(item)) <= self.times:
                raise ValueError(f"no {item} today")
        return item


class Kills(Fails):
    """Kills whoever is called with them."""

    __name__ = "kills"

    def __call__(self, item):
        try:
            return super().__call__(item)
        except ValueError:
            os.kill(os.getpid(), signal.SIGKILL)
            raise


class Leaves(Fails):
    """Would end its process for some items, by what is no Exception."""

    __name__ = "leaves"

    def __init__(self, place, items, kind):
        super().__init__(place, items)
        self.kind = kind

    def __call__(self, item):
        try:
            return super().__call__(item)
        except ValueError:
            raise self.kind("on purpose") from None


class Notes:
    """A sink: notes each item."""

    __name__ = "notes"

    def __init__(self, place, pause=0.0):
        self.place, self.pause = str(place), pause

    def __call__(self, item):
        time.sleep(self.pause)
        for each in item if isinstance(item, list) else [item]:
            note(self.place, each)


def sums(items):
    """All in one: an answer for the last, nothing for the others."""
    return [None] * (len(items) - 1) + [sum(items)]


def sizes(items):
    return [len(items)] * len(items)


def too_few(items):
    return items[1:] if len(items) > 1 else items


def unpicklable(item):
    return (lambda: item) if item == 3 else item
