"""The page of `shmq top --web` in a real Chromium without a window: it shows what is so, live, and runs its own."""

from __future__ import annotations

import json
import os
import select
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from support import DEADLINE

pytest.importorskip("uvicorn")
pytest.importorskip("starlette")

import shmq

NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable", "chrome")
PYTHON = os.environ.get("SHMQ_BROWSER_PYTHON", sys.executable)
"""What has PySide6-WebEngine, which is too large for every environment."""
HERE = Path(__file__).parent
PATIENCE = 6 * DEADLINE


@pytest.fixture(scope="module")
def engine(tmp_path_factory):
    """How a browser is begun that loads an address: the one on PATH, or else the one of Qt."""
    program = next(filter(None, map(shutil.which, NAMES)), None)
    if program is not None:
        profile = tmp_path_factory.mktemp("profile")
        return lambda address: [sys.executable, HERE / "headless.py", address, program, profile]
    asked = "from PySide6.QtWebEngineCore import qWebEngineChromiumVersion as v; print(v())"
    found = subprocess.run([PYTHON, "-c", asked], capture_output=True, text=True, check=False, timeout=PATIENCE)
    if found.returncode:
        pytest.skip("NO CHROMIUM HERE, so the page was tried in none: none on PATH, and no pyside6-webengine")
    return lambda address: [PYTHON, HERE / "chromium.py", address]


class Browser:
    """One page in it."""

    def __init__(self, command, errors):
        self._errors = open(errors, "w+")  # noqa: SIM115  # closed with the browser
        self._process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=self._errors, text=True
        )

    def ask(self, what):
        """What that is in the page, once it is anything."""
        self._process.stdin.write(f"{what}\n")
        self._process.stdin.flush()
        assert select.select([self._process.stdout], [], [], PATIENCE)[0], (what, self.console())
        return json.loads(self._process.stdout.readline())

    def console(self):
        self._errors.seek(0)
        return [line for line in self._errors if line.startswith("console: ")]

    def __enter__(self):
        return self

    def __exit__(self, *_):
        try:
            self._process.communicate(timeout=DEADLINE)  # it ends where its stdin does
        except subprocess.TimeoutExpired:  # what was asked never came true
            self._process.kill()
            self._process.communicate()
        self._errors.close()


def cells(name):
    """The texts of a row of the table of queues."""
    return (
        f"[...document.querySelectorAll('#queues tbody tr')].filter(row => row.cells[0].textContent.endsWith({name!r}))"
        ".map(row => [...row.cells].map(cell => cell.textContent))[0]"
    )


def test_the_page_shows_queues_live_one_of_them_and_why(engine, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    hostile = "<img src=x onerror=alert(1)>"
    with (
        shmq.open("orders") as queue,
        shmq.open(hostile),
        queue.consumer("billing"),
        shmq.top.Looks(["."], every=0.1) as looks,
        shmq.top.serve(looks) as page,
        Browser(engine(page.address), tmp_path / "stderr") as browser,
    ):
        queue.put_many([b"x"] * 1234)
        assert browser.ask(f"({cells('orders')} || [])[3] === '1,234' && {cells('orders')}")[:1] == ["orders"]
        assert browser.ask(cells(hostile))[0] == hostile  # text, and no element
        assert browser.ask("[document.images.length]") == [0]
        for _ in range(3):
            queue.put(b"x")
        assert browser.ask(f"{cells('orders')}[3] === '1,237'")  # live
        assert browser.ask("document.querySelector('#plot-lag polyline').getAttribute('points').split(' ').length > 2")
        assert browser.ask("[...document.querySelectorAll('#queues tbody tr')].at(-1).click() || 1")
        assert browser.ask("by('path').textContent === 'orders'")
        assert browser.ask("by('consumers').tBodies[0].rows[0].cells[0].textContent") == "billing"
        assert browser.ask("by('processes').tBodies[0].rows[0].cells[0].textContent") == str(os.getpid())
        assert browser.ask("by('ages').hidden") is True
        assert browser.ask("by('ask').click() || 1")
        assert "'billing' is 1,237 messages behind" in browser.ask(
            "by('said').querySelector('.slow, .stuck, .note') && by('said').textContent"
        )
        assert browser.ask("by('queues').tHead.querySelectorAll('button')[3].click() || 1")  # by lag
        assert browser.ask("by('queues').tBodies[0].rows[0].cells[0].textContent") == "orders"
        assert browser.ask("eval === undefined || (() => { try { eval('1'); } catch { return true; } })()")
        assert [line for line in browser.console() if "eval" not in line and "favicon" not in line] == []


def test_without_the_token_the_page_says_what_to_open(engine, tmp_path):
    with (
        shmq.open(tmp_path / "orders"),
        shmq.top.Looks([str(tmp_path)], every=0.1) as looks,
        shmq.top.serve(looks) as page,
        Browser(engine(page.address.partition("#")[0]), tmp_path / "stderr") as browser,
    ):
        said = browser.ask("by('trouble').textContent")
        assert said == "open the address that shmq top has said, with all of it"
        assert browser.ask("[document.body.textContent.includes('orders')]") == [False]
        page.close()
        assert browser.ask("by('trouble').textContent === 'shmq top does not answer'")
