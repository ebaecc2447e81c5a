"""The campaign of campaigns: a finding is one line, and the exit status says that there was one."""

from __future__ import annotations

import io
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


@pytest.fixture
def campaign(monkeypatch):
    """The module behind `make campaign`."""
    monkeypatch.syspath_prepend(str(ROOT))
    import tests.campaign

    return tests.campaign


def test_it_knows_every_campaign_of_this_checkout(campaign):
    """Each module that is called campaign has its turn, and the fuzzers too."""
    known = {each.module for each in campaign.there()}
    assert {f"tests.{path.parent.name}.campaign" for path in (ROOT / "tests").glob("*/campaign.py")} <= known
    assert {"tests.fuzz.formats", "tests.fuzz.sanitized", "tests.history.soak"} <= known


def test_each_has_a_turn_and_seeds_are_never_used_twice(campaign):
    """Also when there is no time at all."""
    campaigns = list(campaign.CAMPAIGNS)
    turns = list(campaign.turns(campaigns, 0.0, seed=5))
    assert [each for each, _, _ in turns] == campaigns
    seeds = [seed for _, seed, _ in turns]
    assert len(set(seeds)) == len(seeds)
    for each, seed, seconds in turns:
        words = list(map(str, each.arguments(seed, seconds, 2)))
        assert str(seed) in words


@pytest.mark.parametrize(
    ("module", "found"),
    [
        ("print('all is well: 0 findings')", 0),
        ("print('FOUND something  [again]'); raise SystemExit(1)", 1),
        ("raise SystemExit(3)", 1),
        ("raise RuntimeError", 1),
        ("print('nothing was walked: no ptrace'); raise SystemExit(2)", 0),
        ("print('usage: nobody understands'); raise SystemExit(2)", 1),
    ],
)
def test_what_one_says_becomes_findings(campaign, tmp_path, monkeypatch, module, found):
    """By its words or by its end; one that cannot run here says so, and is none."""
    (tmp_path / "said.py").write_text(module)
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    one = campaign.Campaign("said", "said", lambda *_: [])
    log = io.StringIO()
    assert len(campaign.one(one, 1, 60.0, 1, log)) == found
    assert "==== python -m said" in log.getvalue()


def test_an_unknown_name_is_said(tmp_path):
    """With those that there are."""
    done = subprocess.run(
        [sys.executable, "-m", "tests.campaign", "--only", "nobody"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )
    assert done.returncode == 2
    assert "there are: power" in done.stdout
