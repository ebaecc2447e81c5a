"""Nothing drifts: cdef and header and stub, links, examples."""

from __future__ import annotations

import ast
import importlib.util
import inspect
import os
import re
import subprocess
import sys
import textwrap
from typing import TYPE_CHECKING

import pytest
from layout import ROOT, table

if TYPE_CHECKING:
    from pathlib import Path

CDEF = ROOT / "cffi_build" / "shmq.cdef.h"
HEADER = ROOT / "cffi_build" / "include" / "shmq.h"


# ---------------------------------------------------------------- cdef, header, stub
def declarations(source: str) -> list[str]:
    """Every declaration and #define of a header, without comments and white space that mean nothing."""
    source = re.sub(
        r"^\s*#(include|if|ifdef|ifndef|endif|else).*$", "", table.without_comments(source), flags=re.MULTILINE
    )
    source = re.sub(r"^#define SHMQ_H$", "", source, flags=re.MULTILINE)
    defines = re.findall(r"^#define .*$", source, re.MULTILINE)
    found = [re.sub(r"\s+", " ", define).strip() for define in defines]
    rest, depth, each = re.sub(r"^#define .*$", "", source, flags=re.MULTILINE), 0, ""
    for letter in rest:
        depth += {"{": 1, "}": -1}.get(letter, 0)
        each += letter
        if letter == ";" and depth == 0:
            found.append(re.sub(r"\s+", " ", each).strip())
            each = ""
    assert not each.strip()
    # An array as a parameter is a pointer; cffi wants it said so.
    found = [re.sub(r"(\w+) (\w+)\[\d+\](?=[,)])", r"\1 *\2", each) for each in found]
    return [each.replace("{ ", "{").replace(" }", "}") for each in found]


def test_the_cdef_says_what_the_header_says():
    """Every declaration that Python may use stands in the header, word for word."""
    promised = declarations(HEADER.read_text())
    strange = [each for each in declarations(CDEF.read_text()) if each not in promised]
    assert strange == []


def test_every_call_of_the_header_has_its_promise():
    """Nothing in the contract is unknown to both the cdef and the sources."""
    sources = "".join(file.read_text() for file in (ROOT / "cffi_build" / "src").rglob("*.c"))
    written = set(re.findall(r"\b(shmq_\w+)\(", sources))
    for name in re.findall(r"\b(shmq_\w+)\(", table.without_comments(HEADER.read_text())):
        assert name in written, f"{name} is promised and nowhere written"


def test_the_stub_is_made_from_the_cdef():
    """shmq/_core.pyi is what cffi_build/stub.py writes, but for the line breaks."""
    spec = importlib.util.spec_from_file_location("stub", ROOT / "cffi_build" / "stub.py")
    stub = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(stub)
    made = ast.dump(ast.parse(stub.stub(CDEF.read_text())))
    assert made == ast.dump(ast.parse((ROOT / "shmq" / "_core.pyi").read_text())), "run python cffi_build/stub.py"


def test_every_source_is_built():
    """build.py names every C file there is."""
    source = ROOT / "cffi_build" / "src"
    named = set(re.findall(r'"([\w/]+\.c)"', (ROOT / "cffi_build" / "build.py").read_text()))
    assert named == {str(file.relative_to(source)) for file in source.rglob("*.c")}


