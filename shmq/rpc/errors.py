"""What a call can raise beside what its method raises."""

from __future__ import annotations

from shmq.errors import ShmqError


class RpcError(ShmqError):
    """The base of what goes wrong between a client and a server."""


class TimedOut(RpcError, TimeoutError):
    """The time for the call is up. It may have run, unless the text says that it was not asked for."""


class ServerDied(RpcError):
    """The server that had the call died, or was interrupted in it. It may have run, in part or whole."""


class NoSuchMethod(RpcError, LookupError):
    """No method of that name is served there. Nothing ran."""


class WrongArguments(RpcError, TypeError):
    """The method takes other arguments, by number, name or type. Nothing ran."""


class RemoteError(RpcError):
    """
    The method raised something of a class that is not known here.

    Attributes:
        kind: the class, as module.name.
        text: what it said.
        traceback: where it was raised, as the server's process prints it.
    """

    def __init__(self, kind: str, text: str, traceback: str = "") -> None:
        """Keep what is known of it."""
        super().__init__(kind, text, traceback)
        self.kind = kind
        self.text = text
        self.traceback = traceback

    def __str__(self) -> str:
        """Class and text."""
        return f"{self.kind}: {self.text}"


class RemoteTraceback(Exception):
    """Stands as the cause of what came from a server, and shows where it was raised there."""

    def __init__(self, traceback: str) -> None:
        """Keep the text."""
        super().__init__(traceback)
        self.traceback = traceback

    def __str__(self) -> str:
        """The text, as a traceback has it."""
        return f'\n"""\n{self.traceback}"""'
