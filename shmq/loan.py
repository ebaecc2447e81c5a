"""What a handle has of its queue, and gives back once: however often it is closed, wherever a close is interrupted."""

from __future__ import annotations

from shmq.hints import TYPE_CHECKING

if TYPE_CHECKING:
    from shmq.seat import Seat
    from shmq.storage.directory import Directory


class Loan:
    """
    One handle's part of a home and of a membership.

    Both know their users one by one, and not by a count. So taking is noted here before it is done there, giving back
    can be repeated, and a signal's handler that raises in between leaves nothing that nobody gives back.

    Attributes:
        home: the home; None before it was lent.
        membership: likewise.
        returned: whether all of it was given back.
    """

    def __init__(self) -> None:
        """Nothing is lent yet."""
        self.home: Directory | None = None
        self.membership: Seat | None = None
        self.returned = False

    def have(self, home: Directory) -> None:
        """Use that home from now on."""
        self.home = home
        home.retain(self)

    def sit(self, membership: Seat) -> None:
        """Use that membership from now on. One that was inherited through a fork is the parent's, and forgotten."""
        self.membership = membership
        membership.retain(self)

    def is_over(self) -> bool:
        """Whether there is nothing to give back (any more)."""
        return self.returned or (self.home is None and self.membership is None)

    def give_back(self) -> None:
        """All of it. Interrupted, it goes on where it stood when it is called again."""
        if self.membership is not None:
            self.membership.leave(self)
        if self.home is not None:
            self.home.close(self)
        self.returned = True
