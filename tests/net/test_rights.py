"""Which call needs which right: as documented, as declared, and as a server has it for a token with one of them."""

from __future__ import annotations

import hashlib
import inspect
import re
from pathlib import Path

import pytest
from remote import serving
from support import Child

import shmq
from shmq.net import rights
from shmq.net.shmq1 import client, reading

PAGE = Path(__file__).parents[2] / "docs" / "how-to" / "serve.md"
GIVEN = {
    "at": (0.0,),
    "at_ns": (0,),
    "message": (0,),
    "messages": (0, 1, None),
    "latest": (b"k",),
    "drop_consumer": ("gone",),
    "rename_consumer": ("gone", "other"),
    "adopted": ("p",),
    "shutdown": (False,),
}
"""What calls are made with, where not with nothing."""


def documented() -> dict[str, list[dict[str, str]]]:
    """The table of the page: by right, the calls of each of its columns."""
    rows = re.findall(r"^\| `(append|read|manage|replicate)` \|(.*)\|$", PAGE.read_text(), re.MULTILINE)
    return {right: [re.findall(r"`(\w+)`", cell) for cell in cells.split("|")] for right, cells in rows}


@pytest.mark.parametrize(
    ("column", "declared"),
    [(0, rights.RFC), (1, {**rights.SHMQ1, **rights.CALLS}), (2, rights.FLIGHT)],
    ids=["RFC", "Shmq1", "Flight"],
)
def test_the_table_of_the_documentation_is_what_is_declared(column, declared):
    said = {call: right for right, cells in documented().items() for call in cells[column]}
    assert said == {call: right for call, right in declared.items() if right is not None}


def test_what_is_declared_is_what_there_is():
    """No verb, call or action is without a right, and none is left that does nothing."""
    assert set(rights.CALLS) == set(reading.CALLS)
    assert set(rights.SHMQ1) == {*client._VERBS, "put", "credit", "stop", "ping"}
    assert set(documented()) == rights.ALL
    verbs = inspect.getsource(shmq.net.verbs)
    assert set(re.findall(r'_allow\("(\w+)"', verbs)) == set(rights.RFC)
    service = pytest.importorskip("shmq.flight.service")
    assert set(rights.FLIGHT) == {*service.VERBS, "queues", "do_get", "do_put"}


def test_found_a_verb_that_the_table_forgot_is_refused_and_not_free(tmp_path, monkeypatch):
    """Two branches met: one added a verb, the other the table, and for that verb no right was asked for."""
    tmp_path.chmod(0o700)
    shmq.open(tmp_path / "orders").close()
    monkeypatch.delitem(rights.SHMQ1, "peek")  # the server is forked from here
    with (
        serving(str(tmp_path)) as server,
        server.connect() as remote,
        remote.consumer("c") as consumer,
        pytest.raises(ValueError, match="this server has no verb 'peek'"),
    ):
        consumer.peek()


@pytest.fixture
def one_right_each(root, tmp_path):
    """The address of a server, and the token of each right."""
    tokens = {right: right[0] * 64 for right in rights.ABOUT}
    file = tmp_path / "tokens"
    file.write_text(
        "".join(f"{hashlib.sha256(each.encode()).hexdigest()} orders {right} never\n" for right, each in tokens.items())
    )
    file.chmod(0o600)
    with Child(
        lambda say: shmq.net.serve(root, "tcp:127.0.0.1:0", token_file=file, on_start=lambda told: say(told[0]))
    ) as child:
        yield f"csp://{child.hear().removeprefix('tcp:')}/orders", tokens


def refused_by(work) -> str | None:
    """The right that is wanted; None if it is done, or fails otherwise."""
    try:
        work()
    except shmq.NotFound as problem:
        found = re.search(r"needs the right '(\w+)' to 'orders', and you have it not", str(problem))
        return found and found[1]
    except (shmq.ShmqError, LookupError, ValueError):
        pass
    return None


