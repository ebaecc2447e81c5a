"""
A small call there and back, beside what else answers another process: one run, the rivals in turn, medians and ratios.

    python -m benchmarks.rpc [--rounds 5] [--calls 2000] [--only shmq pipe]

The server adds two numbers. `shmq` checks their types, packs, dispatches by name; so does gRPC, but for packing; the
others echo 16 bytes, and have no names, no errors, no deadlines. Each on two processors, one for each side, and on one
for both. Rivals that are not installed are left out: pip install grpcio pyzmq iceoryx2.
"""

from __future__ import annotations

import argparse
import contextlib
import ctypes
import importlib.metadata
import importlib.util
import multiprocessing
import os
import shutil
import statistics
import struct
import tempfile
import time

FORK = multiprocessing.get_context("fork")
SPAWN = multiprocessing.get_context("spawn")
TWO = struct.Struct("<qq")
WARM_UP = 500


# ---------------------------------------------------------------- the rivals, each with a server and a caller
class Shmq:
    """A typed method of an `shmq.rpc.Server`, in a directory."""

    needs = "shmq"

    @staticmethod
    def serve(place, ready, _):
        import shmq.rpc

        server = shmq.rpc.Server(f"{place}/calc")

        @server.method
        def add(a: int, b: int) -> int:
            return a + b

        ready.set()
        server.serve()

    @staticmethod
    @contextlib.contextmanager
    def caller(place, _):
        import shmq.rpc

        with shmq.rpc.Client(f"{place}/calc") as client:
            call = client.call
            yield lambda number: call("add", number, 1)


class ShmqTyped(Shmq):
    """The same with a deadline, and the result checked: all that there is."""

    @staticmethod
    @contextlib.contextmanager
    def caller(place, _):
        from typing import Protocol

        import shmq.rpc

        class Calc(Protocol):
            def add(self, a: int, b: int) -> int: ...

        with shmq.rpc.Client(f"{place}/calc", timeout=10) as client:
            add = client.typed(Calc).add
            yield lambda number: add(number, 1)


class Pipe:
    """An echo over `multiprocessing.Pipe`, of bytes."""

    needs = "shmq"

    @staticmethod
    def serve(_, ready, pipe):
        ready.set()
        with contextlib.suppress(EOFError, OSError):
            while True:
                pipe.send_bytes(pipe.recv_bytes())

    @staticmethod
    @contextlib.contextmanager
    def caller(_, pipe):
        def call(number):
            pipe.send_bytes(TWO.pack(number, 1))
            return sum(TWO.unpack(pipe.recv_bytes()))

        yield call


class Zmq:
    """An echo over pyzmq's REQ and REP, on a Unix socket."""

    needs = "pyzmq"

    @staticmethod
    def serve(place, ready, _):
        import zmq

        socket = zmq.Context().socket(zmq.REP)
        socket.bind(f"ipc://{place}/zmq")
        ready.set()
        while True:
            socket.send(socket.recv())

    @staticmethod
    @contextlib.contextmanager
    def caller(place, _):
        import zmq

        context = zmq.Context()
        socket = context.socket(zmq.REQ)
        socket.connect(f"ipc://{place}/zmq")

        def call(number):
            socket.send(TWO.pack(number, 1))
            return sum(TWO.unpack(socket.recv()))

        yield call
        socket.close(0)
        context.term()


class Grpc:
    """A unary call of gRPC over a Unix socket, of bytes as they are."""

    needs = "grpcio"

    @staticmethod
    def serve(place, ready, _):
        from concurrent import futures

        import grpc

        def add(request, _):
            return struct.pack("<q", sum(TWO.unpack(request)))

        server = grpc.server(futures.ThreadPoolExecutor(2))
        handlers = {"add": grpc.unary_unary_rpc_method_handler(add)}
        server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler("calc", handlers),))
        server.add_insecure_port(f"unix:{place}/grpc")
        server.start()
        ready.set()
        server.wait_for_termination()

    @staticmethod
    @contextlib.contextmanager
    def caller(place, _):
        import grpc

        with grpc.insecure_channel(f"unix:{place}/grpc") as channel:
            add = channel.unary_unary("/calc/add")
            yield lambda number: struct.unpack("<q", add(TWO.pack(number, 1)))[0]


class Numbers(ctypes.Structure):
    """What iceoryx2 carries."""

    _fields_ = (("a", ctypes.c_int64), ("b", ctypes.c_int64))


