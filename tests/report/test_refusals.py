"""Rows, names and groups that a report, an explanation or its parts refuse."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from waves import Problem

from fcl.data import DataSet, open_data
from fcl.errors import InputError
from fcl.report import extras, measured
from fcl.report.groups import Groups
from fcl.report.make import make_report
from fcl.report.measured import measure
from tests.report.conftest import kmer_case, table_case
from tests.report.test_outputs import made as several_outputs
from tests.report.test_stagewise import saved as stagewise

KMERS, NUMBERS = kmer_case(), table_case(labels=None, loss="squared")
WINDOWS, X = KMERS.data.rows.read_all(), NUMBERS.data.rows.read_all()


def labels(row: int) -> np.ndarray:
    return np.where(np.arange(333) == row, "maybe", "yes")


def measured_with(y: Any) -> object:
    return measure(KMERS.model, open_data(WINDOWS, y=y))


def numbers_with(y: Any) -> object:
    return measure(NUMBERS.model, open_data(X, y=y))


Make = Callable[[Path], DataSet]


def kmers(path: Path) -> DataSet:
    KMERS.model.save(path)
    return KMERS.data


def classes(path: Path) -> DataSet:
    return several_outputs(path, labels=("a", "b", "c"))


def reported(make: Make, change: Callable[[DataSet], DataSet] | None = None, **options: Any) -> Any:
    """A report on the rows of a model that `make` saves."""

    def call(folder: Path) -> object:
        data = make(folder / "m.fcl")
        return make_report(folder / "m.fcl", change(data) if change else data, **options)

    return call


def without_matplotlib(folder: Path) -> object:
    imported = extras.import_module

    def missing(name: str) -> object:
        if name == "matplotlib":
            raise ImportError
        return imported(name)

    kmers(folder / "m.fcl")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(extras, "import_module", missing)
        return make_report(folder / "m.fcl")


CASES: list[tuple[str, Callable[[Path], object], str]] = [
    ("explain top 0", lambda _: KMERS.model.explain(KMERS.data, top=0), "top .*got 0"),
    ("explain top 1.5", lambda _: KMERS.model.explain(KMERS.data, top=1.5),  # type: ignore[arg-type]
     r"top .*got 1\.5"),
    ("explain windows of 9 letters", lambda _: KMERS.model.explain(np.zeros((3, 9), np.uint8)),
     "9 letters.* 12"),
    ("measure without a target", lambda _: measured_with(None), "a target to compare .* got none"),
    ("measure an unknown label", lambda _: measured_with(labels(7)),
     r"'no' and 'yes', got .*'maybe'.* in row 7 "),
    ("measure a label of a later block", lambda _: measured_with(labels(207)),
     r"'no' and 'yes', got 'maybe' in row 207 "),
    ("measure labels as numbers", lambda _: numbers_with(labels(7)[:150]),
     "dtype <U5; a regression target must be numeric"),
    ("measure nan in a later block",
     lambda _: numbers_with(np.where(np.arange(150) == 99, np.nan, 1.0)),
     "row 99 is nan; a regression target must be finite"),
    ("groups of other rows", lambda _: Groups(np.arange(3), 4),
     r"groups: expected 4, one for each row, got \(3,\)"),
    ("report with two names", reported(kmers, names=["a", "b"]),
     "expected 12 names, one for each column .* got 2"),
    ("report without matplotlib", without_matplotlib,
     r"needs matplotlib; .* pip install 'fcl\[report\]'"),
    ("report with five groups", reported(classes, groups=np.arange(5)),
     r"groups: expected 260, one for each row, got \(5,\)"),
    ("report with an unknown class",
     reported(classes, lambda data: data.with_target(np.full(260, "z"), None)),
     "'a', 'b' and 'c', got 'z' in row 0"),
    ("stagewise report with groups", reported(stagewise, groups=np.zeros(300)), "groups and names"),
    ("stagewise report without a target",
     reported(stagewise, lambda _: open_data(Problem().x, y=None)), "a target to compare .* got none"),
]  # fmt: skip


@pytest.mark.parametrize(
    ("call", "message"), [pytest.param(*case, id=name) for name, *case in CASES]
)
def test_refusals(
    call: Callable[[Path], object], message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(measured, "BLOCK_ROWS", 64)
    with pytest.raises(InputError, match=message):
        call(tmp_path)
