"""
No file of the package imports, by whatever way, one that imports it.

Imports inside functions and those for types count: who reads a file has to know what it speaks of.
"""

import ast

from layout import ROOT


def modules():
    found = {}
    for path in (ROOT / "shmq").rglob("*.py"):
        name = ".".join(path.relative_to(ROOT / "shmq").with_suffix("").parts).removesuffix("__init__").rstrip(".")
        found[name] = path.read_text()
    return found


def imported(source, names):
    """The modules of the package that it imports anywhere; the package itself, which imports them all, is left out."""
    found = set()
    for node in ast.walk(ast.parse(source)):
        said = []
        if isinstance(node, ast.ImportFrom) and node.level == 0:
            said = [f"{node.module}.{each.name}" for each in node.names]
            said = [each if each.removeprefix("shmq.") in names else node.module for each in said]
        elif isinstance(node, ast.Import):
            said = [each.name for each in node.names]
        found |= {each.removeprefix("shmq.") for each in said if each and each.startswith("shmq.")}
    return found & names


def circles(arrows):
    """The largest sets of modules each of which leads to all others of its set."""

    def reached(start):
        seen, ahead = set(), [start]
        while ahead:
            for each in arrows[ahead.pop()] - seen:
                seen.add(each)
                ahead.append(each)
        return seen

    behind = {name: reached(name) for name in arrows}
    rings = {frozenset(other for other in behind[name] if name in behind[other]) for name in arrows}
    return sorted(map(sorted, filter(None, rings)))


def test_there_is_no_circle():
    sources = modules()
    names = set(sources) - {""}
    assert circles({name: imported(sources[name], names) - {name} for name in names}) == []


def test_the_look_for_circles_sees_them():
    names = {"a", "b", "c", "d"}
    a = imported("import shmq.b", names)
    b = imported("def f():\n    from shmq import c, errors", names)
    c = imported("if TYPE_CHECKING:\n    from shmq.a import A", names)
    assert circles({"a": a, "b": b, "c": c, "d": {"a"}}) == [["a", "b", "c"]]
