"""
What is published can be installed: the source distribution makes the wheel, and the wheel goes where no compiler is.

One flow: the source distribution of a copy of the repository; from it alone the wheel, with what it says that it needs;
that wheel in an empty environment. So both are tried, and the core is compiled once.

What needs a package index is skipped, visibly, where there is none.
"""

from __future__ import annotations

import importlib.metadata
import os
import shutil
import subprocess
import sys
import tarfile
import tomllib
import zipfile
from pathlib import Path

import pytest

import shmq

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
        self.skip_without_index(done)
        return python

    @staticmethod
    def skip_without_index(done: subprocess.CompletedProcess) -> None:
        """Skips where pip found no index; any other error of pip is one."""
        if done.returncode and ("No matching distribution" in done.stderr or "Connection" in done.stderr):
            pytest.skip(f"no package index: {done.stderr.strip().splitlines()[-1]}")
        assert done.returncode == 0, done.stderr

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
    """Built from a copy of the repository, as a release is, by the setuptools and cffi that tests have."""
    tree = index.home / "tree"
    for name in sources():
        (tree / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy2(ROOT / name, tree / name)
    build = "import setuptools.build_meta as backend; print(backend.build_sdist('dist'))"
    name = run(sys.executable, "-c", build, cwd=tree, env=index.clean).splitlines()[-1]
    return tree / "dist" / name


@pytest.fixture(scope="module")
def wheel(index, sdist):
    """Built from the source distribution alone, in an environment with nothing but what it names itself."""
    pip = [sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "--retries", "1", "-w", index.home / "wheels"]
    done = subprocess.run([*pip, sdist], check=False, capture_output=True, text=True, env=index.clean, timeout=240)
    index.skip_without_index(done)
    (made,) = (index.home / "wheels").iterdir()
    return made


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
def test_the_wheel_of_the_sdist_has_the_core_the_types_and_nothing_of_the_tests(wheel):
    """One wheel for Python 3.11 and everything after it."""
    assert wheel.name.startswith(f"shmq-{shmq.__version__}-cp311-abi3-linux_")
    names = set(zipfile.ZipFile(wheel).namelist())
    assert {"shmq/_core.abi3.so", "shmq/py.typed", "shmq/_hot.pyi", "pyspark_shmq.py"} <= names
    others = ("tests", "cffi_build", "benchmarks", "demo", "shmq/cli/demo/")
    assert not [name for name in names if name.startswith(others)]


@pytest.mark.timeout(600)
def test_the_wheel_installs_without_a_compiler_and_works(index, wheel, tmp_path):
    """In an empty environment, with no command on its path; that environment's shmq is what runs, not ours."""
    index.clean["PATH"] = str(tmp_path / "no-commands")
    python = index.environment("from-wheel", "--only-binary", ":all:", wheel)
    index.takes_a_message(python)
    said = run(python, ROOT / "tests" / "packages" / "smoke.py", cwd=tmp_path, env=index.clean)
    assert said.startswith(f"shmq {shmq.__version__} works: {python.parents[1]}")
    asked = [python.parent / "shmq", "demo"]
    said = subprocess.run(asked, cwd=index.home, check=False, capture_output=True, text=True, env=index.clean)
    assert (said.returncode, said.stderr.count("\n"), "`make demo` runs it there" in said.stderr) == (1, 1, True)


def test_the_version_stands_in_one_place():
    """In shmq/__init__.py; what is installed and what a release is called have it from there."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    assert project["project"]["dynamic"] == ["version"]
    assert project["tool"]["setuptools"]["dynamic"]["version"] == {"attr": "shmq.__version__"}
    assert importlib.metadata.version("shmq") == shmq.__version__
