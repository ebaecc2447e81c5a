"""
Calls to another process: two servers share what is asked; errors and streams cross; requests outlive their servers.

Prints:
    2 + 3 = 5
    7 * 6 = 42
    1 / 0: ZeroDivisionError
    squares: 0 1 4 9 16
    with servers that were started later: 25
"""

import multiprocessing
import os

import shmq
import shmq.rpc


def serve():
    server = shmq.rpc.Server("calc")

    @server.method
    def add(a: int, b: int) -> int:
        return a + b

    @server.method
    def divide(a: float, b: float) -> float:
        return a / b

    @server.method
    async def times(a: int, b: int) -> int:  # many of these run at a time
        return a * b

    @server.method
    def squares(upto: int):
        for number in range(upto):
            yield number * number

    server.serve()


if __name__ == "__main__":
    with shmq.rpc.Client("calc", timeout=60) as client:
        later = client.submit("times", 5, 5)  # nobody serves yet
        servers = [multiprocessing.get_context("spawn").Process(target=serve) for _ in range(2)]
        for server in servers:
            server.start()
        print("2 + 3 =", client.call("add", 2, 3))
        print("7 * 6 =", client.times(7, 6))  # the same, as an attribute
        try:
            client.call("divide", 1, 0)
        except ArithmeticError as problem:
            print("1 / 0:", type(problem).__name__)
        print("squares:", *client.call("squares", 5))
        print("with servers that were started later:", later.result())
        for server in servers:
            server.kill()
            server.join()
    for queue in ("requests", "cancels"):
        shmq.delete(f"calc/{queue}")
    os.rmdir("calc")
