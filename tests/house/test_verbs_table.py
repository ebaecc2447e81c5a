"""The table of verbs, which `shmq --help` prints without importing any: it says of each what its module says."""

import importlib
import subprocess
import sys

import pytest
from layout import ROOT

import shmq
from shmq.cli import foreign, verbs


@pytest.mark.parametrize("verb", verbs.VERBS)
def test_a_verb_of_the_table_is_a_module_that_begins_with_the_same_sentence(verb):
    summary = next(group[verb] for group in verbs.GROUPS.values() if verb in group)
    module = importlib.import_module(verbs.module_of(verb))
    first = module.__doc__.strip().partition("\n")[0]
    assert first == f"{summary}." or first.startswith(f"{summary}. ")
    assert callable(module.add)
    assert callable(module.run)


def test_every_module_that_is_a_verb_is_in_the_table():
    modules = (ROOT / "shmq/cli").glob("*.py")
    are_verbs = {module.stem.rstrip("_") for module in modules if "\ndef run(" in module.read_text()}
    assert are_verbs == set(verbs.VERBS)


def test_what_the_command_has_of_the_formats_is_what_they_are():
    assert foreign.FORMATS == shmq.formats.HERE


LOADED = """
import sys
sys.argv = ["shmq", *{words}]
from shmq.cli import main
try:
    main()
except SystemExit:
    pass
print(*sorted(sys.modules), file=sys.stderr)
"""


@pytest.mark.parametrize("verb", [None, *verbs.VERBS])
def test_help_imports_neither_the_core_nor_another_verb(verb):
    """So it is there at once, whatever the others need."""
    words = ["help", verb] if verb else ["--help"]
    done = subprocess.run(
        [sys.executable, "-c", LOADED.format(words=words)], capture_output=True, text=True, check=True, timeout=60
    )
    loaded = set(done.stderr.split())
    assert "shmq.cli.parsing" in loaded
    assert not loaded & {"shmq.queue", "shmq._core", "cffi", "_cffi_backend"}
    others = {verbs.module_of(each) for each in verbs.VERBS} - {verbs.module_of(verb or "help"), "shmq.cli.help"}
    assert not loaded & others
