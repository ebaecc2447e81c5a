"""The mutants of the engine: each is another program, and only what a test could notice is one."""

from __future__ import annotations

import ast
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
SOURCE = """
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator


def f(a: int, b: int = 3) -> int:
    if a < b and not a:
        print(a)
    return a + b
"""


@pytest.fixture
def mutants(monkeypatch):
    monkeypatch.syspath_prepend(str(ROOT))
    from tests.mutants import sites

    return sites


def test_each_site_makes_another_program_that_can_be_compiled(mutants):
    made = {mutants.changed(SOURCE, site) for site in mutants.sites(SOURCE)}
    assert len(made) == len(mutants.sites(SOURCE))
    assert ast.unparse(ast.parse(SOURCE)) not in made
    for text in made:
        compile(text, "mutant", "exec")


def test_the_ways_are_those_of_the_table_and_types_are_left_alone(mutants):
    found = {(site.line, site.way) for site in mutants.sites(SOURCE)}
    assert found == {
        (8, "one more"),
        (9, "never"),
        (9, "always"),
        (9, "and-or"),
        (9, "compare"),
        (9, "not"),
        (10, "not called"),
        (11, "returns None"),
        (11, "arithmetic"),
    }


def test_every_line_of_a_mutant_is_where_it_was(mutants):
    lines = {node.lineno for node in ast.walk(ast.parse(SOURCE)) if hasattr(node, "lineno")}
    for site in mutants.sites(SOURCE):
        tree = mutants.mutated(SOURCE, site)
        assert {node.lineno for node in ast.walk(tree) if hasattr(node, "lineno")} <= lines
        assert ast.unparse(tree) == mutants.changed(SOURCE, site)


def test_a_function_that_is_there_does_what_the_mutant_does(mutants, tmp_path, monkeypatch):
    """And what is changed outside of all functions is left to a new interpreter."""
    from tests.mutants import forked

    file = tmp_path / "changed_here.py"
    file.write_text(SOURCE)
    monkeypatch.syspath_prepend(str(tmp_path))
    import changed_here

    assert changed_here.f(5, 1) == 6
    arithmetic, default = (
        next(site for site in mutants.sites(SOURCE) if site[::2] == wanted)
        for wanted in ((11, "arithmetic"), (8, "one more"))
    )
    ((function, code),) = forked.changed_functions(file, arithmetic)
    assert function is changed_here.f
    function.__code__ = code
    assert changed_here.f(5, 1) == 4
    assert forked.changed_functions(file, default) == []


def test_a_sample_is_its_seeds_and_the_engine_is_all_there(mutants):
    from tests.mutants import campaign

    assert campaign.sample(3, 20, "group") == campaign.sample(3, 20, "group")
    assert campaign.sample(3, 20, "") != campaign.sample(4, 20, "")
    names = {path.name for path in campaign.ENGINE}
    assert {path.stem for path in campaign.ENGINE} == set(campaign.OWN)
    assert all(f"test_{name}" in campaign.TESTS for own in campaign.OWN.values() for name in own.split())
    assert {"durability.py", "walk.py", "consumer.py", "group.py", "account.py", "apply.py", "staging.py"} <= names
    assert "shmq" in sys.modules