# ---------------------------------------------------------------- links
PAGES = sorted([*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")])


def anchors(page: Path) -> set[str]:
    """The anchors of a page's headings, as code hosts make them."""
    headings = re.findall(r"^#+ (.*)$", page.read_text(), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).strip().replace(" ", "-") for heading in headings}


@pytest.mark.parametrize("page", PAGES, ids=lambda path: str(path.relative_to(ROOT)))
def test_every_relative_link_leads_somewhere(page):
    """To a file or folder of the project, and to a heading or test that is there; docs/promises.md by this, too."""
    text = re.sub(r"```.*?```", "", page.read_text(), flags=re.DOTALL)
    for link in re.findall(r"\[[^\]]*\]\(([^)\s]+)\)", text):
        if re.match(r"[a-z]+:", link):
            continue
        target, _, anchor = link.partition("#")
        where = (page.parent / target).resolve() if target else page
        assert where.exists(), f"{page.name} links to {link}, which is not there"
        if anchor and where.suffix == ".md":
            assert anchor in anchors(where), f"{page.name} links to {link}, which has no such heading"
        elif anchor and where.suffix == ".py":
            assert re.search(rf"def {anchor}\b|class {anchor}\b", where.read_text()), f"{page.name} links to {link}"


def linked(page: Path) -> set[Path]:
    """What a page links to."""
    return {(page.parent / link).resolve() for link in re.findall(r"\]\(([^)\s#]+)[^)\s]*\)", page.read_text())}


def test_every_page_is_in_an_index():
    """In that of its folder, or in docs/README.md, which has the folders' own."""
    indexes = [*(ROOT / "docs").rglob("README.md")]
    found = set().union(*map(linked, indexes)) | set(indexes)
    assert set((ROOT / "docs").rglob("*.md")) - found == set()
    assert set(indexes) - linked(ROOT / "docs" / "README.md") == {ROOT / "docs" / "README.md"}


# ---------------------------------------------------------------- examples
EXAMPLES = sorted((ROOT / "examples").glob("*.py")) if (ROOT / "examples").exists() else []


def promised_output(source: str) -> str | None:
    """What an example says it prints: the end of its docstring, from a line "Prints:" on."""
    said = inspect.cleandoc(ast.get_docstring(ast.parse(source)) or "").partition("Prints:\n")
    return textwrap.dedent(said[2]).strip("\n") if said[1] else None


def test_the_examples_run_in_order_in_one_directory_print_what_they_say_and_leave_nothing(tmp_path):
    """
    The docstring of each ends with a line "Prints:" and the exact lines.

    Run one after another, as a new user does, number 5 met the queue of number 1, and 125 MB were left behind.
    """
    for example in EXAMPLES:
        if example.name == "28_spark.py":
            continue  # tests/spark/test_with_spark_examples.py runs it, where there is a Spark
        promised = promised_output(example.read_text())
        assert promised is not None, f"the docstring of {example.name} has no line 'Prints:'"
        words = [sys.executable, "-W", "error", example]
        done = subprocess.run(words, cwd=tmp_path, capture_output=True, text=True, timeout=60, check=False)
        assert done.returncode == 0, done.stderr
        assert [line.rstrip() for line in done.stdout.strip().splitlines()] == promised.splitlines(), example.name
        assert list(tmp_path.iterdir()) == [], f"{example.name} left something behind"


@pytest.mark.parametrize("missing", ["numpy", "duckdb", "pyspark"])
def test_an_example_whose_package_is_missing_says_so_and_leaves_nothing(missing, tmp_path):
    """That of Spark ended with a traceback, and left a directory behind."""
    (tmp_path / "path").mkdir()
    (tmp_path / "path" / f"{missing}.py").write_text("raise ImportError")
    (tmp_path / "empty").mkdir()
    (example,) = [each for each in EXAMPLES if f"import {missing}" in each.read_text()]
    environment = {**os.environ, "PYTHONPATH": str(tmp_path / "path")}
    words = [sys.executable, example]
    done = subprocess.run(words, cwd=tmp_path / "empty", env=environment, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr.startswith("this example needs ")) == (1, True)
    assert "pip install" in done.stderr
    assert list((tmp_path / "empty").iterdir()) == []


@pytest.mark.parametrize("example", EXAMPLES, ids=lambda path: path.name)
def test_an_example_is_short(example):
    """Code, without its docstring and blank lines. A rotated log, its writer and its kills take a few more."""
    source = example.read_text().split('"""', 2)[2]
    assert len([line for line in source.splitlines() if line.strip()]) <= (65 if example.name == "27_log.py" else 45)


def test_the_reading_of_examples():
    """The convention, by example."""
    assert promised_output('"""\nOne.\n\nPrints:\n    a\n      b\n"""\nprint(1)') == "a\n  b"
    assert promised_output('"""Nothing said."""') is None
