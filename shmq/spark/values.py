"""
One value of a JSON or msgpack payload, as a column of some type has it: as Spark's own `from_json` reads it.

`from_json` is what these rules are tested against. They differ where it would say something else than what stands
there: a TINYINT of 200 is -56 to it, and a time of day is one of today. Here neither fits.
"""

from __future__ import annotations

import base64
import binascii
import datetime
import decimal
import math
import re
import zoneinfo
from typing import TYPE_CHECKING, Any

import pyarrow as pa

if TYPE_CHECKING:
    from collections.abc import Callable

    Read = Callable[[Any], Any]

_SPECIAL = {
    "NaN": math.nan,
    **dict.fromkeys(("Infinity", "+Infinity", "+INF"), math.inf),
    **dict.fromkeys(("-Infinity", "-INF"), -math.inf),
}
_NUMBER = re.compile(r"[+-]?(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]+)?")
_DATE = re.compile(r"\+?([0-9]{4})(?:-([0-9]{1,2})(?:-([0-9]{1,2})(?:[T ].*)?)?)?", re.DOTALL)
_TIME = re.compile(
    r"\+?([0-9]{4})(?:-([0-9]{1,2})(?:-([0-9]{1,2})"
    r"(?:[T ]([0-9]{1,2})(?::([0-9]{1,2})(?::([0-9]{1,2})(?:\.([0-9]*))?)?)?\s*([A-Z+-].*)?)?)?)?"
)
_OFFSET = re.compile(r"(?:UTC|GMT|UT)?([+-])([0-9]{1,2})(?::?([0-9]{2}))?(?::?([0-9]{2}))?")
_EPOCH = datetime.datetime(1970, 1, 1)  # noqa: DTZ001  # of times without a zone; those with one are brought to UTC first
_MICROSECOND = datetime.timedelta(microseconds=1)
_EXACT = decimal.Context(prec=100, rounding=decimal.ROUND_HALF_UP)
_POSITIONAL = (1e-3, 1e7)
"""Where Java writes a number without an exponent."""


class Misfit(ValueError):
    """A value is none of its column's type: the column is null there, and the payload is told as one with a fault."""


class Reading:
    """How the values of one kind of payload are read, and whether what was read last had a fault inside."""

    def __init__(self, kind: str, zone: datetime.tzinfo | None) -> None:
        """
        Choose.

        Args:
            kind: "json" or "msgpack".
            zone: of times that name none; None for this machine's.
        """
        self._is_text = kind == "json"
        self._zone = zone
        self.spoilt = False
        """Set when a field of a struct, somewhere within, was left out; who reads sets it back."""

    def reader(self, kind: pa.DataType) -> Read:
        """What turns a value that is no null into one that `pa.array` takes for *kind*; it raises ValueError."""
        if pa.types.is_nested(kind):
            return self._nested(kind)
        if pa.types.is_integer(kind):
            return _integer(kind.bit_width)
        if pa.types.is_decimal(kind):
            return _decimal(kind.precision, kind.scale)
        if pa.types.is_timestamp(kind):
            return self._instant if kind.tz else _local
        simple: dict[pa.DataType, Read] = {
            pa.bool_(): _truth,
            pa.float32(): _float,
            pa.float64(): _float,
            pa.string(): text,
            pa.date32(): _date,
            pa.binary(): _from_base64 if self._is_text else _bytes,
        }
        return simple[kind]

    def _nested(self, kind: pa.DataType) -> Read:
        if pa.types.is_struct(kind):
            return self._struct({field.name: self.reader(field.type) for field in kind})
        if pa.types.is_map(kind):
            return _map(self._key(kind.key_type), self.reader(kind.item_type))
        return _list(self.reader(kind.value_type))

    def _struct(self, fields: dict[str, Read]) -> Read:
        """A field that does not fit is null, and the others stay."""

        def read(value: Any) -> dict[str, Any]:
            if type(value) is not dict:
                raise Misfit
            found = {}
            for name, of in fields.items():
                each = value.get(name)
                try:
                    found[name] = None if each is None else of(each)
                except (ValueError, ArithmeticError):
                    found[name] = None
                    self.spoilt = True
            return found

        return read

    def _key(self, kind: pa.DataType) -> Read:
        """Keys of JSON are text, whatever they were."""
        read = self.reader(kind)
        if pa.types.is_string(kind) or not self._is_text:
            return read
        if pa.types.is_boolean(kind):
            return lambda key: {"true": True, "false": False}[key]
        if pa.types.is_integer(kind):
            return lambda key: read(int(key))
        if pa.types.is_floating(kind):
            return lambda key: float(key) if _NUMBER.fullmatch(key) else read(key)
        return read

    def _instant(self, value: Any) -> int:
        """A time: text, or seconds since 1970."""
        if type(value) is int:
            return _in_range(value * 1_000_000)
        if isinstance(value, datetime.datetime):
            return microseconds(value)
        moment, zone = _moment(value)
        if zone is None:
            return microseconds(moment.replace(tzinfo=self._zone) if self._zone else moment.astimezone())
        return microseconds(moment.replace(tzinfo=zone_of(zone)))


def zone_of(name: str) -> datetime.tzinfo:
    """
    The zone of that name, or that far from UTC, as Spark writes it: `Europe/Berlin`, `Z`, `+01:00`, `GMT+1`.

    Raises:
        ValueError: there is none.
    """
    offset = _OFFSET.fullmatch(name)
    if offset is not None:
        sign = -1 if offset[1] == "-" else 1
        hours, minutes, seconds = (int(offset[each] or 0) for each in (2, 3, 4))
        return datetime.timezone(sign * datetime.timedelta(hours=hours, minutes=minutes, seconds=seconds))
    if name in {"Z", "UTC", "GMT", "UT"}:
        return datetime.UTC
    try:
        return zoneinfo.ZoneInfo(name)
    except (zoneinfo.ZoneInfoNotFoundError, OSError) as problem:
        raise ValueError(f"there is no time zone {name!r}") from problem


