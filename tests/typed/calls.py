"""Calls, as a type checker sees them: `mypy tests/typed` finds nothing to say."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol, assert_type

import shmq.rpc

if TYPE_CHECKING:
    from concurrent.futures import Future


class Calc(Protocol):
    """What is called."""

    def add(self, a: int, b: int = 1) -> int:
        """Both."""

    async def fetch(self, name: str) -> bytes:
        """Awaited."""


def serve(server: shmq.rpc.Server) -> None:
    """A method stays the function that it was."""

    @server.method
    def add(a: int, b: int = 1) -> int:
        return a + b

    @server.method(name="other")
    def named(a: str) -> str:
        return a

    assert_type(add(1), int)
    assert_type(named("x"), str)
    with shmq.rpc.Server("calc", threads=2, durability="sync") as other:
        other.serve()


async def call(client: shmq.rpc.Client) -> None:
    """What comes back is anything, or what an interface says."""
    assert_type(client.call("add", 1, b=2, timeout=1.0), Any)
    assert_type(await client.acall("add", 1), Any)
    future: Future[Any] = client.submit("add", 1)
    future.cancel()
    calc = client.options(timeout=1, at_least_once=True).typed(Calc)
    assert_type(calc.add(1), int)
    assert_type(await calc.fetch("x"), bytes)
    running = shmq.rpc.current()
    if running is not None:
        assert_type(running.seconds_left, float | None)
