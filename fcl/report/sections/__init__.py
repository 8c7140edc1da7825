"""The sections of the page. Each module has ``section(context)``, which returns a Section or None.

To add a section, write a module and add its name to ``SECTIONS`` at its place on the page.
"""

from __future__ import annotations

from collections.abc import Sequence
from importlib import import_module

from fcl.report.contract import Context, OutputsContext, Section
from fcl.report.sections import outputs, provenance, stagewise

__all__ = ["SECTIONS", "SECTIONS_OF_OUTPUTS", "output_sections", "sections", "stagewise_sections"]

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
#: Of the page about a model of several outputs.
SECTIONS_OF_OUTPUTS = (
    "head",
    "convergence",
    "path",
    "outputs",
    "output_features",
    "output_letters",
    "provenance",
)


def sections(context: Context) -> list[Section]:
    """The sections that have something to show, in the order of the page."""
    return _made(SECTIONS, context)


def output_sections(context: Context) -> list[Section]:
    """The sections of the page about a model of several outputs, in its order."""
    return _made(SECTIONS_OF_OUTPUTS, context)


def _made(names: Sequence[str], context: Context) -> list[Section]:
    made = [import_module(f"{__name__}.{name}").section(context) for name in names]
    return [section for section in made if section is not None]


def stagewise_sections(context: OutputsContext) -> list[Section]:
    """The sections of the page about a stagewise model, in its order."""
    parts = (
        stagewise.head,
        stagewise.visits,
        outputs.scores,
        stagewise.features,
        provenance.of_outputs,
    )
    return [section for section in (part(context) for part in parts) if section is not None]
