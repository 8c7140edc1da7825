"""Unpenalised covariates, apart from the features."""

from __future__ import annotations

from fcl.report.contract import Context, Section, Table


def section(context: Context) -> Section | None:
    """The coefficients of the covariates; None for a model without any."""
    model = context.model
    rows = [list(row) for row in model.covariate_rows]
    if not rows:
        return None
    lead = (
        "The penalty does not apply to these coefficients, which are in the units of the data. A level "
        "of a category is compared with the first level, which has no coefficient. A column that is "
        "constant or that other columns determine has the coefficient 0."
    )
    head = ["covariate", model.noun, "coefficient"]
    if len(context.outputs) == 1:
        rows, head = [[name, value] for name, _, value in rows], [head[0], head[2]]
    table = Table("covariates", head, rows)
    return Section("covariates", "Covariates", lead, blocks=[table])
