"""Unpenalised covariates, apart from the features."""

from __future__ import annotations

from fcl.report.contract import Context, Section, Table


def section(context: Context) -> Section | None:
    """The coefficients of the covariates; None for a model without any."""
    rows = [list(row) for term in context.model.covariates for row in term.rows]
    if not rows:
        return None
    lead = (
        "The penalty does not apply to these coefficients, which are in the units of the data. A level "
        "of a category is compared with the first level, which has none. A column that is constant or "
        "that other columns determine has the coefficient 0."
    )
    table = Table("covariates", ["covariate", "coefficient"], rows)
    return Section("covariates", "Covariates", lead, blocks=[table])
