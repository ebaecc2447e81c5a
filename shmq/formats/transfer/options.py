"""The options of a format's own `write`: whether they are its, and mean something."""

from __future__ import annotations

import importlib
import inspect
from typing import TYPE_CHECKING, Any

from shmq.errors import BadFormat, TooLarge
from shmq.formats import verbs
from shmq.formats.transfer.refusals import Size

if TYPE_CHECKING:
    import os
    from collections.abc import Iterable, Mapping

    from shmq.formats.model import Entry

_OURS = {"lossy", "passed", "consumers"}
"""What `write` is given by whoever transfers, and not chosen."""
_SMALLEST_SEGMENT = 4 + 33 + 1
"""What libkestrel needs for one message of one byte that expires, behind its magic."""


def check_options(to: str, options: Mapping[str, Any]) -> None:
    """
    Go on only with options that `write` of the format *to* has.

    Raises:
        BadFormat: one is another format's, or nobody's; or a size in which no message fits.
    """
    for option in options:
        if option in _of(to):
            continue
        others = [each for each in verbs.HERE if option in _of(each)]
        if others:
            msg = f"{option} is for {' and '.join(others)}, and this is {to}; nothing was written"
            raise BadFormat(msg)
        msg = f"{option} is not an option of {to}, which has {', '.join(sorted(_of(to)))}; nothing was written"
        raise BadFormat(msg)
    size = options.get("journal_bytes")
    if size is not None and size < _SMALLEST_SEGMENT:
        msg = (
            f"journal_bytes={size}: no message has room in that, the least is {_SMALLEST_SEGMENT}; nothing was written"
        )
        raise BadFormat(msg)


def _of(name: str) -> set[str]:
    """The options that `write` of a format has."""
    parameters = inspect.signature(importlib.import_module(f"shmq.formats.{name}").write).parameters.values()
    return {each.name for each in parameters if each.kind == each.KEYWORD_ONLY} - _OURS


def write(target: str | os.PathLike[str], entries: Iterable[Entry], to: str, name: str | None, **options: Any) -> int:
    """
    As `verbs.write`.

    Raises:
        Refused: something is too large for the format, which is `TooLarge`; nothing was written.
    """
    try:
        return verbs.write(target, entries, to, name, **options)
    except TooLarge as problem:
        by_blocks = "blocks of this size" in str(problem)
        help_ = "; {blocks} of a larger size has room for it" if by_blocks else ""
        raise Size(f"{problem}. Nothing was written", help_) from problem
