"""Docstrings are written to be read where they stand, with code set off by its indent; Sphinx wants it announced."""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from sphinx.application import Sphinx


def announce(app: Sphinx, what: str, name: str, thing: object, options: object, lines: list[str]) -> None:  # noqa: ARG001
    """Put `::` before what is indented behind an empty line and is not part of a list."""
    places = []
    text = 0  # the indent of the last line of text
    listed = False
    for number, (line, after) in enumerate(pairwise([*lines, ""])):
        if line.strip():
            text = len(line) - len(line.lstrip())
            listed = line.lstrip().startswith(("- ", "* ")) or (listed and text > 0)
        elif after.startswith(" " * 4) and text == 0 and not listed:
            places.append(number)
    for number in reversed(places):
        lines[number:number] = ["", "::"]


def setup(app: Sphinx) -> dict[str, bool]:
    """Called by Sphinx."""
    app.connect("autodoc-process-docstring", announce, priority=400)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
