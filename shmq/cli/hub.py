"""
Gather the queues of many machines below one directory, until Ctrl-C or SIGTERM.

Examples:
    shmq hub hub/ --listen tcp:127.0.0.1:7000 --token-file clients
    shmq hub hub/ --listen tcp:0.0.0.0:7000 --certificate host.pem --key host.key --token-file clients

A client is a line of the file: the SHA-256 of its token, its name and `.*`, the right replicate, and until when:

    60303ae22b998861bce3b28f33eec1be758a213c86c93c076dbe9f558c11c752 till-7.* replicate 2027-06-30

It pushes with `shmq replicate QUEUE tcp:HOST:PORT --name till-7.orders --token-file FILE`, and ROOT/till-7.orders
follows its queue, with the same indexes; of a directory of shards it pushes all, with --name till-7. Killed, nothing
is lost: clients wait for the next one, and go on. With --format sej it is a journal that real sej reads.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import shmq
from shmq.cli import descriptors, show, stopping

if TYPE_CHECKING:
    import argparse


def add(verb: argparse.ArgumentParser) -> None:
    """Declare the arguments."""
    verb.add_argument("root", metavar="ROOT", help="the directory below which the queues are gathered")
    verb.add_argument(
        "--listen", action="append", required=True, metavar="ADDRESS", help="tcp:HOST:PORT, any number of them"
    )
    verb.add_argument(
        "--format", choices=("shmq", "sej"), default="shmq", help="what lies there: queues, or what sej reads"
    )
    verb.add_argument("--token-file", required=True, metavar="FILE", help="the clients")
    verb.add_argument("--certificate", metavar="FILE", help="TLS 1.3, with this certificate (PEM)")
    verb.add_argument("--key", metavar="FILE", help="the certificate's key, if it is not in the same file")
    verb.add_argument(
        "--json", action="store_true", help="say so as a line of JSON on standard output, when it is ready"
    )


def run(arguments: argparse.Namespace) -> int:
    """Gather until somebody ends it."""
    descriptors.check_for(f"gather in {arguments.root}")
    stop = shmq.replica.Stop()

    def tell(places: list[str]) -> None:
        told = f"{arguments.root} gathers what comes to {' '.join(places)}"
        show.ready(told, {"root": arguments.root, "places": places}, as_json=arguments.json)

    with stopping.asked(stop):
        shmq.hub.serve(
            arguments.root,
            arguments.listen,
            token_file=arguments.token_file,
            certificate=arguments.certificate,
            key=arguments.key,
            as_sej=arguments.format == "sej",
            stop=stop,
            on_start=tell,
        )
    return 0
