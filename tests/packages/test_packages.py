"""
What is published can be installed: the source distribution and the wheel, each in an environment that has nothing yet.

What needs a package index is skipped, visibly, where there is none.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]

TAKES_A_MESSAGE = """
import shmq
with shmq.open("orders", codec="json") as queue:
    queue.put({"id": 1})
    with queue.consumer("billing") as billing:
        print(billing.take(), shmq.__file__)
"""


def run(*words: object, **more: object) -> str:
    """Stdout; an error shows everything."""
    done = subprocess.run([str(word) for word in words], check=False, capture_output=True, text=True, **more)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def sources() -> list[Path]:
    """What is in the repository, or, where there is no git, what is not made."""
    listed = subprocess.run(["git", "-C", ROOT, "ls-files", "-z"], check=False, capture_output=True, text=True)
    if listed.returncode == 0:
        return [Path(name) for name in listed.stdout.split("\0") if name and (ROOT / name).is_file()]
    found = [
        each.relative_to(ROOT) for each in ROOT.rglob("*") if each.is_file() and each.suffix not in {".pyc", ".so"}
    ]
    return [each for each in found if not each.parts[0].startswith((".venv", "build"))]


class Index:
    """Environments that pip fills; a test is skipped where pip finds no index."""

    def __init__(self, home: Path) -> None:
        self.home = home
        self.clean = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
        self.clean["SHMQ_CFLAGS"] = "-O0"  # compiled sooner

    def environment(self, name: str, *wanted: object) -> Path:
        """The Python of a new environment with what pip installs for these words."""
        run(sys.executable, "-m", "venv", self.home / name)
        python = self.home / name / "bin/python"
        pip = [
            python,
            "-m",
            "pip",
            "install",
            "--quiet",
            "--no-input",
            "--no-compile",
            "--disable-pip-version-check",
            "--retries",
            "1",
        ]
        done = subprocess.run([*pip, *wanted], check=False, capture_output=True, text=True, env=self.clean, timeout=240)
        if done.returncode and ("No matching distribution" in done.stderr or "Connection" in done.stderr):
            pytest.skip(f"no package index: {done.stderr.strip().splitlines()[-1]}")
        assert done.returncode == 0, done.stderr
        return python

    def takes_a_message(self, python: Path) -> None:
        """That environment's shmq, not ours."""
        place = self.home / "run" / python.parts[-3]
        place.mkdir(parents=True)
        said = run(python, "-c", TAKES_A_MESSAGE, cwd=place, env=self.clean)
        assert said.startswith("{'id': 1} " + str(python.parents[1]))
        command = [python.parent / "shmq", "cat", place / "orders", "0", "--format", "repr"]
        assert run(*command, env=self.clean) == "0  {'id': 1}\n"


@pytest.fixture(scope="module")
def index(tmp_path_factory):
    return Index(tmp_path_factory.mktemp("packages"))


@pytest.fixture(scope="module")
def sdist(index):
    """Built from a copy of the repository, as a release is."""
    tree = index.home / "tree"
    for name in sources():
        (tree / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy2(ROOT / name, tree / name)
    python = index.environment("builder", "setuptools>=77", "cffi>=2.0")
    build = "import setuptools.build_meta as backend; print(backend.build_sdist('dist'))"
    name = run(python, "-c", build, cwd=tree, env=index.clean).splitlines()[-1]
    return tree / "dist" / name


def test_the_sdist_has_everything_that_builds_the_core(sdist):
    """`cffi_build/build.py` was missing, and so it could not be built."""
    with tarfile.open(sdist) as archive:
        names = {name.partition("/")[2] for name in archive.getnames()}
    wanted = {str(name) for name in sources() if name.parts[0] in {"cffi_build", "shmq", "demo"}}
    assert wanted - names == set()
    assert {"README.md", "LICENSE", "CHANGELOG.md", "pyproject.toml", "setup.py", "pyspark_shmq.py"} <= names
    assert not [name for name in names if name.endswith((".pyc", ".so", ".o"))]


def test_make_finds_all_that_the_demo_needs_in_the_sdist(sdist, tmp_path):
    """What would be done, without doing it: a file that is missing has no rule."""
    with tarfile.open(sdist) as archive:
        archive.extractall(tmp_path, filter="data")
    (there,) = tmp_path.iterdir()
    said = run("make", "--dry-run", "SPARK=0", "demo", cwd=there)
    assert ".venv/bin/python -m demo" in said


@pytest.mark.timeout(600)
def test_the_sdist_installs_in_an_empty_environment_and_takes_a_message(index, sdist):
    """Compiled there, with nothing but what it names itself."""
    index.takes_a_message(index.environment("from-sdist", sdist))


@pytest.mark.timeout(600)
def test_the_wheel_installs_in_an_empty_environment_and_takes_a_message(index, sdist):
    """One wheel for Python 3.11 and everything after it; it has the core, the types, and nothing of the tests."""
    builder = index.home / "builder/bin/python"
    wheel = [builder, "-m", "pip", "wheel", "--quiet", "--no-deps", "--no-build-isolation", "-w", index.home / "wheels"]
    run(*wheel, sdist, env=index.clean)
    (made,) = (index.home / "wheels").iterdir()
    assert "-cp311-abi3-linux_" in made.name
    names = set(zipfile.ZipFile(made).namelist())
    assert {"shmq/_core.abi3.so", "shmq/py.typed", "shmq/_hot.pyi", "pyspark_shmq.py"} <= names
    others = ("tests", "cffi_build", "benchmarks", "demo", "shmq/cli/demo/")
    assert not [name for name in names if name.startswith(others)]
    python = index.environment("from-wheel", made)
    index.takes_a_message(python)
    asked = [python.parent / "shmq", "demo"]
    said = subprocess.run(asked, cwd=index.home, check=False, capture_output=True, text=True, env=index.clean)
    assert (said.returncode, said.stderr.count("\n"), "`make demo` runs it there" in said.stderr) == (1, 1, True)
