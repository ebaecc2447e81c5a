"""
Kills: servers and clients are killed at random while they call each other, and what must hold is held against what ran.

    python -m tests.rpc.campaign [--kills 200] [--seed 0]

Each call has a word of its own, and each method writes its word down before and after its work. Then:
    at most once    a word is written by one beginning at most; what was answered with a result was ended
    at least once   what was answered with a result was ended, and every word that was told is ended some day
    always          no call gets another one's result, each ends, and no reply queue outlives its client
"""

from __future__ import annotations

import argparse
import collections
import contextlib
import glob
import os
import random
import shutil
import tempfile
import time
from pathlib import Path

import shmq.rpc
from tests.support import Child

SERVERS, CLIENTS = 3, 3
DEADLINE = 60.0


def write(folder: str, line: str) -> None:
    """One line, whole or not at all, whoever else writes."""
    fd = os.open(f"{folder}/written", os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
    try:
        os.write(fd, f"{line}\n".encode())
    finally:
        os.close(fd)


def serve(say, folder):
    server = shmq.rpc.Server(f"{folder}/calc", threads=2, max_attempts=1000)

    def work(word: str, seconds: float) -> str:
        write(folder, f"began {word}")
        time.sleep(seconds)
        write(folder, f"ended {word}")
        return f"did {word}"

    @server.method
    async def awork(word: str, seconds: float) -> str:
        return work(word, seconds)

    @server.method
    def stream(word: str, count: int):
        for number in range(count):
            yield [word, number]

    server.method(work)
    say("serves")
    server.serve()


def call(say, folder, seed):
    """Calls of all kinds until it is killed, or told to end by a file."""
    rest = random.Random(seed)
    client = shmq.rpc.Client(f"{folder}/calc")
    again = client.options(at_least_once=True)
    write(folder, f"client {client._link.inbox.client.hex()}")
    say("calls")
    number = 0
    while not os.path.exists(f"{folder}/end"):
        number += 1
        word, seconds = f"{os.getpid()}-{number}", rest.choice((0.0, 0.0, 0.002))
        kind = rest.choice(("most", "least", "told", "some", "stream"))
        write(folder, f"asked {kind} {word}")
        try:
            if kind == "most":
                answer(folder, word, client.call(rest.choice(("work", "awork")), word, seconds, timeout=DEADLINE))
            elif kind == "least":
                answer(folder, word, again.call("work", word, seconds, timeout=DEADLINE))
            elif kind == "told":
                client.tell("work", word, seconds)
                write(folder, f"told {word}")
            elif kind == "some":
                words = [f"{word}.{each}" for each in range(9)]
                futures = [client.submit("work", each, 0, timeout=DEADLINE) for each in words]
                for each, future in zip(words, futures, strict=True):
                    with contextlib.suppress(shmq.rpc.ServerDied):
                        answer(folder, each, future.result(DEADLINE))
            else:
                found = list(client.call("stream", word, 300, timeout=DEADLINE))
                assert found == [[word, each] for each in range(300)], "a stream has something else"
        except shmq.rpc.ServerDied:
            write(folder, f"died {word}")
        except BaseException as problem:
            write(folder, f"WRONG {kind} {word} {type(problem).__name__} {problem}")
            raise
    client.close()
    say("over")


def answer(folder: str, word: str, found: str) -> None:
    write(folder, f"got {word}" if found == f"did {word}" else f"WRONG {word} got {found}")


def judge(folder: str) -> dict[str, int]:
    """What is wrong raises; else how much of each kind there was."""
    lines = Path(folder, "written").read_text().splitlines()
    wrong = [line for line in lines if line.startswith("WRONG")]
    assert not wrong, wrong[:5]
    by = collections.defaultdict(list)
    for line in lines:
        what, _, rest = line.partition(" ")
        by[what].append(rest)
    began, ended = collections.Counter(by["began"]), collections.Counter(by["ended"])
    kinds = {word: kind for kind, word in (line.split() for line in by["asked"])}
    for word, count in began.items():
        once = kinds[word.partition(".")[0]] in {"most", "some"}
        assert count == 1 or not once, f"{word}, at most once, began {count} times"
    for word in by["got"]:
        assert ended[word] >= 1, f"{word} was answered, and not done"
    for word in by["told"]:
        assert ended[word] >= 1, f"{word} was told, and never done"
    repeated = sum(count > 1 for count in began.values())
    return {"asked": len(kinds), "answered": len(by["got"]), "died": len(by["died"]), "begun again": repeated}


def run(kills: int, seed: int) -> dict[str, int]:
    """So many kills in a folder of its own; what there was."""
    rest = random.Random(seed)
    folder = tempfile.mkdtemp(prefix="shmq-rpc-")
    keeper = shmq.rpc.Client(f"{folder}/calc")

    def new(kind: str) -> tuple[str, Child]:
        child = Child(serve, folder) if kind == "server" else Child(call, folder, rest.random())
        child.hear(DEADLINE)
        return kind, child

    some = [new("server") for _ in range(SERVERS)] + [new("client") for _ in range(CLIENTS)]
    try:
        for _ in range(kills):
            time.sleep(rest.random() * 0.05)
            at = rest.randrange(len(some))
            kind, child = some[at]
            child.kill()
            some[at] = new(kind)
        Path(folder, "end").touch()
        for kind, child in some:
            if kind == "client":
                assert child.hear(2 * DEADLINE) == "over", "a client did not end"
        until_all_is_done(folder)
        found = judge(folder)
        until_replies_are_gone(folder)
        shutil.rmtree(folder)
    except BaseException:
        print(f"repeat with: python -m tests.rpc.campaign --kills {kills} --seed {seed}   (its words: {folder})")
        raise
    else:
        return found
    finally:
        for _, child in some:
            child.__exit__()
        keeper.close()


def until_all_is_done(folder: str) -> None:
    """Return when servers have nothing left to do."""
    end = time.monotonic() + 2 * DEADLINE
    with shmq.open(f"{folder}/calc/requests") as requests:
        while (lag := requests.consumers()["server"].lag) > 0:
            assert time.monotonic() < end, f"{lag} requests are left"
            time.sleep(0.05)


def until_replies_are_gone(folder: str) -> None:
    """Return when no client's reply queue is there any more."""
    names = [line.split()[1] for line in Path(folder, "written").read_text().splitlines() if line.startswith("client")]
    end = time.monotonic() + DEADLINE
    while left := [each for name in names for each in glob.glob(f"/dev/shm/shmq-{os.getuid()}/rpc-{name}*")]:
        assert time.monotonic() < end, f"reply queues of the dead: {left}"
        time.sleep(0.05)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kills", type=int, default=200)
    parser.add_argument("--seed", type=int, default=0)
    given = parser.parse_args()
    begin = time.monotonic()
    found = run(given.kills, given.seed)
    print(f"{given.kills} kills with seed {given.seed}: nothing wrong;", end=" ")
    print(*(f"{what} {count}" for what, count in found.items()), sep=", ", end=f" ({time.monotonic() - begin:.0f} s)\n")
