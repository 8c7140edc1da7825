"""Models of several classes under every option, confirmed by code that shares nothing with fcl."""

from __future__ import annotations

import json
import warnings
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any

import bag_matrix
import brute
import numpy as np
import pytest
from judge_outputs import ClassProblem
from product_matrix import product_matrix
from scipy.sparse import csr_matrix

import fcl
from fcl.features import Bag, Fourier, Generator, Kmers, Products, bind_features
from fcl.model.checkpoint import CheckpointFolder
from tests.checkpoints import set_array, set_header
from tests.stops import After

N, P, K, C, TOL = 150, 12, 3, 0.2, 1e-7
#: The fields of a pass that are times, memory of the process, or marks of a resumed run.
INEXACT = {"seconds", "rows_per_second", "memory_bytes", "time_left", "busy", "resumed"}


@dataclass(frozen=True)
class Rows:
    """Rows with their classes, and everything that a data set may have beside them."""

    X: np.ndarray
    y: np.ndarray  #: class numbers (n,)
    s: np.ndarray | None = None
    offset: np.ndarray | None = None

    def open(self, X: Any = None) -> fcl.DataSet:
        X = self.X if X is None else X
        return fcl.open_data(X, y=self.y, weights=self.s, offset=self.offset)

    def problem(self, phi: np.ndarray | None = None, **changed: Any) -> ClassProblem:
        phi = self.X if phi is None else phi
        n, p = phi.shape
        given = {
            "s": np.ones(n) if self.s is None else self.s,
            "offset": 0.0 if self.offset is None else self.offset,
            "K": int(self.y.max()) + 1,
            "C": C,
            "f": np.ones(p),
        }
        return ClassProblem(phi=phi, y=self.y, **(given | changed))


@cache
def numbers(n: int = N) -> Rows:
    """Rows (n, 12) of numbers, whose classes depend on three columns."""
    random = np.random.default_rng(7)
    X = random.normal(size=(n, P))
    margins = X[:, :3] @ (1.5 * random.normal(size=(3, K))) + random.gumbel(size=(n, K))
    return Rows(X, margins.argmax(axis=1))


@cache
def letters() -> Rows:
    """Windows (200, 8) of letters, some unknown, whose classes depend on two positions."""
    random = np.random.default_rng(8)
    X = random.choice(5, p=[0.25, 0.25, 0.24, 0.24, 0.02], size=(200, 8)).astype(np.uint8)
    y = np.where(X[:, 3] == 1, X[:, 5] % 2, 2)
    return Rows(X, np.where(random.random(200) < 0.2, random.integers(0, 3, 200), y))


def train(data: fcl.DataSet, features: Any = "columns", **options: Any) -> fcl.TrainResult:
    given = {"C": C, "loss": "softmax", "tol": TOL, "memory": "1GiB", "block_rows": 64}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", fcl.ConvergenceWarning)
        return fcl.train(data, features, **(given | options))


def confirm(result: fcl.TrainResult, problem: ClassProblem, scale: Any = 1.0) -> None:
    """The objective by its definition; the bound below the optimum; the optimum, by another bound.

    scale : float or (p,), the factors by which the columns of the problem are divided.
    """
    model, certificate = result.model, result.certificate
    assert result.converged, result.message
    W = np.zeros((problem.phi.shape[1], problem.K))
    W[model.ids] = model.weights
    W *= np.reshape(scale, (-1, 1))
    b = np.asarray(model.intercept)
    value = problem.objective(W, b)
    assert certificate.objective == pytest.approx(value, rel=1e-10)
    assert certificate.gap == pytest.approx(1.0 - certificate.bound / value, abs=1e-10)
    assert certificate.gap <= result.model.options["tol"]
    best = problem.objective(*problem.solve())
    assert value <= best * (1.0 + result.model.options["tol"])
    assert certificate.bound <= min(best, value) * (1.0 + 1e-12)
    judged = problem.bound(problem.residuals(W, b))
    # the judge's bound is of the last point alone, fcl's the best over all passes
    assert value - judged <= 10.0 * result.model.options["tol"] * value
    assert judged <= best * (1.0 + 1e-12)


# -- options ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"intercept": False},
        {"l1_ratio": 0.5},
        {"group": True},
        {"group": True, "l1_ratio": 0.5, "intercept": False},
        {"block_rows": 65_536},
        {"C": 0.005},  # the null model
        {"C": 20.0},
    ],
    ids=str,
)
def test_the_optimum(options: dict[str, Any]) -> None:
    result = train(numbers().open(), **options)
    other = {"rho": options.get("l1_ratio", 1.0)}
    other |= {name: options[name] for name in ("C", "group", "intercept") if name in options}
    confirm(result, numbers().problem(**other))
    assert (len(result.model.ids) == 0) == (options.get("C") == 0.005)


