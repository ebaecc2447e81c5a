"""
What the engine has of `typing`, at little cost to whoever runs it.

That module takes a fifth of the time in which all of shmq is imported, most of it for `re` and `enum`, which it brings.
Type checkers see the real ones.
"""

from __future__ import annotations

import sys
import types

TYPE_CHECKING = False

if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any as Any  # noqa: PLC0414  # exported, as the others
    from typing import ClassVar as ClassVar  # noqa: PLC0414
    from typing import Generic as Generic  # noqa: PLC0414
    from typing import NamedTuple as NamedTuple  # noqa: PLC0414
    from typing import Self as Self  # noqa: PLC0414
    from typing import TypedDict as TypedDict  # noqa: PLC0414
    from typing import Unpack as Unpack  # noqa: PLC0414
    from typing import cast as cast  # noqa: PLC0414

    from typing_extensions import TypeVar

    T = TypeVar("T", default=Any)
    """What payloads are, for type checkers; anything where nobody says."""
else:
    from shmq.tuples import NamedTuple as NamedTuple  # noqa: PLC0414

    Any = Self = T = object

    class Generic:
        """As `typing.Generic`."""

        __class_getitem__ = classmethod(types.GenericAlias)

    ClassVar = Unpack = Generic  # for whoever has the annotations of what is public evaluated

    class TypedDict:
        """As `typing.TypedDict`, which is never made."""

        def __init_subclass__(cls, *, total: bool = True) -> None:
            """Take what that takes."""

    def cast(_: object, value: Any) -> Any:
        """As `typing.cast`."""
        return value

    def overload(function: Callable[..., Any]) -> Callable[..., Any]:
        """As `typing.overload`: whoever asks for them while the program runs has imported `typing` before."""
        noted = getattr(sys.modules.get("typing"), "overload", None)  # which another thread may have begun to import
        return function if noted is None else noted(function)
