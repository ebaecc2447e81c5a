"""
The site: `make docs` makes it of the Markdown pages as they are, which read the same on a code host.

Pages have no toctrees of their own: those of the site are made of the links in docs/README.md, a part for each of its
sections, and of the other README.md files below it. What a page links to that is no page has one made of it.
"""

import sys
from pathlib import Path

ROOT = Path(__file__).parents[1]
sys.path[:0] = [str(ROOT), str(ROOT / "docs" / "site")]

import shmq  # noqa: E402

project = "shmq"
author = "the authors of shmq"
copyright = author  # noqa: A001
version = release = shmq.__version__

root_doc = "README"
include_patterns = ["*.md", "docs/**.md", "examples/*.md", "tests/**.md"]
exclude_patterns = [".*", "build", "demo*", "shmq", "cffi_build", "benchmarks", "*.egg-info"]
extensions = ["myst_parser", "sphinx.ext.autodoc", "sphinx.ext.napoleon", "contents", "listings", "docstrings"]
suppress_warnings = [
    "myst.header",  # a page may begin with a picture
    "misc.highlighting_failure",  # a dump of bytes is no program
    "ref.python",  # of several classes with one name an annotation says the short one
]

myst_heading_anchors = 4
myst_enable_extensions = ["attrs_inline"]
default_role = "code"
highlight_language = "none"

autodoc_typehints = "signature"
napoleon_use_ivar = True  # attributes with a property of their own are told once
autodoc_member_order = "bysource"
autodoc_preserve_defaults = True
autodoc_default_options = {"members": True, "show-inheritance": False}
toc_object_entries_show_parents = "hide"

html_theme = "furo"
html_title = f"shmq {release}"
html_copy_source = False
html_show_sphinx = False
html_extra_path = ["../llms.txt"] if (ROOT / "llms.txt").exists() else []
