"""
Tuples whose places have names, as those of `typing.NamedTuple`, of which no code is compiled in each process anew.

`shmq.hints` has them under that name.
"""

from __future__ import annotations

import operator

TYPE_CHECKING = False

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from typing import Any, Self


class _Kind(type):
    """Makes the classes: each field is a place."""

    _fields: tuple[str, ...]
    _field_defaults: dict[str, Any]

    def __new__(cls, name: str, bases: tuple[type, ...], body: dict[str, Any]) -> _Kind:
        """Without a dictionary for each tuple."""
        made = super().__new__(cls, name, bases, {"__slots__": (), **body})
        if bases != (tuple,):
            made._name_places(body)
        return made

    def _name_places(cls, body: Mapping[str, Any]) -> None:
        cls._fields = tuple(cls.__annotations__)
        cls.__match_args__ = cls._fields  # type: ignore[misc]  # which is of each class
        cls._field_defaults = {name: body[name] for name in cls._fields if name in body}
        for place, name in enumerate(cls._fields):
            setattr(cls, name, property(operator.itemgetter(place)))


class NamedTuple(tuple[object, ...], metaclass=_Kind):
    """Its fields are the annotations of the class, with what they are when they are not given."""

    __slots__ = ()

    def __new__(cls, *values: object, **named: object) -> Self:
        """One of those values, in order or by their names."""
        if named or len(values) != len(cls._fields):
            values = cls._filled(values, named)
        return tuple.__new__(cls, values)

    @classmethod
    def _filled(cls, values: tuple[object, ...], named: dict[str, object]) -> tuple[object, ...]:
        """All values, in order."""
        rest = cls._fields[len(values) :]
        known = {**cls._field_defaults, **named}
        strange = [*values[len(cls._fields) :], *sorted(set(named).difference(rest))]
        missing = [name for name in rest if name not in known]
        if strange or missing:
            raise TypeError(f"{cls.__name__}: without {missing}, and with {strange}; it has {', '.join(cls._fields)}")
        return (*values, *map(known.__getitem__, rest))

    @classmethod
    def _make(cls, values: Iterable[object]) -> Self:
        return cls(*values)

    def _asdict(self) -> dict[str, object]:
        return dict(zip(type(self)._fields, self, strict=True))

    def _replace(self, **changes: object) -> Self:
        return type(self)(**{**self._asdict(), **changes})

    __replace__ = _replace

    def __getnewargs__(self) -> tuple[object, ...]:
        """What pickle and copy make it of again."""
        return tuple(self)

    def __repr__(self) -> str:
        """The expression that makes an equal one."""
        return f"{type(self).__name__}({', '.join(f'{name}={value!r}' for name, value in self._asdict().items())})"
