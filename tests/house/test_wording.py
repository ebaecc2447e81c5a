"""A process is an "it", in code, comments and pages."""

from __future__ import annotations

import re
import subprocess

import pytest
from layout import ROOT

TEXTS = {".c", ".h", ".md", ".py", ".pyi", ".toml", ".yml"}
PERSON = re.compile(r"\b(he|his|him|himself)\b", re.IGNORECASE)
HERE = "tests/house/test_wording.py"


def test_a_process_is_no_he():
    """Whoever reads on finds one word for what takes, dies and waits."""
    tracked = subprocess.run(["git", "ls-files"], cwd=ROOT, check=True, capture_output=True, text=True).stdout.split(
        "\n"
    )
    found = [
        f"{name}:{number}: {line.strip()}"
        for name in tracked
        if name != HERE and (ROOT / name).suffix in TEXTS and (ROOT / name).is_file()
        for number, line in enumerate((ROOT / name).read_text(encoding="utf-8").splitlines(), 1)
        if PERSON.search(line)
    ]
    assert found == []


@pytest.mark.parametrize(
    ("message", "refused"),
    [
        ("core: one thing\n\nWhy it is so.\n", None),
        ("x" * 73 + "\n\nWhy.\n", "73 characters"),
        ("core: one thing\n\n# a comment of git\n", "no body"),
        ("core: one thing\nwhich goes on\n\nWhy.\n", "second line"),
    ],
)
def test_the_hook_for_commit_messages_asks_what_contributing_says(tmp_path, message, refused):
    (tmp_path / "message").write_text(message)
    words = [ROOT / ".ci" / "commit-msg", tmp_path / "message"]
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    assert (done.returncode == 0) == (refused is None)
    assert (refused or "") in done.stderr
