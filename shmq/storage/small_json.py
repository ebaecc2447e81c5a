"""
JSON as it stands in the files of a queue, read without the module that reads all of JSON: to import that takes longer
than to open a queue.

What is written there is plain: no space, no escapes in strings, no exponents. Whatever is not, that module reads or
refuses.
"""

from __future__ import annotations

from typing import Any

from shmq import later

_WORDS = {"null": None, "true": True, "false": False}
_DEEPEST = 20


class _NotPlain(ValueError):
    """It may be JSON all the same."""


def loads(stored: bytes) -> Any:
    """
    What `json.loads` makes of it.

    Raises:
        ValueError, RecursionError: it is no JSON.
    """
    try:
        text = stored.decode("ascii")
        value, end = _value(text, 0, 0)
        if end == len(text):
            return value
    except (ValueError, IndexError):  # not plain, or it ends too early
        pass
    later.ready("json")
    import json  # noqa: PLC0415  # hardly ever

    return json.loads(stored)


def _value(text: str, at: int, depth: int) -> tuple[Any, int]:
    """The value that begins there, and where it ends."""
    if text[at] == "{" and depth < _DEEPEST:
        return _mapping(text, at + 1, depth + 1)
    if text[at] == '"':
        return _string(text, at + 1)
    end = at
    while end < len(text) and text[end] not in ",}":
        end += 1
    return _word(text[at:end]), end


def _mapping(text: str, at: int, depth: int) -> tuple[dict[str, Any], int]:
    found: dict[str, Any] = {}
    if text[at] == "}":
        return found, at + 1
    while True:
        if text[at] != '"':
            raise _NotPlain
        name, at = _string(text, at + 1)
        if text[at] != ":":
            raise _NotPlain
        found[name], at = _value(text, at + 1, depth)
        if text[at] == "}":
            return found, at + 1
        if text[at] != ",":
            raise _NotPlain
        at += 1


def _string(text: str, at: int) -> tuple[str, int]:
    end = text.index('"', at)
    content = text[at:end]
    if "\\" in content or not content.isprintable():
        raise _NotPlain
    return content, end + 1


def _word(word: str) -> Any:
    """null, true, false, or a number without exponent."""
    if word in _WORDS:
        return _WORDS[word]
    whole, point, rest = word.removeprefix("-").partition(".")
    if not whole.isdigit() or (whole[0] == "0" and whole != "0"):
        raise _NotPlain
    if not point:
        return int(word)
    if not rest.isdigit():
        raise _NotPlain
    return float(word)
