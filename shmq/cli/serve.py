"""
Serve the queues below a directory to other programs and hosts, by Arrow Flight.

Example:
    shmq serve queues/ --flight grpc://127.0.0.1:8815
    shmq serve queues/ --flight grpc+tls://0.0.0.0:8815 --certificate host.pem --key host.key --tokens tokens.toml

It says where it can be found when it is ready, and ends by Ctrl-C or SIGTERM. Killed, nothing is lost: clients wait for
the next one, and go on.
"""

from __future__ import annotations

import os
import signal
import threading
from typing import TYPE_CHECKING

import shmq
from shmq.cli import show

if TYPE_CHECKING:
    import argparse

_GRACE = 2.0
"""Seconds. Nothing is lost by an end in the middle."""


def add(verb: argparse.ArgumentParser) -> None:
    """Declare the arguments."""
    verb.add_argument("path", metavar="ROOT", help="the directory with the queues")
    verb.add_argument(
        "--flight",
        metavar="LOCATION",
        required=True,
        help="grpc://127.0.0.1:PORT, grpc+tls://HOST:PORT or grpc+unix:///PATH",
    )
    verb.add_argument("--certificate", metavar="FILE", help="in PEM, for TLS")
    verb.add_argument("--key", metavar="FILE", help="of the certificate, in PEM")
    verb.add_argument("--tokens", metavar="FILE", help="who may do what (docs/how-to/flight.md)")


def run(arguments: argparse.Namespace) -> int:
    """Serve until somebody ends it."""
    return serve_flight(
        arguments.path,
        arguments.flight,
        certificate=arguments.certificate,
        key=arguments.key,
        token_file=arguments.tokens,
    )


def serve_flight(root: str, location: str, *, certificate: str | None, key: str | None, token_file: str | None) -> int:
    """Serve by Flight until SIGTERM or Ctrl-C."""
    try:
        flight = shmq.flight
    except ImportError as problem:
        raise show.Problem(f"Arrow Flight needs pyarrow ({problem}): pip install 'shmq[flight]'") from None
    ended = threading.Event()
    signal.signal(signal.SIGTERM, lambda *_: ended.set())
    service = flight.serve(root, location, certificate=certificate, key=key, token_file=token_file)
    print(f"serving {service.root} at {service.location}", flush=True)
    try:
        ended.wait()
    finally:
        _end(service)
    return 0


def _end(service: shmq.flight.Service) -> None:
    """Let what is going on end, but not wait for a client that reads no further."""
    closing = threading.Thread(target=service.close, daemon=True)
    closing.start()
    closing.join(_GRACE)
    if closing.is_alive():
        os._exit(0)
