"""`shmq top --web` answers browsers on this machine, and nobody else; by a real client, over the socket."""

from __future__ import annotations

import http.client
import json
import os
import signal
import socket
import subprocess
import sys
from pathlib import Path
from urllib.parse import urlsplit

import pytest

pytest.importorskip("uvicorn")
pytest.importorskip("starlette")

import shmq
from shmq.top.web import Guard


@pytest.fixture
def served(tmp_path):
    """A page for a queue, and for one whose name is no text."""
    with (
        shmq.open(tmp_path / "orders") as queue,
        shmq.open(tmp_path / os.fsdecode(b"odd\xff<b>")),
        queue.consumer("billing"),
        shmq.top.Looks([str(tmp_path)], every=0.1) as looks,
        shmq.top.serve(looks) as page,
    ):
        queue.put_many([b"x"] * 5)
        yield page


def asked(page, where, method="GET", token=None, **headers):
    """(status, headers, body) of one request."""
    link = http.client.HTTPConnection("127.0.0.1", page.port, timeout=20)
    token = urlsplit(page.address).fragment if token is None else token
    link.request(method, where, headers={"Authorization": f"Bearer {token}", **headers})
    answer = link.getresponse()
    body = answer.read()
    link.close()
    return answer.status, dict(answer.getheaders()), body


def test_the_facts_are_those_of_a_look(served):
    status, headers, body = asked(served, "/facts")
    assert (status, headers["content-type"], headers["cache-control"]) == (200, "application/json", "no-store")
    found = json.loads(body)
    by_name = {Path(each["path"]).name: each for each in found["queues"]}
    assert set(by_name) == {"orders", os.fsdecode(b"odd\xff<b>")}
    assert (by_name["orders"]["next_index"], by_name["orders"]["consumers"][0]["lag"]) == (5, 5)
    assert found["pause"] >= 0.1


def test_why_is_answered_of_queues_that_are_shown_and_of_no_other(served, tmp_path):
    queues = json.loads(asked(served, "/facts")[2])["queues"]
    for each in queues:
        status, _, body = asked(served, f"/why?id={each['id']}")
        assert status == 200
        assert {"kind", "level", "sentence", "advice"} <= set(json.loads(body)[0])
    kinds = {each["path"]: json.loads(asked(served, f"/why?id={each['id']}")[2])[0]["kind"] for each in queues}
    assert kinds[str(tmp_path / "orders")] == "behind"
    for wrong in ("/why", "/why?id=", f"/why?id={tmp_path}/orders"):
        assert asked(served, wrong)[0] == 404


@pytest.mark.parametrize(
    "host",
    ["evil.example", "localhost.evil.example", "127.0.0.1.evil.example:80", "10.0.0.1", "[::2]", "", "localhost:x"],
)
def test_who_calls_it_by_another_name_gets_nothing(served, host):
    """A page of elsewhere, whose name was made to lead here (DNS rebinding)."""
    for where in ("/", "/facts", "/nothing"):
        status, _, body = asked(served, where, Host=host)
        assert status == 403
        assert b"orders" not in body
        assert b"<" not in body


def test_names_of_this_machine_are_fine_with_whatever_port(served):
    """Behind `ssh -L 9000:127.0.0.1:8765` a browser says localhost:9000."""
    for host in ("localhost", "localhost:9000", "127.0.0.1:1", "[::1]:8765", "LOCALHOST"):
        assert asked(served, "/facts", Host=host)[0] == 200


def test_two_hosts_or_none_are_refused(served):
    token = urlsplit(served.address).fragment
    for lines in ("Host: localhost\r\nHost: evil.example\r\n", ""):
        with socket.create_connection(("127.0.0.1", served.port), timeout=20) as link:
            link.sendall(f"GET /facts HTTP/1.0\r\n{lines}Authorization: Bearer {token}\r\n\r\n".encode())
            assert link.makefile("rb").readline().split()[1] in {b"400", b"403"}


@pytest.mark.parametrize("token", ["", "x", "x" * 32, "é"])
def test_who_does_not_show_the_token_gets_no_fact(served, token):
    """Other users of the machine reach the port, too."""
    for where in ("/facts", "/why?id=x", "/nothing"):
        status, _, body = asked(served, where, token=token.encode().decode("latin-1"))
        assert status == 401
        assert b"orders" not in body
    assert asked(served, "/", token=token.encode().decode("latin-1"))[0] == 200
    assert urlsplit(served.address).fragment.encode() not in asked(served, "/")[2]


@pytest.mark.parametrize("method", ["POST", "PUT", "DELETE", "PATCH", "OPTIONS"])
def test_there_is_nothing_to_change(served, method):
    for where in ("/", "/facts", "/why"):
        assert asked(served, where, method)[0] == 405


