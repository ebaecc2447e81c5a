"""
Two hosts, as far as one machine can be two, and a stream from the queues of both to the queues of both.

    python -m tests.spark.many_hosts --kills 20

A host is a network, mount and name space of Linux, with an address, a name and a directory of its own, and serves its
queues by `shmq serve --flight`, with TLS and tokens. While a writer on each host keeps putting, the service of one or
the other is killed with `kill -9` and started again; the stream goes on. In the end each row is there once, in order.
"""

from __future__ import annotations

import argparse
import contextlib
import dataclasses
import hashlib
import json
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path
from typing import TYPE_CHECKING, Self

import shmq

if TYPE_CHECKING:
    from collections.abc import Iterator

SPACES = ["--net", "--mount", "--uts"]
ADDRESSES = {"host-a": "10.77.0.1", "host-b": "10.77.0.2"}
PORT = 8815
_AHEAD = 50_000
_GIVE_UP = 900.0

SET_UP = """
hostname "$1"
ip link set lo up
ip address add "$2/24" dev wire
ip link set wire up
mount --make-rprivate /
mount --bind "$3/data-$1" "$3/data"
mount --bind "$3/names" /etc/hosts
"""


class NoSpaces(Exception):
    """Such hosts cannot be made here; the text says why."""


@dataclasses.dataclass
class Host:
    """One of the two: a process that keeps its spaces."""

    name: str
    keeper: subprocess.Popen
    top: Path

    @property
    def address(self) -> str:
        return ADDRESSES[self.name]

    def enter(self, *words: object) -> list[str]:
        return ["nsenter", f"--target={self.keeper.pid}", *SPACES, *map(str, words)]

    def run(self, *words: object, **more) -> str:
        done = subprocess.run(self.enter(*words), capture_output=True, text=True, check=False, **more)
        assert done.returncode == 0, (done.stdout + done.stderr)[-5000:]
        return done.stdout

    def env(self, java_home: str) -> dict[str, str]:
        found = {name: word for name, word in os.environ.items() if not name.startswith(("SPARK_", "PYSPARK_"))}
        return {**found, "JAVA_HOME": java_home, "SPARK_LOCAL_IP": self.address}


@contextlib.contextmanager
def two_hosts(top: Path) -> Iterator[dict[str, Host]]:
    """
    Each sees a directory of its own at `top/data`; what else there is they share.

    Raises:
        NoSpaces: there are no such here.
    """
    if shutil.which("unshare") is None or shutil.which("nsenter") is None or shutil.which("ip") is None:
        raise NoSpaces("no unshare, nsenter and ip here (util-linux, iproute2)")
    tried = subprocess.run(["unshare", *SPACES, "true"], capture_output=True, text=True, check=False)
    if tried.returncode != 0:
        raise NoSpaces(f"no rights to make a network and mount name space: {tried.stderr.strip()}")
    (top / "data").mkdir()
    (top / "names").write_text(
        "127.0.0.1 localhost\n" + "".join(f"{address} {name}\n" for name, address in ADDRESSES.items())
    )
    found = {}
    try:
        for name in ADDRESSES:
            keeper = subprocess.Popen(
                ["unshare", *SPACES, "sh", "-c", "echo ready; exec sleep infinity"],
                stdout=subprocess.PIPE,
                text=True,
                start_new_session=True,
            )
            found[name] = Host(name, keeper, top)
            assert keeper.stdout.readline() == "ready\n"
        a, b = found.values()
        a.run("ip", "link", "add", "wire", "type", "veth", "peer", "name", "wire", "netns", b.keeper.pid)
        for host in found.values():
            (top / f"data-{host.name}").mkdir(mode=0o700)
            host.run("sh", "-ec", SET_UP, "sh", host.name, host.address, top)
        yield found
    finally:
        for host in found.values():
            os.killpg(host.keeper.pid, signal.SIGKILL)
            host.keeper.wait()
            host.keeper.stdout.close()


