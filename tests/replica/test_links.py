"""Through a link: cut anywhere, changed on the way, with whoever should not come in."""

from __future__ import annotations

import contextlib
import hashlib
import random
import socket
import threading
import time

import pytest
from following import content, follow_once
from support import Child, until

import shmq
from shmq import replica
from shmq.net.tokens import Right
from shmq.replica import doors
from shmq.replica.follower import Follower
from shmq.replica.link import Broken, Link, to_follower, to_source
from shmq.replica.service import receive, send
from shmq.replica.source import Source

TOKEN = b"a token of this test"
DIGEST = hashlib.sha256(TOKEN)


def known() -> list[bytes]:
    """What a door is told that may come."""
    return [DIGEST.digest()]


def token_file(place, *rights, mode=0o600):
    """A file of rights of that token."""
    file = place / "tokens"
    file.write_text("".join(f"{DIGEST.hexdigest()} {each}\n" for each in rights))
    file.chmod(mode)
    return file


@pytest.fixture
def pair(tmp_path):
    with shmq.open(str(tmp_path / "a"), chunk_bytes=1 << 18) as queue:
        fill(queue, 3000)
        yield queue, tmp_path / "a", tmp_path / "b"


def fill(queue, count) -> None:
    for number in range(count):
        queue.put(b"%d " % number * 30)


def relay(come: socket.socket, go: socket.socket, limit: int, change: int) -> None:
    """Pass on what comes, up to so many bytes; one bit of byte *change* is another one."""
    passed = 0
    with contextlib.suppress(OSError):
        while passed < limit:
            part = bytearray(come.recv(min(65536, limit - passed)))
            if not part:
                break
            if passed <= change < passed + len(part):
                part[change - passed] ^= 8
            passed += len(part)
            go.sendall(part)
    for each in (come, go):
        with contextlib.suppress(OSError):
            each.shutdown(socket.SHUT_RDWR)


def through(a, b, *, limit=1 << 40, change=-1) -> Exception | None:
    """Replicate once through such a link; what the source had to say."""
    (here, near), (far, there) = socket.socketpair(), socket.socketpair()

    def follow() -> None:
        with Follower(str(b)) as follower, Link(there, to_follower) as link:
            receive(follower, link)

    threads = [
        threading.Thread(target=follow),
        threading.Thread(target=relay, args=(near, far, limit, change)),
        threading.Thread(target=relay, args=(far, near, 1 << 40, -1)),
    ]
    for thread in threads:
        thread.start()
    said = None
    with near, far, Source(str(a), "b") as source, Link(here, to_source) as link:
        try:
            send(source, link, replica.Stop(), once=True)
        except (shmq.ShmqError, OSError) as problem:
            said = problem
        link.end()
        for thread in threads:
            thread.join()
    return said


def test_all_comes_through_a_link(pair):
    """And what comes later, in the next one."""
    queue, a, b = pair
    assert through(a, b) is None
    assert content(b) == content(a)
    fill(queue, 100)
    assert through(a, b) is None
    assert content(b) == content(a)


def test_a_link_that_is_cut_anywhere_leaves_a_beginning(pair):
    """In the middle of a chunk, or of a piece: the next one goes on."""
    _, a, b = pair
    whole = content(a)
    for _ in range(20):
        said = through(a, b, limit=random.randrange(1, 150_000))
        assert isinstance(said, Broken)
        if b.exists():
            here = content(b)
            assert here == whole[: len(here)]
    assert through(a, b) is None
    assert content(b) == whole


def test_a_bit_that_is_changed_on_the_way_is_found(pair):
    """Wherever it is: in a length, in a message, in what is beside."""
    _, a, b = pair
    whole = content(a)
    for _ in range(20):
        said = through(a, b, change=random.randrange(0, 100_000), limit=300_000)
        assert isinstance(said, Broken)
        if b.exists():
            here = content(b)
            assert here == whole[: len(here)]
    assert through(a, b) is None
    assert content(b) == whole


def test_what_the_follower_refuses_is_raised_at_the_source(pair):
    """With the same error, and its words."""
    _, a, b = pair
    follow_once(a, b)
    replica.promote(b)
    said = through(a, b)
    assert isinstance(said, shmq.Fenced)
    other = a.parent / "other"
    shmq.open(str(other)).close()
    assert isinstance(through(a.parent / "other", b), shmq.Mismatch)


@pytest.mark.parametrize("address", ["unix:{}/door", "tcp:127.0.0.1:0"])
def test_a_service_that_listens(pair, address):
    """It is killed and comes again; who sends waits for it, and goes on."""
    queue, a, b = pair
    tokens = token_file(a.parent, "b replicate never")

    def serve(say, at) -> None:
        replica.listen(at, b, token_file=tokens if at.startswith("tcp:") else None, on_start=say)

    with Child(serve, address.format(a.parent)) as service:
        at = service.hear()
        with Child(lambda say: replica.replicate(a, at, name="b", token=TOKEN)):
            until(lambda: b.exists() and len(content(b)) == 3000)
            service.kill()
            fill(queue, 100)
            with Child(serve, at) as again:
                again.hear()
                until(lambda: len(content(b)) == 3100)
    assert content(b) == content(a)