def microseconds(moment: datetime.datetime) -> int:
    """Since 1970, of a time with a zone; or of one without, as if it were in UTC."""
    if moment.tzinfo is not None:
        moment = moment.astimezone(datetime.UTC).replace(tzinfo=None)
    return (moment - _EPOCH) // _MICROSECOND


# ---------------------------------------------------------------- one type each
def text(value: Any) -> str:
    """Text as it is, and of anything else the JSON that Spark would write of it."""
    if type(value) is str:
        return value
    if type(value) is bytes:
        return value.decode()
    return _json(value)


def _json(value: Any) -> str:
    if value is None or type(value) is bool:
        return {None: "null", True: "true", False: "false"}[value]
    if type(value) is int:
        return str(value)
    if type(value) is float or type(value) is decimal.Decimal:
        return _javas(float(value)) if math.isfinite(value) else f'"{_javas(float(value))}"'
    if type(value) is list:
        return f"[{','.join(map(_json, value))}]"
    if type(value) is dict:
        return "{" + ",".join(f"{_quoted(text(key))}:{_json(each)}" for key, each in value.items()) + "}"
    if type(value) is str:
        return _quoted(value)
    raise Misfit


def _quoted(value: str) -> str:
    import msgspec  # noqa: PLC0415  # few columns of text hold objects

    return msgspec.json.encode(value).decode()


def _javas(number: float) -> str:
    """A number as Java writes it: 1.5, 100.0, 1.0E10."""
    if not math.isfinite(number):
        return "NaN" if math.isnan(number) else "Infinity" if number > 0 else "-Infinity"
    if number == 0 or _POSITIONAL[0] <= abs(number) < _POSITIONAL[1]:
        return repr(number)
    sign, digits, exponent = decimal.Decimal(repr(number)).normalize().as_tuple()
    first, rest = digits[0], "".join(map(str, digits[1:])) or "0"
    return f"{'-' if sign else ''}{first}.{rest}E{int(exponent) + len(digits) - 1}"


def _truth(value: Any) -> bool:
    if type(value) is not bool:
        raise Misfit
    return value


def _integer(bits: int) -> Read:
    low, high = -(1 << (bits - 1)), (1 << (bits - 1)) - 1

    def read(value: Any) -> int:
        if type(value) is not int or not low <= value <= high:
            raise Misfit
        return value

    return read


def _float(value: Any) -> float:
    if type(value) is str:
        if value not in _SPECIAL:
            raise Misfit
        return _SPECIAL[value]
    if type(value) not in {int, float, decimal.Decimal}:
        raise Misfit
    try:
        return float(value)
    except OverflowError:
        return math.inf if value > 0 else -math.inf


def _decimal(precision: int, scale: int) -> Read:
    step = decimal.Decimal(1).scaleb(-scale)

    def read(value: Any) -> decimal.Decimal:
        if type(value) is str:
            if not _NUMBER.fullmatch(value):
                raise Misfit
        elif type(value) is float:
            value = repr(value)
        elif type(value) not in {int, decimal.Decimal}:
            raise Misfit
        found = decimal.Decimal(value).quantize(step, context=_EXACT)
        if not found.is_finite() or len(found.as_tuple().digits) > max(precision, 1):
            raise Misfit
        return found

    return read


def _from_base64(value: Any) -> bytes:
    if type(value) is not str:
        raise Misfit
    try:
        return base64.b64decode(value.strip(" \t\r\n"), validate=True)
    except binascii.Error as problem:
        raise Misfit from problem


def _bytes(value: Any) -> bytes:
    if type(value) is bytes:
        return value
    if type(value) is not str:
        raise Misfit
    return value.encode()


def _date(value: Any) -> datetime.date:
    found = _DATE.fullmatch(value.strip()) if type(value) is str else None
    if found is None:
        raise Misfit
    return datetime.date(int(found[1]), int(found[2] or 1), int(found[3] or 1))


def _moment(value: Any) -> tuple[datetime.datetime, str | None]:
    """A day and a time of it, as it stands there; and the zone's name, if there is one."""
    found = _TIME.fullmatch(value.strip()) if type(value) is str else None
    if found is None:
        raise Misfit
    year, month, day, hour, minute, second, fraction, zone = found.groups()
    moment = datetime.datetime(  # noqa: DTZ001  # the zone comes after
        int(year),
        int(month or 1),
        int(day or 1),
        int(hour or 0),
        int(minute or 0),
        int(second or 0),
        int(f"{fraction or '':0<6.6}"),
    )
    return moment, zone


def _local(value: Any) -> int:
    moment, zone = _moment(value)
    if zone is not None:
        raise Misfit
    return microseconds(moment)


def _in_range(us: int) -> int:
    if not -(1 << 63) <= us < 1 << 63:
        raise Misfit
    return us


def _list(of: Read) -> Read:
    """One element that does not fit is of a list that does not."""

    def read(value: Any) -> list[Any]:
        if type(value) is not list:
            raise Misfit
        return [None if each is None else of(each) for each in value]

    return read


def _map(key_of: Read, of: Read) -> Read:
    def read(value: Any) -> list[tuple[Any, Any]]:
        if type(value) is not dict:
            raise Misfit
        try:
            return [(key_of(key), None if each is None else of(each)) for key, each in value.items()]
        except KeyError as problem:
            raise Misfit from problem

    return read
