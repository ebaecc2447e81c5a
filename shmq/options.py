"""
What a queue is made with. Stored in the queue itself, so that opening needs none of it.

When the queue exists, only options that were given explicitly are compared with what it stores.
"""

from __future__ import annotations

from shmq.hints import TYPE_CHECKING, Any, ClassVar, Self, TypedDict

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

from shmq import codec as _codec
from shmq import given as _given
from shmq import user_group
from shmq.errors import BadFormat, Mismatch

CHUNK_MIN = 16 << 10
"""The core takes no smaller one; also what a disk that is nearly full is asked for last."""
CHUNK_MAX = 1 << 30
_MODE = 0o600
_SECONDS_AND_BYTES = {"acked": None, "forever": None, "age": "seconds", "bytes": "bytes"}
INTERVAL_MAX = 86400
SMALLEST_CHUNK = 64 << 10
"""The first chunk of a queue."""
FIRST_CHUNK = 1 << 20
"""Chunks grow by 4x to `chunk_bytes`: from the smallest one to here, and from here on with what is kept."""


FULL = ("block", "raise", "drop_oldest")
CHANGEABLE = ("full", "retention", "ttl")
"""What can be changed beside the bounds, which stand in the journal as numbers."""
ERA, PART = "replicated", "follower"
"""What stands beside those of a queue whose puts wait for followers: shmq/replica/eras.py."""
FOLLOWERS_MAX = 3
"""So many were shown to lose nothing (tests/replica/replicated_model.py)."""
_FOLLOWER_LENGTH = 48
BOUND_MAX = (1 << 62) - 1


def check_bound(name: str, bound: int | None) -> int:
    """
    A bound as the queue stores it; 0 is none.

    Raises:
        ValueError, TypeError: it is no bound.
    """
    return 0 if bound is None else _given.whole(name, bound, 1, BOUND_MAX, "an int, or None for no bound,")


class _Frozen:
    """
    Compared, hashed and printed by its fields; never changed.

    What a frozen dataclass is, but for the price of importing those: a third of shmq's own.
    """

    _names: ClassVar[tuple[str, ...]]

    def _values(self) -> dict[str, Any]:
        return {name: getattr(self, name) for name in self._names}

    def to_json(self) -> dict[str, Any]:
        """Every field, to be stored."""
        return {
            name: value.to_json() if isinstance(value, _Frozen) else value for name, value in self._values().items()
        }

    def __setattr__(self, name: str, value: object) -> None:
        """Refuse to change a field."""
        raise AttributeError(f"cannot set {name}: {type(self).__name__} never changes; make another one")

    def __delattr__(self, name: str) -> None:
        """Refuse to change a field."""
        raise AttributeError(f"cannot delete {name}: {type(self).__name__} never changes")

    def __eq__(self, other: object) -> bool:
        """Whether both are of one class and have equal fields."""
        if not isinstance(other, _Frozen) or type(other) is not type(self):
            return NotImplemented
        return self._values() == other._values()

    def __hash__(self) -> int:
        """Computed from all fields."""
        return hash(tuple(self._values().values()))

    def __repr__(self) -> str:
        """The expression that makes an equal one."""
        fields = ", ".join(f"{name}={value!r}" for name, value in self._values().items())
        return f"{type(self).__qualname__}({fields})"

    def __replace__(self, **changes: Any) -> Self:
        """For `copy.replace`: another one, with other fields."""
        return type(self)(**{**self._values(), **changes})


def _refusal(given: object, text: str) -> Exception:
    """The error for a word that is not known, or for what is no word."""
    return ValueError(text) if isinstance(given, str) else TypeError(text)


