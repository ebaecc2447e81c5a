"""What these tests share: a hub in a child, and what is in a queue."""

from __future__ import annotations

import hashlib

from support import Child

import shmq
from shmq import hub, replica


def token_of(client: str) -> bytes:
    """The secret of a client of these tests."""
    return f"the token of {client}".encode()


def clients_file(place, *clients: str, until: str = "never"):
    """Write a file of clients."""
    lines = [f"{hashlib.sha256(token_of(each)).hexdigest()} {each}.* replicate {until}\n" for each in clients]
    place.write_text("".join(lines))
    place.chmod(0o600)
    return place


class Hub(Child):
    """A hub, in a child. `again` is the next one, at the same address."""

    def __init__(self, root, clients, listen: str = "tcp:127.0.0.1:0", **options) -> None:
        """It is there when this returns."""
        self._rest = root, clients, options

        def work(say) -> None:
            hub.serve(root, listen, token_file=clients, on_start=lambda told: say(told[0]), **options)

        super().__init__(work)
        self.at = self.hear()

    def again(self) -> Hub:
        """After this one was killed."""
        root, clients, options = self._rest
        return Hub(root, clients, self.at, **options)


def push_once(source, at, name, client=None, **options) -> None:
    """Have all that is there at the hub."""
    token = token_of(client or name.partition(".")[0])
    replica.replicate(source, at, name=name, token=token, once=True, **options)


def content(path) -> list[tuple]:
    """All messages there are, each as it came."""
    with shmq.open(str(path), read_only=True) as queue:
        return [(m.index, m.payload, m.key, m.time_ns) for m in queue.reader()]


def names_in(root) -> list[str]:
    """The queues of a hub."""
    return sorted(each.name for each in root.iterdir() if not each.name.startswith("."))
