"""File systems of a kind of their own, in an image that root mounts; where that cannot be, a test is skipped."""

from __future__ import annotations

import contextlib
import os
import shutil
import subprocess
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

IMAGE_BYTES = 320 << 20
"""Of a sparse file; mkfs.xfs makes nothing smaller than 300 MiB."""


@contextlib.contextmanager
def mounted(kind: str, folder: Path, size: int = IMAGE_BYTES, options: str = "") -> Iterator[Path]:
    """A fresh file system of that kind below *folder*, mounted with *options*."""
    if os.geteuid():
        pytest.skip("only root mounts")
    if shutil.which(f"mkfs.{kind}") is None:
        pytest.skip(f"mkfs.{kind} is needed to make such a file system")
    image, made = folder / "image", folder / "disk"
    made.mkdir()
    with open(image, "wb") as file:
        file.truncate(size)
    _or_skip(["mkfs." + kind, "-q", str(image)], f"mkfs.{kind} refuses")
    _or_skip(
        ["mount", "-t", kind, "-o", ",".join(filter(None, ["loop", options])), str(image), str(made)],
        f"cannot mount {kind} here",
    )
    try:
        yield made
    finally:
        subprocess.run(["umount", "--lazy", str(made)], check=True, timeout=120)


def _or_skip(command: list[str], what: str) -> None:
    done = subprocess.run(command, capture_output=True, check=False, timeout=120)
    if done.returncode:
        pytest.skip(f"{what}: {done.stderr.decode().strip()[-200:]}")


@contextlib.contextmanager
def in_memory(folder: Path, size: int) -> Iterator[Path]:
    """A file system of so many bytes, in memory."""
    made = folder / "memory"
    made.mkdir()
    _or_skip(["mount", "-t", "tmpfs", "-o", f"size={size}", "none", str(made)], "cannot mount a tmpfs here")
    try:
        yield made
    finally:
        subprocess.run(["umount", "--lazy", str(made)], check=True, timeout=120)