def test_a_token_with_one_right_does_what_needs_that_one(orders, one_right_each):
    """Every call that there is, by three tokens with one right each; what ends the queue comes last."""
    csp, tokens = one_right_each
    orders.put(b"a", key=b"k")
    calls = sorted(rights.CALLS, key=lambda call: (rights.CALLS[call] == rights.MANAGE, call))
    for right, token in tokens.items():
        with shmq.net.connect(csp, token=token) as queue:
            for call in calls:
                wanted = refused_by(lambda call=call: queue._call(call, *GIVEN.get(call, ())))
                assert wanted == (None if rights.CALLS[call] == right else rights.CALLS[call]), (right, call)
            if right == rights.MANAGE:
                orders.close()
            for call, work in (
                ("put", lambda: queue.put(b"x")),
                ("consumer", lambda: queue.consumer("c").close()),
                ("read", lambda: next(queue.reader(), None)),
            ):
                assert refused_by(work) == (None if rights.SHMQ1[call] == right else rights.SHMQ1[call]), (right, call)


def test_who_may_only_manage_changes_names_and_reads_nothing(orders, one_right_each):
    csp, tokens = one_right_each
    orders.put(b"secret")
    orders.consumer("old").close()
    with shmq.net.connect(csp, token=tokens["manage"]) as queue:
        queue.rename_consumer("old", "new")
        assert list(orders.consumers()) == ["new"]
        queue.drop_consumer("new")
        queue.finish()
        for work in (lambda: queue[0], queue.stats, queue.consumers):
            assert refused_by(work) == "read"
    assert (orders.consumers(), orders.finished) == ({}, True)


def test_a_queue_that_a_token_is_not_for_is_not_there(root, orders, one_right_each):
    csp, tokens = one_right_each
    shmq.open(root / "other").close()
    for name in ("other", "none"):
        with pytest.raises(shmq.NotFound, match=f"there is no queue '{name}'$"):
            shmq.net.connect(csp.replace("orders", name), token=tokens["read"]).close()


@pytest.mark.parametrize("token", ["7" * 32, "1e5", "true", "a,b", "a}#:b", "{["])
def test_a_token_is_what_it_was_given_as(orders, root, tmp_path, token):
    """Also one that would be a number, or the end of something, in a text."""
    file = tmp_path / "tokens"
    file.write_text(f"{hashlib.sha256(token.encode()).hexdigest()} orders read never\n")
    with (
        Child(
            lambda say: shmq.net.serve(root, "tcp:127.0.0.1:0", token_file=file, on_start=lambda told: say(told[0]))
        ) as child,
        shmq.net.connect(f"csp://{child.hear().removeprefix('tcp:')}/orders", token=token) as queue,
    ):
        assert len(queue) == 0


def test_a_right_that_ends_ends_for_whoever_consumes(orders, root, tmp_path, monkeypatch):
    """A consumer that is open is told, whether it waits for what is sent ahead or asks."""
    file = tmp_path / "tokens"
    file.write_text(f"{hashlib.sha256(b'r' * 64).hexdigest()} orders read never\n")

    def serve(say):
        may, over = shmq.net.tokens.Right.allows, root / "over"
        monkeypatch.setattr(
            shmq.net.tokens.Right, "allows", lambda right, verb, queue: may(right, verb, queue) and not over.exists()
        )
        shmq.net.serve(root, "tcp:127.0.0.1:0", token_file=file, on_start=lambda told: say(told[0]))

    with Child(serve) as child:
        csp = f"csp://{child.hear().removeprefix('tcp:')}/orders"
        with shmq.net.connect(csp, token="r" * 64) as queue:
            alone, shared = queue.consumer("a"), queue.consumer("g", group=True, ack="explicit")
            orders.put(b"1")
            assert alone.get(timeout=60).payload == b"1"
            held = shared.get(timeout=60)
            (root / "over").touch()
            for work in (held.ack, lambda: shared.get(timeout=60), lambda: alone.seek(0)):
                with pytest.raises(shmq.NotFound, match="there is no queue 'orders'"):
                    work()
            orders.put_many([b"x"] * 3000)
            with pytest.raises(shmq.NotFound, match="there is no queue 'orders'"):
                [alone.get(timeout=60) for _ in range(3000)]
