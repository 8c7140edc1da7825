"""``fcl predict --explain``: the largest contributions to the margin of each row, as TSV."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, Any

from fcl.cli.common import printable
from fcl.errors import InputError

if TYPE_CHECKING:
    import numpy as np

    from fcl.data import DataSet
    from fcl.model.explain import ExplainedOutput
    from fcl.model.predictor import Predictor
    from fcl.model.scores import OnMargins
    from fcl.scoring.known import KnownColumns
    from fcl.types import Floats


def check_explained(out: str) -> None:
    """Raise InputError unless the output is text: ``.tsv``, ``.tsv.gz`` or standard output."""
    from fcl.model.text_output import text_suffix

    if text_suffix(out) != ".tsv":
        raise InputError(
            f"{out}: --explain writes text and numbers; expected a name that ends in .tsv"
        )


def explained_model(model: Predictor, options: Mapping[str, Any], kind: str) -> ExplainedOutput:
    """The output of a model whose margin is divided among its features, as ``explain_output`` names it.

    Raises InputError: not a linear model; or the output is unknown, missing, or not needed.
    """
    from fcl.model import Model
    from fcl.model.explain import ExplainedOutput
    from fcl.model.outputs import output_names

    if not isinstance(model, Model):
        raise InputError(
            "--explain needs a model of fcl train, whose margin is a sum of contributions; leave it out"
        )
    output = options["explain_output"]
    if output is None:
        model.require_one_output("--explain", "name one of them: --explain-output LABEL")
        return ExplainedOutput.of(model)
    if model.n_outputs == 1:
        raise InputError(
            "--explain-output: expected a model of several outputs, this one has one; leave it out"
        )
    if kind != "margin":
        raise InputError(f"--explain-output divides a margin; leave out --{kind}")
    by_name = dict(zip(output_names(model), model.output_labels, strict=True))
    return ExplainedOutput.of(model, by_name.get(output, output))


def write_explanations(
    explained: ExplainedOutput,
    data: DataSet,
    out: str,
    score: tuple[str, Callable[[Floats], Floats]] | None,
    top: int,
    overwrite: bool,
    on_margins: OnMargins | None = None,
    known: KnownColumns | None = None,
) -> int:
    """Write one line for each row to a .tsv file; returns the number of rows.

    The columns are the score, the margin, the intercept, the offset, what covariates add (if there are
    any), ``feature_1``, ``contribution_1`` and so on by decreasing |contribution|, and ``others``, the
    sum of all other contributions. The margin is the sum of the columns after it.

    score : the name of a score beside the margin, and what makes it from margins.
    top : number of contributions.
    known : columns of the rows that are written before the scores.
    """
    import numpy as np

    from fcl.model.explain import iter_explanations
    from fcl.model.text_output import text_output
    from fcl.scoring.explained import ContributionCells

    cells = ContributionCells(explained, top, printable)
    has_offset, has_covariates = data.offset is not None, data.covariates is not None
    beside = [] if known is None else known.names()
    names = [*beside, "margin"] if score is None else [*beside, score[0], "margin"]
    names += ["intercept", *["offset"] * has_offset, *["covariates"] * has_covariates]
    names += cells.names()
    n_rows = 0
    with text_output(out, overwrite) as file:
        # written with the first rows: rows that cannot be explained leave nothing on standard output
        head = "\t".join(names) + "\n"
        for rows in iter_explanations(explained, data, top):
            numbers = [] if score is None else [score[1](rows.margins)]
            numbers += [rows.margins, np.full(len(rows), explained.intercept)]
            numbers += [rows.offset] * has_offset + [rows.covariates] * has_covariates
            written = list(_lines(numbers, cells.rows(rows)))
            if known is not None and beside:
                written = list(known.before(n_rows, written))
            if on_margins is not None:
                on_margins(n_rows, n_rows + len(rows), rows.margins)
            file.write("".join([head, *written]).encode())
            head = ""
            n_rows += len(rows)
    return n_rows


def _lines(numbers: list[np.ndarray], cells: Iterator[list[str]]) -> Iterator[str]:
    columns = ([f"{number:.17g}" for number in column.tolist()] for column in numbers)
    for *first, rest in zip(*columns, cells, strict=True):
        yield "\t".join([*first, *rest]) + "\n"
