"""The sections of the page. Each module has ``section(context)``, which returns a Section or None.

To add a section, write a module and add it to ``SECTIONS`` at its place on the page: first how good the
model is, then what it found, then how it was trained.
"""

from __future__ import annotations

from fcl.model import Model
from fcl.report.contract import Context, Section
from fcl.report.sections import (
    convergence,
    covariates,
    effects,
    features,
    head,
    path,
    provenance,
    rows,
    scores,
    stagewise,
    stagewise_features,
)

SECTIONS = (head, scores, effects, features, covariates, rows, path, convergence, provenance)
#: Of the page about a stagewise model.
STAGEWISE = (head, scores, stagewise_features, stagewise, provenance)


def sections(context: Context) -> list[Section]:
    """The sections that have something to show, in the order of the page."""
    chosen = SECTIONS if isinstance(context.predictor, Model) else STAGEWISE
    made = [module.section(context) for module in chosen]
    return [section for section in made if section is not None]
