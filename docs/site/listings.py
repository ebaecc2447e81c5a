"""A page of the site for each file and folder that a page links to and that is none: proofs can be read in it, too."""

from __future__ import annotations

import html
import os
import re
from pathlib import Path
from typing import TYPE_CHECKING

from pygments import highlight
from pygments.formatters import HtmlFormatter
from pygments.lexers import guess_lexer_for_filename
from pygments.util import ClassNotFound

if TYPE_CHECKING:
    from collections.abc import Iterator

    from sphinx.application import Sphinx

FENCE = re.compile(r"^(```.*?^```$)", re.MULTILINE | re.DOTALL)
LINK = re.compile(r"(?<=\]\()([^)\s]+)\)")
DEFINED = re.compile(r"^\s*(?:async )?(?:def|class) (\w+)")


def rewrite(app: Sphinx, name: str, source: list[str]) -> None:
    """Have links to files that are no pages lead to their listings."""
    folder = os.path.dirname(name)

    def to_listing(match: re.Match[str]) -> str:
        target, hash_, anchor = match[1].partition("#")
        place = os.path.normpath(os.path.join(folder, target))
        there = Path(app.srcdir, place)
        if ":" in target or not target or not there.exists():
            return match[0]
        if os.path.splitext(place)[0] in app.env.found_docs or there.suffix in {".svg", ".png"}:
            return match[0]
        listed(app).add(place)
        away = os.path.relpath(f"source/{place}.html", folder or ".")
        return f"{away}{hash_}{anchor}){{.external}}"

    parts = FENCE.split(source[0])
    parts[::2] = [LINK.sub(to_listing, part) for part in parts[::2]]
    source[0] = "".join(parts)


def listed(app: Sphinx) -> set[str]:
    """What has a listing, kept with what Sphinx knows of pages that did not change."""
    if not hasattr(app.env, "shmq_listed"):
        app.env.shmq_listed = set()
    return app.env.shmq_listed


def listing(path: Path) -> str:
    """The lines of a file as HTML: those that define something by their names."""
    text = path.read_text(encoding="utf-8", errors="replace")
    try:
        lexer = guess_lexer_for_filename(path.name, text[:1000])
    except ClassNotFound:
        return f"<pre>{html.escape(text)}</pre>"
    lines = highlight(text, lexer, HtmlFormatter(nowrap=True)).split("\n")
    for number, line in enumerate(text.split("\n")[: len(lines)]):
        if found := DEFINED.match(line):
            lines[number] = f'<span id="{found[1]}">{lines[number]}</span>'
    return '<div class="highlight"><pre>' + "\n".join(lines) + "</pre></div>"


def folder_of(app: Sphinx, place: str) -> str:
    """What is in a folder; files that have listings as links."""
    rows = []
    for name in sorted(os.listdir(Path(app.srcdir, place))):
        if name.endswith((".pyc", ".so")) or name.startswith(("__pycache__", ".")):
            continue
        link = f"{os.path.basename(place)}/{name}.html"
        known = f"{place}/{name}" in listed(app)
        rows.append(f'<li><a href="{html.escape(link)}">{html.escape(name)}</a></li>' if known else f"<li>{name}</li>")
    return f"<ul>{''.join(rows)}</ul>"


def collect(app: Sphinx) -> Iterator[tuple[str, dict[str, str], str]]:
    """Each listing, as Sphinx asks for pages of our own."""
    for place in sorted(listed(app)):
        path = Path(app.srcdir, place)
        body = folder_of(app, place) if path.is_dir() else listing(path)
        yield f"source/{place}", {"title": place, "body": f"<h1>{html.escape(place)}</h1>{body}"}, "page.html"


def merge(app: Sphinx, env: object, names: object, other: object) -> None:  # noqa: ARG001
    """What a parallel reader has found."""
    listed(app).update(getattr(other, "shmq_listed", ()))


def setup(app: Sphinx) -> dict[str, bool]:
    """Called by Sphinx."""
    app.connect("source-read", rewrite, priority=400)
    app.connect("env-merge-info", merge)
    app.connect("html-collect-pages", collect)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
