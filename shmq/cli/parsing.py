"""
A parser whose options may stand anywhere: `shmq put orders --key eu hello`, as users of any other command expect.

argparse gives an optional word its default at the first option it meets, and then refuses the word that follows.
`parse_intermixed_args` would help, but loses a "--", behind which everything is a word.
"""

from __future__ import annotations

import argparse
import re
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Sequence

_NUMBER = re.compile(r"-\d+|-\d*\.\d+")


class Parser(argparse.ArgumentParser):
    """Looks for options first, wherever they are, and then takes the rest as words."""

    def parse_known_args(self, args: Sequence[str] | None = None, namespace: Any = None) -> Any:  # type: ignore[override]
        """See `argparse`. The verb itself comes before its options; verbs within verbs likewise."""
        if args is None or self._subparsers is not None:
            return super().parse_known_args(args, namespace)
        self._has_negative_number_optionals.clear()  # "-0" is an option, and "-3" a number none the less
        given = list(args)
        behind = given.index("--") if "--" in given else len(given)
        words = [action for action in self._actions if not action.option_strings]
        wanted = [(action, action.nargs, action.default) for action in words]
        needed = [action for action in self._actions if action.option_strings and action.required]
        for action in words:
            action.nargs, action.default = argparse.SUPPRESS, argparse.SUPPRESS
        self._hidden = wanted
        try:
            namespace, rest = super().parse_known_args(given[:behind], namespace)
        finally:
            self._show_words()
        strange = [word for word in rest if word[:1] == "-" and word != "-" and not _NUMBER.fullmatch(word)]
        if strange:
            self.error(f"unrecognized arguments: {' '.join(strange)}")
        for action in needed:  # it is there, else this was not reached
            action.required = False
        rest += given[behind + 1 :]
        dashes = ["--"] * any(word[:1] == "-" for word in rest)
        try:
            return super().parse_known_args([*dashes, *rest], namespace)
        finally:
            for action in needed:
                action.required = True

    _hidden: Sequence[tuple[argparse.Action, Any, Any]] = ()
    """Words that are not looked for now: each with its nargs and default."""

    def _show_words(self) -> None:
        hidden, self._hidden = self._hidden, ()
        for action, nargs, default in hidden:
            action.nargs, action.default = nargs, default

    def format_usage(self) -> str:
        """See `argparse`. What is shown when parsing ends early names the words, too."""
        self._show_words()
        return super().format_usage()

    def format_help(self) -> str:
        """See `argparse`."""
        self._show_words()
        return super().format_help()

    def grammar(self, name: str, summary: str = "") -> Grammar:
        """What may stand behind this verb: what completion and the manual are made of."""
        nested: dict[str, Parser] = {}
        options, words = [], []
        for action in self._actions:
            if isinstance(action.choices, dict):  # verbs within the verb
                nested = {verb: made for verb, made in action.choices.items() if isinstance(made, Parser)}
                continue
            value = "" if action.nargs == 0 else _value_of(action)
            choices = tuple(map(str, action.choices or ()))
            about = " ".join((action.help or "").split()).replace("%%", "%")
            if action.option_strings:
                options.append(Option(tuple(action.option_strings), value, choices, about))
            else:
                words.append(Word(value, choices, about, str(action.nargs or "1")))
        inner = tuple(made.grammar(verb, (made.description or "").rstrip(".")) for verb, made in nested.items())
        return Grammar(name, summary, tuple(options), tuple(words), inner, self.description or "", self.epilog or "")


class Option(NamedTuple):
    """One option."""

    names: tuple[str, ...]
    value: str
    """What stands behind it, as it is called in the help; "" for nothing."""
    choices: tuple[str, ...]
    about: str


class Word(NamedTuple):
    """One word, or several of a kind."""

    value: str
    choices: tuple[str, ...]
    about: str
    many: str
    """How many: "1", or "?", "*", "+" as in `argparse`."""


class Grammar(NamedTuple):
    """A verb, or a verb within a verb."""

    name: str
    summary: str
    options: tuple[Option, ...]
    words: tuple[Word, ...]
    verbs: tuple[Grammar, ...]
    description: str
    epilog: str


def _value_of(action: argparse.Action) -> str:
    if isinstance(action.metavar, str):
        return action.metavar
    return action.dest.upper() if not action.choices else "|".join(map(str, action.choices))
