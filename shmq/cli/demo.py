"""
The main job on real data, with kill -9 half-way, and every message accounted for.

Examples:
    shmq demo
    shmq demo --flights 20000 --data /tmp/flights --json
    shmq demo --spark

It is no part of the package: it lies beside it, in the repository and in the source distribution, where this runs it
and `make demo` installs what it needs. Anywhere else this says so.
"""

from __future__ import annotations

import importlib
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from shmq.cli import show

if TYPE_CHECKING:
    import argparse

_BESIDE = Path(__file__).parents[2]


def add(verb: argparse.ArgumentParser) -> None:
    """Declare its arguments, where it is there."""
    if _is_there():
        _demo().add(verb)


def run(arguments: argparse.Namespace) -> int:
    """Run it, or say where it is."""
    if not _is_there():
        raise show.Problem(
            "the demo is not in what is installed, but in the repository of shmq and in its source distribution; "
            "`make demo` runs it there"
        )
    demo = _demo()
    sys.path.insert(0, str(_BESIDE))  # for the processes that it starts
    try:
        return int(demo.run(arguments))
    except demo.Problem as problem:
        raise show.Problem(str(problem)) from None


def _is_there() -> bool:
    return (_BESIDE / "pyproject.toml").is_file() and (_BESIDE / "demo/__main__.py").is_file()


def _demo() -> Any:
    """The package beside ours, whatever else is called so."""
    sys.path.insert(0, str(_BESIDE))
    try:
        return importlib.import_module("demo")
    finally:
        sys.path.remove(str(_BESIDE))
