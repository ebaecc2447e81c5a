"""
What a user may bring as a codec, as `shmq.codec.Codec`: loaded with the first one, for `typing` costs as much as many a
module of shmq together.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol, runtime_checkable

if TYPE_CHECKING:
    from shmq.hints import T
else:
    from typing import TypeVar

    T = TypeVar("T")


@runtime_checkable
class Codec(Protocol[T]):
    """
    What a user may bring: `shmq.open("orders", codec=mine)`. Both functions may be called by several threads at once.

    A package offers one under a name by an entry point in the group "shmq.codecs"; `codec="that name"` then loads it.

    Attributes:
        name: what the queue stores, and every opener's codec must be called: 1 to 64 of A-Z a-z 0-9 _ . : + -, and not
            one of shmq's own.
    """

    name: str

    def encode(self, value: T, /) -> bytes:
        """The bytes of *value*. What it raises, the put raises, and nothing was put."""

    def decode(self, data: bytes, /) -> T:
        """The value of those bytes. A ValueError is told as `Corrupt`, with the message's index."""


Codec.__module__ = "shmq.codec"  # where users find it
