"""The README does not lie: its example prints what it says, its figures are the example's, its screen is one."""

import contextlib
import io
import re
import subprocess
import sys
from pathlib import Path

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


def test_the_experiment_is_quoted_as_the_example_prints_it():
    (quoted, _) = blocks("")
    docstring = (ROOT / "examples/02_kill.py").read_text().split('"""')[1]
    printed = docstring.partition("Prints:\n")[2]
    assert [line.strip() for line in printed.strip().splitlines()] == quoted.splitlines()


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
