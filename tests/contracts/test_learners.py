"""The contract of online learners: each is the plain loop of its paper, in any blocks, from any state.

Each learner of RULES has an eager loop in tests/online_eager.py; those of TABLES keep rounded weights.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner
from judge import Problem, confirm
from online_eager import LOSSES, METHODS, chunk_of, dense_point, stream
from stops import After

import fcl
from fcl.cli.online import command
from fcl.drivers.online.train import plan_online
from fcl.online import OnlineOptions, make_learner
from fcl.online.methods import kind_of
from tests import by_name
from tests.online.conftest import feed

#: Some rates are too large for the rows, which changes nothing here.
pytestmark = pytest.mark.filterwarnings("ignore:the progressive loss")

TRUNCATED: dict[str, Any] = {"method": "truncated-gradient"}
EXPLICIT = {**TRUNCATED, "step": "explicit"}
BALL: dict[str, Any] = {"method": "ball", "radius": 1.0}
RULES: dict[str, dict[str, Any]] = {
    "truncated": {**TRUNCATED, "period": 3},
    "truncated-explicit": {**EXPLICIT, "period": 1, "decay": 0.5},
    "truncated-theta": {**EXPLICIT, "period": 10, "theta": 0.05, "power": 0.7},
    "truncated-round": {**TRUNCATED, "period": 4, "theta": 0.05, "truncation": "round", "power": 0.0},
    "truncated-adagrad": {**TRUNCATED, "period": 3, "step": "adagrad", "theta": 0.2},
    "truncated-elastic": {**TRUNCATED, "period": 3, "l1_ratio": 0.5, "decay": 0.5, "power": 1.0},
    "truncated-subgradient": {**EXPLICIT, "period": 3, "truncation": "subgradient", "theta": 0.02},
    "truncated-average": {**EXPLICIT, "period": 4, "average": True},
    "truncated-average-theta": {**EXPLICIT, "period": 1, "average": True, "theta": 0.05},
    "truncated-average-round": {
        **EXPLICIT, "period": 4, "average": True, "theta": 0.03, "truncation": "round", "power": 0.0
    },
    "ftrl": {"method": "ftrl"},
    "ftrl-elastic": {"method": "ftrl", "l1_ratio": 0.4},
    "ogd": {"method": "ogd"},
    "ogd-elastic": {"method": "ogd", "l1_ratio": 0.6, "decay": 0.5},
    "ogd-global": {"method": "ogd", "rates": "global", "max_weight": 0.5},
    "ball": BALL,
    "ball-explicit": {**BALL, "step": "explicit", "radius": 0.1},
    "ball-wide": {**BALL, "radius": 1e3},
    "ball-batch": {**BALL, "step": "explicit", "batch": 7, "decay": 0.5},
}  # fmt: skip
TABLES: dict[str, dict[str, Any]] = {
    "truncated-float32": {**TRUNCATED, "period": 3, "weights": "float32"},
    "truncated-flushed": {
        **TRUNCATED, "period": 3, "weights": "float32", "rate": 1e-4, "alpha": 1.0
    },
    "truncated-round-float32": {**RULES["truncated-round"], "weights": "float32"},
    "truncated-q2.6": {**TRUNCATED, "period": 3, "weights": "q2.6"},
    "truncated-q2.27": {**TRUNCATED, "period": 3, "weights": "q2.27"},
    "ftrl-float32": {"method": "ftrl", "l1_ratio": 0.5, "weights": "float32"},
    "ftrl-q2.4": {"method": "ftrl", "weights": "q2.4"},
    "ftrl-q2.27": {"method": "ftrl", "weights": "q2.27"},
    "ogd-float32": {"method": "ogd", "weights": "float32"},
    "ogd-q2.13": {"method": "ogd", "weights": "q2.13"},
    "ogd-q2.26": {"method": "ogd", "weights": "q2.26"},
    "ogd-gamma": {"method": "ogd", "weights": "q2.5", "gamma": 0.5, "max_weight": 2.0},
    "ogd-global-q2.13": {"method": "ogd", "weights": "q2.13", "rates": "global"},
    "ogd-global-float32": {
        "method": "ogd", "weights": "float32", "rates": "global", "max_weight": 0.25
    },
}  # fmt: skip
ALL = RULES | TABLES
#: Tables of each kind of number: others need kernels of their own, which take long to compile.
QUICK = ("truncated-float32", "ftrl-q2.4", "ogd-q2.13")
every_learner = pytest.mark.parametrize(
    "name",
    [
        pytest.param(name, marks=() if name in (*RULES, *QUICK) else pytest.mark.slow)
        for name in ALL
    ],
)
#: Learners that may begin at given weights.
WARM = [name for name in RULES if not name.startswith("ball") and "average" not in name]


def options_of(name: str, **more: Any) -> tuple[str, OnlineOptions]:
    """The method of a learner, and its options."""
    given = {"alpha": 0.02, "rate": 0.1, **more, **ALL[name]}
    method = given.pop("method")
    if method == "ball":
        given["alpha"] = 0.0
    return method, OnlineOptions(**given)


def factors_of(name: str, random: np.random.Generator, p: int) -> np.ndarray:
    """Penalty factors: truncations of an elastic net need one, and those of the ball may be 0."""
    if name == "truncated-elastic":
        return random.choice([2.0, np.inf], p)
    return random.choice([0.0 if "ball" in name else 1.0, 0.5, 1.0, 2.0, np.inf], p)


# -- rows ------------------------------------------------------------------------------------------


@pytest.mark.thin(3)
@pytest.mark.parametrize("loss", LOSSES)
@pytest.mark.parametrize("name", RULES)
def test_a_learner_is_its_plain_rule(name: str, loss: str) -> None:
    """Margins of two passes, cut anywhere, and the point after each; also from weights other than 0."""
    n, p = 50, 7
    for seed in range(4):
        random = np.random.default_rng(seed)
        X, y, s = stream(seed, n, p, loss)
        factors = factors_of(name, random, p)
        rate, alpha = random.choice([0.02, 0.1]), random.choice([0.0, 0.02, 0.2])
        own = {"rate": rate, "alpha": alpha, "loss": loss, "intercept": seed != 2}
        method, options = options_of(name, **own)
        learner = make_learner(method, p, options, factors)
        start = np.zeros(p)
        if name in WARM and seed % 2:
            start[np.isfinite(factors)] = random.uniform(-0.5, 0.5)
            learner.start_from(np.arange(p), start)
        eager = METHODS[method](options, factors, start)
        for _ in range(2):
            margins = feed(learner, X, y, s, random.integers(0, n, 3))
            expected = np.array([eager.learn(*row) for row in zip(X, y, s, strict=True)])
            size = 1.0 + np.abs(expected).max()
            assert np.abs(margins - expected)[s > 0].max() <= 1e-9 * size
            learner.end_pass()
            eager.end_pass()
            (w, b), (v, c) = dense_point(learner), eager.point()
            assert np.abs(w - v).max() <= 1e-10 * size and abs(b - c) <= 1e-10 * size
            assert not w[np.isinf(factors)].any()
        assert learner.rows == eager.rows and learner.weight == pytest.approx(eager.weight)


@every_learner
def test_cuts_and_saved_states_give_the_same_bits(name: str) -> None:
    """At every row of the second pass; rows of weight 0 might as well not be there."""
    n, p = 40, 6
    X, y, s = stream(1, n, p, "logistic")
    method, options = options_of(name)
    factors = factors_of(name, np.random.default_rng(2), p)

    def fresh() -> Any:
        return make_learner(method, p, options, factors)

    def two_passes(X: np.ndarray, y: np.ndarray, s: np.ndarray) -> tuple[Any, np.ndarray]:
        learner = fresh()
        feed(learner, X, y, s)
        learner.end_pass()
        return learner, feed(learner, X, y, s)

    whole, margins = two_passes(X, y, s)
    states = [whole.saved(), two_passes(X[s > 0], y[s > 0], s[s > 0])[0].saved()]
    cut = fresh()
    feed(cut, X, y, s, [3, 3, 17, n - 1])
    cut.end_pass()
    for row in range(n + 1):
        other = fresh()
        feed(other, X[:5], y[:5], s[:5])  # a state that must be forgotten
        other.restore(cut.saved())
        rest = feed(other, X[row:], y[row:], s[row:])
        assert np.array_equal(rest[s[row:] > 0], margins[row:][s[row:] > 0])
        states.append(other.saved())
        if row < n:
            feed(cut, X[row : row + 1], y[row : row + 1], s[row : row + 1])
            cut.point()
    for state in states[1:]:
        for key, value in states[0].items():
            assert np.array_equal(state[key], value), key


@every_learner
def test_a_row_without_a_finite_margin_is_not_learnt(name: str) -> None:
    X, y, s = stream(3, 20, 4, "logistic")
    method, options = options_of(name)
    learner, other = make_learner(method, 4, options), make_learner(method, 4, options)
    for one in (learner, other):
        feed(one, X, y, s)
    bad = np.array([[np.inf, 0.0, 0.0, 0.0], [1.0, 1.0, 0.0, 0.0]])
    assert learner.learn(chunk_of(bad), np.ones(2), np.ones(2), np.zeros(2)) == 0
    assert (learner.rows, learner.weight) == (other.rows, other.weight)
    (w, b), (v, c) = dense_point(learner), dense_point(other)
    # truncated gradient may have brought the weights of the row up to date
    step = {"truncated-q2.6": 2.0**-6}.get(name, 1e-6 if method == "truncated-gradient" else 0.0)
    assert b == c and np.abs(w - v).max() <= step


@every_learner
def test_arrays_and_states_take_what_the_plan_says(name: str) -> None:
    p = 5000
    X, y, s = stream(4, 30, p, "logistic")
    method, options = options_of(name)
    kind, learner = kind_of(method, options), make_learner(method, p, options)
    feed(learner, X, y, s)
    assert sum(array.nbytes for array in learner.arrays()) <= kind.bytes_for(p, options) + 4096
    state = learner.saved()
    assert len(state["ids"]) <= p
    size = state["ids"].nbytes + state["table"].nbytes
    assert 0 < size <= len(state["ids"]) * kind.saved_bytes_for(options)


# -- runs ------------------------------------------------------------------------------------------

N, P = 300, 12
_RANDOM = np.random.default_rng(0)
ROWS = np.where(_RANDOM.random((N, P)) < 0.4, 1.0, 0.0)
MARGINS = ROWS @ _RANDOM.normal(size=P) - 0.5
LABELS = np.where(_RANDOM.random(N) < 1 / (1 + np.exp(-MARGINS)), 1, -1)
WEIGHTS = _RANDOM.choice([0.0, 1.0, 2.0], N)


def data(y: np.ndarray = LABELS) -> fcl.DataSet:
    return fcl.open_data(ROWS, y=y, weights=WEIGHTS)


def arguments(name: str, **more: Any) -> dict[str, Any]:
    """The options of a run of two passes over five blocks."""
    shared = {
        "alpha": 1e-3,
        "rate": 0.3,
        "passes": 2,
        "block_rows": 64,
        "certify": False,
        "seed": 3,
    }
    return {"features": "columns"} | shared | ALL[name] | more


def bits(model: fcl.Model) -> list[Any]:
    """What prediction reads of a model."""
    return [model.ids.tobytes(), model.weights.tobytes(), model.intercept]


@pytest.mark.thin(6)
@every_learner
def test_a_run_resumes_at_every_checkpoint(name: str, tmp_path: Path) -> None:
    given = arguments(name)
    whole = by_name.train_online(data(), **given)
    rows, calls = 0, 0
    while rows < whole.learner.rows:
        calls += 1
        part = by_name.train_online(data(), **given, should_stop=After(calls))
        if part.learner.rows == rows:
            continue  # the callback is asked more often than there are states
        rows = part.learner.rows
        part.save(tmp_path / f"{calls}.fcl")
        assert bits(fcl.load_model(tmp_path / f"{calls}.fcl")) == bits(part.model)
        if rows < whole.learner.rows:
            more = {"resume": tmp_path / f"{calls}.fcl", "passes": 2, "certify": False}
            resumed = fcl.train_online(data(), **more)
            assert bits(resumed.model) == bits(whole.model)
            assert resumed.state.table.tobytes() == whole.state.table.tobytes()
            assert resumed.progress[-1].loss == whole.progress[-1].loss
    assert calls >= 8


@every_learner
def test_python_is_the_estimator_and_the_command(name: str, tmp_path: Path) -> None:
    given = arguments(name, block_rows=65_536)
    found = by_name.train_online(data(), **given)
    own = {key: given[key] for key in ("alpha", "rate", "passes")} | ALL[name]
    if "decay" not in own:  # which estimators do not have
        estimator = fcl.FCLOnlineClassifier(**own, random_state=3).fit(ROWS, LABELS, WEIGHTS)
        assert bits(estimator.models_[0]) == bits(found.model)
        np.testing.assert_array_equal(estimator.decision_function(ROWS), found.model.margins(ROWS))
    for array, values in {"X": ROWS, "y": LABELS, "s": WEIGHTS}.items():
        np.save(tmp_path / f"{array}.npy", values)
    words = [tmp_path, "--features", "columns", "--weights", "s", "--seed", 3, "--no-certify"]
    for key, value in own.items():
        option = f"--{'table' if key == 'weights' else key.replace('_', '-')}"
        words += [option] if value is True else [option, value]
    words += ["--out", tmp_path / "m.fcl"]
    result = CliRunner().invoke(command, [str(word) for word in words])
    assert result.exit_code == 0, result.output
    model = fcl.load_model(tmp_path / "m.fcl")
    found.save(tmp_path / "same.fcl")
    assert bits(model) == bits(found.model)
    assert model.options == fcl.load_model(tmp_path / "same.fcl").options
    np.testing.assert_array_equal(model.margins(ROWS), found.model.margins(ROWS))
    assert {key: model.options[key] for key in ALL[name]} == ALL[name]


@pytest.mark.thin(3)
@pytest.mark.parametrize("loss", LOSSES[:3])
@pytest.mark.parametrize("name", RULES)
def test_the_certificate_holds_by_the_judge(name: str, loss: str, tmp_path: Path) -> None:
    y = MARGINS if loss == "squared" else LABELS
    rate = 0.02 if loss == "squared" else 0.2
    result = by_name.train_online(data(y), **arguments(name, loss=loss, rate=rate, certify=True))
    model, on = result.model, WEIGHTS > 0.0
    w = np.zeros(P)
    w[model.ids] = model.weights
    rho = ALL[name].get("l1_ratio", 1.0)
    problem = Problem(ROWS[on], np.asarray(y[on], float), WEIGHTS[on], loss, model.C, True, rho)
    confirm(problem, w, model.intercept, model.certificate, problem.solve())
    result.save(tmp_path / "m.fcl")
    proof = fcl.certify(tmp_path / "m.fcl", data(y))
    assert proof.objective == pytest.approx(model.certificate.objective, rel=1e-12)
    assert proof.bound == pytest.approx(model.certificate.bound, rel=1e-9)


@pytest.mark.parametrize("name", ["ftrl", "truncated", "ogd", "ogd-q2.13", "ball"])
def test_blocks_of_any_size_give_the_same_bits(name: str) -> None:
    """If rows are read in their own order; the intercept starts from the first block's targets."""
    given = {"shuffle": False, "intercept": False, "passes": 1}
    runs = [
        by_name.train_online(data(), **arguments(name, block_rows=b, **given))
        for b in (64, 100, 300)
    ]
    assert bits(runs[0].model) == bits(runs[1].model) == bits(runs[2].model)


