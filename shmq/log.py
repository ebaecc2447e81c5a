"""
Lines in the log `shmq` of the standard library's logging, for whoever listens: silent by default.

Where nobody has imported logging, nobody listens, and it is not imported for that: a line costs a look into a dict. The
levels are those of logging: a warning is what somebody should know, info what is worth knowing afterwards.
"""

from __future__ import annotations

import sys

from shmq.hints import TYPE_CHECKING

if TYPE_CHECKING:
    import logging
    from typing import Any

DEBUG, INFO, WARNING, ERROR = 10, 20, 30, 40


def listened(level: int) -> logging.Logger | None:
    """The logger, if somebody may listen at that level."""
    module = sys.modules.get("logging")
    if module is None or getattr(module.__spec__, "_initializing", False):  # by a thread that is not done with it
        return None
    logger: logging.Logger = module.getLogger("shmq")
    if not logger.handlers:  # or logging itself would print warnings where nobody has asked for any
        logger.addHandler(module.NullHandler())
    return logger if logger.isEnabledFor(level) else None


def be_silent() -> None:
    """From now on logging itself prints nothing for lack of a handler, also of what the surfaces say by themselves."""
    listened(ERROR)


def say(level: int, text: str, *given: Any, exc_info: bool = False) -> None:
    """That line; *given* as of logging."""
    logger = listened(level)
    if logger is not None:
        logger.log(level, text, *given, exc_info=exc_info)
