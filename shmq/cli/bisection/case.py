"""A case as two files: a test for pytest, and beside it the messages it hands over, one a line."""

from __future__ import annotations

import base64
import json
import os
import re
from typing import TYPE_CHECKING, Any

from shmq import codec
from shmq.cli import show

if TYPE_CHECKING:
    from collections.abc import Iterable

    import shmq

_TEST = '''\
# {title}
# {story}
"""A case that shmq bisect has found. It needs neither the queue nor that process."""

import base64
import json
{standard}import pathlib
{apart}import sys

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE / {beside!r}))
{status}
{imports}


def messages():
    """The messages of the case, as a queue hands them out; their indexes count from 0 here."""
    with shmq.open(None, codec=AsStored(), chunk_bytes={chunk_bytes}) as queue:
        for line in (HERE / {data!r}).read_text().splitlines():
            kept = json.loads(line)
            headers = kept.get("headers")
            if "msgpack" in kept:
                headers = msgspec.msgpack.decode(base64.b64decode(kept["msgpack"]))
            index = queue.put(
                as_bytes(kept["payload"]),
                key=as_bytes(kept["key"]) if "key" in kept else None,
                type=kept["type"],
                time_ns=kept["time_ns"],
                headers=headers,
            )
            yield queue[index]


class AsStored:
    """Payloads are kept as they lay in the queue, and read as they were there."""

    name = "as-stored"
    encode = bytes
{decode}


def as_bytes(kept):
    """Text as it is, anything else in base64."""
    return kept.encode() if isinstance(kept, str) else base64.b64decode(kept["base64"])


def {name}():
{body}


if __name__ == "__main__":
    {main}
'''

_DIRECT = """\
    for message in messages():
        {function}(message)
"""
_CHECK = """\
    assert {function}() is not False
"""
_APART = """\
    # It ends its process, so it gets one of its own.
    assert subprocess.run([sys.executable, __file__], check=False, timeout={timeout}).returncode == ALL_HANDLED


def handle_all():
"""

_DECODERS = {
    "bytes": "    decode = bytes",
    "text": "    decode = staticmethod(lambda data: bytes(data).decode())",
    "json": "    decode = staticmethod(msgspec.json.decode)",
    "msgpack": "    decode = staticmethod(msgspec.msgpack.decode)",
    "pickle": "    decode = staticmethod(pickle.loads)  # which runs code; shmq was told to trust it",
}


def path_for(handler: str, index: int) -> str:
    """Where the test goes where nobody says: in the current directory, under a name that is free."""
    function = re.sub(r"\W", "_", handler.partition(":")[2])
    number = 1
    while True:
        path = f"test_{function}_{index}{f'_{number}' if number > 1 else ''}.py"
        if not os.path.lexists(path) and not os.path.lexists(data_path(path)):
            return path
        number += 1


def data_path(path: str) -> str:
    """Where the messages of that test are."""
    return f"{path.removesuffix('.py')}.jsonl"


def write(
    path: str,
    queue: shmq.Queue,
    messages: Iterable[shmq.Message],
    handler: str,
    check: str | None,
    told: dict[str, Any],
) -> int:
    """
    Write both files; how many messages they have.

    Args:
        path: the test's.
        queue: what the messages are of.
        handler: `module:function`.
        check: the same, or None.
        told: "title" and "story" for people; "apart": the seconds that a process of its own has for it, or None.
    """
    count = 0
    with open(data_path(path), "x", encoding="utf-8") as data:
        for message in messages:
            data.write(json.dumps(_line(message), ensure_ascii=False) + "\n")
            count += 1
    with open(path, "x", encoding="utf-8") as test:
        test.write(_text(path, queue, handler, check, told))
    return count


def _line(message: shmq.Message) -> dict[str, Any]:
    line: dict[str, Any] = {"index": message.index, "time_ns": message.time_ns, "type": message.type}
    if message.key is not None:
        line["key"] = _readable(message.key)
    if (stored := message.raw_headers) is not None:
        try:
            line["headers"] = message.headers
            if json.loads(json.dumps(line["headers"])) != line["headers"]:
                raise ValueError
        except (TypeError, ValueError):
            line.pop("headers")
            line["msgpack"] = base64.b64encode(stored).decode()
    line["payload"] = _readable(bytes(message.view))
    return line


def _readable(data: bytes) -> str | dict[str, str]:
    try:
        return data.decode()
    except UnicodeDecodeError:
        return {"base64": base64.b64encode(data).decode()}


def _text(path: str, queue: shmq.Queue, handler: str, check: str | None, told: dict[str, Any]) -> str:
    function = re.sub(r"\W", "_", handler.partition(":")[2])
    name = f"test_{function}"
    imports, decode = _reading(queue.options.codec)
    body = ""
    for each, alias, call in ((handler, "handlers", _DIRECT), (check, "checks", _CHECK)):
        if each is not None:
            module, _, name_in_it = each.partition(":")
            imports.append(f"import {module} as {alias}")  # whatever it is called, it hides nothing here
            body += call.format(function=f"{alias}.{name_in_it}")
    main, apart = f"{name}()", told["apart"] is not None
    if apart:
        body = _APART.format(timeout=told["apart"]) + body
        main = "handle_all()\n    os._exit(ALL_HANDLED)"
    return _TEST.format(
        title=_comment(told["title"]),
        story=_comment(told["story"]),
        beside=os.path.relpath(os.getcwd(), os.path.dirname(path) or "."),
        imports="\n".join(sorted({*imports, "import msgspec", "import shmq"})),
        chunk_bytes=queue.options.chunk_bytes,
        data=os.path.basename(data_path(path)),
        decode=decode,
        name=name,
        body=body.rstrip(),
        main=main,
        standard="import os\n" if apart else "",
        apart="import subprocess\n" if apart else "",
        status="ALL_HANDLED = 86  # what its process ends with then\n" if apart else "",
    )


def _comment(text: str) -> str:
    return "".join(each if each.isprintable() else "?" for each in text)


def _reading(name: str) -> tuple[list[str], str]:
    """What a test imports to read payloads of that codec, and how it does."""
    if name in _DECODERS:
        return (["import pickle"] if name == "pickle" else []), _DECODERS[name]
    try:
        codec.named(name)
    except ValueError:  # it is not here, so the handler was given bytes
        return [], _DECODERS["bytes"]
    return ["import shmq.codec"], f"    decode = staticmethod(shmq.codec.named({name!r}).decode)"


def refuse_existing(path: str) -> None:
    """
    Say so before anything is run, where a case cannot be written there.

    Raises:
        Misuse: it is no Python file's path, or something is there.
    """
    if not os.path.basename(path).endswith(".py"):
        raise show.Misuse(f"--case {path}: it is a test, and its name ends with .py")
    for each in (path, data_path(path)):
        if os.path.lexists(each):
            raise show.Misuse(f"--case {path}: {each} is there, and is left as it is")
    if not os.path.isdir(os.path.dirname(path) or "."):
        raise show.Misuse(f"--case {path}: there is no such directory")