class Retention(_Frozen):
    """How long messages are kept. Whole chunks go at a time, oldest first; the last one always stays."""

    _names = ("kind", "limit")
    kind: str
    limit: float

    def __init__(self, kind: str = "acked", limit: float = 0) -> None:
        """As one of `acked`, `forever`, `age` and `bytes` makes it."""
        vars(self).update(kind=kind, limit=limit)
        self._check()

    @classmethod
    def acked(cls) -> Self:
        """Until every consumer name has finished them. With no name yet, nothing is finished."""
        return cls()

    @classmethod
    def forever(cls) -> Self:
        """Until the queue is deleted."""
        return cls("forever")

    @classmethod
    def age(cls, seconds: float) -> Self:
        """For so many seconds, whether consumers have seen them or not."""
        return cls("age", seconds)

    @classmethod
    def bytes(cls, n: int) -> Self:
        """As long as all chunks together have at most so many bytes, whether consumers have seen them or not."""
        return cls("bytes", n)

    @property
    def loses(self) -> bool:
        """Whether what goes need not have been finished."""
        return self.kind in ("age", "bytes")

    def _check(self) -> None:
        """Refuse values that mean nothing."""
        if _given.text("kind", self.kind) not in _SECONDS_AND_BYTES:
            raise ValueError(f"retention {self.kind!r}: one of {', '.join(_SECONDS_AND_BYTES)}")
        unit = _SECONDS_AND_BYTES[self.kind]
        if unit == "bytes":
            _given.whole("Retention.bytes: limit", self.limit, 1, BOUND_MAX)
        elif unit:
            _given.seconds("Retention.age: limit", self.limit)
        elif _given.seconds("Retention: limit", self.limit, none=True):
            raise ValueError(f"retention {self.kind!r} has no limit, and {self.limit!r} was given")

    @classmethod
    def of(cls, given: Retention | str) -> Retention:
        """
        *given* itself, or what the word "acked" or "forever" means.

        Raises:
            TypeError, ValueError: it is neither; the message says what to write instead.
        """
        if isinstance(given, Retention):
            return given
        if given in ("acked", "forever"):
            return cls(given)
        number = repr(given) if isinstance(given, (int, float)) else "3600"
        raise _refusal(
            given,
            f'retention={given!r}: "acked", "forever" or a Retention is wanted; for an age in seconds '
            f"Retention.age({number}), for a size Retention.bytes(1 << 30)",
        )


class Durability(_Frozen):
    """
    What a put promises about power loss. The death of processes loses nothing in any mode.

    Attributes:
        PROCESS: nothing; what the kernel had not written yet may be missing. The default, and the fastest.
        SYNC: a put returns when its message is on the disk. Puts that wait at the same time share one sync.
        n, followers, name: see `replicated`; else 0, (), "".
    """

    _names = ("kind", "seconds")
    kind: str
    seconds: float
    n: int
    followers: tuple[str, ...]
    name: str

    PROCESS: ClassVar[Durability]
    SYNC: ClassVar[Durability]

    def __init__(
        self, kind: str = "process", seconds: float = 0, n: int = 0, followers: Iterable[str] = (), name: str = ""
    ) -> None:
        """As `PROCESS`, `SYNC`, `interval` and `replicated` are."""
        names = tuple(followers) if hasattr(followers, "__iter__") and not isinstance(followers, str) else followers
        vars(self).update(kind=kind, seconds=seconds, n=n, followers=names, name=name)
        self._check()

    def _values(self) -> dict[str, Any]:
        """The followers only where there are some: an earlier version refuses them."""
        values = super()._values()
        if self.kind == "replicated":
            values.update(n=self.n, followers=self.followers, name=self.name)
        return values

    @classmethod
    def interval(cls, seconds: float) -> Self:
        """At most the messages of the last so many seconds may be missing, and those of one sync."""
        return cls("interval", seconds)

    @classmethod
    def replicated(cls, n: int, followers: Iterable[str], name: str = "primary") -> Self:
        """
        A put returns when its message, and all before it, are on the disk here and on those of *n* of the *followers*:
        they are lost only with all n + 1. Consumers may see it before.

        While fewer follow, a put commits and waits; where its time ends it is `SyncPending`. It never falls back.

        Args:
            n: from 1 to how many followers there are.
            followers: what they are called, up to three: `shmq replicate --name`. Only a promotion changes the list.
            name: what this queue is called there once it follows the one that was promoted.
        """
        return cls("replicated", 0, n, followers, name)

    @property
    def waits(self) -> bool:
        """Whether a put returns when its message is on the disk: with sync, and with more."""
        return self.kind in ("sync", "replicated")

    def _check(self) -> None:
        """Refuse values that mean nothing."""
        if _given.text("kind", self.kind) not in ("process", "interval", "sync", "replicated"):
            raise ValueError(f"durability {self.kind!r}: process, interval, sync or replicated")
        _given.seconds("seconds", self.seconds, none=self.kind != "interval")
        if self.kind == "interval" and not 0 < self.seconds <= INTERVAL_MAX:
            raise ValueError(f"durability by interval of {self.seconds!r} seconds: more than 0, up to {INTERVAL_MAX}")
        if self.kind != "interval" and self.seconds:
            raise ValueError(f"durability {self.kind!r} has no seconds")
        self._check_followers()

    def _check_followers(self) -> None:
        if self.kind != "replicated":
            if self.n or self.followers or self.name:
                raise ValueError(f"durability {self.kind!r} has no followers: give Durability.replicated(n, followers)")
            return
        if not isinstance(self.followers, tuple):
            raise _given.wrong_type("followers", self.followers, "a list of names")
        names = [_given.text("followers", each, "a list of str, the names of followers,") for each in self.followers]
        told = f"followers={names}, name={_given.text('name', self.name)!r}"
        for each in (*names, self.name):
            if not _given.is_name(each, _FOLLOWER_LENGTH):
                raise ValueError(f"{told}: {each!r} is no name: 1 to 48 of A-Z a-z 0-9 _ . - and no dot in front")
        if len({*names, self.name}) != len(names) + 1:
            raise ValueError(f"{told}: each has a name of its own")
        if not 1 <= len(names) <= FOLLOWERS_MAX:
            raise ValueError(f"followers={names}: from 1 to {FOLLOWERS_MAX} of them")
        _given.whole("n", self.n, 1, len(names), "an int, up to how many followers there are,")

    @classmethod
    def of(cls, given: Durability | str) -> Durability:
        """
        *given* itself, or what the word "process" or "sync" means.

        Raises:
            TypeError, ValueError: it is neither; the message says what to write instead.
        """
        if isinstance(given, Durability):
            return given
        if given in ("process", "sync"):
            return cls(given)
        number = repr(given) if isinstance(given, (int, float)) else "0.1"
        raise _refusal(
            given,
            f'durability={given!r}: "process", "sync" or a Durability is wanted; for a sync every so many seconds '
            f"Durability.interval({number})",
        )


