"""
Where the real programs' data is: `SHMQ_FIXTURES`, or `../shared/fixtures` beside the project.

It is read there and never copied. Without it, the tests that need it are skipped, visibly; the vectors derived by
hand in each test file remain.
"""

import json
import os
from pathlib import Path

import pytest

PROJECT = Path(__file__).resolve().parents[2]
FIXTURES = Path(os.environ.get("SHMQ_FIXTURES") or PROJECT.parent / "shared" / "fixtures")


class Case:
    """One fixture: its directory, and what its JSON expects of it."""

    def __init__(self, expected: Path) -> None:
        self.name = expected.stem
        self.path = expected.with_suffix("")
        self.expected = json.loads(expected.read_text())

    def __getitem__(self, name):
        return self.expected[name]

    def get(self, name, default=None):
        return self.expected.get(name, default)


def cases(system, where=lambda _: True):
    """The parameters of a test over the fixtures of *system* that it is about, or one skipped that says why."""
    found = sorted((FIXTURES / system / "given").glob("*.json"))
    if not found:
        reason = f"no {system} fixtures in {FIXTURES} (set SHMQ_FIXTURES)"
        return [pytest.param(None, id="no-fixtures", marks=pytest.mark.skip(reason=reason))]
    there = [path for path in found if path.with_suffix("").is_dir()]
    return [pytest.param(path, id=path.stem) for path in there if where(Case(path))]


def case(system, name):
    """One fixture by its name, or a visible skip."""
    path = FIXTURES / system / "given" / f"{name}.json"
    if not path.exists():
        pytest.skip(f"no fixture {system}/{name} in {FIXTURES} (set SHMQ_FIXTURES)")
    return Case(path)


def tree(folder):
    """{relative name: bytes} of every file under *folder*."""
    return {str(path.relative_to(folder)): path.read_bytes() for path in sorted(folder.rglob("*")) if path.is_file()}


def place(folder, files):
    """Write {relative name: bytes} under *folder*."""
    for name, data in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)
    return folder
