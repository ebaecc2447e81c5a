"""What the demo has to object to, and how it is said."""

from __future__ import annotations


class Problem(Exception):
    """The demo cannot go on; the text is all that is shown. Exit status 1."""


def one_line(problem: BaseException) -> str:
    """An exception as one line of text."""
    return " ".join(str(problem).split()) or type(problem).__name__
