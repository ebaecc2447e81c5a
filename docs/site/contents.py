"""The site's table of contents: what docs/README.md links to, a part for each section; other indexes have their own."""

from __future__ import annotations

import os
import re
import shutil
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

    from sphinx.application import Sphinx

INDEX = "docs/README"
SECTION = re.compile(r"^## (.+)$", re.MULTILINE)
LINK = re.compile(r"\]\(([^)\s#:]+\.md)(?:#[^)\s]*)?\)")
TREE = "\n```{{toctree}}\n:hidden:\n{caption}\n{entries}\n```\n"


def pages(text: str, folder: str) -> list[str]:
    """The names of the pages that *text*, which lies in *folder*, links to, each once."""
    found = (os.path.normpath(os.path.join(folder, link))[: -len(".md")] for link in LINK.findall(text))
    return list(dict.fromkeys(found))


def parts(text: str, folder: str) -> Iterator[tuple[str, list[str]]]:
    """Each section of an index: its heading, and the pages that it links to."""
    _, *rest = SECTION.split(text)
    for heading, body in zip(rest[::2], rest[1::2], strict=True):
        yield heading, pages(body, folder)


def trees(root: Path) -> dict[str, list[tuple[str, list[str]]]]:
    """For each index the parts of its tree: a page is where it comes first, the site's own index before all others."""
    index = (root / f"{INDEX}.md").read_text(encoding="utf-8")
    found: dict[str, list[tuple[str, list[str]]]] = {}
    seen = {"README", INDEX}
    first = []
    for heading, linked in parts(index, "docs"):
        first.append((heading, [page for page in linked if page not in seen]))
        seen.update(linked)
    found["README"] = [("", [INDEX]), *first]
    for page in sorted(name for name in seen if name.endswith("/README") and name != INDEX):
        linked = pages((root / f"{page}.md").read_text(encoding="utf-8"), os.path.dirname(page))
        below = [each for each in linked if each.startswith(os.path.dirname(page)) and each not in seen]
        seen.update(below)
        found[page] = [("", below)]
    return found


def add_tree(app: Sphinx, name: str, source: list[str]) -> None:
    """Put the trees of an index behind its text."""
    for caption, entries in trees(Path(app.srcdir)).get(name, ()):
        if entries:
            words = f":caption: {caption}\n" if caption else ""
            source[0] += TREE.format(caption=words, entries="\n".join(f"/{each}" for each in entries))


def make_index(app: Sphinx, problem: Exception | None) -> None:
    """The front page under the name that a web server looks for."""
    if problem is None and app.builder.name == "html":
        shutil.copy(Path(app.outdir, "README.html"), Path(app.outdir, "index.html"))


def setup(app: Sphinx) -> dict[str, bool]:
    """Called by Sphinx."""
    app.connect("source-read", add_tree)
    app.connect("build-finished", make_index)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