@pytest.mark.parametrize("group", [False, True])
def test_weights_and_offsets(group: bool) -> None:
    random = np.random.default_rng(9)
    s = random.uniform(0.2, 3.0, N)
    s[:5] = 0.0
    rows = replace(numbers(), s=s, offset=random.normal(size=(N, K)))
    kept = replace(rows, X=rows.X[5:], y=rows.y[5:], s=s[5:], offset=rows.offset[5:])
    confirm(train(rows.open(), group=group), kept.problem(group=group))


def test_class_weights() -> None:
    rows = replace(numbers(), s=np.random.default_rng(9).uniform(0.2, 3.0, N))
    sums = np.bincount(rows.y, weights=rows.s)
    for given, factors in (
        ("balanced", sums.sum() / (K * sums)),
        ({0: 2.0, 2: 0.5}, np.array([2.0, 1.0, 0.5])),
    ):
        result = train(rows.open(), class_weight=given)
        confirm(result, rows.problem(s=rows.s * factors[rows.y]))


def test_standardized_columns() -> None:
    scales = np.geomspace(0.1, 10.0, P)
    rows = replace(numbers(), X=numbers().X * scales + 2.0)
    sd = rows.X.std(axis=0)
    confirm(train(rows.open(), standardize=True), rows.problem(rows.X / sd), sd)


def test_duplicate_and_constant_columns() -> None:
    X = numbers().X
    rows = replace(numbers(), X=np.column_stack([X, X[:, :4], np.ones(N), np.zeros(N), -X[:, 0]]))
    confirm(train(rows.open()), rows.problem())
    confirm(train(rows.open(), group=True), rows.problem(group=True))


def test_a_class_of_three_rows() -> None:
    y = numbers().y.copy()
    y[[3, 70, 120]] = K
    rows = replace(numbers(), y=y)
    for options in ({}, {"class_weight": "balanced"}):
        result = train(rows.open(), C=1.0, row_view=100, **options)
        s = N / (4 * np.bincount(y))[y] if options else np.ones(N)
        confirm(result, rows.problem(C=1.0, s=s))


@pytest.mark.parametrize("group", [False, True])
def test_a_sample_of_the_rows(group: bool) -> None:
    rows = numbers(300)
    result = train(rows.open(), row_view=200, group=group)
    confirm(result, rows.problem(group=group))


def test_validation_rows() -> None:
    rows, other = numbers(), numbers(300)
    held = replace(other, X=other.X[200:], y=other.y[200:], s=np.linspace(0.5, 2.0, 100))
    result = train(rows.open(), valid=held.open())
    confirm(result, rows.problem())
    m = held.X[:, result.model.ids] @ result.model.weights + result.model.intercept
    losses = np.logaddexp.reduce(m, axis=1) - m[np.arange(100), held.y]
    scores = result.history[-1]["validation"]
    assert scores["log_loss"] == pytest.approx(np.average(losses, weights=held.s), rel=1e-12)
    split = train(rows.open(), valid_fraction=0.3, seed=4)
    n_held = split.history[-1]["validation"]["n_rows"]
    assert split.model.n_rows + n_held == N and 20 < n_held < 70
    assert train(rows.open(), valid_fraction=0.3, seed=4).certificate == split.certificate


def test_an_initial_model() -> None:
    rows = numbers()
    for group in (False, True):
        other = train(rows.open(), C=0.15, tol=1e-3, group=group)
        result = train(rows.open(), initial=other.model, group=group)
        confirm(result, rows.problem(group=group))
        own = train(rows.open(), initial=result.model, group=group)
        assert own.passes <= 3
        confirm(own, rows.problem(group=group))
    binary = train(fcl.open_data(rows.X, y=rows.y == 1), loss="logistic").model
    with pytest.raises(
        fcl.InputError, match="initial: expected a model of 3 outputs, got one of 1"
    ):
        train(rows.open(), initial=binary)


# -- families --------------------------------------------------------------------------------------


class Factored(Generator):
    """The columns themselves, with penalty factors from 0.5 to 2; one is left out."""

    def fit(self, sample: Any) -> None:
        self.n_features = sample.shape[1]

    def columns(self, ids: Any, block: Any) -> np.ndarray:
        return np.asarray(block[:, ids])

    def penalty_factors(self, ids: Any) -> np.ndarray:
        factors = np.geomspace(0.5, 2.0, self.n_features)
        factors[0] = np.inf
        return np.asarray(factors[ids])


@pytest.mark.parametrize("options", [{}, {"group": True}, {"l1_ratio": 0.6}], ids=str)
def test_penalty_factors(options: dict[str, Any]) -> None:
    rows, f = numbers(), np.geomspace(0.5, 2.0, P)
    phi = rows.X.copy()
    phi[:, 0] = 0.0
    result = train(rows.open(), Factored(), **options)
    rho = options.get("l1_ratio", 1.0)
    confirm(result, rows.problem(phi, f=f, rho=rho, group="group" in options))
    assert 0 not in result.model.ids


