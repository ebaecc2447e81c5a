"""
Modules that are imported when they are first needed: neither a fork nor a signal meets them half done.

The interpreter has a lock for each module that is being imported. A child that is forked meanwhile by another thread
inherits it taken, and waits for ever when it imports that module; where the handler of a signal raises in the middle
of an import, it may stay taken for everybody. So forks wait for imports of ours, and the main thread, in which handlers
run, has another thread import.
"""

from __future__ import annotations

import _thread
import contextlib
import gc
import importlib
import os
import sys
import threading

from shmq.hints import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

_INTERRUPTED = 130
_gate = _thread.RLock()
"""Held while a module is imported, and across every fork."""


def ready(*names: str) -> None:
    """
    Have those modules imported, so that an `import` of them takes no lock any more.

    One that cannot be imported is left to that `import`, which says so.
    """
    for name in names:
        if name not in sys.modules:
            _have_imported(name)
        elif _is_half_done(name):
            with _gate:  # of ours, it is done then; else its own lock says who waits for whom
                pass


def _is_half_done(name: str) -> bool:
    return bool(getattr(getattr(sys.modules.get(name), "__spec__", None), "_initializing", False))


def _have_imported(name: str) -> None:
    if threading.current_thread() is not threading.main_thread() or sys.is_finalizing():  # which starts no thread
        _import(name)
        return
    with no_garbage_collected():
        thread = threading.Thread(target=_import, args=(name,), name="shmq-import", daemon=True)
        try:
            thread.start()
        except RuntimeError:  # the interpreter ends, and starts no thread any more
            return
        thread.join()


def _import(name: str) -> None:
    with _gate, contextlib.suppress(Exception):
        importlib.import_module(name)


@contextlib.contextmanager
def no_garbage_collected() -> Iterator[None]:
    """
    While modules are imported: nothing of theirs is garbage yet, and it is looked at again and again.

    And while the program's thread waits for another one, perhaps with locks held: a handle in the garbage would be
    closed in that thread, as late as in its last steps, and wait for those locks.

    What a signal's handler raises in here leaves the collector on.
    """
    collects = gc.isenabled()
    try:
        gc.disable()
        yield
    finally:
        try:
            if collects:
                _count_all_as_old()
        finally:
            if collects:
                gc.enable()


def _count_all_as_old() -> None:
    """Or all of it is looked through at once, a twelfth of an import. Whoever has put something aside keeps it so."""
    if not gc.get_freeze_count():
        try:
            gc.freeze()
        finally:
            gc.unfreeze()


@contextlib.contextmanager
def quiet_command() -> Iterator[None]:
    """
    While the `shmq` command imports, Ctrl-C ends it with 130 and no word: nothing has begun that had to be ended.

    Any other program keeps what it does then.
    """
    if not is_command():
        yield
        return
    import signal  # noqa: PLC0415  # no other program pays for it

    is_set = False
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        with contextlib.suppress(ValueError):  # of the main thread alone
            signal.signal(signal.SIGINT, lambda *_: os._exit(_INTERRUPTED))
            is_set = True
    try:
        yield
    finally:
        if is_set:
            signal.signal(signal.SIGINT, signal.default_int_handler)


def is_command() -> bool:
    """Whether this process was begun as `shmq`, or as `python -m shmq`."""
    name = sys.argv[0] if getattr(sys, "argv", None) else ""
    if name == "-m":  # as it is until that module is found
        return ("-m", "shmq") in zip(sys.orig_argv, sys.orig_argv[1:], strict=False)
    return os.path.basename(name) == "shmq" or name == os.path.join(os.path.dirname(__file__), "__main__.py")


def _open_again() -> None:
    with contextlib.suppress(RuntimeError):  # the handler of a signal kept the fork from taking it
        _gate.release()


os.register_at_fork(before=_gate.acquire, after_in_parent=_open_again, after_in_child=_open_again)
