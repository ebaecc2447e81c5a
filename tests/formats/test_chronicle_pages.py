"""The page for whoever comes from Chronicle Queue does not lie: its blocks run, one after another."""

import re
from pathlib import Path

PAGE = Path(__file__).parents[2] / "docs/how-to/coming-from-chronicle.md"


def test_the_blocks_of_the_page_run_in_order(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    names = {}
    blocks = re.findall(r"^```python\n(.*?)^```$", PAGE.read_text(), re.MULTILINE | re.DOTALL)
    assert len(blocks) == 4
    for block in blocks:
        exec(compile(block, PAGE.name, "exec"), names)
    names["queue"].close()
    assert "no wire" not in capsys.readouterr().out
