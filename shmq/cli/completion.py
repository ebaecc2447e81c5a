"""
Print a script with which a shell completes verbs, options, values, paths and consumers' names.

Examples:
    shmq completion bash > ~/.local/share/bash-completion/completions/shmq
    shmq completion zsh > ~/.zfunc/_shmq       # with fpath+=~/.zfunc before compinit
    shmq completion fish > ~/.config/fish/completions/shmq.fish

For this terminal alone: source <(shmq completion bash). It is made of what this version understands.
"""

from __future__ import annotations

import shlex
from typing import TYPE_CHECKING

from shmq import cli
from shmq.cli.verbs import VERBS

if TYPE_CHECKING:
    import argparse
    from collections.abc import Iterator

    from shmq.cli.parsing import Grammar, Option

_PATHS = ("PATH", "QUEUE", "FILE", "SRC", "DST", "SOURCE", "TARGET", "FROM", "TO", "TABLE", "ROOT")
"""What words and values are called that may be paths."""
_NAMES = ("NAME", "OLD")
"""What words are called that are consumers of the queue whose path stands before them."""


def add(verb: argparse.ArgumentParser) -> None:
    """Declare the arguments."""
    verb.add_argument("shell", choices=tuple(_SCRIPTS), help="which shell it is for")


def run(arguments: argparse.Namespace) -> int:
    """Print the script."""
    print(_SCRIPTS[arguments.shell]([cli.grammar(verb) for verb in VERBS]), end="")
    return 0


def _places(verbs: list[Grammar]) -> Iterator[tuple[str, Grammar]]:
    """Every verb by its words, those within verbs too."""
    for verb in verbs:
        yield verb.name, verb
        for inner in verb.verbs:
            yield f"{verb.name} {inner.name}", inner


def _first_choices(verb: Grammar) -> tuple[str, ...]:
    """What the first word can be, where that is known."""
    return tuple(each.name for each in verb.verbs) or (verb.words[0].choices if verb.words else ())


def _has_names(verb: Grammar) -> bool:
    """Whether one of its words is a consumer's name."""
    return any(word.value in _NAMES for word in verb.words)


# ---------------------------------------------------------------- bash
_BASH = """\
# bash completion for shmq; made by `shmq completion bash`
_shmq_names() {
    local word each names=
    for word in "${COMP_WORDS[@]:2:COMP_CWORD-2}"; do
        for each in "${word/#\\~/$HOME}"/consumers/*.checkpoint; do
            each=${each##*/}  # others may make files there: no word of them is to be expanded
            [[ $each =~ ^[A-Za-z0-9_.-]+$ ]] && names+=" ${each%.checkpoint}"
        done
    done
    echo "$names"
}
_shmq() {
    local word=${COMP_WORDS[COMP_CWORD]} before=${COMP_WORDS[COMP_CWORD-1]} verb=${COMP_WORDS[1]} at=2
    local words= values= paths= names=
    COMPREPLY=()
    if ((COMP_CWORD == 1)); then
        COMPREPLY=($(compgen -W "@VERBS@ --help --version" -- "$word"))
        return
    fi
    case $verb in
        @NESTED@) if ((COMP_CWORD > 2)); then verb="$verb ${COMP_WORDS[2]}"; at=3; fi ;;
    esac
    case "$verb" in
@CASES@
    esac
    case "$verb $before" in
@VALUES@
    esac
    if [[ $values ]]; then
        COMPREPLY=($(compgen -W "$values" -- "$word"))
    elif [[ $word == -* ]]; then
        COMPREPLY=($(compgen -W "$words" -- "$word"))
    else
        if ((COMP_CWORD == at)) && [[ $paths ]]; then COMPREPLY=($(compgen -W "$paths" -- "$word")); return; fi
        if [[ $names && $before != -* ]]; then names=$(_shmq_names); else names=; fi
        if [[ $names ]]; then COMPREPLY=($(compgen -W "$names" -- "$word")); return; fi
        compopt -o filenames 2>/dev/null
        COMPREPLY=($(compgen -f -- "$word"))
    fi
}
complete -F _shmq shmq
"""


def _bash(verbs: list[Grammar]) -> str:
    cases, values = [], []
    for place, verb in _places(verbs):
        names = " ".join(name for option in verb.options for name in option.names)
        firsts = " ".join(_first_choices(verb) or (VERBS if verb.name == "help" else ()))
        known = " names=known" if _has_names(verb) else ""
        cases.append(f'        "{place}") words="{names}" paths="{firsts}"{known} ;;')
        for option in verb.options:
            if option.choices:
                spots = "|".join(f'"{place} {name}"' for name in option.names)
                values.append(f'        {spots}) values="{" ".join(option.choices)}" ;;')
    return (
        _BASH.replace("@VERBS@", " ".join(VERBS))
        .replace("@NESTED@", "|".join(verb.name for verb in verbs if verb.verbs))
        .replace("@CASES@", "\n".join(cases))
        .replace("@VALUES@", "\n".join(values))
    )