@pytest.mark.parametrize("group", [False, True])
def test_sparse_columns(group: bool) -> None:
    X = np.where(numbers().X > 0.5, numbers().X, 0.0)
    rows = replace(numbers(), X=X)
    confirm(train(rows.open(csr_matrix(X)), group=group), rows.problem(group=group))


@pytest.mark.parametrize("group", [False, True])
def test_families_of_letters(group: bool) -> None:
    rows = letters()
    data = rows.open()
    bag: Any = bind_features(Bag(d=2), data.rows)
    matrices = ((Kmers(2), brute.matrix(rows.X, 2)), (Bag(d=2), bag_matrix.matrix(bag, rows.X)))
    for features, phi in matrices:
        result = train(data, features, group=group, tol=1e-5)
        confirm(result, rows.problem(phi.astype(np.float64), group=group))


@pytest.mark.parametrize("group", [False, True])
def test_families_of_numbers(group: bool) -> None:
    rows = numbers()
    fourier = Fourier(n=60)
    bound: Any = bind_features(fourier, rows.open().rows)
    cosines = bound.generator.columns(np.arange(60), bound.generator.prepare(rows.X))
    result = train(rows.open(), fourier, group=group, tol=1e-5)
    confirm(result, rows.problem(cosines.astype(np.float64), group=group))
    rows = replace(rows, X=rows.X[:, :6].astype(np.float32))
    signs = replace(rows, X=(rows.X > 0.3).astype(np.float32))
    for own, binary in ((rows, False), (signs, True)):
        phi = product_matrix(own.X, 2, repeats=not binary)
        result = train(own.open(), Products(degree=2, binary=binary), group=group, tol=1e-5)
        confirm(result, own.problem(phi, group=group))


# -- targets and labels ----------------------------------------------------------------------------


@pytest.mark.parametrize("options", [{}, {"l1_ratio": 0.5}, {"intercept": False}], ids=str)
@pytest.mark.parametrize("loss", ["squared", "logistic"])
def test_separate_outputs(loss: str, options: dict[str, Any]) -> None:
    """Targets and labels with an L1 norm are problems of their own, whose certificates add up."""
    random = np.random.default_rng(2)
    X, scales = numbers().X, np.array([1.0, 10.0, 0.1])
    Y = (X[:, :3] + 0.5 * random.normal(size=(N, K))) * scales + scales
    Y = Y if loss == "squared" else (Y > 0).astype(float)
    s, offset = random.uniform(0.2, 3.0, N), random.normal(size=(N, K))
    given = {"loss": loss, "C": 0.1, **options}
    joint = train(fcl.open_data(X, y=Y, weights=s, offset=offset), **given)
    parts = [
        train(fcl.open_data(X, y=Y[:, k], weights=s, offset=offset[:, k]), **given)
        for k in range(K)
    ]
    assert joint.converged and all(part.converged for part in parts)
    best = sum(part.certificate.objective for part in parts)
    assert joint.certificate.objective == pytest.approx(best, rel=2 * TOL)
    assert joint.certificate.bound <= best * (1.0 + 1e-12)
    margins = joint.model.margins(X, offset=offset)
    for k, part in enumerate(parts):
        own = part.model.margins(X, offset=offset[:, k])
        np.testing.assert_allclose(margins[:, k], own, atol=2e-2 * scales[k])


# -- checkpoints -----------------------------------------------------------------------------------


def bits(result: fcl.TrainResult) -> tuple[Any, ...]:
    """Everything except times and memory."""
    model = result.model
    history = [{k: v for k, v in entry.items() if k not in INEXACT} for entry in model.history]
    numbers = (model.ids, model.weights, model.intercept, model.support)
    return (
        *(np.asarray(array).tobytes() for array in numbers),
        json.dumps(history, sort_keys=True),
        result.certificate,
    )


@pytest.mark.parametrize(
    "options", [{}, {"group": True}, {"row_view": 100}, {"group": True, "row_view": 100}], ids=str
)
def test_resumed_at_any_poll(tmp_path: Path, options: dict[str, Any]) -> None:
    random = np.random.default_rng(11)
    X = np.column_stack([numbers(300).X, random.normal(size=(300, 40))])
    data = fcl.open_data(X, y=numbers(300).y)
    counter = After()
    whole = bits(train(data, should_stop=counter, **options))
    lengths = set()
    for k in np.linspace(12, counter.calls - 1, 4).astype(int).tolist():
        folder = tmp_path / str(k)
        try:
            train(data, should_stop=After(k), checkpoint=folder, **options)
        except KeyboardInterrupt:
            continue
        lengths.add(len(CheckpointFolder(folder).load().history))
        assert bits(train(data, resume=folder, **options)) == whole, f"stopped at poll {k}"
    assert len(lengths) >= 2