def test_the_page_runs_its_own_script_and_asks_nobody_else(served):
    status, headers, body = asked(served, "/")
    assert (status, headers["content-type"]) == (200, "text/html; charset=utf-8")
    rules = dict(rule.strip().split(" ", 1) for rule in headers["content-security-policy"].split(";"))
    assert rules["default-src"] == "'none'"
    assert rules["connect-src"] == "'self'"
    assert rules["script-src"].startswith("'sha256-")
    assert "unsafe" not in headers["content-security-policy"]
    for outside in (b"http://", b"https://", b"src=", b"innerHTML", b"@import", b"url("):
        assert outside not in body.replace(b"http://www.w3.org/2000/svg", b"")
    assert "access-control-allow-origin" not in headers


def test_every_answer_is_kept_by_nobody_and_shown_in_no_frame(served):
    """Refusals, too; and a browser guesses no other type, and says to nobody from where it came."""
    for where, more in (
        ("/", {}),
        ("/facts", {}),
        ("/why?id=x", {}),
        ("/nothing", {}),
        ("/facts", {"token": "x"}),
        ("/", {"Host": "evil.example"}),
        ("/", {"method": "POST"}),
    ):
        _, headers, _ = asked(served, where, **more)
        assert headers["cache-control"] == "no-store"
        assert headers["x-content-type-options"] == "nosniff"
        assert headers["referrer-policy"] == "no-referrer"
        assert headers["cross-origin-resource-policy"] == "same-origin"
        rules = [rule.strip() for rule in headers["content-security-policy"].split(";")]
        assert {"frame-ancestors 'none'", "base-uri 'none'", "form-action 'none'"} <= set(rules)


def test_two_hosts_are_refused_also_where_a_server_lets_them_pass(served):
    """Uvicorn does not; the guard relies on nobody."""
    sent = []

    async def send(message):
        sent.append(message)

    async def none(*_):
        sent.append("passed")

    scope = {
        "type": "http",
        "path": "/",
        "method": "GET",
        "headers": [(b"host", b"localhost"), (b"host", b"evil.example")],
    }
    guarded = Guard(none, "token")(scope, none, send)
    with pytest.raises(StopIteration):
        guarded.send(None)
    assert sent[0]["status"] == 403


def test_it_listens_on_the_loopback_address_alone(served):
    lines = [line.split() for line in Path("/proc/self/net/tcp").read_text().splitlines()[1:]]
    mine = {line[1] for line in lines if line[3] == "0A" and int(line[1].split(":")[1], 16) == served.port}
    assert mine == {f"0100007F:{served.port:04X}"}
    assert not [line for line in Path("/proc/self/net/tcp6").read_text().splitlines() if f":{served.port:04X} " in line]


def test_a_port_that_is_taken_is_said(served, tmp_path):
    with (
        shmq.top.Looks([str(tmp_path)]) as looks,
        pytest.raises(OSError, match=rf"cannot listen at 127\.0\.0\.1:{served.port}: Address already in use"),
    ):
        shmq.top.serve(looks, served.port)
    with shmq.top.Looks([str(tmp_path)]) as looks, pytest.raises(OSError, match=r"cannot listen at 127\.0\.0\.1:70000"):
        shmq.top.serve(looks, 70000)


def test_a_page_that_is_closed_leaves_nothing(tmp_path):
    before = len(os.listdir("/proc/self/fd"))
    handlers = signal.getsignal(signal.SIGINT), signal.getsignal(signal.SIGTERM)
    with shmq.top.Looks([str(tmp_path)]) as looks:
        with shmq.top.serve(looks) as page:
            assert asked(page, "/facts")[0] == 200
            port = page.port
        with pytest.raises(ConnectionRefusedError):
            socket.create_connection(("127.0.0.1", port), timeout=5)
        page.close()
    assert len(os.listdir("/proc/self/fd")) <= before + 1  # the loop of asyncio may keep one for all
    assert handlers == (signal.getsignal(signal.SIGINT), signal.getsignal(signal.SIGTERM))


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_the_verb_says_where_it_is_and_ends_by_a_signal(tmp_path, number):
    with shmq.open(tmp_path / "orders"):
        pass
    command = [sys.executable, "-m", "shmq", "top", "--web", "--port", "0", str(tmp_path)]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as running:
        try:
            said = running.stderr.readline()
            assert said.startswith("shmq: top is at http://127.0.0.1:")
            there = urlsplit(said.split()[-1])
            link = http.client.HTTPConnection("127.0.0.1", there.port, timeout=20)
            link.request("GET", "/facts", headers={"Authorization": f"Bearer {there.fragment}"})
            assert json.loads(link.getresponse().read())["queues"][0]["path"] == str(tmp_path / "orders")
            link.close()
            running.send_signal(number)
            assert running.wait(20) == 0
            assert running.stderr.read() == ""
        finally:
            running.kill()
