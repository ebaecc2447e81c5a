"""What a server and its clients say in the log `shmq.net`."""

from __future__ import annotations

import logging
import signal
import subprocess
import sys

from remote import Serving
from support import until

import shmq


def test_a_lost_link_and_its_return_are_one_line_each(root, caplog):
    """However often it was tried in between."""
    caplog.set_level(logging.INFO, logger="shmq.net")
    shmq.open(f"{root}/orders").close()

    def lines():
        return [(record.levelname, record.getMessage()) for record in caplog.records if record.name == "shmq.net"]

    serving = Serving(root)
    try:
        with serving.connect() as queue:
            queue.put(b"a")
            assert lines() == []
            serving.kill()
            until(lambda: len(lines()) == 1)
            serving.start()
            queue.put(b"b")
            until(lambda: len(lines()) == 2)
        lost, found = lines()
        assert lost[0] == "WARNING"
        assert "cannot be reached, and is tried again" in lost[1]
        assert found == ("INFO", lost[1].partition(" cannot be reached")[0] + " is reached again")
    finally:
        serving.kill()


SERVE = """
import logging, sys, shmq
logging.basicConfig(level=logging.INFO)
shmq.net.serve(sys.argv[1], listen="unix:" + sys.argv[1] + "/.s")
"""


def test_a_servers_start_is_told_with_its_addresses(root):
    """To whoever listens; a server that nobody listens to says nothing."""
    command = [sys.executable, "-c", SERVE, str(root)]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as serving:
        try:
            assert serving.stderr.readline() == f"INFO:shmq.net:serving at unix:{root}/.s\n"
        finally:
            serving.send_signal(signal.SIGTERM)
            serving.wait()
