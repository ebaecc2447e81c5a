"""
Fuzz Chronicle's wire formats: whatever the bytes or the text, it is read or refused, soon, and in one way only.

    python tests/fuzz/wire.py [--seconds N] [--seed N] [--plain]

With atheris installed it goes by coverage; without it, a plain loop changes and joins pieces of documents. Each round
takes the bytes as BinaryWire and as TextWire. What is read is written again, in both formats, and means the same there;
all else is a NotWire. A failure prints the bytes.
"""

import argparse
import contextlib
import importlib.util
import random
import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

BY_COVERAGE = __name__ == "__main__" and "--plain" not in sys.argv and importlib.util.find_spec("atheris") is not None
if BY_COVERAGE:
    import atheris  # type: ignore[import-not-found]
with atheris.instrument_imports(include=["shmq.formats"]) if BY_COVERAGE else contextlib.nullcontext():
    from shmq.errors import TooLarge
    from shmq.formats.chronicle import NotWire, Typed, decode, encode, parse, show
    from shmq.formats.chronicle.binary import fields
    from shmq.formats.chronicle.values import Hex64, Pairs, Values

SECONDS = 5.0
"""No document of a few kilobytes may take so long."""

PIECES = [
    bytes.fromhex(each)
    for each in (
        "c16ea101",
        "b903736179e568656c6c6f",
        "ba8000810b00860001c3f3a75ba1010000",
        "c162800503010203",
        "80038a0102",
        "8206000000c161a10792",
        "b6064d7954797065820a000000c178a101c179e374776f",
        "c466696d658fb20830313a30323a3033",
        "8d0200000000000000020000000000000001000000000000000200000000000000",
        "bda605000000e176",
        "be0161",
        "8e03000000616263",
        "e6eda0bdedb880",
        "b8c801",
        "92f98100",
    )
]
WORDS = [
    *(
        b"a",
        b"name: ",
        b"csp://x#y ",
        b"\n",
        b"\n  ",
        b"- ",
        b"{ ",
        b" }",
        b"[ ",
        b" ]",
        b", ",
        b"!T ",
        b"!!binary AAEC",
    ),
    *(
        b'!!null ""',
        b"'it''s'",
        b'"\\u263A\\x41"',
        b"|\n  x\n",
        b"# c\n",
        b"0x1F",
        b"1E6",
        b"-",
        b"12:30:00",
        b"? 5: ",
        b"---\n",
    ),
]


def check(data: bytes) -> None:
    """Take *data* as both formats; raise what must never be raised."""
    started = time.process_time()
    for read in (decode, parse, _walk):
        try:
            value = read(data)
        except NotWire:
            continue
        if read is not _walk:
            _again(value)
    assert time.process_time() - started < SECONDS, "it takes too long"


def _walk(data: bytes) -> None:
    for field in fields(data):
        assert 0 <= field.at < field.body <= field.stop <= len(data), "a field outside its document"


def _again(value: object) -> None:
    """Write what was read, and read it again: as BinaryWire the same, as text something that can be read."""
    try:
        written = encode(value)
    except TooLarge:
        return  # types and blocks are counted a little otherwise
    assert _alike(decode(written)) == _alike(value), "BinaryWire of a value means another value"
    text = show(value)
    assert show(parse(text)) == show(parse(show(parse(text)))), "the text of a value is read in two ways"


def _alike(value: object) -> object:
    """A value in which empty maps and sequences are one, a sequence of values too, and a NaN is itself."""
    if isinstance(value, Typed):
        return ("typed", value.type, _alike(value.value))
    if isinstance(value, Pairs):
        return ("map", [(_alike(name), _alike(one)) for name, one in value])
    if isinstance(value, dict) and value:
        return ("map", [(_alike(name), _alike(one)) for name, one in value.items()])
    if isinstance(value, dict | list | Values):
        return [_alike(one) for one in value] if not isinstance(value, dict) else []
    if isinstance(value, float) and value != value:
        return "NaN"
    return int(value) if isinstance(value, Hex64) else value


def made(chance: random.Random) -> bytes:
    """A document of pieces that make sense, and of some that do not."""
    pieces = chance.choices(PIECES if chance.random() < 0.5 else WORDS, k=chance.randrange(1, 8))
    data = bytearray(b"".join(pieces))
    for _ in range(chance.randrange(3)):
        at = chance.randrange(len(data))
        kind = chance.randrange(3)
        if kind == 0:
            data[at] = chance.randrange(256)
        elif kind == 1:
            del data[at : at + chance.randrange(1, 5)]
        else:
            data[at:at] = chance.randbytes(chance.randrange(1, 4))
        if not data:
            data = bytearray(b"\x8f")
    return bytes(data)


def loop(rounds: int, seconds: float, first_seed: int) -> int:
    """Make and check until so many rounds or seconds are over; return how many rounds there were."""
    end = time.monotonic() + seconds
    for number in range(rounds):
        if time.monotonic() > end:
            return number
        data = made(random.Random(first_seed + number))
        try:
            check(data)
        except BaseException:
            print(f"seed {first_seed + number}: {data!r} fails", file=sys.stderr)
            raise
    return rounds


def _by_coverage(arguments: list[str]) -> None:
    """Let atheris change pieces by what code they reach. Ends the process."""
    atheris.Setup([sys.argv[0], *arguments, "-max_len=2048"], check)
    atheris.Fuzz()


def main() -> None:
    """The command."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=60)
    parser.add_argument("--seed", type=int, default=0, help="the first seed of the plain loop")
    parser.add_argument("--plain", action="store_true", help="the plain loop, also when atheris is installed")
    options = parser.parse_args()
    if BY_COVERAGE:
        _by_coverage([f"-max_total_time={int(options.seconds)}"])
    print(f"{loop(1 << 60, options.seconds, options.seed)} rounds: nothing was found")


if __name__ == "__main__":
    main()
