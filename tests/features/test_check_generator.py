"""check_generator: good classes pass, and each fault has its own message."""

from __future__ import annotations

import re
from typing import Any

import generators
import numpy as np
import pytest
from scipy.sparse import csr_array

import fcl
from fcl.features import Columns, Generator
from fcl.testing import check_generator
from fcl.testing import generator as check

RNG = np.random.default_rng(0)
X = RNG.normal(size=(400, 12))
SPARSE = csr_array(X * (RNG.random(X.shape) < 0.2))

#: Classes, and words that the message must contain.
BROKEN = {
    "LostOption": r"options: __init__ takes scale, .*self\.scale = scale",
    "ChangedOption": r"fit: expected the same options and state after making it again",
    "ArrayOption": r"options: the option scale is array.*JSON cannot hold",
    "NoNumber": r"fit: n_features must be a whole number .* got None",
    "FractionalNumber": r"fit: n_features must be a whole number .* got 6\.0",
    "RandomFit": r"fit: fit\(\) learns something else from the same sample",
    "FailingFit": r"fit: fit on a sample of 400 rows raised ZeroDivisionError: no rows like that",
    "Transposed": r"columns: columns\(12 features, 0 to 11\) .* expected shape \(300, 12\)",
    "Complex": r"columns: .*expected real numbers, got dtype complex128",
    "AList": r"columns: .*expected a numpy array, got list",
    "NotFinite": r"columns: .*feature \d+ is nan at row \d+ of X; values must be finite",
    "NotBinary": r"columns: .*says binary = True, but feature 0 is",
    "NoSteps": r"columns: .*says step = 0\.25, so all values must be multiples of it, .*but feature 0 is",
    "TooManySteps": r"columns: .*-127 to 127 times, but feature \d+ is",
    "RoundedStep": r"fit: step must be 0, or .*are exact in float32, got 0\.1",
    "BothSteps": r"fit: step must be 0, or \(unless binary is True\) a number above 0",
    "Raises": r"columns: columns\(12 features, 0 to 11\) on 300 rows .* X raised KeyError: 'table'",
    "Writes": r"columns: .*raised ValueError: output array is read-only",
    "Centered": r"columns of other blocks: .*feature 0 in a block of rows 0 to 63 alone",
    "RanksFeatures": r"columns of single features: .*feature 1 when it is the only one asked for",
    "Counting": r"columns again: .*a different column for feature 0 when it is called a second time",
    "ByProcess": r"another process: columns\(\) returns a different column for .* in another process",
    "Float32Gradients": r"gradients: gradients\(.* gives .*accumulated in float64",
    "NoLargest": r"fit: a class that defines gradients\(\) must also define largest\(\)",
    "SmallLargest": r"largest: largest on 300 rows .* says that no \|value\| exceeds 0\.01",
    "WrongMargins": r"margins: margins\(.* gives .* for row 0 of X, where the columns give",
    "PreparesRanks": r"prepare of other blocks: prepare\(\) makes something else of row 0 alone",
    "PreparesFewer": r"prepare: .*width and dtype must be the same for every block",
    "SameWords": r"describe: describe\(\) says 'a feature' of both feature 0 and feature 1",
    "NoWords": r"describe: describe\(0\) gives ''",
    "Forgets": r"stored: prepare\(\) or columns\(\) returns a different column .*again from its options",
}


@pytest.fixture
def no_process(monkeypatch: pytest.MonkeyPatch) -> None:
    """Leave out the check in another process, which takes a second and finds other faults."""
    monkeypatch.setattr(check._Examination, "elsewhere", lambda self: None)


@pytest.mark.usefixtures("no_process")
@pytest.mark.parametrize("name", [name for name in BROKEN if name != "ByProcess"])
def test_a_fault_has_a_message_of_its_own(name: str) -> None:
    finds_the_fault(name)


def test_a_fault_of_another_process() -> None:
    finds_the_fault("ByProcess")


def finds_the_fault(name: str) -> None:
    with pytest.raises(fcl.GeneratorError, match=BROKEN[name]) as found:
        check_generator(getattr(generators, name)(), X, training=False)
    assert f"features {name} break the contract" in str(found.value)


