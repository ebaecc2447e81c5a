"""
What `shmq.formats` needs of the core, and a program may use too: words of another program's mapped file.

Python has no word for an atomic change of memory; where a foreign format's writers agree on one, so must we.
"""

from shmq._native.foreign import SharedWords

__all__ = ["SharedWords"]
