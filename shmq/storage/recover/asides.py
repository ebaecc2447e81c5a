"""The folder aside/ of a queue: what recoveries found behind their cuts, by the epoch that was there before."""

from __future__ import annotations

import contextlib
import re

from shmq import _native, errors
from shmq.hints import TYPE_CHECKING
from shmq.storage import files, sync
from shmq.storage.paths import ASIDE, CHUNKS

if TYPE_CHECKING:
    from shmq.storage.directory import Directory


class Aside:
    """The folder for what is no part of the queue any more, made when it is needed."""

    def __init__(self, home: Directory) -> None:
        self._home = home
        self.names: list[str] = []
        self.messages = 0

    def _name(self, name: str) -> str:
        files.make_directory(f"{self._home.path}/{ASIDE}", self._home.fd)
        return f"{self._home.journal.epoch:08x}-{name}"

    def keep(self, name: str, messages: int) -> None:
        """
        Have a copy of a chunk there, on the disk, before it is cut; unless one killed before us has made it.

        Raises:
            DiskFull: there is no room for it. Nothing was cut.
        """
        kept = self._name(name)
        self.messages += messages
        self.names.append(f"{CHUNKS}/{name}")
        folder = self._home.below(ASIDE)
        with folder:
            if kept not in files.names_in(folder):
                self._copy(name, folder, kept)
        self.sync()

    def _copy(self, name: str, folder: int, kept: str) -> None:
        home, where = self._home, f"{self._home.path}/{ASIDE}"
        source, size = home.open(home.chunks, name, writable=False)
        fd = files.new_file(folder, size, where)
        with source, fd:
            files.transfer(source, fd, size, whole=False)  # no block is shared: the cut needs no new ones
            sync.data(fd, "aside")
            files.link_file(fd, folder, kept, where)

    def take(self, folder: str, name: str) -> None:
        """Move a file or folder there."""
        target = f"{ASIDE}/{self._name(name)}"
        number = 0
        with contextlib.suppress(FileNotFoundError):
            while not _native.rename_new(self._home.fd, f"{folder}/{name}", f"{target}{f'-{number}' * bool(number)}"):
                number += 1
        self.names.append(f"{folder}/{name}")

    def sync(self) -> None:
        """Have its names on the disk."""
        if self.names:
            fd = self._home.below(ASIDE)
            with fd:
                sync.directory(fd, "aside")
            sync.directory(self._home.fd, "home")


def set_aside(home: Directory) -> dict[int, tuple[str, ...]]:
    """The names of what lies in aside/, by the epoch that was there before that recovery."""
    found: dict[int, tuple[str, ...]] = {}
    with contextlib.suppress(errors.NotFound), home.below(ASIDE) as folder:
        for name in sorted(files.names_in(folder)):
            epoch, dash, rest = name.partition("-")
            if dash and re.fullmatch("[0-9a-f]{8}", epoch):
                found[int(epoch, 16)] = (*found.get(int(epoch, 16), ()), rest)
    return found
