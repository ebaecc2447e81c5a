"""What a message of a walk holds: the same in the process that puts it, in the model and in harness.c."""

from __future__ import annotations

from typing import Any

Operation = tuple[Any, ...]
"""A verb and what it is done with."""


def payload(number: int, message: int, length: int) -> bytes:
    """What message *message* of operation *number* holds; harness.c computes the same."""
    return bytes((number * 37 + message * 11 + i * 7 + 1) & 0xFF for i in range(length))