def test_who_does_not_know_the_token_does_not_come_in(pair):
    """And goes in nowhere: each side proves it to the other."""
    _, a, b = pair
    tokens = token_file(a.parent, "b replicate never")

    def serve(say) -> None:
        replica.listen("tcp:127.0.0.1:0", b, token_file=tokens, on_start=say)

    with Child(serve) as service:
        at = service.hear()
        with pytest.raises(shmq.Unsafe, match="has another token"):
            replica.replicate(a, at, name="b", token=TOKEN[::-1], once=True)
        with socket.create_connection(("127.0.0.1", int(at.rpartition(":")[2])), timeout=10) as guessing:
            assert len(guessing.recv(32)) == 32
            guessing.sendall(bytes(64))
            assert guessing.recv(32) == doors._REFUSED, "it was let in, or told what proves it"
            assert guessing.recv(32) == b""
        assert not b.exists()
        replica.replicate(a, at, name="b", token=TOKEN, once=True)
    assert content(b) == content(a)
    with socket.create_server(("127.0.0.1", 0)) as false:

        def pretend() -> None:
            came, _ = false.accept()
            with came:
                came.sendall(bytes(32))
                came.recv(1 << 16)
                came.sendall(bytes(32))
                came.recv(1 << 16)

        thread = threading.Thread(target=pretend)
        thread.start()
        with pytest.raises(shmq.Unsafe, match="does not know the token"):
            replica.replicate(a, f"tcp:127.0.0.1:{false.getsockname()[1]}", name="b", token=TOKEN, once=True)
        thread.join()


def test_addresses_that_are_none(tmp_path):
    """Only this machine's; tcp with a token; a door that is somebody's stays."""
    for address in ("tcp:192.0.2.1:7000", "tcp:0.0.0.0:7000", "tcp:example.org:7000"):
        with pytest.raises(shmq.Unsafe, match="only addresses of this machine"):
            doors.Door(address, known)
    with pytest.raises(shmq.Unsafe, match="without a token"):
        doors.Door("tcp:127.0.0.1:0", None)
    with pytest.raises(ValueError, match="HOST:PORT"):
        doors.Door("tcp:127.0.0.1", known)
    door = f"unix:{tmp_path}/door"
    with doors.Door(door, None):
        assert (tmp_path / "door").stat().st_mode & 0o777 == 0o600
        with pytest.raises(shmq.Busy):
            doors.Door(door, None)
    assert not (tmp_path / "door").exists()


def test_a_token_that_others_may_read_is_none(tmp_path):
    """Nor one that is short."""
    file = tmp_path / "token"
    file.write_bytes(TOKEN + b"\n")
    file.chmod(0o644)
    with pytest.raises(shmq.Unsafe, match="0600"):
        replica.token_in(str(file))
    file.chmod(0o600)
    assert replica.token_in(str(file)) == TOKEN
    file.write_bytes(b"short")
    with pytest.raises(shmq.Unsafe, match="5 bytes"):
        replica.token_in(str(file))


@pytest.mark.parametrize(
    "rights", [["other replicate never"], ["b append,read,manage never"], ["b replicate 2020-01-01"], []]
)
def test_who_listens_has_a_token_that_may_come(pair, rights):
    """With this queue, and by that right."""
    _, a, b = pair
    with pytest.raises(shmq.BadFormat, match="no line in it has the right replicate to 'b', now"):
        replica.listen("tcp:127.0.0.1:0", b, token_file=token_file(a.parent, *rights))
    assert not b.exists()


def test_the_files_of_before_are_refused_with_what_they_are_now(pair):
    """The secret itself at the side that listens; and a file that others can read, for a line is what is proved."""
    _, a, b = pair
    secret = a.parent / "secret"
    secret.write_bytes(TOKEN.replace(b" ", b"-") + b"\n")
    secret.chmod(0o600)
    with pytest.raises(
        shmq.BadFormat, match=r"line 1: this may be a token itself.* each is a line, as: SHA-256"
    ) as told:
        replica.listen("tcp:127.0.0.1:0", b, token_file=secret)
    assert "a-token" not in str(told.value)
    with pytest.raises(shmq.Unsafe, match=r"others can read it.*chmod 0600"):
        replica.listen("tcp:127.0.0.1:0", b, token_file=token_file(a.parent, "b replicate never", mode=0o644))


