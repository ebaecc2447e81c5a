"""
JSON as it stands in the files of a queue, read and written without the module that is for all of JSON: to import that
takes longer than to open a queue.

What is written there is plain: no space, no escapes in strings, no exponents. Whatever is not, that module reads,
writes or refuses.
"""

from __future__ import annotations

from shmq import later
from shmq.hints import TYPE_CHECKING

if TYPE_CHECKING:
    from typing import Any

_WORDS: dict[str, bool | None] = {"null": None, "true": True, "false": False}
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


def dumps(value: Any, *, sort_keys: bool = False) -> bytes:
    """What `json.dumps` makes of it, without spaces."""
    try:
        return _text(value, 0, sort_keys=sort_keys).encode("ascii")
    except _NotPlain:
        pass
    later.ready("json")
    import json  # noqa: PLC0415  # hardly ever

    return json.dumps(value, separators=(",", ":"), sort_keys=sort_keys).encode()


def _text(value: Any, depth: int, *, sort_keys: bool) -> str:
    kind = type(value)
    if kind is dict and depth < _DEEPEST and set(map(type, value)) <= {str}:
        names = sorted(value) if sort_keys else value
        parts = [f"{_quoted(name)}:{_text(value[name], depth + 1, sort_keys=sort_keys)}" for name in names]
        return f"{{{','.join(parts)}}}"
    if kind is str:
        return _quoted(value)
    if kind is int or (kind is float and value - value == 0):  # of nothing infinite, and of no nan
        return repr(value)
    for word, meaning in _WORDS.items():
        if value is meaning:
            return word
    raise _NotPlain


def _quoted(text: str) -> str:
    if not text.isascii() or not text.isprintable() or '"' in text or "\\" in text:
        raise _NotPlain
    return f'"{text}"'


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
