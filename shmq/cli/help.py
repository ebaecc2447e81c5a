"""
Show what there is, or all about a verb.

Examples:
    shmq help
    shmq help put
    shmq help consumer rm
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from shmq import cli

if TYPE_CHECKING:
    import argparse


def add(verb: argparse.ArgumentParser) -> None:
    """Declare the arguments."""
    verb.add_argument("words", metavar="VERB", nargs="*", help="which (all of them, a line each)")


def run(arguments: argparse.Namespace) -> int:
    """Print the help of the verb, which is what it prints with --help."""
    return cli.main([*arguments.words, "--help"])
