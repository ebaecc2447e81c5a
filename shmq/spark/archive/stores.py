"""Archives by their places: which form is there, and opening it."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import shmq
from shmq.spark import delta
from shmq.spark.archive import owners
from shmq.spark.archive.files import Archive
from shmq.spark.archive.forms import ARCHIVED, MANIFEST
from shmq.spark.archive.lake import Lake
from shmq.spark.options import BadOption

if TYPE_CHECKING:
    from shmq.spark.archive.forms import Store

PARQUET, DELTA = "parquet", "delta"


def store(path: str, form: str | None = None, host: str | None = None) -> Store:
    """
    The archive at *path*: what is there, or is to be.

    Args:
        path: a directory; or, for a Delta table, an object store's URL.
        form: "parquet" or "delta", for one that is new; None for whatever is there.
        host: whose messages come into it, of several hosts; one that is new is a Delta table for them, then.

    Raises:
        BadFormat: a file is there.
        BadOption: that is no name of a host, or plain Parquet, which is of one host alone.
        Mismatch: what is there is of the other form.
        Missing: it is a Delta table, and the package deltalake is not installed.
    """
    path = plain(path)
    if os.path.exists(path) and not os.path.isdir(path):
        raise shmq.BadFormat(
            f"{path} is not an archive: it is a file, and an archive is a folder; nothing was changed. "
            "Give another path"
        )
    there = form_of(path)
    if form is not None and there is not None and there != form:
        raise shmq.Mismatch(
            f"{path} is an archive of the form {there!r}, and {form!r} was asked for; nothing was changed. Leave the "
            "form out, or archive to another place"
        )
    if host is None:
        return Lake(path) if (there or form) == DELTA else Archive(path)
    owners.checked(host)
    if (there or form or DELTA) != DELTA:
        raise BadOption(
            f"{path} is plain Parquet, or is to be, which one host alone archives to, and the host {host!r} was named; "
            "nothing was changed. Several hosts archive to a Delta table; or leave the host out"
        )
    return Lake(path, host)


def form_of(path: str) -> str | None:
    """Of which form the archive is that is there, also where its manifest is lost; None if none is."""
    path = plain(path)
    if delta.is_remote(path) or os.path.isdir(f"{path}/{delta.LOG}"):
        return DELTA
    there = os.listdir(path) if os.path.isdir(path) else []
    return PARQUET if MANIFEST in there or any(map(ARCHIVED.fullmatch, there)) else None


def plain(path: str) -> str:
    """A path of this machine without what says so."""
    return path.removeprefix("file://")
