"""docs/glossary.md and the code speak one language: its words are used, and words given up are gone."""

import re
import subprocess

import pytest
from layout import ROOT

PAGE = ROOT / "docs" / "glossary.md"
ROW = re.compile(r"^\| ([^|]+) \| ([^|]+) \| \[[^]]+\]\(([^)]+)\) \|$", re.MULTILINE)
GIVEN_UP = {
    r"\bBare\b": "DetachedChunk",
    r"\b(Mortal|Expiring)Producer\b": "Producer",
    r"\bsummit\b": "running_max",
    r"\bDISTRUST\b": "INDEX_DISAGREES",
    r"\bpadded_(more|less)\b": "add_padding, remove_padding",
    r"manieth": "n-th",
    r"\b(for|by|of|to|from|with|than) who\b(?!m| in\b|, )": "whoever",
}
"""What was said before, and what is said instead."""
HISTORY = ("docs/lab.md", "docs/decisions/", "CHANGELOG.md", "tests/house/test_glossary.py")


def tracked():
    said = subprocess.run(["git", "ls-files"], cwd=ROOT, check=True, capture_output=True, text=True).stdout
    for name in said.split():
        path = ROOT / name
        of_now = not name.startswith(HISTORY)
        if of_now and path.suffix in (".py", ".pyi", ".c", ".h", ".md") and path.is_file():
            yield name, path.read_text(encoding="utf-8")


def rows():
    return ROW.findall(PAGE.read_text())


def test_the_page_has_its_rows():
    assert len(rows()) > 50
    words = [word for word, *_ in rows()]
    assert len(set(words)) == len(words), "one word, one meaning"


@pytest.mark.parametrize(("word", "meaning", "place"), rows(), ids=lambda each: each[:20])
def test_a_word_is_used_where_the_page_says(word, meaning, place):
    text = (PAGE.parent / place).resolve().read_text(encoding="utf-8").lower()
    stems = [each.rstrip("s") for each in word.lower().split()]
    assert all(each in text for each in stems), f"{place} does not speak of {word!r}"
    assert meaning[0].islower()
    assert not meaning.endswith(".")


@pytest.mark.parametrize("given_up", GIVEN_UP)
def test_what_was_given_up_does_not_come_back(given_up):
    old = re.compile(given_up)
    found = [
        f"{name}:{number}: say {GIVEN_UP[given_up]}: {line.strip()}"
        for name, text in tracked()
        for number, line in enumerate(text.splitlines(), 1)
        if old.search(line)
    ]
    assert found == []
