"""
No circle of calls among the files of the core: who reads one need not know of those that call it.

A room is a file with its header, where it has one.
"""

import re
from pathlib import Path

from layout import ROOT, table
from test_circles import circles

SOURCES = sorted((ROOT / "cffi_build" / "src").rglob("*.[ch]"))


def parts(source):
    """What stands outside of all braces, and what stands inside them or in a macro."""
    source = re.sub(r'"(\\.|[^"\\])*"|\'(\\.|[^\'\\])\'', '""', table.without_comments(source))
    macros = re.findall(r"^#define (?:.*\\\n)*.*", source, re.MULTILINE)
    source = re.sub(r"^#(?:.*\\\n)*.*", "", source, flags=re.MULTILINE)
    outside, inside, depth = [], [*macros], 0
    for piece in re.split(r"([{}])", source):
        depth += {"{": 1, "}": -1}.get(piece, 0)
        (inside if depth else outside).append(piece)
    return "".join(outside), " ".join(inside)


def defined(source):
    """{function: whether only its own file may call it}, of the functions whose bodies stand there."""
    outside = parts(source)[0]
    heads = re.findall(r"([^;{}]*?)\b(\w+)\([^;{}]*\)\s*(?=})", outside)
    return {name: bool(re.search(r"\bstatic\b", before)) for before, name in heads if not name.startswith("__")}


def rooms(sources):
    """{room: the rooms whose functions it calls}, of {path: text}."""
    own, home = {}, {}
    for path, text in sources.items():
        names = defined(text)
        own.setdefault(path.stem, set()).update(names)
        home |= {name: path.stem for name, static in names.items() if not static or path.suffix == ".h"}
    calls: dict[str, set[str]] = {}
    for path, text in sources.items():
        called = set(re.findall(r"(?<![.>\w])(\w+)\s*\(", parts(text)[1])) - own[path.stem]
        calls.setdefault(path.stem, set()).update(home[name] for name in called & set(home))
    return calls


def read():
    return {path: path.read_text() for path in SOURCES}


def test_every_room_has_its_own_name():
    """A weakened site, an object file and a row of the table of coverage are known by it."""
    names = [path.name for path in SOURCES]
    assert sorted(names) == sorted(set(names))


def test_no_circle_of_calls():
    assert circles(rooms(read())) == []


def test_the_look_for_calls_sees_them():
    """In functions, in macros and in what a header inlines; but no comment, no string, no member, no declaration."""
    a_c = "int b_do(int);\nstatic int own(void) { return 1; }\nint a_do(int x)\n{\n    return b_do(x) + own();\n}\n"
    b_h = "int b_do(int x);\nstatic inline int b_all(int x)\n{\n    return c_do (x);\n}\n"
    b_c = '/* a_do(1) */\nint b_do(int x) { return own(x) + s->a_do(x) + t.a_do(x) + puts("a_do({"); }\n'
    c_c = "#define TWICE(x) \\\n    a_do(x)\nint c_do(int x) { if (x) { return TWICE(x); } return 0; }\n"
    texts = {"a.c": a_c, "b.h": b_h, "b.c": b_c, "c.c": c_c}
    calls = rooms({Path(name): text for name, text in texts.items()})
    assert calls == {"a": {"b"}, "b": {"c"}, "c": {"a"}}
    assert circles(calls) == [["a", "b", "c"]]