@pytest.mark.usefixtures("no_process")
@pytest.mark.parametrize("kind", ["dense", "sparse", "prepared"])
@pytest.mark.parametrize("how", ["nan", "raise"])
def test_a_row_that_few_samples_hold(kind: str, how: str) -> None:
    """Rows are scanned once: a fault in one row among thousands is found, and the row is named."""
    rows = np.random.default_rng(0).uniform(0.5, 1.0, size=(9_000, 6))
    classes = {"dense": "Rare", "sparse": "RareSparse", "prepared": "RarePrepared"}
    made = getattr(generators, classes[kind])(how)
    data = csr_array(rows) if kind == "sparse" else rows
    report = check_generator(made, data, training=False)
    assert "columns over the data: good (6 features, 0 to 5; 9,000 rows)" in str(report)
    rows[7_777, 3] = generators.RARE
    data = csr_array(rows) if kind == "sparse" else rows
    says = "columns over the data: columns(6 features, 0 to 5) on rows 4096 to 8191"
    says += ": feature 3 is nan at row 7777 of X" if how == "nan" else " raised KeyError: 'no such'"
    if (kind, how) == ("prepared", "raise"):
        says = (
            "columns over the data: prepare raised KeyError: 'no such' (on rows 4096 to 8191 of X)"
        )
    with pytest.raises(fcl.GeneratorError, match=re.escape(says)):
        check_generator(made, data, training=False)


@pytest.mark.usefixtures("no_process")
def test_no_more_rows_are_scanned_than_a_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(check, "SCANNED", 1_000)
    report = check_generator(generators.Tanh(), np.tile(X, (4, 1)), training=False)
    assert f"12 features, 0 to 11; 1,000 of {4 * len(X):,} rows)" in str(report)


def test_all_faults_are_reported_at_once() -> None:
    class Both(generators.WrongMargins):
        def describe(self, feature: int) -> str:
            return ""

    with pytest.raises(fcl.GeneratorError) as found:
        check_generator(Both(), X, training=False)
    text = str(found.value)
    assert "home: " in text and "defined inside a function" in text
    assert "margins: " in text and "describe: " in text


@pytest.mark.slow
@pytest.mark.parametrize(
    ("generator", "data"),
    [
        (generators.Tanh(scale=0.5), X),
        (generators.Above(), X.astype(np.float32)),
        (generators.Sparse(), SPARSE),
        (generators.NoOptions(), X[:60]),
        (Columns(), SPARSE),
    ],
    ids=["duty alone", "everything", "sparse", "no options", "columns"],
)
def test_good_classes_pass(generator: Generator, data: Any) -> None:
    report = check_generator(generator, data)
    assert not report.faults and str(report).startswith(type(generator).__name__)
    names = [check.name for check in report.checks]
    assert names[-1] == "training" and not any(check.left_out for check in report.checks)
    assert ("gradients" in names) == isinstance(generator, generators.Above | Columns)
    assert len(names) >= 11


@pytest.mark.slow
def test_the_training_run_sees_what_the_samples_do_not(monkeypatch: pytest.MonkeyPatch) -> None:
    """Gradients that are wrong for a few features out of many: only the run prices them all."""

    def wrong(self: Any, first: int, last: int, block: Any, residuals: Any) -> np.ndarray:
        g = residuals @ block[:, first:last].astype(np.float64)
        g[np.arange(first, last) == 1] *= 0.5
        return g

    monkeypatch.setattr(generators.Above, "gradients", wrong)
    with pytest.raises(
        fcl.GeneratorError, match=r"gradients: gradients\(.* gives .* for feature 1"
    ):
        check_generator(generators.Above(), X)
    monkeypatch.setattr(check._Examination, "gradients", lambda self: None)
    with pytest.raises(fcl.GeneratorError, match="training: the driver inline"):
        check_generator(generators.Above(), X)


def test_rows_of_another_kind() -> None:
    class Letters(generators.NoOptions):
        rows = "sequences"

    with pytest.raises(
        fcl.InputError, match=r"X has dtype float64; expected \(n, L\) integers 0-4"
    ):
        check_generator(Letters(), X)
    with pytest.raises(fcl.InputError, match="instance of a subclass"):
        check_generator(generators.Tanh, X)  # type: ignore[arg-type]


@pytest.mark.slow
def test_a_large_family_is_not_trained(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("fcl.testing.generator.TRAINING_VALUES", 100)
    report = check_generator(generators.Tanh(), X)
    assert "12 features are too many" in report.checks[-1].left_out
