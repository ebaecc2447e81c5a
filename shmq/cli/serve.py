"""
Serve the queues below a directory to other programs and machines.

Examples:
    shmq serve queues/
    shmq serve queues/ --listen tcp:127.0.0.1:9000 --listen unix:/run/user/1000/queues.sock
    shmq serve queues/ --listen tcp:0.0.0.0:9000 --certificate host.pem --key host.key --token-file tokens
    shmq serve queues/ --flight grpc+tls://0.0.0.0:8815 --certificate host.pem --key host.key --token-file tokens

A queue queues/NAME is //HOST/NAME#Queue for Chronicle's remote services, and csp://HOST:PORT/NAME for
`shmq.net.connect`; with --flight the same directory is served by Arrow Flight instead, for Spark and for volume.
Addresses that other machines reach take TLS and tokens or clients' certificates. It says where it can be found when it
is ready. Ctrl-C or SIGTERM: what is under way is answered, and it ends. Killed, nothing is lost: clients wait for the
next one, and go on.
"""

from __future__ import annotations

import os
import threading
from typing import TYPE_CHECKING

import shmq
from shmq.cli import descriptors, show, stopping

if TYPE_CHECKING:
    import argparse

_GRACE = 2.0
"""Seconds. Nothing is lost by an end in the middle."""


def add(verb: argparse.ArgumentParser) -> None:
    """Declare the arguments."""
    verb.add_argument("root", metavar="ROOT", help="the directory whose queues are served")
    ways = verb.add_mutually_exclusive_group()
    ways.add_argument(
        "--listen",
        action="append",
        metavar="ADDRESS",
        help="tcp:HOST:PORT or unix:PATH, any number of them (unix:ROOT/.serve/socket)",
    )
    ways.add_argument(
        "--flight",
        metavar="LOCATION",
        help="by Arrow Flight: grpc://127.0.0.1:PORT, grpc+tls://HOST:PORT or grpc+unix:///PATH",
    )
    verb.add_argument("--create", action="store_true", help="make queues that somebody who may append asks for")
    verb.add_argument("--token-file", metavar="FILE", help="who connects by TCP shows a token of this file")
    verb.add_argument("--certificate", metavar="FILE", help="TCP is TLS 1.3, with this certificate (PEM)")
    verb.add_argument("--key", metavar="FILE", help="the certificate's key, if it is not in the same file")
    verb.add_argument("--client-ca", metavar="FILE", help="clients with a certificate of this authority may do all")
    verb.add_argument(
        "--json", action="store_true", help="say so as a line of JSON on standard output, when it is ready"
    )


def run(arguments: argparse.Namespace) -> int:
    """Serve until a signal; return the exit status."""
    descriptors.check_for(f"serve {arguments.root}")
    if arguments.flight:
        for option in ("create", "client_ca"):
            if getattr(arguments, option):
                raise show.Problem(f"--{option.replace('_', '-')} is not for --flight, which makes no queues")
        return _serve_flight(arguments)

    def tell(places: list[str]) -> None:
        told = f"serving {arguments.root} at {' '.join(places)}"
        show.ready(told, {"root": arguments.root, "places": places}, as_json=arguments.json)

    shmq.net.serve(
        arguments.root,
        arguments.listen,
        create=arguments.create,
        token_file=arguments.token_file,
        certificate=arguments.certificate,
        key=arguments.key,
        client_ca=arguments.client_ca,
        on_start=tell,
    )
    return 0


def _serve_flight(arguments: argparse.Namespace) -> int:
    """Serve by Flight until SIGTERM or Ctrl-C."""
    try:
        flight = shmq.flight
    except ImportError as problem:
        raise show.Problem(f"Arrow Flight needs pyarrow ({problem}): pip install 'shmq[flight]'") from None
    ended = threading.Event()
    with stopping.asked(ended.set):
        service = flight.serve(
            arguments.root,
            arguments.flight,
            certificate=arguments.certificate,
            key=arguments.key,
            token_file=arguments.token_file,
        )
        told = f"serving {arguments.root} at {service.location}"
        show.ready(told, {"root": arguments.root, "places": [service.location]}, as_json=arguments.json)
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