# ---------------------------------------------------------------- a service on each
class Services:
    """`shmq serve --flight` on each host; a context manager."""

    def __init__(self, hosts: dict[str, Host], top: Path) -> None:
        self.hosts, self._top = hosts, top
        self._running: dict[str, subprocess.Popen] = {}
        words = ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes"]
        words += ["-days", "2", "-subj", "/CN=shmq", "-addext", f"subjectAltName={','.join(f'DNS:{n}' for n in hosts)}"]
        words += ["-keyout", f"{top}/key.pem", "-out", f"{top}/certificate.pem"]
        subprocess.run(words, check=True, capture_output=True)
        digest = hashlib.sha256(b"secret").hexdigest()
        (top / "tokens").write_text(f"{digest} * append,read never\n")
        (top / "tokens").chmod(0o600)
        (top / "token").write_text("secret\n")

    @property
    def access(self) -> dict[str, str]:
        """The options by which Spark asks them."""
        return {"tokenFile": f"{self._top}/token", "rootsFile": f"{self._top}/certificate.pem"}

    def address(self, name: str, queue: str) -> str:
        return f"grpc+tls://{name}:{PORT}/{queue}"

    def both(self, queue: str) -> str:
        return ",".join(self.address(name, queue) for name in self.hosts)

    def start(self, name: str) -> None:
        words = [sys.executable, "-m", "shmq", "serve", f"{self._top}/data", "--flight", f"grpc+tls://{name}:{PORT}"]
        words += ["--certificate", f"{self._top}/certificate.pem", "--key", f"{self._top}/key.pem"]
        words += ["--token-file", f"{self._top}/tokens"]
        child = subprocess.Popen(self.hosts[name].enter(*words), stderr=subprocess.PIPE, text=True)
        self._running[name] = child
        assert child.stderr.readline().startswith("shmq: serving ")

    def kill(self, name: str) -> None:
        child = self._running.pop(name)
        child.kill()
        child.wait()
        child.stderr.close()

    def __enter__(self) -> Self:
        for name in self.hosts:
            self.start(name)
        return self

    def __exit__(self, *_: object) -> None:
        for name in [*self._running]:
            self.kill(name)


# ---------------------------------------------------------------- a stream over both
_DRIVER = """
import json, os, sys, time
import shmq
from chaos import small
given, source, target, intents, top = json.loads(sys.argv[1]), *sys.argv[2:]
spark = shmq.spark.session("local[2,4]", **small())
def start():
    stream = spark.readStream.format("shmq").options(startingOffsets="earliest", maxOffsetsPerTrigger="20000", **given)
    stream = stream.option("group", "stream").load(source).select("key", "value").writeStream.format("shmq")
    return stream.options(intents=intents, **given).option("checkpointLocation", f"{top}/checkpoint").start(target)
query, begun_again = start(), 0
print("running", flush=True)
while not os.path.exists(f"{top}/stop"):
    if not query.isActive:
        print(str(query.exception()), file=sys.stderr, flush=True)
        query, begun_again = start(), begun_again + 1
    time.sleep(0.2)
while True:
    try:
        query.processAllAvailable()
        break
    except Exception as problem:
        print(str(problem), file=sys.stderr, flush=True)
        query, begun_again = start(), begun_again + 1
print(begun_again, flush=True)
query.stop()
spark.stop()
"""


