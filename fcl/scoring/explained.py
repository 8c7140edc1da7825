"""``fcl predict --explain``: the largest contributions to the margin of each row, as cells of a table."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cache
from typing import Any

from fcl.convert.contract import ConvertedRows
from fcl.data import DataSet
from fcl.errors import InputError
from fcl.model import Model
from fcl.model.explain import ExplainedOutput, Explanation, iter_explanations
from fcl.model.outputs import Scores, output_names
from fcl.model.predictor import Predictor
from fcl.model.scores import OnMargins
from fcl.model.text_output import text_output
from fcl.scoring.known import KnownColumns
from fcl.scoring.lines import TableLines
from fcl.scoring.margins import BlockScorer
from fcl.types import Floats


def explained_model(model: Predictor, options: Mapping[str, Any], kind: str) -> ExplainedOutput:
    """The output of a model whose margin is divided among its features, as ``explain_output`` names it.

    Raises InputError: not a linear model; or the output is unknown, missing, or not needed.
    """
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


class ContributionCells:
    """The parts of a margin: the intercept, feature and contribution by rank, and the sum of the others.

    show : formats the description of a feature for a cell.
    data : whose offset and covariates follow the intercept, if it has them.
    """

    def __init__(
        self,
        output: ExplainedOutput,
        top: int,
        show: Callable[[str], str],
        data: DataSet | None = None,
    ) -> None:
        self.output, self.top = output, top
        self._top = min(top, len(output.ids))
        self._words = cache(lambda index: show(output.feature_text(index)))
        self._added = [
            name for name in ("offset", "covariates") if getattr(data, name, None) is not None
        ]

    def names(self) -> list[str]:
        """The names of the columns."""
        ranks = range(1, self._top + 1)
        names = [f"{name}_{rank}" for rank in ranks for name in ("feature", "contribution")]
        return ["intercept", *self._added, *names, "others"]

    def rows(self, explained: Explanation) -> Iterator[list[str]]:
        """The cells of each row; numbers have 17 significant digits, which restore them."""
        parts = explained.indices, explained.contributions, explained.others
        added = (getattr(explained, name) for name in self._added)
        columns = (part.tolist() for part in (*parts, *added))
        for indices, values, others, *more in zip(*columns, strict=True):
            cells = [f"{number:.17g}" for number in (explained.intercept, *more)]
            for index, value in zip(indices, values, strict=True):
                # a feature that is 0 in the row contributes nothing, whichever it is
                cells += [self._words(index), f"{value:.17g}"] if value else ["", "0"]
            yield [*cells, f"{others:.17g}"]


def write_explanations(
    cells: ContributionCells,
    data: DataSet,
    out: str,
    score: tuple[str, Callable[[Floats], Floats]] | None,
    overwrite: bool,
    on_margins: OnMargins,
    known: KnownColumns,
) -> int:
    """Write one line for each row to a .tsv file; returns the number of rows.

    The columns are those of ``known``, the score, the margin, and the parts of the margin, which is their
    sum.

    cells : for these data.
    score : the name of a score beside the margin, and what makes it from margins.
    """
    names = [*known.names(), *([] if score is None else [score[0]]), "margin", *cells.names()]
    n_rows, head = 0, "\t".join(names) + "\n"
    with text_output(out, overwrite) as file:
        for rows in iter_explanations(cells.output, data, cells.top):
            scores = [] if score is None else [score[1](rows.margins)]
            columns = (
                [f"{number:.17g}" for number in column.tolist()]
                for column in (*scores, rows.margins)
            )
            lines = [
                "\t".join([*first, *rest]) + "\n"
                for *first, rest in zip(*columns, cells.rows(rows), strict=True)
            ]
            written = "".join([head, *known.before(n_rows, lines)])
            on_margins(n_rows, n_rows + len(rows), rows.margins)
            # with the first rows: rows that cannot be explained leave nothing on standard output
            file.write(written.encode())
            n_rows, head = n_rows + len(rows), ""
    return n_rows


class ExplainedLines(TableLines):
    """The columns of :class:`TableLines`, then the parts of the margin, which is their sum.

    scores : of the whole model.
    scorer : of the whole model, with which the rows are scored.
    """

    def __init__(
        self, cells: ContributionCells, scores: Sequence[Scores], scorer: BlockScorer
    ) -> None:
        super().__init__(scores)
        if scorer.model.covariate_names:
            raise InputError(
                "--explain: the model has covariates, whose part is computed for DATA only; convert the "
                "files with fcl convert"
            )
        self._cells, self._scorer = cells, scorer

    def head(self, rows: ConvertedRows) -> bytes:
        names = "\t".join(["", *self._cells.names()])
        return super().head(rows).removesuffix(b"\n") + names.encode() + b"\n"

    def lines(self, rows: ConvertedRows, margins: Floats) -> list[bytes]:
        cells = (
            "\t".join(["", *row])
            for explained in self._scorer.explanations(self._cells.output, rows.x, self._cells.top)
            for row in self._cells.rows(explained)
        )
        lines = super().lines(rows, margins)
        return [
            line.removesuffix(b"\n") + more.encode() + b"\n"
            for line, more in zip(lines, cells, strict=True)
        ]

    def blank(self) -> bytes:
        return b"\t" * len(self._cells.names()) + super().blank()
