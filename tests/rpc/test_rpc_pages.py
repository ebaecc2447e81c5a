"""The page of calls does not lie: its blocks run, the first one as a server of the others."""

from __future__ import annotations

import os
import re
import threading
from pathlib import Path

from support import until

PAGE = Path(__file__).parents[2] / "docs/how-to/rpc.md"


def blocks():
    """What it has in Python."""
    return re.findall(r"^```python\n(.*?)^```$", PAGE.read_text(), re.MULTILINE | re.DOTALL)


def test_its_blocks_run(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    serves, calls, types, asks = blocks()
    served = {"__name__": "page"}
    exec(serves, served)
    server = served["server"]
    thread = threading.Thread(target=server.serve)
    thread.start()
    found = {}
    try:
        exec(calls, found)
        assert found["future"].result() == 3
        assert capsys.readouterr().out == "line 0\nline 1\nline 2\n"
        exec(types, found)
        assert found["calc"].add(1, 2) == 3
        exec(asks, found)
        server.method(found["long_work"])
        assert found["client"].call("long_work", ["a", "b"]) == 2
    finally:
        server.shutdown(wait=True)
        thread.join()
        server.close()
        for name in ("client", "calc"):
            if name in found and hasattr(found[name], "close"):
                found[name].close()
    until(lambda: sorted(os.listdir(tmp_path / "calc")) == ["cancels", "requests"])
