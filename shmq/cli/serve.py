"""
Serve the queues below a directory to other programs and machines.

Examples:
    shmq serve queues/
    shmq serve queues/ --listen tcp:127.0.0.1:9000 --listen unix:/run/user/1000/queues.sock
    shmq serve queues/ --listen tcp:0.0.0.0:9000 --certificate host.pem --key host.key --token-file tokens

A queue queues/NAME is //HOST/NAME#Queue for Chronicle's remote services. Addresses that other machines reach take TLS
and tokens or clients' certificates. Ctrl-C or SIGTERM: what is under way is answered, and it ends.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

import shmq

if TYPE_CHECKING:
    import argparse


def add(verb: argparse.ArgumentParser) -> None:
    """Declare the arguments."""
    verb.add_argument("root", metavar="ROOT", help="the directory whose queues are served")
    verb.add_argument(
        "--listen",
        action="append",
        metavar="ADDRESS",
        help="tcp:HOST:PORT or unix:PATH, any number of them (unix:ROOT/.serve/socket)",
    )
    verb.add_argument("--create", action="store_true", help="make queues that somebody who may append asks for")
    verb.add_argument("--token-file", metavar="FILE", help="who connects by TCP shows a token of this file")
    verb.add_argument("--certificate", metavar="FILE", help="TCP is TLS 1.3, with this certificate (PEM)")
    verb.add_argument("--key", metavar="FILE", help="the certificate's key, if it is not in the same file")
    verb.add_argument("--client-ca", metavar="FILE", help="clients with a certificate of this authority may do all")


def run(arguments: argparse.Namespace) -> int:
    """Serve until somebody ends it."""

    def tell(places: list[str]) -> None:
        print(f"shmq: serving {arguments.root} at {' '.join(places)}", file=sys.stderr, flush=True)

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
