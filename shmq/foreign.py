"""
What `shmq.formats` needs of the core, and a program may use too: words of another program's mapped file, and headers
that are encoded already.

Python has no word for an atomic change of memory; where a foreign format's writers agree on one, so must we. And where
the headers of a million messages differ in two numbers, they are made of bytes.
"""

from shmq._native.foreign import SharedWords
from shmq.message import EncodedHeaders

__all__ = ["EncodedHeaders", "SharedWords"]
