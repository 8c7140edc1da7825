"""Rows, names and groups that a report, an explanation or its parts refuse."""

from __future__ import annotations

import sys
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from waves import Problem

from fcl.data import DataSet, open_data
from fcl.errors import InputError
from fcl.report import measured
from fcl.report.groups import Groups
from fcl.report.make import make_report
from fcl.report.measured import measure
from tests.report.conftest import kmer_case, table_case
from tests.report.test_outputs import made
from tests.report.test_stagewise import saved

KMERS, NUMBERS = kmer_case(), table_case(labels=None, loss="squared")
WINDOWS, X = KMERS.data.rows.read_all(), NUMBERS.data.rows.read_all()
# the rows of models that are saved in the working folder
classes = cache(lambda: made(Path("classes.fcl"), labels=("a", "b", "c")))
stagewise = cache(lambda: saved(Path("stagewise.fcl")))


@cache
def kmers() -> DataSet:
    KMERS.model.save("kmers.fcl")
    return KMERS.data


def labels(row: int) -> np.ndarray:
    return np.where(np.arange(333) == row, "maybe", "yes")


def of_kmers(y: Any) -> object:
    return measure(KMERS.model, open_data(WINDOWS, y=y))


def of_numbers(y: Any) -> object:
    return measure(NUMBERS.model, open_data(X, y=y))


def without_matplotlib() -> object:
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(sys.modules, "matplotlib", None)
        return make_report("kmers.fcl", kmers())


TARGET = "expected a target to compare .* got none"
CASES: list[tuple[str, Callable[[], object], str]] = [
    ("explain top 0", lambda: KMERS.model.explain(KMERS.data, top=0), "top must be .*got 0"),
    ("explain top 1.5", lambda: KMERS.model.explain(KMERS.data, top=1.5), r"top must be .*got 1\.5"),  # type: ignore[arg-type]
    ("explain 9 letters", lambda: KMERS.model.explain(WINDOWS[:, :9]), "9 letters.* 12"),
    ("measure without a target", lambda: of_kmers(None), TARGET),
    ("measure a label", lambda: of_kmers(labels(7)), "'no' and 'yes', got 'maybe' in row 7 "),
    ("measure a later label", lambda: of_kmers(labels(207)), "'no' and 'yes', got 'maybe' in row 207 "),
    ("measure text", lambda: of_numbers(labels(7)[:150]), "<U5; a regression target must be numeric"),
    ("measure nan", lambda: of_numbers(np.where(np.arange(150) == 99, np.nan, 1.0)),
     "row 99 is nan; a regression target must be finite"),
    ("groups", lambda: Groups(np.arange(3), 4), r"groups: expected 4, one for each row, got \(3,\)"),
    ("report names", lambda: make_report("kmers.fcl", kmers(), names=["a", "b"]),
     "expected 12 names, one for each column .* got 2"),
    ("report, no matplotlib", without_matplotlib, r"needs matplotlib .*: pip install 'fcl\[report\]'"),
    ("report groups", lambda: make_report("classes.fcl", classes(), groups=np.arange(5)),
     r"groups: expected 260, one for each row, got \(5,\)"),
    ("report a class",
     lambda: make_report("classes.fcl", classes().with_target(np.full(260, "z"), None)),
     "'a', 'b' and 'c', got 'z' in row 0"),
    ("stagewise groups", lambda: make_report("stagewise.fcl", stagewise(), groups=np.zeros(300)),
     "groups and names are for models of fcl train"),
    ("stagewise target",
     lambda: make_report("stagewise.fcl", (stagewise(), open_data(Problem().x, y=None))[1]), TARGET),
]  # fmt: skip


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("refusals")


@pytest.mark.parametrize(
    ("call", "message"), [pytest.param(*case, id=name) for name, *case in CASES]
)
def test_refusals(
    call: Callable[[], object], message: str, place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(place)
    monkeypatch.setattr(measured, "BLOCK_ROWS", 64)
    with pytest.raises(InputError, match=message):
        call()
