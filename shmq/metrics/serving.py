"""The text of a scrape, and a small server that answers with it."""

from __future__ import annotations

import re
import sys
from typing import TYPE_CHECKING, Any, Self

from prometheus_client import CollectorRegistry, generate_latest, start_http_server

from shmq.metrics.collector import Collector

if TYPE_CHECKING:
    import os
    import threading

    import shmq

_ADDRESS = re.compile(r"(?:\[([0-9A-Fa-f:.%]+)\]|([^:\[\]]+))?:?([0-9]{1,5})")
_PORT_MOST = 65535
_SILENT_MOST = 5.0
"""So many seconds a client may take until the next byte of its request, or to take the next one of the answer."""


def text(*places: str | os.PathLike[str] | shmq.Queue) -> str:
    """What those queues are at, as Prometheus reads it; *places* as of a `Collector`."""
    collector = Collector(*places)
    try:
        registry = CollectorRegistry()
        registry.register(collector)
        return str(generate_latest(registry), "utf-8")
    finally:
        collector.close()


class Server:
    """
    A server of metrics at work, in threads of its own. A context manager.

    Attributes:
        url: where it is scraped.
    """

    def __init__(self, collector: Collector, server: Any, thread: threading.Thread, host: str) -> None:
        """Made by `serve`."""
        self._collector, self._server, self._thread = collector, server, thread
        shown = f"[{host}]" if ":" in host else host
        self.url = f"http://{shown}:{server.server_port}/metrics"

    def close(self) -> None:
        """End it. Closing twice is fine."""
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()
        self._collector.close()

    def __enter__(self) -> Self:
        """Return this server."""
        return self

    def __exit__(self, *_: object) -> None:
        """Close."""
        self.close()


def serve(*places: str | os.PathLike[str] | shmq.Queue, address: str = "127.0.0.1:9464") -> Server:
    """
    Answer scrapes with what those queues are at: to this machine only, unless *address* names another interface.

    Who can connect can read all of it, which tells names and figures and no payloads.

    Args:
        places: as of a `Collector`.
        address: HOST:PORT, or PORT on the loopback interface; port 0 is any free one.

    Raises:
        ValueError: that is no address.
        OSError: the system refuses to listen there.
    """
    host, port = _parsed(address)
    registry = CollectorRegistry()
    collector = Collector(*places)
    registry.register(collector)
    try:
        server, thread = start_http_server(port, host, registry)
    except OSError as problem:
        raise OSError(problem.errno, f"cannot serve metrics at {address}: {problem.strerror}") from None
    _let_nobody_stay(server)
    return Server(collector, server, thread, host)


def _let_nobody_stay(server: Any) -> None:
    """Have that server drop whoever is silent in the middle of a request, for each of them has a thread."""
    tell = server.handle_error

    def handle_error(request: Any, who: Any) -> None:
        if not isinstance(sys.exception(), OSError):  # a client that is silent, or gone, is no fault of ours
            tell(request, who)

    server.handle_error = handle_error
    server.RequestHandlerClass = type("Handler", (server.RequestHandlerClass,), {"timeout": _SILENT_MOST})


def _parsed(address: str) -> tuple[str, int]:
    if not isinstance(address, str):
        raise TypeError(f"address={address!r}: text such as '127.0.0.1:9464' is wanted")
    found = _ADDRESS.fullmatch(address)
    if found is None or int(found[3]) > _PORT_MOST:
        raise ValueError(f"address={address[:200]!r}: HOST:PORT is wanted, as 127.0.0.1:9464, or a port")
    return found[1] or found[2] or "127.0.0.1", int(found[3])
