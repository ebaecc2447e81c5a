"""Where a file of the engine can be changed by one step, and what it is then."""

from __future__ import annotations

import ast
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterator

OTHER = {
    ast.Lt: ast.LtE, ast.LtE: ast.Lt, ast.Gt: ast.GtE, ast.GtE: ast.Gt, ast.Eq: ast.NotEq, ast.NotEq: ast.Eq,
    ast.Is: ast.IsNot, ast.IsNot: ast.Is, ast.In: ast.NotIn, ast.NotIn: ast.In,
    ast.Add: ast.Sub, ast.Sub: ast.Add, ast.And: ast.Or, ast.Or: ast.And,
}  # fmt: skip
HARMLESS = {"logging", "warnings", "_tell", "close", "cast"}
"""Calls whose absence is seen by whoever reads a log, or looks for descriptors."""


class Site(NamedTuple):
    """One change: which node of the tree, in the order of ast.walk, and how."""

    line: int
    node: int
    way: str


def _ways(node: ast.AST) -> Iterator[str]:
    if isinstance(node, ast.Compare) and type(node.ops[0]) in OTHER:
        yield "compare"
    elif isinstance(node, ast.BinOp) and type(node.op) in OTHER:
        yield "arithmetic"
    elif isinstance(node, ast.BoolOp):
        yield "and-or"
    elif isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not):
        yield "not"
    elif isinstance(node, ast.If | ast.While):
        yield from ("never",) if isinstance(node, ast.While) else ("never", "always")
    elif isinstance(node, ast.Constant) and type(node.value) is int:
        yield "one more"
    elif isinstance(node, ast.Expr) and isinstance(node.value, ast.Call) and not _is_harmless(node.value):
        yield "not called"
    elif isinstance(node, ast.Return) and node.value is not None and not _is_none(node.value):
        yield "returns True" if isinstance(node.value, ast.Constant) and not node.value.value else "returns None"


def _is_none(node: ast.expr) -> bool:
    return isinstance(node, ast.Constant) and node.value is None


def _is_harmless(call: ast.Call) -> bool:
    return any(isinstance(each, ast.Name | ast.Attribute) and _name(each) in HARMLESS for each in ast.walk(call.func))


def _name(node: ast.Name | ast.Attribute) -> str:
    return node.id if isinstance(node, ast.Name) else node.attr


def _left_out(tree: ast.Module) -> set[int]:
    """Nodes that no test could see: annotations, and what is there for type checkers."""
    found: set[int] = set()
    for node in ast.walk(tree):
        parts: list[ast.AST | None] = []
        if isinstance(node, ast.FunctionDef):
            parts = [node.returns, *(each.annotation for each in (*node.args.args, *node.args.kwonlyargs))]
        elif isinstance(node, ast.AnnAssign):
            parts = [node.annotation]
        elif isinstance(node, ast.If) and isinstance(node.test, ast.Name) and node.test.id == "TYPE_CHECKING":
            parts = [node]
        for part in parts:
            found |= {id(each) for each in ast.walk(part)} if part else set()
    return found


def sites(source: str) -> list[Site]:
    """All of a file."""
    tree = ast.parse(source)
    out = _left_out(tree)
    return [
        Site(node.lineno, number, way)  # type: ignore[attr-defined]
        for number, node in enumerate(ast.walk(tree))
        if id(node) not in out
        for way in _ways(node)
    ]


def changed(source: str, site: Site) -> str:
    """The file with that change."""
    return ast.unparse(mutated(source, site))


def mutated(source: str, site: Site | None = None) -> ast.Module:
    """The file, with that change, and every line where it was."""
    tree = ast.parse(source)
    if site is None:
        return tree
    node = list(ast.walk(tree))[site.node]
    if site.way == "compare":
        node.ops[0] = OTHER[type(node.ops[0])]()  # type: ignore[attr-defined]
    elif site.way in ("arithmetic", "and-or"):
        node.op = OTHER[type(node.op)]()  # type: ignore[attr-defined]
    elif site.way == "not":
        node.op, node.operand = ast.Not(), ast.UnaryOp(ast.Not(), node.operand)  # type: ignore[attr-defined]
    elif site.way in ("never", "always"):
        node.test = ast.Constant(site.way == "always")  # type: ignore[attr-defined]
    elif site.way == "one more":
        node.value += 1  # type: ignore[attr-defined]
    elif site.way in ("not called", "returns None", "returns True"):
        node.value = ast.Constant(True if site.way == "returns True" else None)  # type: ignore[attr-defined]
    return ast.fix_missing_locations(tree)


def key(source: str, site: Site) -> tuple[str, str, int]:
    """What tells a site from others, also when lines have moved: its line's words, the way, which of these."""
    same = [each.node for each in sites(source) if (each.line, each.way) == (site.line, site.way)]
    return source.splitlines()[site.line - 1].strip(), site.way, same.index(site.node)


def described(source: str, site: Site) -> str:
    """For a person: the line, and the way."""
    words, way, place = key(source, site)
    return f"{site.line}: {words[:90]}  [{way}{f' {place}' if place else ''}]"
