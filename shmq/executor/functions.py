"""
Functions travel by module and qualified name; what has none (a partial, a bound method) by pickle, or by cloudpickle.

`__main__` is another file in each program, so its path travels, too.
"""

from __future__ import annotations

import functools
import importlib
import os
import runpy
import sys
import types
from typing import TYPE_CHECKING, Any

from shmq.executor import packing

try:  # an extra; here, since an import inside a function may be met half done by a fork or a signal
    import cloudpickle
except ImportError:
    cloudpickle = None

if TYPE_CHECKING:
    from collections.abc import Callable

_MAIN, _LOADED = "__main__", "__mp_main__"
_NAMED = (types.FunctionType, types.BuiltinFunctionType, type)


def name_of(function: Callable[..., Any]) -> str:
    """`module:qualname`, if that is how it is found again; else nothing."""
    if not isinstance(function, _NAMED) or "<" in function.__qualname__:
        return ""
    return _name_of(function)


@functools.lru_cache(maxsize=4096)
def _name_of(function: Any) -> str:
    """Of what its module keeps; no other object is kept alive by being remembered here."""
    module, name = getattr(function, "__module__", None), getattr(function, "__qualname__", None)
    if not module or not name:
        return ""
    try:
        found: Any = sys.modules[module]
        for part in name.split("."):
            found = getattr(found, part)
    except (KeyError, AttributeError):
        return ""
    return f"{module}:{name}" if found is function else ""


def shown(function: Callable[..., Any]) -> str:
    """How it is called in messages."""
    module = getattr(function, "__module__", None) or type(function).__module__
    name = getattr(function, "__qualname__", None) or type(function).__qualname__
    return f"{module}:{name}"


def pack(function: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[str, bytes]:
    """
    Its name, or nothing; and what is packed beside: (args, kwargs), or (function, args, kwargs).

    Raises:
        Whatever pickling raises; a note says which of them it was.
    """
    name = name_of(function)
    try:
        return name, packing.pack_call(args, kwargs) if name else packing.pack((function, args, kwargs))
    except Exception as problem:
        data = _by_cloudpickle((args, kwargs) if name else (function, args, kwargs))
        if data is not None:
            return name, data
        _blame(problem, function if not name else None, args, kwargs)
        raise


def _by_cloudpickle(content: Any) -> bytes | None:
    """The same by cloudpickle, where it is installed (extra `cloudpickle`), and can."""
    if cloudpickle is None:
        return None
    try:
        return packing.joined(cloudpickle.dumps(content, packing.PROTOCOL), [])
    except Exception:  # noqa: BLE001  # the first refusal is told
        return None


def _blame(problem: Exception, function: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
    parts = [(f"argument {at}", each) for at, each in enumerate(args)]
    parts += [(f"argument {name}=", each) for name, each in kwargs.items()]
    if function is not None:
        parts.insert(0, ("the function", function))
    for what, each in parts:
        try:
            packing.pack(each)
        except Exception:  # noqa: BLE001  # this one
            problem.add_note(
                f"{what} cannot be pickled ({type(each).__qualname__}); it was not submitted. Functions are found "
                "by module and name; `pip install shmq[cloudpickle]` for lambdas and local ones"
            )
            return


# ---- in the worker
@functools.lru_cache(maxsize=4096)
def _found(name: str, main: object) -> Callable[..., Any]:  # noqa: ARG001  # another main, another function
    module, _, path = name.partition(":")
    found: Any = sys.modules[module] if module == _MAIN else importlib.import_module(module)
    try:
        for part in path.split("."):
            found = getattr(found, part)
    except AttributeError as problem:
        if module != _MAIN:
            raise
        raise AttributeError(
            f"{problem}: workers find a function by its module and name, and what was typed into an interactive "
            "session is in no file that they could read; save it in one, and import it"
        ) from None
    return found  # type: ignore[no-any-return]


def find(name: str) -> Callable[..., Any]:
    """
    The function of that name.

    Raises:
        Whatever the import does.
    """
    return _found(name, sys.modules.get(_MAIN))


def main_path() -> str:
    """The file of this program's `__main__`, or nothing."""
    main = sys.modules.get(_MAIN)
    path = getattr(main, "__file__", None)
    if path is None or getattr(main, "__name__", _MAIN) == _LOADED:
        return str(path or "")
    return str(path) if os.path.isabs(path) else os.path.abspath(str(path))


_mains: dict[str, types.ModuleType] = {}


def use_main(path: str) -> None:
    """
    Have that file's module be `__main__`: loaded once, not as a program, but by the name that multiprocessing gives it.

    Raises:
        Whatever loading it does.
    """
    current = sys.modules.get(_MAIN)
    own = getattr(current, "__file__", None)
    if own is not None and os.path.abspath(own) == path:
        return
    module = _mains.get(path)
    if module is None:
        module = types.ModuleType(_LOADED)
        folder = os.path.dirname(path)
        if folder not in sys.path:
            sys.path.insert(0, folder)
        module.__dict__.update(runpy.run_path(path, run_name=_LOADED))
        module.__file__ = path
        _mains[path] = module
    sys.modules[_MAIN] = sys.modules[_LOADED] = module


def main_of(path: str) -> types.ModuleType | None:
    """What is `__main__` now, for a task that needs that file's; None for one that needs none."""
    return sys.modules.get(_MAIN) if path else None


def is_main(module: types.ModuleType | None) -> bool:
    """Whether that is `__main__` still; None is, whatever it is."""
    return module is None or sys.modules.get(_MAIN) is module
