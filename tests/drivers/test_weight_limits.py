"""Limits on weights, held against solvers with bounds, and the places where they are given."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner
from hypothesis import given
from hypothesis import strategies as st
from judge import Problem, confirm
from rows import acceptors
from sklearn.linear_model import Lasso

import fcl
from fcl.cli.certify import command as certify_command
from fcl.cli.train import command as train_command
from fcl.options.kinds import limits_of
from fcl.run.events import PassDone
from fcl.solve import passes
from tests import by_name
from tests.drivers.conftest import bits, dense
from tests.windows import examples

INF = float("inf")
N, P = 300, 16
RANDOM = np.random.default_rng(3)
X = RANDOM.normal(size=(N, P)) * np.logspace(-0.5, 0.5, P)
SCORE = X @ (RANDOM.normal(size=P) / X.std(axis=0))
TARGETS = {
    "logistic": np.where(SCORE + RANDOM.normal(size=N) > 0.0, 1.0, -1.0),
    "squared": SCORE + RANDOM.normal(size=N),
    "huber:delta=2": SCORE + RANDOM.standard_t(2, N),
    "poisson": RANDOM.poisson(np.exp(SCORE / 4.0)).astype(float),
}
STRENGTHS = {"logistic": 0.5, "squared": 0.02, "huber:delta=2": 0.05, "poisson": 0.1}
NAMED = {"*": (-INF, 0.0), "x0": (-0.1, 0.2), "x3": (0.0, INF), "x7": "-0.3:", 9: (0, 0)}
#: What users give, and the limits of every weight.
LIMITS: dict[str, tuple[Any, Any, Any]] = {
    "at least 0": ("0:", 0.0, INF),
    "at most 0": ((None, 0), -INF, 0.0),
    "a box": ((-0.1, 0.3), -0.1, 0.3),
    "high alone": (":0.2", -INF, 0.2),
    "a box and others": (
        {"*": (-0.1, 0.3), 2: (None, None), 5: "-0.2:0", 6: (-0.5, INF)},
        np.array([-0.1, -0.1, -INF, -0.1, -0.1, -0.2, -0.5] + [-0.1] * 9),
        np.array([0.3, 0.3, INF, 0.3, 0.3, 0.0, INF] + [0.3] * 9),
    ),
    "named": (
        NAMED,
        np.array([-0.1, -INF, -INF, 0, -INF, -INF, -INF, -0.3, -INF, 0] + [-INF] * 6),
        np.array([0.2, 0, 0, INF, 0, 0, 0, INF, 0, 0] + [0.0] * 6),
    ),
}


def train(loss: str = "squared", **options: Any) -> fcl.TrainResult:
    given = {"C": STRENGTHS[loss], "tol": 1e-9, "warn": False, "memory": "1GiB", "loss": loss}
    return by_name.train(fcl.open_data(X, y=TARGETS[loss]), "columns", **{**given, **options})


def problem(loss: str, limits: str, rho: float = 1.0, intercept: bool = True) -> Problem:
    _, low, high = LIMITS[limits]
    y, C = TARGETS[loss], STRENGTHS[loss]
    return Problem(X, y, np.ones(N), loss, C, intercept, rho, low=low, high=high)


# -- other solvers ---------------------------------------------------------------------------------


@pytest.mark.thin(3)
@pytest.mark.parametrize("rho", [1.0, 0.4])
@pytest.mark.parametrize("limits", LIMITS)
@pytest.mark.parametrize("loss", TARGETS)
def test_the_optimum_of_the_judge(loss: str, limits: str, rho: float) -> None:
    of = problem(loss, limits, rho)
    result = train(loss, limits=LIMITS[limits][0], l1_ratio=rho)
    claimed, w = result.certificate, dense(result.model, P)
    low, high = of.ends
    assert result.converged and ((w >= low) & (w <= high)).all()
    assert ((w != 0.0) & ((w == low) | (w == high))).any() or not np.isfinite(low + high).any()
    best = of.solve(1e-9)
    assert claimed.objective == pytest.approx(best.objective, rel=1e-8)
    confirm(of, w, result.model.intercept, claimed, best)


@pytest.mark.parametrize("alpha", [0.02, 0.2, 1.0])
def test_weights_of_at_least_0_are_those_of_scikit_learn(alpha: float) -> None:
    y = TARGETS["squared"]
    other = Lasso(alpha=alpha, positive=True, tol=1e-12, max_iter=100_000).fit(X, y)
    result = train(C=1.0 / (2.0 * N * alpha), limits="0:")
    np.testing.assert_allclose(dense(result.model, P), other.coef_, atol=1e-7)
    assert result.model.intercept == pytest.approx(other.intercept_, abs=1e-7)
    estimator = fcl.FCLRegressor(C=1.0 / (2.0 * N * alpha), limits=(0, INF), tol=1e-9).fit(X, y)
    np.testing.assert_allclose(estimator.column_weights_, other.coef_, atol=1e-7)


@st.composite
def problems(draw: Any) -> tuple[Problem, dict[int, list[float]], int]:
    """A small problem with limits of some features, and the number of passes."""
    random = np.random.default_rng(draw(st.integers(0, 2**31)))
    n, p = int(random.integers(5, 60)), int(random.integers(1, 20))
    phi = random.normal(size=(n, p)) * 10.0 ** random.uniform(-1, 1, p)
    loss = str(random.choice(["logistic", "squared", "squared_hinge", "huber:delta=2"]))
    y = random.normal(size=n) + phi[:, 0]
    if loss in ("logistic", "squared_hinge"):
        y = np.where(y > np.median(y), 1.0, -1.0)
    ends = random.choice([0.0, 0.05, 0.5, INF, INF], (2, p))
    low, high = -ends[0], ends[1]
    rho, C = float(random.choice([1.0, 0.5])), float(10.0 ** random.uniform(-2, 1))
    intercept = bool(random.random() < 0.7)
    of = Problem(phi, y, np.ones(n), loss, C, intercept, rho, low=low, high=high)
    rows = zip(range(p), low.tolist(), high.tolist(), strict=True)
    return of, {j: ends for j, *ends in rows}, draw(st.integers(1, 6))


@pytest.mark.slow
@given(problems())
@examples(60)
def test_no_bound_is_above_the_optimum(drawn: tuple[Problem, dict[int, list[float]], int]) -> None:
    of, limits, passes = drawn
    data, options = fcl.open_data(of.phi, y=of.y), {"tol": 1e-10, "warn": False, "memory": "1GiB"}
    options |= {"C": of.C, "loss": of.loss, "l1_ratio": of.rho, "intercept": of.intercept}
    result = by_name.train(data, "columns", limits=limits, max_passes=passes, **options)
    w, model = dense(result.model, of.phi.shape[1]), result.model
    best = of.improved(*of.polish(w, model.intercept), 1e-7)
    for entry in model.history:
        assert entry["bound"] <= best.objective * (1.0 + 1e-11)
    confirm(of, w, model.intercept, model.certificate, best)


# -- families, outputs, drivers --------------------------------------------------------------------


def test_names_and_ids_give_the_same_bits() -> None:
    codes, y = acceptors(14, 400)
    data = fcl.open_data(codes, y=y)
    options: dict[str, Any] = {"C": 0.5, "tol": 1e-6, "memory": "1GiB"}
    free = fcl.train(data, "kmers:d=3", **options).model
    ids = free.ids[np.argsort(-np.abs(free.weights))[:10]]
    names = [free.family.describe(int(id)) for id in ids]
    ends = [(-0.1, 0.1), (0.0, INF), (-INF, 0.05)]
    one, other = (
        fcl.train(data, "kmers:d=3", limits={k: ends[t % 3] for t, k in enumerate(keys)}, **options)
        for keys in (names, ids.tolist())
    )
    assert bits(one) == bits(other) and one.converged
    low, high = np.array([ends[t % 3] for t in range(10)]).T
    w = dense(one.model, free.family.n_features)[ids]
    assert ((w >= low) & (w <= high)).all() and ((w == low) | (w == high)).sum() > 3
    assert one.certificate.objective > free.certificate.objective


def test_features_with_equal_columns_each_have_their_limits() -> None:
    """Only together they reach the weight that one without limits would have."""
    doubled = np.column_stack([X[:, 0]] * 3)
    data = fcl.open_data(doubled, y=TARGETS["squared"])
    options: dict[str, Any] = {"loss": "squared", "C": 1.0, "tol": 1e-9}
    (alone,) = fcl.train(data, "columns", **options).model.weights
    end = abs(alone) / 2.5
    result = fcl.train(data, "columns", limits=(-end, end), **options)
    assert result.converged and np.abs(result.model.weights).sum() == pytest.approx(abs(alone))
    one = fcl.train(data, "columns", limits={1: (-end, end), 2: (-end, end)}, **options)
    assert np.abs(one.model.weights).sum() == pytest.approx(abs(alone))


@pytest.mark.parametrize("limits", ["0:", ":0"])
def test_separate_outputs_are_those_of_single_models(limits: str) -> None:
    Y = np.column_stack([TARGETS["squared"], X[:, 1] - X[:, 2]])
    options: dict[str, Any] = {"loss": "squared", "C": 0.02, "tol": 1e-8, "limits": limits}
    both = fcl.train(fcl.open_data(X, y=Y), "columns", **options)
    alone = [fcl.train(fcl.open_data(X, y=y), "columns", **options) for y in Y.T]
    total = sum(one.certificate.objective for one in alone)
    assert both.certificate.objective == pytest.approx(total, rel=1e-7)
    for k, one in enumerate(alone):
        w = np.zeros(P)
        w[both.model.ids] = both.model.weights[:, k]
        np.testing.assert_allclose(w, dense(one.model, P), atol=1e-4)
        assert (w >= 0.0).all() if limits == "0:" else (w <= 0.0).all()


def test_three_classes_one_against_the_rest() -> None:
    y = np.digitize(SCORE, np.quantile(SCORE, [0.3, 0.7]))
    found = fcl.FCLClassifier(C=0.1, limits={0: (0, INF), 1: (-0.1, 0.1)}).fit(X, y)
    weights = found.column_weights_
    assert weights.shape == (3, P) and (weights[:, 0] >= 0.0).all()
    assert (np.abs(weights[:, 1]) <= 0.1).all() and (weights[:, 2:] < 0.0).any()


@pytest.mark.slow
def test_processes_with_more_limits_than_candidates() -> None:
    random = np.random.default_rng(5)
    wide = random.normal(size=(200, 700))
    y = np.where(wide[:, :300] @ random.normal(size=300) > 0.0, 1, -1)
    data, limits = fcl.open_data(wide, y=y), dict.fromkeys(range(600), (-0.01, 0.01))
    options: dict[str, Any] = {"C": 5.0, "tol": 1e-6, "limits": limits, "memory": "1GiB"}
    one, other = (
        fcl.train(data, "columns", **options, driver=driver)
        for driver in ("inline", "processes:writers=2")
    )
    assert one.converged and other.converged
    assert other.certificate.objective == pytest.approx(one.certificate.objective, rel=2e-6)
    assert (np.abs(one.model.weights) == 0.01).sum() > 50


@pytest.mark.slow
def test_a_path_with_refit_keeps_the_limits() -> None:
    data = fcl.open_data(X, y=TARGETS["squared"])
    for limits, low, high in (("0:", 0.0, INF), ((-0.1, 0.3), -0.1, 0.3)):
        path = fcl.train_path(
            data,
            "columns",
            loss="squared",
            limits=limits,
            alphas=np.logspace(1, -2, 6),
            cv=3,
            refit=True,
            tol=1e-6,
        )
        models = [point.model for point in path.points] + [path.refit.model]
        weights = np.concatenate([model.weights for model in models])
        assert weights.min() >= low and weights.max() <= high and len(weights) > 10
        assert all(point.model.certificate.gap <= 1e-6 for point in path.points)
        assert len({str(model.options["limits"]) for model in models}) == 1


def test_an_initial_model_moves_within_the_limits() -> None:
    free = train().model
    assert free.weights.min() < -0.2
    objectives: list[float] = []

    def note(event: Any) -> None:
        if isinstance(event, PassDone):
            objectives.append(event.objective)

    result = train(limits="-0.2:", initial=free, progress=note)
    w = np.maximum(dense(free, P), -0.2)
    of = replace(problem("squared", "at least 0"), low=-0.2)
    assert objectives[1] <= of.objective(w, free.intercept) * (1.0 + 1e-9)
    assert result.model.weights.min() == -0.2


# -- certify ---------------------------------------------------------------------------------------


def test_certify_knows_the_limits_of_a_model(tmp_path: Path) -> None:
    model = train(limits=NAMED).model
    model.save(tmp_path / "m.fcl")
    loaded = fcl.load_model(tmp_path / "m.fcl")
    assert loaded.options["limits"] == [None, 0.0, [[0, -0.1, 0.2], [3, 0.0, None], [7, -0.3, None],
                                                    [9, 0.0, 0.0]]]  # fmt: skip
    data = fcl.open_data(X, y=TARGETS["squared"])
    found = fcl.certify(loaded, data)
    assert found.certificate.gap <= 1e-8 and found.best_C is None
    assert found.objective == pytest.approx(model.certificate.objective, rel=1e-12)
    # the ball has no limits: at most the price of the strongest feature that may move, times the radius
    assert found.ball_gap > 0.0
    weights = (dense(model, P), model.intercept)
    other = fcl.certify(weights, data, model.C, loss="squared", limits=NAMED)
    assert other.certificate == found.certificate
    free = fcl.certify(weights, data, model.C, loss="squared")
    assert free.certificate.gap > 0.01
    with pytest.raises(fcl.InputError, match=r"bound: the model is of another job: .*limits was"):
        fcl.certify(weights, data, model.C, loss="squared", bound=model)


def test_certify_refuses_weights_outside() -> None:
    data, w = fcl.open_data(X, y=TARGETS["squared"]), np.zeros(P)
    w[4] = -0.5
    with pytest.raises(fcl.InputError, match=r"limits: expected weights within .* -0\.5 for x4"):
        fcl.certify((w, 0.0), data, 1.0, loss="squared", limits="-0.4:")


# -- what users give -------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ("0:", (0.0, None, ())),
        (":0", (None, 0.0, ())),
        (" -1 : 2e3 ", (-1.0, 2000.0, ())),
        ("-inf:inf", (None, None, ())),
        ((0, INF), (0.0, None, ())),
        ([None, 2], (None, 2.0, ())),
        (np.array([-1.0, 0.5]), (-1.0, 0.5, ())),
        ({"a": "0:", "*": (None, 0)}, (None, 0.0, (("a", 0.0, None),))),
        ({5: (-1, 1)}, (None, None, ((5, -1.0, 1.0),))),
    ],
)
def test_forms(given: Any, expected: Any) -> None:
    assert limits_of("limits", given) == expected
    assert limits_of("limits", expected) == expected


def refused(match: str, features: str = "columns", **options: Any) -> None:
    codes, y = acceptors(14, 400)
    data = fcl.open_data(X, y=TARGETS["logistic"])
    if features[:4] in ("kmer", "bag:"):
        data = fcl.open_data(codes, y=y)
    with pytest.raises(fcl.InputError, match=match):
        fcl.train(data, features, C=1.0, **options)


@pytest.mark.parametrize(
    "given", ["1:2", "-2:-1", "a:b", "3", (0,), 7, {"x0": "1:"}, "nan:1", (True, 2)]
)
def test_refused_forms(given: Any) -> None:
    refused("limits.*expected LOW:HIGH or a pair, with LOW <= 0 <= HIGH", limits=given)


def test_refused_features() -> None:
    refused("limits: expected room for the weights", limits=(0, 0))
    refused(r"limits: expected features of Columns.*below 16, got 'z'", limits={"z": (0, 1)})
    refused(r"limits: expected features of Columns.*got 16", limits={16: (0, 1)})
    refused("limits: expected each feature once, got 0 twice", limits={"x0": (0, 1), 0: (0, 2)})
    refused("expected a sign for all features of kmers", "kmers:d=3", limits=(-1, 1))
    refused(
        "expected a sign for all features of bag",
        "bag:d=3,value=presence,wildcards=true",
        limits=(-1, 1),
    )
    refused("expected a sign for all features of .*roducts", "products:degree=2", limits=(-1, 1))
    refused("with standardize, 0: or :0, got finite", standardize=True, limits=(-1, 1))
    refused("with standardize, 0: or :0, got limits of named", standardize=True, limits={0: (0, 1)})
    refused("draws other features", "fourier:per_pass=20", limits={0: (0, 1)})
    many = dict.fromkeys(range(10001), (0, 1))
    refused("expected at most 10,000 features", "kmers:d=8", limits=many)


def test_refused_outputs() -> None:
    y = np.arange(N) % 3
    data = fcl.open_data(X, y=y)
    with pytest.raises(fcl.InputError, match=r"limits: .*got the softmax loss"):
        fcl.train(data, "columns", C=1.0, loss="softmax", limits="0:")
    data = fcl.open_data(X, y=np.column_stack([SCORE, X[:, 0]]))
    for options, match in (
        ({"group": True, "limits": "0:"}, "got a group penalty"),
        ({"limits": (-1, 1)}, "with several outputs, 0: or :0, got finite"),
        ({"limits": {0: "0:"}}, "with several outputs, 0: or :0, got limits of named"),
    ):
        with pytest.raises(fcl.InputError, match=f"limits: .*{match}"):
            by_name.train(data, "columns", C=1.0, loss="squared", **options)


def test_commands_read_a_table(tmp_path: Path) -> None:
    np.save(tmp_path / "X.npy", X)
    np.save(tmp_path / "y.npy", TARGETS["squared"])
    table = tmp_path / "limits.tsv"
    table.write_text("*\t\t0\nx0\t-0.1\t0.2\nx3\t0\tinf\nx7\t-0.3\t\nx9\t0\t0\n")
    shared = ["--loss", "squared", "--limits", str(table), "--C", "0.02"]
    words = [str(tmp_path), "--features", "columns", *shared, "--tol", "1e-9", "--no-checkpoint"]
    run = CliRunner().invoke(train_command, [*words, "--out", str(tmp_path / "m.fcl")])
    assert run.exit_code == 0, run.output
    assert "limits       w_j <= 0, own limits of 4 features" in run.output
    expected = train(limits=NAMED, block_rows=320).model
    model = fcl.load_model(tmp_path / "m.fcl")
    np.testing.assert_allclose(dense(model, P), dense(expected, P), atol=1e-12)
    weights = tmp_path / "weights.npy"
    np.save(weights, dense(model, P))
    run = CliRunner().invoke(certify_command, [str(weights), str(tmp_path), *shared])
    assert run.exit_code == 0 and "of the family" in run.output, run.output
    for line, match in (("x0\t1", "line 6: expected name, low and high"), ("x0\t0\t1", "line 6")):
        other = tmp_path / "other.tsv"
        other.write_text(table.read_text() + line)
        run = CliRunner().invoke(train_command, [*words, "--limits", str(other)])
        assert run.exit_code == 2 and match in run.output, run.output
    run = CliRunner().invoke(train_command, [*words, "--limits", "nowhere.tsv"])
    assert run.exit_code == 2 and "expected LOW:HIGH, such as 0:, or a table" in run.output


# -- bounds where lists of candidates are full, and where limits are wide ----------------------------


def test_a_full_list_hides_no_violation(monkeypatch: pytest.MonkeyPatch) -> None:
    """The list of features fills with those that pull towards the finite limit of the others."""
    random = np.random.default_rng(0)
    y = random.normal(size=100)
    X = y[:, None] + 0.3 * random.normal(size=(100, 40))
    X[:, 20] = -0.7 * y + 0.5 * random.normal(size=100)
    data = fcl.open_data(X, y=y)
    options: dict[str, Any] = {"C": 1.0, "loss": "squared"}
    options["limits"] = {"*": (-np.inf, 1e-9), 0: (-1e-9, 1e-9)}
    best = fcl.train(data, "columns", tol=1e-9, **options).certificate
    assert best.gap <= 1e-9
    found = fcl.certify((np.zeros(40), 0.0), data, features="columns", **options).certificate
    assert found.bound <= best.objective * (1.0 + 1e-12) < 0.4 * found.objective
    monkeypatch.setattr(passes.Passes.__init__, "__defaults__", (2, 1))
    few = fcl.train(data, "columns", tol=1e-6, **options).certificate
    assert few.gap <= 1e-6 and few.objective == pytest.approx(best.objective, rel=1e-6)


@pytest.mark.parametrize(
    "limits", [{0: (-1e-3, 1e-3)}, {0: (None, 0.5)}, {"*": (-5, 5), 0: (0, 1e-3)}]
)
@pytest.mark.parametrize("scale", [1e2, 1e6])
@pytest.mark.filterwarnings("ignore::fcl.ScaleWarning")
def test_a_feature_that_pulls_at_its_limit_hides_no_other(scale: float, limits: Any) -> None:
    """The squares in the bound of an elastic net are those of others, however small beside its own."""
    random = np.random.default_rng(1)
    X = random.normal(size=(80, 12))
    y = X @ random.normal(size=12) + random.normal(size=80)
    X[:, 0] *= scale
    data = fcl.open_data(X, y=y + 3.0 * X[:, 0])
    options: dict[str, Any] = {"C": 1.0, "loss": "squared", "l1_ratio": 0.5, "limits": limits}
    found = by_name.train(data, "columns", tol=1e-9, max_passes=20, **options)
    assert found.certificate.gap <= 1e-12


@pytest.mark.parametrize("most", [1e3, 1e8, 1e308])
@pytest.mark.parametrize("loss", ["logistic", "squared"])
def test_wide_limits_cost_nothing(loss: str, most: float) -> None:
    """Where a limit is far away, the bound scales residuals as without it."""
    random = np.random.default_rng(1)
    X = random.normal(size=(80, 12))
    y = X[:, 0] - X[:, 1] + random.normal(size=80)
    data = fcl.open_data(X, y=np.where(y > 0, 1, 0) if loss == "logistic" else y)
    options: dict[str, Any] = {"C": 0.5, "loss": loss, "tol": 1e-6}
    free = fcl.train(data, "columns", **options)
    wide = fcl.train(data, "columns", limits=(-most, most), **options)
    assert wide.converged and wide.passes <= free.passes + 1
    assert wide.certificate.objective == pytest.approx(free.certificate.objective, rel=2e-6)
