"""The pages for several users and for containers do not lie: their blocks run, and do what the pages say."""

import os
import re
import signal
from pathlib import Path

import shmq
from tests.support import Child
from tests.users.people import ALICE, APP, BOB, by, misfits, several

PAGES = Path(__file__).parents[2] / "docs/how-to"


def blocks(page):
    """What it has in Python."""
    return re.findall(r"^```python\n(.*?)^```$", (PAGES / page).read_text(), re.MULTILINE | re.DOTALL)


@several
def test_the_blocks_of_several_users_run_for_both(place):
    """With this test's group and place for those of the page."""
    share, move = (
        each.replace('"app"', str(APP)).replace("/srv/app/", f"{place}/") for each in blocks("several-users.md")
    )
    for uid in (ALICE, BOB):
        assert by(uid, exec, share, {}) == "None"
    assert misfits(f"{place}/orders") == []

    def private():
        os.chdir(place)
        with shmq.open("private") as queue:
            queue.put(b"x", key=b"k", headers={"a": 1})
        exec(move, {})
        with shmq.open("shared") as queue:
            return queue[0].payload, queue[0].key, queue[0].headers

    assert by(ALICE, private) == "(b'x', b'k', {'a': 1})"
    assert misfits(f"{place}/shared") == []


def test_the_worker_of_containers_finishes_what_it_has_when_it_is_told_to_stop(tmp_path):
    """And takes nothing more."""
    (block,) = blocks("containers.md")
    with shmq.open(tmp_path / "q") as queue:
        queue.put_many([b"in hand", b"waits"])
        told, tell = os.pipe()

        def works(say):
            names = {}
            exec(block, names)

            def handle(payload):
                say(payload)
                os.read(told, 1)

            names["work"](str(tmp_path / "q"), handle)
            say("ended")

        with Child(works) as worker:
            assert worker.hear() == "b'in hand'"
            worker.signal(signal.SIGTERM)
            os.write(tell, b"!")
            assert worker.hear() == "ended"
            assert worker.join() == 0
        assert queue.consumers()["billing"].lag == 1
