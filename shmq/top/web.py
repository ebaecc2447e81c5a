"""
`shmq top --web`: one page and its facts, for browsers on this machine. By starlette and uvicorn, an extra.

Nothing can be changed by it. It listens on the loopback address alone, answers only who calls it by the name of that
address, so that no page of elsewhere reads it by a name that it lets resolve to here (DNS rebinding), and gives facts
to those alone who show the token of its address: other users of this machine reach the port, too.
"""

from __future__ import annotations

import base64
import dataclasses
import hashlib
import hmac
import importlib.resources
import json
import os
import re
import secrets
import socket
import threading
from typing import TYPE_CHECKING, Any

import uvicorn
from starlette.applications import Starlette
from starlette.responses import PlainTextResponse, Response
from starlette.routing import Route

from shmq import diagnosis, errors
from shmq.closable import Closable

if TYPE_CHECKING:
    from shmq.top.facts import QueueFacts
    from shmq.top.looks import Looks

_HOST = "127.0.0.1"
_NAMES = re.compile(r"(127\.0\.0\.1|localhost|\[::1\])(:[0-9]{1,5})?", re.IGNORECASE)
"""What a browser that means this machine says whom it means; the port is another one behind `ssh -L`."""
_GRACE = 2
"""Seconds that answers under way get at the end."""


class Page(Closable):
    """
    The page, served by a thread.

    Attributes:
        address: what a browser opens; behind the # is the token, which browsers send to nobody by themselves.
        port: where it listens.
    """

    def __init__(self, looks: Looks, port: int = 0) -> None:
        """As `shmq.top.serve`."""
        self._socket = _listening(port)
        self.port: int = self._socket.getsockname()[1]
        token = secrets.token_urlsafe(24)
        self.address = f"http://{_HOST}:{self.port}/#{token}"
        self._server: Any = uvicorn.Server(
            uvicorn.Config(
                Guard(_application(looks), token),
                http="h11",
                ws="none",
                lifespan="off",
                log_config=None,
                access_log=False,
                server_header=False,
                timeout_graceful_shutdown=_GRACE,
            )
        )
        self._thread = threading.Thread(target=self._run, name="shmq-top-web", daemon=True)
        self._thread.start()

    def _run(self) -> None:
        self._server.run(sockets=[self._socket])

    def close(self) -> None:
        """Stop serving."""
        self._server.should_exit = True
        self._thread.join()
        self._socket.close()


class Guard:
    """Lets pass to an application what may pass: see above."""

    def __init__(self, application: Any, token: str) -> None:
        """In front of that application."""
        self._application = application
        self._token = token.encode()
        self._headers = [
            (b"content-security-policy", _policy(_page()).encode()),
            (b"x-content-type-options", b"nosniff"),
            (b"referrer-policy", b"no-referrer"),
            (b"cross-origin-resource-policy", b"same-origin"),
            (b"cache-control", b"no-store"),
        ]

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        """Answer one request."""

        async def send_guarded(message: Any) -> None:
            if message["type"] == "http.response.start":
                message["headers"] = [*message.get("headers", ()), *self._headers]
            await send(message)

        refusal = self._refusal(scope) if scope["type"] == "http" else None
        await (refusal or self._application)(scope, receive, send_guarded)

    def _refusal(self, scope: Any) -> Any:
        hosts = [value.decode("latin-1") for name, value in scope["headers"] if name == b"host"]
        if len(hosts) != 1 or not _NAMES.fullmatch(hosts[0]):
            return PlainTextResponse("this is for browsers on this machine, by the name localhost\n", 403)
        if scope["path"] == "/":
            return None
        shown = next((value for name, value in scope["headers"] if name == b"authorization"), b"")
        if not hmac.compare_digest(shown, b"Bearer " + self._token):
            return PlainTextResponse("open the address that shmq top has said, with all of it\n", 401)
        return None


def _application(looks: Looks) -> Any:
    page = _page()

    def facts(_: Any) -> Any:
        look = looks.recent()
        queues = [{"id": _id(each.path), **dataclasses.asdict(each)} for each in look.queues]
        return _json({"time": look.time, "took": look.took, "pause": looks.pause(), "queues": queues})

    def why(request: Any) -> Any:
        wanted = request.query_params.get("id")
        found = next((each for each in looks.recent().queues if _id(each.path) == wanted), None)
        if found is None:
            return PlainTextResponse("there is no such queue any more\n", 404)
        return _json(_findings(found))

    return Starlette(
        routes=[
            Route("/", lambda _: Response(page, media_type="text/html"), methods=["GET"]),
            Route("/facts", facts, methods=["GET"]),
            Route("/why", why, methods=["GET"]),
        ]
    )


def _findings(queue: QueueFacts) -> list[dict[str, Any]]:
    try:
        return [dataclasses.asdict(each) for each in diagnosis.why(queue.path)]
    except (errors.ShmqError, OSError) as problem:
        return [{"kind": "unreadable", "level": "stuck", "sentence": str(problem), "advice": ""}]


def _id(path: str) -> str:
    """What a queue is called in addresses: a path may be text that no address can have."""
    return hashlib.sha256(os.fsencode(path)).hexdigest()[:16]


def _json(thing: object) -> Any:
    # In ASCII: a path may have bytes that are no text.
    return Response(json.dumps(thing, default=str), media_type="application/json")


def _page() -> str:
    return importlib.resources.files("shmq.top").joinpath("page.html").read_text("utf-8")


def _policy(page: str) -> str:
    """What a browser may do for the page: run its script, use its style, and ask here for facts."""

    def digests(element: str) -> str:
        texts = re.findall(rf"<{element}>(.*?)</{element}>", page, re.DOTALL)
        return " ".join(
            f"'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}'" for text in texts
        )

    return (
        f"default-src 'none'; script-src {digests('script')}; style-src {digests('style')}; connect-src 'self'; "
        "base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
    )


def _listening(port: int) -> socket.socket:
    made = socket.socket()
    try:
        made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        made.bind((_HOST, port))
        made.listen(64)
    except (OSError, OverflowError) as problem:
        made.close()
        why = problem.strerror if isinstance(problem, OSError) else str(problem)
        raise OSError(f"cannot listen at {_HOST}:{port}: {why}; give another port") from None
    return made
