"""Scores of several outputs: errors of each class, number or label on the rows of the data."""

from __future__ import annotations

import numpy as np

from fcl.model.outputs import output_names
from fcl.objective.several import ClassSums, LabelSums, NumberSums
from fcl.report.contract import OutputsContext, Section, Table, name_text
from fcl.report.outputs import MeasuredOutputs
from fcl.report.sections.scores import OTHER, TRAINING, WITHOUT
from fcl.units import counted

__all__ = ["section"]

#: Outputs that the tables show.
MOST_OUTPUTS = 1_000
#: Classes up to which the page shows all confusions; with more, the pairs that are confused most.
MOST_SHOWN, MOST_PAIRS = 20, 50


def section(context: OutputsContext) -> Section:
    """Scores on the rows of the data, or how to get them."""
    measured = context.measured
    if measured is None:
        return Section("scores", "Scores", WITHOUT)
    sums = measured.sums
    names = [name_text(name) for name in output_names(context.model)]
    facts = [(name, f"{value:.5g}") for name, value in sums.metrics().items()]
    blocks: list[Table] = []
    if isinstance(sums, ClassSums):
        blocks = [_classes(sums, names), *_confusions(sums, names)]
    elif isinstance(sums, NumberSums) and sums.n_rows:
        rows = zip(names, sums.mse().tolist(), sums.r2().tolist(), strict=True)
        blocks = [_outputs(["target", "MSE", "R2"], [list(row) for row in rows])]
    elif isinstance(sums, LabelSums) and sums.n_rows:
        errors = (sums.wrong / sums.weight).tolist()
        blocks = [
            _outputs(["label", "error"], [list(row) for row in zip(names, errors, strict=True)])
        ]
    return Section("scores", "Scores", _lead(measured), facts, blocks)


def _lead(measured: MeasuredOutputs) -> str:
    n, n_counted = measured.data.n_rows, measured.sums.n_rows
    text = f"{counted(n, 'row')} of {name_text(measured.data.name)}."
    if n_counted < n:
        text += f" Without {counted(n - n_counted, 'row')} of weight 0."
    return f"{text} {TRAINING if measured.is_training else OTHER}"


def _outputs(head: list[str], rows: list[list[object]]) -> Table:
    more = f" The first {MOST_OUTPUTS:,} of {len(rows):,}." if len(rows) > MOST_OUTPUTS else ""
    return Table("outputs", head, rows[:MOST_OUTPUTS], f"Each {head[0]} by itself.{more}")


def _classes(sums: ClassSums, names: list[str]) -> Table:
    """The share of the rows of each class that are predicted right."""
    with np.errstate(invalid="ignore"):
        recall = sums.right / sums.of_class
    rows = zip(names, sums.of_class.tolist(), recall.tolist(), strict=True)
    return _outputs(["class", "sum of row weights", "predicted right"], [list(row) for row in rows])


def _confusions(sums: ClassSums, names: list[str]) -> list[Table]:
    """All confusions of few classes, or the largest of more; none of very many."""
    if sums.confusion is None:
        return []
    if len(names) <= MOST_SHOWN:
        caption = "Sums of row weights: the class of the rows, by the predicted class."
        cells = [[name, *row] for name, row in zip(names, sums.confusion.tolist(), strict=True)]
        return [Table("confusion", ["class", *names], cells, caption)]
    wrong = sums.confusion - np.diag(np.diag(sums.confusion))
    order = np.argsort(-wrong, axis=None, kind="stable")[:MOST_PAIRS]
    pairs = zip(*np.unravel_index(order, wrong.shape), strict=True)
    rows = [[names[i], names[j], float(wrong[i, j])] for i, j in pairs if wrong[i, j]]
    head = ["class", "predicted", "sum of row weights"]
    return [Table("confusion", head, rows, "The classes that are confused most.")]