@pytest.mark.parametrize("name", [*WARM, "ftrl-float32", "ogd-float32", "truncated-float32"])
def test_a_run_starts_from_a_model(name: str) -> None:
    """A run with hardly any rate ends at the model; its first margins are those of the model."""
    start = fcl.train_online(data(), "columns", alpha=1e-3, rate=0.1, certify=False).model
    given = arguments(name, alpha=1e-9, passes=1, initial=start) | {"rate": 1e-9}
    given |= {"truncation": "soft"} if "truncation" in given else {}
    model = by_name.train_online(data(), **given).model
    assert np.abs(model.margins(ROWS) - start.margins(ROWS)).max() <= 1e-5


@every_learner
def test_the_plan_names_the_table(name: str) -> None:
    given = {key: value for key, value in arguments(name).items() if key != "certify"}
    plan = plan_online(data(), **given)
    method, options = options_of(name)
    size = kind_of(method, options).bytes_for(P, options)
    assert plan.of(f"table of weights of {P} features") == size
    with pytest.raises(fcl.BudgetError, match=r"needs at least .*table of weights") as error:
        plan_online(data(), **given, memory="1MiB")
    smallest = error.value.smallest
    assert plan_online(data(), **given, memory=smallest).total <= smallest <= plan.total
    with pytest.raises(fcl.BudgetError):
        by_name.train_online(data(), **given, memory=smallest - 1)