# ---------------------------------------------------------------- zsh
_ZSH = """\
#compdef shmq
# zsh completion for shmq; made by `shmq completion zsh`
_shmq_names() {
    local word
    local -a names
    for word in $words; do
        names=(${~word}/consumers/*.checkpoint(N:t:r))
        if (($#names)); then compadd -a names; return; fi
    done
    _files
}
_shmq() {
    local context state line
    local -a verbs inner
    verbs=(
@VERBS@
    )
    if ((CURRENT == 2)); then
        _describe -t verbs verb verbs
        return
    fi
    local verb=$words[2]
    shift words
    ((CURRENT--))
    case $verb in
@NESTED@
    esac
    case $verb in
@CASES@
    esac
}
if [[ $funcstack[1] == _shmq ]]; then _shmq "$@"; else compdef _shmq shmq; fi
"""
_ZSH_NESTED = """\
        {verb})
            inner=({inner})
            if ((CURRENT == 2)); then _describe -t verbs verb inner; return; fi
            verb="$verb $words[2]"; shift words; ((CURRENT--)) ;;"""


def _zsh(verbs: list[Grammar]) -> str:
    nested = [
        _ZSH_NESTED.format(verb=verb.name, inner=" ".join(_described(each.name, each.summary) for each in verb.verbs))
        for verb in verbs
        if verb.verbs
    ]
    cases = []
    for place, verb in _places(verbs):
        specs = [spec for option in verb.options for spec in _zsh_option(option)]
        for word in verb.words:
            many = "*" if word.many in "*+" else ""
            wanted = f"({' '.join(word.choices or VERBS)})" if word.choices or verb.name == "help" else "_files"
            wanted = "_shmq_names" if word.value in _NAMES else wanted
            optional = ":" if word.many == "?" else ""
            specs.append(shlex.quote(f"{many}:{optional}{word.value.lower().replace(':', ' ')}:{wanted}"))
        cases.append(f"        {shlex.quote(place)}) _arguments -S {' '.join(specs)} ;;")
    return (
        _ZSH.replace("@VERBS@", "\n".join(f"        {_described(verb.name, verb.summary)}" for verb in verbs))
        .replace("@NESTED@", "\n".join(nested))
        .replace("@CASES@", "\n".join(cases))
    )


def _described(name: str, about: str) -> str:
    return shlex.quote(f"{name}:{about}")


def _zsh_option(option: Option) -> Iterator[str]:
    about = option.about.replace("[", "(").replace("]", ")").replace(":", ";")
    for name in option.names:
        value = ""
        if option.value:
            wanted = f"({' '.join(option.choices)})" if option.choices else "_files" if option.value in _PATHS else " "
            value = f":{option.value.lower().replace(':', ' ')}:{wanted}"
        yield shlex.quote(f"*{name}[{about}]{value}")


# ---------------------------------------------------------------- fish
_FISH_NAMES = """\
function __shmq_names
    for word in (commandline -opc)
        for each in (string replace -r '^~' $HOME -- $word)/consumers/*.checkpoint
            basename $each .checkpoint
        end
    end
end"""


def _fish(verbs: list[Grammar]) -> str:
    lines = [
        "# fish completion for shmq; made by `shmq completion fish`",
        _FISH_NAMES,
        "complete -c shmq -n __fish_use_subcommand -f",
    ]
    lines += [
        f"complete -c shmq -n __fish_use_subcommand -a {verb.name} -d {_fish_quoted(verb.summary)}" for verb in verbs
    ]
    for verb in verbs:
        here = f"__fish_seen_subcommand_from {verb.name}"
        inner = " ".join(each.name for each in verb.verbs)
        for each in verb.verbs:
            outside = f"{here}; and not __fish_seen_subcommand_from {inner}"
            lines.append(f"complete -c shmq -n '{outside}' -f -a {each.name} -d {_fish_quoted(each.summary)}")
            lines += _fish_options(each, f"{here}; and __fish_seen_subcommand_from {each.name}")
        firsts = _first_choices(verb) or (VERBS if verb.name == "help" else ())
        if firsts and not verb.verbs:
            lines.append(f"complete -c shmq -n '{here}' -f -a '{' '.join(firsts)}'")
        lines += _fish_options(verb, here) if not verb.verbs else []
    return "\n".join(lines) + "\n"


def _fish_options(verb: Grammar, condition: str) -> Iterator[str]:
    if _has_names(verb):
        yield f"complete -c shmq -n '{condition}; and count (__shmq_names) >/dev/null' -f -a '(__shmq_names)'"
    for option in verb.options:
        names = [f"-s {name[1:]}" if len(name) == 2 else f"-l {name[2:]}" for name in option.names]
        choices = " ".join(f"{choice}\\t" for choice in option.choices)  # what is behind a tab is said of the value
        value = f' -x -a "{choices}"' if option.choices else ""
        if option.value and not option.choices:
            value = " -r" if option.value in _PATHS else " -x"
        yield f"complete -c shmq -n '{condition}' {' '.join(names)}{value} -d {_fish_quoted(option.about)}"


def _fish_quoted(text: str) -> str:
    return "'" + text.replace("\\", "\\\\").replace("'", "\\'") + "'"


_SCRIPTS = {"bash": _bash, "zsh": _zsh, "fish": _fish}
