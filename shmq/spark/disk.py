"""Files and folders of this machine that are to be there after a power cut, too."""

from __future__ import annotations

import os


def sync_file(path: str) -> None:
    """What is in it is on the disk."""
    with open(path, "rb") as file:
        os.fsync(file.fileno())


def sync_folder(path: str) -> None:
    """The names in it are on the disk."""
    fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)


def make_folder(path: str) -> None:
    """Make it, and what is missing above; all of that is on the disk."""
    missing = []
    while not os.path.isdir(path):
        missing.append(path)
        path = os.path.dirname(path) or "."
    for each in reversed(missing):
        os.makedirs(each, exist_ok=True)
        sync_folder(os.path.dirname(each) or ".")