class Campaign:
    """One, in a directory of its own."""

    def __init__(self, top: Path, services: Services, java_home: str, seed: int) -> None:
        self._top, self._services, self._java = top, services, java_home
        self._dice = random.Random(seed)
        self._stop = threading.Event()
        self.put = dict.fromkeys(services.hosts, 0)
        shmq.open(self.place("host-b", "intents"), chunk_bytes=1 << 20).close()
        for name in services.hosts:
            shmq.open(self.place(name, "in"), chunk_bytes=1 << 20).close()
            shmq.open(self.place(name, "out"), chunk_bytes=1 << 20, retention="forever").close()

    def place(self, name: str, queue: str) -> str:
        return f"{self._top}/data-{name}/{queue}"

    def _write(self, name: str) -> None:
        with shmq.open(self.place(name, "in")) as queue:
            while not self._stop.is_set():
                at = self.put[name]
                numbers = [b"%s %d" % (name.encode(), n) for n in range(at, at + 500)]
                queue.put_many(numbers, keys=numbers)
                self.put[name] += 500
                while sum(self.put.values()) > self.out() + _AHEAD and not self._stop.is_set():
                    time.sleep(0.05)
                time.sleep(0.02)

    def out(self) -> int:
        """How many rows have come out."""
        found = 0
        for name in self._services.hosts:
            with shmq.open(self.place(name, "out"), create=False, read_only=True) as queue:
                found += queue.next_index
        return found

    def _until_more(self, driver: subprocess.Popen) -> None:
        before, end = self.out(), time.monotonic() + _GIVE_UP
        while self.out() <= before:
            assert driver.poll() is None, "the driver has ended"
            assert time.monotonic() < end, f"nothing has come out for {_GIVE_UP:.0f} s"
            time.sleep(0.05)

    def run(self, kills: int) -> str:
        """Raises AssertionError when a row is lost, doubled or out of order."""
        words = [sys.executable, "-c", _DRIVER, json.dumps(self._services.access)]
        words += [self._services.both("in"), self._services.both("out")]
        words += [self._services.address("host-b", "intents"), str(self._top)]
        host = self._services.hosts["host-a"]
        env = {**host.env(self._java), "PYTHONPATH": str(Path(__file__).parent)}
        writers = [threading.Thread(target=self._write, args=(name,)) for name in self._services.hosts]
        with (
            open(self._top / "driver.log", "wb") as log,
            subprocess.Popen(host.enter(*words), stdout=subprocess.PIPE, stderr=log, text=True, env=env) as driver,
        ):
            try:
                assert driver.stdout.readline() == "running\n", (self._top / "driver.log").read_text()[-3000:]
                for writer in writers:
                    writer.start()
                for number in range(kills):
                    self._until_more(driver)
                    time.sleep(self._dice.uniform(0, 1.0))
                    name = self._dice.choice([*self._services.hosts])
                    self._services.kill(name)
                    time.sleep(self._dice.uniform(0, 2.0))
                    self._services.start(name)
                    print(f"kill {number + 1} of {kills}, {name}: {self.out():,} rows out", flush=True)
            finally:
                self._stop.set()
                for writer in writers:
                    if writer.ident:
                        writer.join()
                (self._top / "stop").touch()
            again = int(driver.stdout.readline())
            assert driver.wait(300) == 0
        self._check()
        rows = f"{sum(self.put.values()):,} rows in, {self.out():,} out"
        return f"{rows}; {kills} kills, the query begun again {again} times"

    def _check(self) -> None:
        found: dict[str, list[int]] = {name: [] for name in self._services.hosts}
        for name in self._services.hosts:
            last = dict.fromkeys(found, -1)
            with shmq.open(self.place(name, "out"), create=False, read_only=True) as queue:
                for message in queue.reader():
                    origin, number = message.payload.split()
                    assert last[origin.decode()] < int(number), f"{message} is out of order"
                    last[origin.decode()] = int(number)
                    found[origin.decode()].append(int(number))
                assert queue.staged_sets() == []
            with shmq.open(self.place(name, "in"), create=False) as queue:
                assert 0 < queue.consumers()["stream"].head <= self.put[name]  # it follows a batch behind
        for name, numbers in found.items():
            assert sorted(numbers) == list(range(self.put[name])), f"rows of {name} are lost or doubled"


def main() -> None:
    from shmq.spark import java

    parser = argparse.ArgumentParser(description="kill the services of two hosts while Spark streams over both")
    parser.add_argument("--kills", type=int, default=20)
    parser.add_argument("--seed", type=int, default=random.randrange(1 << 30))
    arguments = parser.parse_args()
    print(f"seed {arguments.seed}: python -m tests.spark.many_hosts --kills {arguments.kills} --seed {arguments.seed}")
    with tempfile.TemporaryDirectory(prefix="shmq-many-hosts-") as folder:
        top = Path(folder)
        with two_hosts(top) as hosts, Services(hosts, top) as services:
            print(Campaign(top, services, str(java.find().home), arguments.seed).run(arguments.kills))


if __name__ == "__main__":
    main()
