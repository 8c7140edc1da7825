"""The largest contributions to margins, as cells of a table."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import cache

from fcl.convert.contract import ConvertedRows
from fcl.errors import InputError
from fcl.model.explain import ExplainedOutput, Explanation
from fcl.model.outputs import Scores
from fcl.scoring.lines import TableLines
from fcl.scoring.margins import BlockScorer
from fcl.types import Floats


class ContributionCells:
    """Formats contributions: feature and contribution by rank, and the sum of the others.

    show : formats the description of a feature for a cell.
    """

    def __init__(self, output: ExplainedOutput, top: int, show: Callable[[str], str]) -> None:
        self._top = min(top, len(output.ids))
        self._words = cache(lambda index: show(output.feature_text(index)))

    def names(self) -> list[str]:
        """The names of the columns."""
        ranks = range(1, self._top + 1)
        names = [f"{name}_{rank}" for rank in ranks for name in ("feature", "contribution")]
        return [*names, "others"]

    def rows(self, explained: Explanation) -> Iterator[list[str]]:
        """The cells of each row; numbers have 17 significant digits, which restore them."""
        parts = explained.indices, explained.contributions, explained.others
        for indices, values, others in zip(*(part.tolist() for part in parts), strict=True):
            cells: list[str] = []
            for index, value in zip(indices, values, strict=True):
                # a feature that is 0 in the row contributes nothing, whichever it is
                cells += [self._words(index), f"{value:.17g}"] if value else ["", "0"]
            yield [*cells, f"{others:.17g}"]


class ExplainedLines(TableLines):
    """The columns of :class:`TableLines`, the intercept, and the largest contributions to the margin.

    The margin is the sum of the intercept and all contributions.

    scores : of the whole model.
    scorer : of the whole model, with which the rows are scored.
    top, show : as for :class:`ContributionCells`.
    """

    def __init__(
        self,
        output: ExplainedOutput,
        scores: Sequence[Scores],
        scorer: BlockScorer,
        top: int,
        show: Callable[[str], str],
    ) -> None:
        super().__init__(scores)
        if scorer.model.covariate_names:
            raise InputError(
                "--explain: the model has covariates, whose part is computed for DATA only; convert the "
                "files with fcl convert"
            )
        self._output, self._scorer, self._top = output, scorer, top
        self._cells = ContributionCells(output, top, show)

    def head(self, rows: ConvertedRows) -> bytes:
        names = "\t".join(["", "intercept", *self._cells.names()])
        return super().head(rows).removesuffix(b"\n") + names.encode() + b"\n"

    def lines(self, rows: ConvertedRows, margins: Floats) -> list[bytes]:
        intercept = f"{self._output.intercept:.17g}"
        cells = (
            "\t".join(["", intercept, *row])
            for explained in self._scorer.explanations(self._output, rows.x, self._top)
            for row in self._cells.rows(explained)
        )
        lines = super().lines(rows, margins)
        return [
            line.removesuffix(b"\n") + more.encode() + b"\n"
            for line, more in zip(lines, cells, strict=True)
        ]

    def blank(self) -> bytes:
        return b"\t" * (1 + len(self._cells.names())) + super().blank()
