"""
Errors that cross: the class and the queue's name, and nothing of the server's disk.

What an error says of this machine stays in the log here. Its text goes with it only where no path is left in it when
the queue's own directory was replaced by its name; else the class says what is still true, in its own words.
"""

from __future__ import annotations

import logging
import re
from typing import Any

import pyarrow.flight as fl

from shmq import errors
from shmq.flight import names, words

_log = logging.getLogger("shmq.flight")
_A_PATH = re.compile(r"(?:^|[\s'\"(=:])/")
_PLAIN: dict[str, type[Exception]] = {each.__name__: each for each in (ValueError, TypeError, IndexError)}
_KNOWN: dict[str, type[Exception]] = {
    **{
        name: each
        for name, each in vars(errors).items()
        if isinstance(each, type) and issubclass(each, errors.ShmqError)
    },
    **_PLAIN,
}


class Unreachable(errors.ShmqError):
    """
    The service of that host did not answer in time. What was asked for may have been done; it can be asked again.

    What is read, held, followed, staged or adopted again is as if it had been done once.
    """


def told(problem: Exception, tried: str, name: str, path: str | None) -> Exception:
    """
    What a client is told of *problem*.

    Args:
        problem: what was raised here.
        tried: what was asked for, as "read".
        name: of the queue, as the client said it.
        path: its directory here, if it was found.
    """
    if isinstance(problem, fl.FlightError):
        flights: Exception = problem
        return flights
    kind = next((each.__name__ for each in type(problem).__mro__ if each.__name__ in _KNOWN), "")
    if not kind:
        _log.error("cannot %s %s: %s: %s", tried, name, type(problem).__name__, problem)
        kind, text = "ShmqError", "it failed here, and the log of the service says why"
    elif isinstance(problem, names.NoSuchQueue):
        text = str(problem)
    else:
        text = _text(problem, name, path)
    document = words.Problem(
        kind=kind,
        text=f"cannot {tried} {name or 'anything'}: {text}",
        first_index=getattr(problem, "first_index", None),
        index=getattr(problem, "index", None),
    )
    error: Exception = fl.FlightServerError(f"{kind}: {document.text}", extra_info=words.encode(document))
    return error


def _text(problem: Exception, name: str, path: str | None) -> str:
    text = " ".join(str(problem).split())
    if path:
        text = text.replace(path, name)
    if not _A_PATH.search(text):
        return text
    _log.info("%s: %s", name, problem)
    return " ".join((type(problem).__doc__ or type(problem).__name__).split())


def raised(problem: Any, where: str) -> Exception:
    """What a caller at the other end gets for an error of Flight's. *where*: whom it asked, for people."""
    if isinstance(problem, fl.FlightUnauthenticatedError):
        return PermissionError(f"{where} wants a token that it knows: {_first_line(problem)}")
    try:
        document = words.decode(words.Problem, problem.extra_info or b"")
    except ValueError:
        return Unreachable(f"{where} did not do it: {_first_line(problem)}")
    kind = _KNOWN.get(document.kind, errors.ShmqError)
    text = f"{where}: {document.text}"
    if kind is errors.Gone:
        return errors.Gone(text, document.first_index)
    if kind in (errors.SyncFailed, errors.SyncPending):
        return kind(text, document.index)
    return kind(text)


def _first_line(problem: Exception) -> str:
    return str(problem).partition("\n")[0].partition(". gRPC client debug context")[0]
