"""Configuration of Sphinx; `python3 tools/dev.py docs` builds the pages into docs/_build/html."""

from __future__ import annotations

import re
import sys
from importlib.metadata import version as installed
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fcl.options.reference import options_as_markdown

if TYPE_CHECKING:
    from sphinx.application import Sphinx

# sphinx-gallery forgets between two blocks what a script adds to sys.path
sys.path.insert(0, str(Path(__file__).parent.parent / "examples" / "generators"))

project = "fcl"
author = "fcl developers"
copyright = author
version = release = installed("fcl")

extensions = [
    "myst_parser",
    "numpydoc",
    "sphinx.ext.autodoc",
    "sphinx.ext.autosummary",
    "sphinx_click",
    "sphinx_design",
    "sphinx_gallery.gen_gallery",
]
exclude_patterns = ["_build", "README.md", "gallery/**/*.ipynb", "gallery/**/*.py.md5"]
smartquotes = False  # they turn -- into a dash

myst_enable_extensions = ["attrs_block", "attrs_inline", "colon_fence", "deflist"]
myst_heading_anchors = 3

autosummary_generate = True
autodoc_member_order = "bysource"
autodoc_typehints = "none"  # numpydoc shows the types
numpydoc_show_class_members = False
numpydoc_class_members_toctree = False

html_theme = "pydata_sphinx_theme"
html_title = f"fcl {release}"
html_static_path = ["_static"]
html_css_files = ["fcl.css"]
html_show_sourcelink = False
html_copy_source = False
html_theme_options = {
    "navigation_with_keys": False,
    "show_prev_next": True,
    "secondary_sidebar_items": ["page-toc"],
    "footer_start": ["copyright"],
    "footer_end": [],
    "use_edit_page_button": False,
    "show_toc_level": 2,
}
suppress_warnings = ["config.cache"]

sphinx_gallery_conf = {
    "examples_dirs": ["../examples"],
    "gallery_dirs": ["gallery"],
    "filename_pattern": r"/plot_",
    "ignore_pattern": r"^(?!plot_)",
    "download_all_examples": False,
    "abort_on_example_error": True,
    "remove_config_comments": True,
    "show_memory": False,
    "show_signature": False,
    "min_reported_time": 0,
    "within_subsection_order": "ExampleTitleSortKey",
    "nested_sections": False,
}


# Docstrings write |w| for an absolute value, and names of attributes with an underscore at the
# end. scikit-learn's refer to its own pages.
_SPECIAL = re.compile(r"(``[^`]*``|`[^`]*`)|\||(?<=\w)_(?![\w`])")
_ELSEWHERE = re.compile(r":(?:ref|term):`([^`<]*?)\s*(?:<[^`]*>)?`")


def escape(text: str) -> str:
    """A line of a docstring in which reStructuredText finds no substitutions and no targets."""
    text = _ELSEWHERE.sub(r"\1", text)
    return _SPECIAL.sub(lambda found: found[1] or f"\\{found[0]}", text)


def escape_docstring(
    app: Sphinx, what: str, name: str, thing: Any, options: Any, lines: list[str]
) -> None:
    """Handle the event of autodoc before numpydoc does."""
    in_example, literal = False, -1  # the indent of the line before a literal block
    for at, line in enumerate(lines):
        in_example = ">>>" in line or (in_example and bool(line.strip()))
        indent = len(line) - len(line.lstrip())
        if line.strip() and indent <= literal:
            literal = -1
        if not in_example and literal < 0:
            lines[at] = escape(line)
            literal = indent if line.rstrip().endswith("::") else -1


def escape_command(app: Sphinx, context: Any, lines: list[str]) -> None:
    """Handle an event of sphinx-click."""
    lines[:] = [escape(line) for line in lines]


def write_options(app: Sphinx, config: Any) -> None:
    """Write the page of all options from the table in which they are declared."""
    page = Path(app.srcdir, "reference", "options.md")
    text = "# Options\n\n[The commands](commands.md) have them in their order.\n\n"
    text += options_as_markdown()
    if (
        not page.exists() or page.read_text(encoding="utf-8") != text
    ):  # else all pages are read anew
        page.write_text(text, encoding="utf-8")


def setup(app: Sphinx) -> None:
    app.connect("config-inited", write_options)
    app.connect("autodoc-process-docstring", escape_docstring, priority=400)
    app.connect("sphinx-click-process-description", escape_command)
    app.connect("sphinx-click-process-options", escape_command)
    app.connect("sphinx-click-process-epilog", escape_command)