def test_a_token_of_many_comes_with_its_queue_alone(pair):
    """One file for all who listen here: each lets in whoever has a right to its queue, and nobody else."""
    _, a, b = pair
    other = b"b" * 64
    file = token_file(a.parent, "c* replicate never")
    with open(file, "a") as more:
        more.write(f"{hashlib.sha256(other).hexdigest()} b replicate 2999-01-01\n")
    with Child(lambda say: replica.listen("tcp:127.0.0.1:0", b, token_file=file, on_start=say)) as service:
        at = service.hear()
        with pytest.raises(shmq.Unsafe, match="has another token"):
            replica.replicate(a, at, name="b", token=TOKEN, once=True)
        replica.replicate(a, at, name="b", token=other, once=True)
    assert content(b) == content(a)


def test_a_token_whose_time_ends_ends_what_is_under_way(pair, monkeypatch):
    """The source is told so at its next message; what came stays, and the service waits for others."""
    queue, a, b = pair
    over = a.parent / "over"
    tokens = token_file(a.parent, "b replicate never")

    def serve(say) -> None:
        allows = Right.allows
        monkeypatch.setattr(Right, "allows", lambda right, *asked: allows(right, *asked) and not over.exists())
        replica.listen("tcp:127.0.0.1:0", b, token_file=tokens, on_start=say)

    with Child(serve) as service:
        at = service.hear()
        with Child(lambda say: say(told(a, at))) as source:
            until(lambda: b.exists() and len(content(b)) == 3000)
            over.touch()
            queue.put(b"late")
            assert source.hear() == "NotFound: the time of the token is over"
        over.unlink()
        replica.replicate(a, at, name="b", token=TOKEN, once=True)
    assert content(b) == content(a)


def told(a, at) -> str:
    """What ended a replication."""
    with pytest.raises(shmq.ShmqError) as raised:
        replica.replicate(a, at, name="b", token=TOKEN)
    return f"{raised.type.__name__}: {'the time of the token is over' * ('time of the token' in str(raised.value))}"


@pytest.mark.parametrize("sent", [b"\xff" * 64, bytes(64), b"\x10\0\0\0" + bytes(16), b"\x05\0\0\0hello"], ids=range(4))
def test_a_peer_that_speaks_something_else(tmp_path, sent):
    """Ends its own link, and nothing is made."""
    here, there = socket.socketpair()
    here.sendall(sent)
    here.shutdown(socket.SHUT_WR)
    with here, Follower(str(tmp_path / "b")) as follower, Link(there, to_follower) as link:
        receive(follower, link)
    assert not (tmp_path / "b").exists()


# ---------------------------------------------------------------- a door with strangers before it
@pytest.fixture
def door():
    with doors.Door("tcp:127.0.0.1:0", known) as made:
        yield made


def stranger(door) -> socket.socket:
    """Somebody who comes, and says nothing."""
    return socket.create_connection(("127.0.0.1", int(door.address.rpartition(":")[2])))


def test_who_says_nothing_keeps_nobody_waiting(door, monkeypatch):
    """However many they are: who knows the token is inside while all of them still wait."""
    monkeypatch.setattr(doors, "_HELLO_S", 1000.0)
    with contextlib.ExitStack() as strangers:
        those = [strangers.enter_context(stranger(door)) for _ in range(doors._UNPROVEN + 8)]
        with doors.connect(door.address, TOKEN), door.accept(60.0) as came:
            assert came.fileno() > 0
        until(lambda: len(door._unproven) < doors._UNPROVEN)
        those[0].settimeout(60.0)
        assert len(those[0].recv(99)) in (0, 32)  # of the first ones no more than that comes
        while those[0].recv(99):
            pass


def test_who_is_slow_has_so_long_in_all(door, monkeypatch):
    """A byte now and then does not begin the time anew."""
    monkeypatch.setattr(doors, "_HELLO_S", 0.3)

    def is_sent_away() -> bool:
        with contextlib.suppress(BlockingIOError):
            return not slow.recv(99, socket.MSG_DONTWAIT)
        slow.sendall(b"x")
        time.sleep(0.02)
        return False

    with stranger(door) as slow:
        until(is_sent_away)
    assert door.accept(0) is None


def test_a_wrong_token_is_said_to_be_one(door):
    with pytest.raises(shmq.Unsafe, match="whoever listens there has another token; nothing was sent"):
        doors.connect(door.address, b"quite another token")
    assert door.accept(0.1) is None
    with doors.connect(door.address, TOKEN), door.accept(60.0) as came:
        assert came.fileno() > 0


def test_a_door_that_is_closed_leaves_no_thread(monkeypatch):
    monkeypatch.setattr(doors, "_HELLO_S", 1000.0)
    before = threading.active_count()
    with doors.Door("tcp:127.0.0.1:0", known) as door, stranger(door):
        until(lambda: door._unproven)
        door.close()
        until(lambda: threading.active_count() == before)
