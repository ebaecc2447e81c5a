"""Times and sizes as people write them: 90, 90s, 5m, 2h, 7d; 4096, 64K, 10M, 2G. For argparse."""

from __future__ import annotations

import argparse
import re

_SECONDS = {"": 1.0, "ms": 1e-3, "s": 1.0, "m": 60.0, "min": 60.0, "h": 3600.0, "d": 86400.0, "w": 604800.0}
_BYTES = {"": 0, "K": 10, "M": 20, "G": 30, "T": 40}


def seconds(word: str) -> float:
    """How long, 0 or more."""
    found = re.fullmatch(r"(.*?)(ms|s|m|min|h|d|w|)", word.strip())
    try:
        number = float(found[1]) * _SECONDS[found[2]] if found else float("nan")
    except ValueError:
        raise argparse.ArgumentTypeError(f"{word!r} is not a number of seconds, nor a time like 5m, 2h or 7d") from None
    if not 0 <= number < float("inf"):
        raise argparse.ArgumentTypeError(f"{word}: seconds, 0 or more")
    return number


def size(word: str) -> int:
    """How many bytes, 1 or more; K, M, G and T are powers of 1024."""
    found = re.fullmatch(r"(-?\d+)([KMGT]?)(?:i?B)?", word.strip(), re.IGNORECASE)
    if found is None:
        raise argparse.ArgumentTypeError(f"{word!r} is not a size like 4096, 64K, 10M or 2G")
    if (number := int(found[1])) < 1:
        raise argparse.ArgumentTypeError(f"{word}: 1 or more")
    return number << _BYTES[found[2].upper()]
