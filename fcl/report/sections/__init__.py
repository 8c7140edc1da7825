"""The sections of the page. Each module has ``section(context)``, which returns a Section or None.

To add a section, write a module and add its name to ``SECTIONS`` at its place on the page.
"""

from __future__ import annotations

from importlib import import_module

from fcl.report.contract import Context, Section

__all__ = ["SECTIONS", "sections"]

SECTIONS = (
    "head",
    "convergence",
    "path",
    "scores",
    "features",
    "covariates",
    "effects",
    "rows",
    "provenance",
)


def sections(context: Context) -> list[Section]:
    """The sections that have something to show, in the order of the page."""
    made = [import_module(f"{__name__}.{name}").section(context) for name in SECTIONS]
    return [section for section in made if section is not None]