class Iceoryx:
    """Request and response of iceoryx2, both sides looking all the time, and giving way: it has no wait for these."""

    needs = "iceoryx2"

    @staticmethod
    def _service(place):
        import iceoryx2 as iox

        iox.set_log_level(iox.LogLevel.Fatal)
        node = iox.NodeBuilder.new().create(iox.ServiceType.Ipc)
        name = iox.ServiceName.new(f"bench{place}")
        return node, node.service_builder(name).request_response(Numbers, Numbers).open_or_create()

    @staticmethod
    def serve(place, ready, _):
        node, service = Iceoryx._service(place)
        server = service.server_builder().create()
        ready.set()
        while node:
            request = server.receive()
            if request is None:
                os.sched_yield()
                continue
            got = request.payload().contents
            request.send_copy(Numbers(got.a + got.b, 0))
            request.delete()

    @staticmethod
    @contextlib.contextmanager
    def caller(place, _):
        _, service = Iceoryx._service(place)
        client = service.client_builder().create()

        def call(number):
            pending = client.send_copy(Numbers(number, 1))
            while (response := pending.receive()) is None:
                os.sched_yield()
            found = response.payload().contents.a
            response.delete()
            pending.delete()
            return found

        yield call


RIVALS = {
    "shmq": Shmq,
    "shmq, typed, timeout": ShmqTyped,
    "Pipe": Pipe,
    "pyzmq REQ/REP": Zmq,
    "gRPC, unix": Grpc,
    "iceoryx2, polling": Iceoryx,
}


# ---------------------------------------------------------------- one trial
def serving(rival, place, ready, pipe, processor):
    os.sched_setaffinity(0, {processor})
    rival.serve(place, ready, pipe)


def calling(rival, place, pipe, processor, calls, answer):
    os.sched_setaffinity(0, {processor})
    times = []
    clock = time.perf_counter_ns
    with rival.caller(place, pipe) as call:
        for number in range(WARM_UP + calls):
            began = clock()
            found = call(number)
            times.append(clock() - began)
            if found != number + 1:
                raise AssertionError(f"{found} came back for {number}")
    answer.send(sorted(times[WARM_UP:]))


def trial(rival, processors, calls):
    """The times of so many calls in ns, ascending. Both sides begin anew, with only the processors that they have."""
    place = tempfile.mkdtemp(prefix="shmq-rpc-", dir="/dev/shm")
    ready = SPAWN.Event()
    here, there = SPAWN.Pipe()
    ours, theirs = SPAWN.Pipe()
    before = os.sched_getaffinity(0)
    os.sched_setaffinity(0, set(processors))
    try:
        server = SPAWN.Process(target=serving, args=(rival, place, ready, there, processors[-1]), daemon=True)
        client = SPAWN.Process(target=calling, args=(rival, place, here, processors[0], calls, theirs), daemon=True)
        server.start()
        if not ready.wait(60):
            raise TimeoutError("the server did not come up")
        client.start()
        if not ours.poll(120):
            raise TimeoutError("the calls did not end")
        return ours.recv()
    finally:
        os.sched_setaffinity(0, before)
        for process in (client, server):
            if process.pid is not None:
                process.kill()
                process.join()
        shutil.rmtree(place, ignore_errors=True)


def version(name):
    with contextlib.suppress(importlib.metadata.PackageNotFoundError):
        return importlib.metadata.version(name)
    return None


def main(given):
    rivals = {name: RIVALS[name] for name in (given.only or RIVALS) if version(RIVALS[name].needs)}
    some = sorted(os.sched_getaffinity(0))
    placements = {"two processors": tuple(some[:2]), "one processor": (some[0],)}
    if len(some) < 2:
        del placements["two processors"]
    for label, processors in placements.items():
        medians = {name: [] for name in rivals}
        tails = {name: [] for name in rivals}
        for _ in range(given.rounds):
            for name, rival in rivals.items():
                times = trial(rival, processors, given.calls)
                medians[name].append(times[len(times) // 2] / 1e3)
                tails[name].append(times[int(len(times) * 0.99)] / 1e3)
        print(f"\n{label}: a call in us, median of {given.rounds} rounds of {given.calls}")
        first = statistics.median(medians[next(iter(rivals))])
        for name in rivals:
            p50 = statistics.median(medians[name])
            p99 = statistics.median(tails[name])
            print(f"  {name:<22} p50 {p50:8.1f}   p99 {p99:9.1f}   {p50 / first:6.2f} x shmq", flush=True)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--calls", type=int, default=2000)
    parser.add_argument("--only", nargs="*", choices=list(RIVALS))
    main(parser.parse_args())
