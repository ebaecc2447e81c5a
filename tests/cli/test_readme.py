"""The README does not lie: its example prints what it says, its figures are recorded ones, its links lead somewhere."""

import contextlib
import io
import json
import re
import subprocess
import sys
import tomllib
from pathlib import Path

from benchmarks import kills

ROOT = Path(__file__).parents[2]
README = (ROOT / "README.md").read_text()


def blocks(language):
    fenced = re.findall(r"^```(\w*)\n(.*?)^```$", README, re.MULTILINE | re.DOTALL)
    return [text for name, text in fenced if name == language]


def test_the_example_prints_what_its_comments_say(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (example,) = blocks("python")
    expected = [line.partition("# ")[2] for line in example.splitlines() if "print(" in line]
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed):
        exec(compile(example, "README.md", "exec"), {})
    assert printed.getvalue().splitlines() == expected
    assert len(example.splitlines()) <= 12


def test_the_example_can_be_pasted_into_an_interpreter(tmp_path):
    """An empty line ends a block there, up to Python 3.12: what follows it was an IndentationError."""
    (example,) = blocks("python")
    done = subprocess.run(
        [sys.executable, "-i", "-q"], input=example + "\n", cwd=tmp_path, capture_output=True, text=True, check=True
    )
    assert "Error" not in done.stderr
    assert "b'tea'" in done.stdout


def test_the_table_of_the_experiment_is_what_was_recorded():
    """And its rows are as benchmarks.kills tells them."""
    found = json.loads((ROOT / "benchmarks/results/kills.json").read_text())["found"]
    table = [line for line in README.splitlines() if line.startswith("|")]
    assert table[2:] == [f"| {' | '.join(kills.row(label, each))} |" for label, each in found.items()]
    assert found["shmq"]["first"]["lost"] == found["shmq"]["third"]["lost"] == 0


def test_its_links_work_on_a_package_page_too():
    """All of them begin with the one address of the project, and lead to a file or folder that is there."""
    urls = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["urls"]
    home = urls["Source"]
    assert all(url.startswith(home) for url in urls.values())
    links = re.findall(r"\]\(([^)]+)\)", README)
    assert len(links) > 20
    for link in [*links, *urls.values()]:
        path = re.fullmatch(rf"{re.escape(home)}(?:/(?:blob|tree|raw)/main/([^#]+)|/issues)?(#.*)?", link)
        assert path, f"{link} is not below {home}"
        assert (ROOT / (path[1] or ".")).exists(), link


def test_the_targets_it_names_exist():
    makefile = (ROOT / "Makefile").read_text()
    for target in re.findall(r"^make ([a-z-]+)", "".join(blocks("")), re.MULTILINE):
        assert re.search(rf"^{target}:", makefile, re.MULTILINE)


def test_a_folder_named_shmq_beside_a_script_hides_nothing(tmp_path):
    """As a clone is, beside which somebody tries the example."""
    (tmp_path / "shmq").mkdir()
    (tmp_path / "tried.py").write_text("import shmq\nprint(shmq.open(None).put(b'x'))\n")
    said = subprocess.run([sys.executable, "tried.py"], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert (said.stdout, said.stderr) == ("0\n", "")