def test_resumed_by_the_other_driver(tmp_path: Path) -> None:
    rows, both = numbers(), ("inline", "processes")
    for before, after in (both, both[::-1]):
        folder = tmp_path / before
        first = train(rows.open(), max_passes=2, checkpoint=folder, driver=before)
        assert not first.converged
        again = train(rows.open(), resume=folder, max_passes=1000, driver=after)
        confirm(again, rows.problem())


def test_a_checkpoint_of_other_outputs(tmp_path: Path) -> None:
    rows = numbers()
    data, folder = rows.open(), tmp_path / "c"
    train(data, max_passes=2, checkpoint=folder)
    for changed in ({"group": True}, {"loss": "logistic", "data": rows.y == 1}):
        y = changed.pop("data", rows.y)
        name = next(iter(changed))
        with pytest.raises(fcl.InputError, match=rf"{name} was .*, is "):
            train(fcl.open_data(rows.X, y=y), resume=folder, **changed)
    newest = folder / f"checkpoint-{CheckpointFolder(folder).load().number}.fcl-ckpt"
    for path in set(folder.glob("*.fcl-ckpt")) - {newest}:
        path.unlink()
    arrays = CheckpointFolder(folder).load().arrays
    set_header(newest, "state", n_outputs=K + 1)
    with pytest.raises(fcl.InputError, match="holds no intact checkpoint"):
        train(data, resume=folder)
    for name, array in arrays.items():  # weights and intercepts of four outputs, which fit together
        if name.endswith("weights"):
            set_array(newest, name, np.zeros(array.size // K * (K + 1)))
        if name.endswith("covariates"):
            set_array(newest, name, np.zeros(K + 1))
    with pytest.raises(fcl.InputError, match="its weights are of 4 outputs, not 3"):
        train(data, resume=folder)


# -- bad input -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"loss": "logistic"}, "softmax"),
        ({"loss": "squared_hinge"}, "softmax"),
        ({"offset": np.zeros(N)}, r"expected an offset for each row and output, shape \(150, 3\)"),
        ({"offset": np.zeros((N, 2))}, r"shape \(150, 3\), got shape \(150, 2\)"),
        ({"y": np.zeros((N, 2))}, "y"),
        ({"y": np.zeros(N)}, "expected at least two classes, got only one class"),
        ({"y": np.zeros((N, 2)), "loss": "huber"}, "several columns need one of the losses"),
        ({"y": np.full((N, 2), 0.5), "loss": "logistic"}, "expected 0 or 1 in each column"),
        ({"covariates": np.ones((N, 1))}, "covariates: expected none with several classes"),
        ({"class_weight": {9: 2.0}}, "9"),
    ],
    ids=lambda value: None if isinstance(value, str) else ",".join(value),
)
def test_refused(options: dict[str, Any], words: str) -> None:
    rows = numbers()
    given = dict(options)
    y = given.pop("y", rows.y)
    with pytest.raises(fcl.InputError, match=words):
        train(fcl.open_data(rows.X, y=y), **given)


def test_refused_validation_rows() -> None:
    rows = numbers()
    two, y4 = rows.y < 2, rows.y.copy()
    y4[0] = 9
    for held, words in (
        (replace(rows, X=rows.X[two], y=rows.y[two]), "no row of 2"),
        (replace(rows, y=y4), "unknown class|9"),
        (replace(rows, y=np.column_stack([rows.y, rows.y])), "y"),
    ):
        with pytest.raises(fcl.InputError, match=words):
            train(rows.open(), valid=held.open())
    Y = np.column_stack([rows.X[:, 0], rows.X[:, 1]])
    for wrong in (Y[:, :1], np.column_stack([Y, Y])):
        valid = fcl.open_data(rows.X, y=wrong)
        with pytest.raises(fcl.InputError, match="expected 2 columns of numbers"):
            train(fcl.open_data(rows.X, y=Y), loss="squared", valid=valid)


def test_many_similar_features_leave_the_bound_of_a_group_tight() -> None:
    """A thousand features a class have prices near the largest: lists of the outputs hold them all."""
    random = np.random.default_rng(9)
    y = np.repeat(np.arange(K), N // K)
    phi = (y[:, None] == np.arange(3000) % K) + 0.05 * random.normal(size=(N, 3000))
    problem = Rows(phi, y).problem(group=True)
    null = problem.residuals(np.zeros((3000, K)), np.zeros(K))
    least = 1.0 / problem.largest(null)
    found = train(Rows(phi, y).open(), C=0.99 * least, group=True, max_passes=3).certificate
    assert found.max_violation == pytest.approx(0.99, rel=1e-9)
    assert found.gap <= TOL
