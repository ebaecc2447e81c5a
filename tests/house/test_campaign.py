"""The campaign of campaigns: a finding is one line, and the exit status says that there was one."""

from __future__ import annotations

import argparse
import itertools
import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from support import until

ROOT = Path(__file__).parents[2]


@pytest.fixture
def campaign(monkeypatch):
    """The module behind `make campaign`."""
    monkeypatch.syspath_prepend(str(ROOT))
    import tests.campaign

    return tests.campaign


@pytest.fixture
def suite(campaign, tmp_path, monkeypatch):
    """Makes a suite out of a program's text."""
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))

    def make(text, name="said"):
        (tmp_path / f"{name}.py").write_text(text)
        return campaign.Suite(name, f"{name} --seed {{seed}} --share {{share}}", r"([\d,]+) cases", "cases", 2.0)

    return make


def given(tmp_path, **more):
    """As from the command line."""
    return argparse.Namespace(**{"hours": 0.0, "prove": True, "seconds": 5.0, "jobs": 2} | more, journal=tmp_path / "j")


def test_it_knows_every_campaign_of_this_checkout(campaign):
    """Each module that is called campaign has its turn, and the fuzzers too."""
    known = {each.module for each in campaign.there()}
    assert {f"tests.{path.parent.name}.campaign" for path in (ROOT / "tests").glob("*/campaign.py")} <= known
    assert {"tests.fuzz.formats", "tests.fuzz.sanitized", "tests.history.soak"} <= known


def test_each_suite_has_a_turn_and_no_seed_is_used_twice(campaign):
    suites = campaign.there()
    turns = list(itertools.islice(campaign.following(suites, []), 3 * len(suites)))
    assert [each for each, _ in turns] == suites * 3
    seeds = [seed for _, seed in turns]
    assert len(set(seeds)) == len(seeds)
    for each, seed in turns:
        assert str(seed) in " ".join(each.words(seed, 60.0, 2))


def test_a_run_goes_on_where_the_journal_ends(campaign):
    """With the next suite, and above the seeds that were used."""
    suites = campaign.there()
    records = [{"suite": suites[0].name, "seed": 900}, {"suite": suites[1].name, "seed": 7}]
    following, seed = next(campaign.following(suites, records))
    assert (following, seed > 900) == (suites[2], True)


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("print('all is well: 0 findings')", 0),
        ("print('violations   0')", 0),
        ("print('FOUND something  [again]'); raise SystemExit(1)", 1),
        ("print('10 findings'); raise SystemExit(1)", 1),
        ("raise SystemExit(3)", 1),
        ("raise RuntimeError", 1),
        ("print('nothing was walked: no ptrace'); raise SystemExit(2)", 0),
        ("print('usage: nobody understands'); raise SystemExit(2)", 1),
    ],
)
def test_what_a_suite_says_becomes_findings(campaign, suite, tmp_path, text, found):
    """By its words or by its end; one that cannot run here says so, and is none. Its words are kept for a finding."""
    options = given(tmp_path)
    assert campaign.campaign([suite(text)], options) == found
    (record,) = campaign.read(options.journal)
    assert len(record["found"]) == found
    assert ("left_out" in record) == ("nothing was" in text)
    assert [str(each) for each in (tmp_path / "j.logs").iterdir()] == ([record["log"]] if found else [])


def test_the_journal_says_what_was_executed_with_which_seed_and_how_to_repeat_it(campaign, suite, tmp_path):
    options = given(tmp_path)
    campaign.campaign([suite("import sys; print('1,234 cases', sys.argv)")], options)
    (record,) = campaign.read(options.journal)
    assert (record["suite"], record["seed"], record["executions"]) == ("said", campaign.STEP, 1234)
    assert record["command"] == f"python -m said --seed {campaign.STEP} --share 10"
    assert record["commit"]
    assert record["kernel"] == os.uname().release


def test_a_suite_that_hangs_is_a_finding_and_its_children_end_with_it(campaign, suite, tmp_path, monkeypatch):
    monkeypatch.setattr(campaign, "GRACE", 0.0)
    said = f"open({str(tmp_path / 'pid')!r}, 'w').write(str(os.getpid()))"
    text = f"import os, time\nif os.fork() == 0: {said}\ntime.sleep(99)"
    options = given(tmp_path, seconds=0.2)
    assert campaign.campaign([suite(text)], options) == 1
    assert "it hangs" in campaign.read(options.journal)[0]["found"][0]
    child = int((tmp_path / "pid").read_text())
    until(lambda: not os.path.exists(f"/proc/{child}") or " Z " in Path(f"/proc/{child}/stat").read_text())


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_who_is_interrupted_loses_one_slice_and_what_was_torn_is_passed_over(campaign, suite, tmp_path, number):
    """The runner as a process; its suite is at work when the signal comes."""
    suite("import pathlib, sys, time\npathlib.Path(sys.argv[2]).touch()\ntime.sleep(99)")
    program = (
        f"import sys, tests.campaign as c\nc.SUITES = (c.Suite('said', 'said {{seed}} {tmp_path}/there', 'x', 'y'),)\n"
        f"sys.argv[1:] = ['--hours', '1', '--journal', '{tmp_path}/j']\nsys.exit(c.main())"
    )
    (tmp_path / "j").write_text('{"suite": "said", "seed": 1}\n{"torn')
    runner = subprocess.Popen([sys.executable, "-c", program], cwd=ROOT, stdout=subprocess.PIPE, text=True)
    until((tmp_path / "there").exists)
    runner.send_signal(number)
    assert "this slice is lost" in runner.communicate(timeout=60)[0]
    assert runner.returncode == 130
    assert [each["seed"] for each in campaign.read(tmp_path / "j")] == [1]
    campaign.append(tmp_path / "j", {"suite": "said", "seed": 2})
    assert [each["seed"] for each in campaign.read(tmp_path / "j")] == [1, 2]


def test_the_report_is_the_journals_table_and_keeps_what_was_written_by_hand(campaign, tmp_path):
    """In the last column, for each suite."""
    page, line = (
        tmp_path / "page.md",
        {"unit": "cuts", "seconds": 1800.0, "kernel": "6.18", "when": "2030-01-02T03:04Z"},
    )
    page.write_text(f"# Before\n{campaign.BEGIN}\n{campaign.END}\nbehind\n")
    records = [
        {**line, "suite": "power", "seed": 5, "executions": 1000, "commit": "a", "found": []},
        {**line, "suite": "power", "seed": 9, "executions": 500, "commit": "b", "found": ["x", "y"]},
    ]
    campaign.report(records, page)
    row = "| power | 1,500 cuts | 2 | 5 to 9 | a … b (2) | 1.00 | 1 |  |"
    assert row in page.read_text()
    page.write_text(page.read_text().replace("| 1 |  |", "| 1 | a bound, mended |"))
    campaign.report([*records, {**records[0], "seed": 10}], page)
    text = page.read_text()
    assert "| 5 to 10 | a … b (2) | 1.50 | 1 | a bound, mended |" in text
    assert (text.startswith("# Before\n"), text.endswith("\nbehind\n")) == (True, True)


def test_an_unknown_name_is_answered_with_those_that_there_are():
    done = subprocess.run(
        [sys.executable, "-m", "tests.campaign", "--only", "nobody"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )
    assert done.returncode == 2
    assert "power " in done.stdout


def test_every_line_of_the_journal_is_json(campaign, suite, tmp_path):
    options = given(tmp_path)
    campaign.campaign([suite("print('FOUND \"\\u00fc\"')")], options)
    assert json.loads(options.journal.read_text())["found"] == ['FOUND "ü"']