Durability.PROCESS = Durability("process")
Durability.SYNC = Durability("sync")


class OtherKeywords(TypedDict, total=False):
    """All but the codec, of which it depends what payloads are."""

    chunk_bytes: int
    index_spacing: int
    durability: Durability | str
    retention: Retention | str
    max_messages: int | None
    max_bytes: int | None
    full: str
    checksum: bool
    mode: int
    group: str | int | None
    ttl: float | None


class OptionKeywords(OtherKeywords, total=False):
    """Options as `shmq.open` takes them by keyword; see `Options` for what they mean."""

    codec: str | _codec.Codec[Any]


class Options(_Frozen):
    """
    What a queue is made with.

    Attributes:
        chunk_bytes: size of a full-grown chunk file, 16 KiB to 1 GiB. Larger ones roll less often.
        index_spacing: an index entry about every so many messages.
        codec: how payloads are encoded: "bytes", "text", "json", "msgpack", or "pickle" (needs trusted=True). What json
            or msgpack would hand back as something else (NaN, bytes or a set in json) a put refuses; but a tuple comes
            back as a list. Or a codec of your own, `shmq.codec.struct(Order)` or any `shmq.codec.Codec`, or the name of
            one that a package offers: then each opener gives it.
        durability: what a put promises about power loss; nothing by default. May be given as a word: "process", "sync".
            With followers, see `Durability.replicated`.
        retention: how long messages are kept; until all consumer names have finished them by default. May be given as
            a word: "acked", "forever".
        max_messages: at most so many messages that not all consumers have finished; None for any number.
        max_bytes: at most so many bytes of them, as they lie in the chunks (40 and more each, in steps of 8).
        full: what a put does at a bound: "block" until there is room or its timeout ends, "raise" Full at once, or
            "drop_oldest", which waits, too, for what a living member of a group has in its hands. An adoption that
            finds no room raises Full in each of them.
        checksum: whether every message carries a CRC-32C that is checked when it is read.
        mode: permission bits of the files: 0o600, or 0o660 with a group. Never the world's.
        group: the group of users that share the queue, by name or number; kept as its number. None: one user alone.
            Whoever opens a queue that another user has made names its group, too.
        ttl: seconds after which a message expires, unless its put says otherwise; never by default.
    """

    _names = (
        "chunk_bytes",
        "index_spacing",
        "codec",
        "durability",
        "retention",
        "max_messages",
        "max_bytes",
        "full",
        "checksum",
        "mode",
        "group",
        "ttl",
    )
    chunk_bytes: int
    index_spacing: int
    codec: str
    durability: Durability
    retention: Retention
    max_messages: int | None
    max_bytes: int | None
    full: str
    checksum: bool
    mode: int
    group: int | None
    ttl: float | None

    def __new__(cls, **given: Any) -> Self:
        """Remember which options were given, and which are only defaults."""
        self = super().__new__(cls)
        vars(self).update(_given=frozenset(given))
        return self

    def __init__(
        self,
        *,
        chunk_bytes: int = 64 << 20,
        index_spacing: int = 64,
        codec: str | _codec.Codec[Any] = "bytes",
        durability: Durability | str = Durability.PROCESS,
        retention: Retention | str = Retention(),  # noqa: B008  # it never changes
        max_messages: int | None = None,
        max_bytes: int | None = None,
        full: str = "block",
        checksum: bool = True,
        mode: int = _MODE,
        group: str | int | None = None,
        ttl: float | None = None,
    ) -> None:
        """
        Each may be left out.

        Raises:
            TypeError, ValueError: no queue can be made with it.
        """
        vars(self).update(
            chunk_bytes=chunk_bytes,
            index_spacing=index_spacing,
            codec=codec,
            _brought=None,
            durability=Durability.of(durability),
            retention=Retention.of(retention),
            max_messages=max_messages,
            max_bytes=max_bytes,
            full=full,
            checksum=checksum,
            mode=mode if group is None or "mode" in vars(self)["_given"] else user_group.FILE_MODE,
            group=None if group is None else user_group.number(group),
            ttl=ttl,
        )
        self._check()

    def _check(self) -> None:
        """Refuse what no queue can be made with."""
        for name in ("chunk_bytes", "index_spacing", "mode"):
            _given.whole(name, getattr(self, name))
        _given.text("full", self.full)
        _given.flag("checksum", self.checksum)
        if not CHUNK_MIN <= self.chunk_bytes <= CHUNK_MAX or self.chunk_bytes % 4096:
            raise ValueError(f"chunk_bytes={self.chunk_bytes}: whole pages of 4096 from {CHUNK_MIN} to {CHUNK_MAX}")
        if not 1 <= self.index_spacing <= 65536:
            raise ValueError(f"index_spacing={self.index_spacing}: from 1 to 65536")
        check_bound("max_messages", self.max_messages)
        check_bound("max_bytes", self.max_bytes)
        if self.full not in FULL:
            raise ValueError(f"full={self.full!r}: one of {', '.join(FULL)}")
        self._check_codec(self.codec)
        if self.ttl is not None:
            _given.seconds("ttl", self.ttl, none=True, hint="; None for never")
        self._check_rights()

    def _check_rights(self) -> None:
        if self.group is None:
            if self.mode == user_group.FILE_MODE:
                raise ValueError(f"mode={self.mode:#o} shares the queue with a group of users: say which by group=")
            if self.mode & ~0o700 or self.mode & _MODE != _MODE:
                raise ValueError(
                    f"mode={self.mode:#o}: 0o600 or 0o700, or 0o660 with group=; others may never read or write a "
                    "queue's files"
                )
        elif self.mode != user_group.FILE_MODE:
            raise ValueError(f"mode={self.mode:#o} with group={self.group}: what a group shares has mode 0o660")
        elif self.codec == "pickle":
            raise ValueError(
                f"codec='pickle' with group={self.group}: a pickle runs code when it is read, so each user of the "
                "group could have the others' processes run anything; take json, msgpack or a struct"
            )

    def shared_by(self, group: int | None) -> Self:
        """The same, shared by that group; or as one user has it alone."""
        made = self.with_codec_of(self)
        vars(made).update(group=group, mode=_MODE if group is None else user_group.FILE_MODE)
        return made

    def to_json(self) -> dict[str, Any]:
        """Every field, to be stored; the group only where there is one, which an earlier version refuses by name."""
        fields = super().to_json()
        if self.group is None:
            del fields["group"]
        return fields

    def _check_codec(self, codec: Any) -> None:
        if isinstance(codec, str) and codec in _codec.NAMES:
            return
        brought = _codec.named(codec) if isinstance(codec, str) else _codec.check_brought(codec)
        vars(self).update(codec=brought.name, _brought=brought)

    @property
    def brought(self) -> _codec.Codec[Any] | None:
        """The codec, where it is not one of shmq's own."""
        return vars(self)["_brought"]  # type: ignore[no-any-return]

    def with_codec_of(self, other: Options) -> Self:
        """The same with the codec of another queue, whether that is here or not."""
        made = type(self)()
        vars(made).update({**vars(self), "codec": other.codec, "_brought": other.brought})
        return made

    def __replace__(self, **changes: Any) -> Self:
        """For `copy.replace`: another one, with other fields."""
        made = super().__replace__(**{"codec": "bytes", **changes})
        return made if "codec" in changes else made.with_codec_of(self)

    @classmethod
    def given(cls, options: Options | None, keywords: OptionKeywords) -> Options | None:
        """
        What `shmq.open` was given, as *options* or by keyword; None when it was given neither.

        Raises:
            TypeError: it was given both, or something that is no option.
        """
        strange = sorted(set(keywords) - set(cls._names))
        if strange:
            instead = "; max_messages= is what queue.Queue calls maxsize=" if "maxsize" in strange else ""
            raise TypeError(
                f"shmq.open() has no argument {strange[0]!r}{instead}; the options are {', '.join(cls._names)}"
            )
        if options is None:
            return cls(**keywords) if keywords else None
        if not isinstance(options, Options):
            hint = "shmq.open(path, **options)" if isinstance(options, dict) else "shmq.Options(...)"
            raise TypeError(
                f"options={options!r}: a shmq.Options is wanted, not {type(options).__name__}; write {hint}"
            )
        if keywords:
            raise TypeError(f"options= and {', '.join(keywords)} were both given: give options one way or the other")
        return options

    @classmethod
    def stored_as(cls, stored: bytes) -> Self | None:
        """
        What `from_json` makes of what most queues store: nothing was chosen for them, but perhaps a codec, and it is
        known letter for letter. None of any other, which is to be read.
        """
        if not (stored.startswith(_BEFORE_CODEC) and stored.endswith(_BEHIND_CODEC)):
            return None
        codec = stored[len(_BEFORE_CODEC) : -len(_BEHIND_CODEC)]
        if not codec.isalnum():  # of ASCII: so there is no quote in it, nor a backslash
            return None
        made = object.__new__(cls)
        vars(made).update(_STORED, codec=codec.decode())
        return made

    @classmethod
    def from_json(cls, stored: Mapping[str, Any]) -> Self:
        """The options of a queue, as it stores them."""
        if not isinstance(stored, dict):
            raise TypeError("they are not a mapping")
        strange = sorted(set(stored) - set(cls._names))
        if strange:
            raise BadFormat(f"it was made with options this library does not know: {', '.join(strange)}")
        retention = Retention(**stored.get("retention", {}))
        durability = Durability(**stored.get("durability", {}))
        made = cls(**{**stored, "codec": "bytes", "durability": durability, "retention": retention})
        vars(made).update(codec=_given.text("codec", stored.get("codec", "bytes")))  # a name in a file loads no code
        return made

    def with_changes(self, stored: Mapping[str, Any], max_messages: int | None, max_bytes: int | None) -> Self:
        """The same with these bounds, and with what was changed beside them, as the queue stores it."""
        if not isinstance(stored, dict):
            raise TypeError("they are not a mapping")
        strange = sorted(set(stored) - {*CHANGEABLE, ERA, PART})
        if strange:
            raise BadFormat(f"its options were changed to some this library does not know: {', '.join(strange)}")
        changed = {name: stored[name] for name in CHANGEABLE if name in stored}
        if "retention" in changed:
            changed["retention"] = Retention(**changed["retention"])
        if ERA in stored:
            now = {name: stored[ERA][name] for name in ("followers", "name")}
            changed["durability"] = self.durability.__replace__(**now)
        return self.__replace__(**changed, max_messages=max_messages, max_bytes=max_bytes)

    def check_against(self, stored: Options, path: str) -> None:
        """
        Hold what was given explicitly against what the queue was made with.

        Raises:
            Mismatch: an option differs; the message names both values.
        """
        given: frozenset[str] = getattr(self, "_given", frozenset())
        for name in sorted(given):
            mine, theirs = getattr(self, name), getattr(stored, name)
            if mine != theirs:
                raise Mismatch(
                    f"cannot open {path} with {name}={mine!r}: it was made with {name}={theirs!r}; "
                    "leave the option out, or use another path"
                )


_BEFORE_CODEC = b'{"chunk_bytes":67108864,"index_spacing":64,"codec":"'
_BEHIND_CODEC = (
    b'","durability":{"kind":"process","seconds":0},"retention":{"kind":"acked","limit":0},"max_messages":null,'
    b'"max_bytes":null,"full":"block","checksum":true,"mode":384,"ttl":null}'
)
_STORED = {**vars(Options()), "_given": frozenset(Options().to_json())}
"""What a queue has that stores these."""
