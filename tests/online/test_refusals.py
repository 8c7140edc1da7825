"""What online learning refuses: options, states, models to start from, vectors to project."""

from __future__ import annotations

import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from checkpoints import npy, rewrite
from click.testing import CliRunner
from online_eager import stream

import fcl
from fcl.cli.online import command
from fcl.errors import InputError
from fcl.files.online import read_state
from fcl.kernels import averaged, ball_heap
from fcl.online import OnlineOptions, make_learner, project_l1_ball, project_simplex
from fcl.online.table import WeightGrid
from tests.cli.refusals import of, parametrized
from tests.online.conftest import LABELS, ROWS, feed, ogd
from tests.online.test_ball import Rows, learner_for

# -- doors: each does what is refused, in an empty working folder


def call(given: Callable[[], Any]) -> None:
    given()


def learner(given: dict[str, Any]) -> Any:
    """Options; the method is ogd unless it is given."""
    options = {"method": "ogd", "alpha": 0.1, **given}
    return make_learner(options.pop("method"), 3, OnlineOptions(**options))


def gradient(given: dict[str, Any]) -> None:
    learner({"method": "truncated-gradient", **given})


def ball(given: dict[str, Any]) -> None:
    learner({"method": "ball", "alpha": 0.0, "radius": 1.0, **given})


def start(given: tuple[dict[str, Any], int, float]) -> None:
    """A learner that is to start from one weight, and then has none."""
    options, id, weight = given
    made = learner(options)
    try:
        made.start_from(np.array([id]), np.array([weight]))
    finally:
        assert not len(made.point()[0])


def restore(given: tuple[dict[str, Any], Callable[[dict[str, Any]], dict[str, Any]]]) -> None:
    """A saved state of three features, which a function changes."""
    options, change = given
    made = learner(options)
    X, y, s = stream(1, 40, 3, "logistic")
    feed(made, X, y, s)
    learner(options).restore(made.saved() | change(made.saved()))


def restore_ball(
    given: tuple[dict[str, Any], Callable[[dict[str, Any]], dict[str, Any]], dict[str, Any]],
) -> None:
    """The same on a ball of 20 features, also by a learner with other options."""
    options, change, other = given
    rows = Rows(6, 100, 20)
    made = learner_for(rows, **options)
    rows.learn(made, 0, rows.n)
    saved = made.saved()
    assert len(saved["ids"]) > 3
    learner_for(rows, **{**options, **other}).restore({**saved, **change(saved)})


def restore_other(given: tuple[dict[str, Any], dict[str, Any]]) -> None:
    """The state of a learner, for one of another method or of other features."""
    made = learner(given[0])
    feed(made, *stream(0, 5, 3, "logistic"))
    other = dict(given[1])
    p, method = other.pop("p", 3), other.pop("method")
    make_learner(method, p, OnlineOptions(0.1, **other)).restore(made.saved())


def start_late(given: None) -> None:
    """A learner that is to start from weights after its first row."""
    made = learner({})
    feed(made, *stream(0, 5, 3, "logistic"))
    made.start_from(np.array([0]), np.array([0.5]))


def load(given: tuple[int, str]) -> None:
    """A table of four weights q2.13 in a file."""
    made = ogd(4, weights="q2.13")
    feed(made, np.ones((3, 4)), np.ones(3))
    made.save("t.zip")
    p, weights = given
    ogd(p, weights=weights).load("t.zip")


def data() -> fcl.DataSet:
    return fcl.open_data(ROWS, y=LABELS)


def train(given: dict[str, Any]) -> None:
    rows, features = given.get("data", data)(), given.get("features", "columns")
    options = {name: value for name, value in given.items() if name not in ("data", "features")}
    fcl.train_online(rows, features, **{"alpha": 1e-3, "rate": 0.2, **options})


def forge(given: tuple[tuple[int, int], float]) -> None:
    """A saved run of a table q2.13, in which a number is replaced."""
    place, value = given
    options = {"method": "ogd", "weights": "q2.13", "alpha": 1e-6, "certify": False}
    fcl.train_online(data(), "columns", **options).save("m.fcl")
    table = np.array(read_state(Path("m.fcl")).table)
    table[place] = value
    rewrite(Path("m.fcl"), lambda members: members.update({"online_state.npy": npy(table.ravel())}))
    fcl.train_online(data(), resume="m.fcl", passes=2)


def initial(given: dict[str, Any]) -> None:
    """A model of these rows is where a learner is to begin."""
    model = fcl.train_online(data(), "columns", alpha=1e-3, rate=0.2, certify=False).model
    train({"initial": model, **given})


def hashed_initial(given: Callable[..., Any]) -> None:
    options: dict[str, Any] = {"C": 1.0, "hash_bits": 4, "rate": 0.2, "certify": False}
    wide = fcl.open_data(np.hstack([ROWS, ROWS]), y=LABELS)
    model = fcl.train_online(wide, "columns", **options).model
    given(wide, "columns", C=1.0, initial=model)


def resumed_initial(given: None) -> None:
    result = fcl.train_online(data(), "columns", alpha=1e-3, rate=0.2, certify=False)
    result.save("saved.fcl")
    fcl.train_online(data(), resume="saved.fcl", passes=2, initial=result.model)


def ball_command(given: str) -> None:
    """The command, which writes nothing."""
    for name, array in {"X": ROWS, "y": LABELS}.items():
        np.save(f"{name}.npy", array)
    result = CliRunner().invoke(command, [".", "--no-certify", "--out", "m.fcl", *given.split()])
    assert result.exit_code == 2, result.output
    (line,) = (line for line in result.output.splitlines() if "error" in line)
    assert sorted(path.name for path in Path().iterdir()) == ["X.npy", "y.npy"]
    raise InputError(line)


def of_table(change: Callable[[np.ndarray], Any]) -> Callable[[dict[str, Any]], dict[str, Any]]:
    """A change of the table of a saved state, in place or not."""

    def changed(saved: dict[str, Any]) -> dict[str, Any]:
        table = saved["table"].copy()
        found = change(table)
        return {"table": table if found is None else found}

    return changed


def of_state(place: int, value: float) -> Callable[[dict[str, Any]], dict[str, Any]]:
    def changed(saved: dict[str, Any]) -> dict[str, Any]:
        state = saved["state"].copy()
        state[place] = value
        return {"state": state}

    return changed


def fall(table: np.ndarray) -> None:
    table[:, 0] = -table[:, 1]
    table[table[:, 1] == 1.0, 0] = 100.0


def twice(table: np.ndarray) -> None:
    table[table[:, 3] == 1.0, 3] = 2.0


def same(saved: dict[str, Any]) -> dict[str, Any]:
    return saved


RADIUS: dict[str, Any] = {"radius": 1.0}
BATCH: dict[str, Any] = {"radius": 1.0, "step": "explicit", "batch": 7}
AVERAGE: dict[str, Any] = {
    "method": "truncated-gradient",
    "alpha": 0.01,
    "period": 1,
    "average": True,
}
SUB: dict[str, Any] = {"truncation": "subgradient", "theta": 0.0}
OF_BALL = "the saved state is not one of ball over 20 features with float64 weights"
FINITE = "expected a finite number above 0, got"

OPTIONS = [
    *of(gradient, [
        ("alpha", {"alpha": -1.0}, r"alpha must be a finite number of at least 0, got -1\.0"),
        ("theta", {"theta": -0.5}, r"theta must be a finite number of at least 0 or inf, got -0\.5"),
        ("theta nan", {"theta": math.nan}, "theta must be .* got nan"),
        ("rate", {"rate": 0.0}, r"rate must be a finite number above 0, got 0\.0"),
        ("power", {"power": 2.0}, r"power must be from 0 to 1, got 2\.0"),
        ("period", {"period": 0}, "period must be a whole number of at least 1, got 0"),
        ("loss", {"loss": "poisson"}, "loss of an online learner must be one of logistic"),
        ("truncation", {"truncation": "none"}, "truncation must be one of .* got 'none'"),
        ("step", {"step": "newton"}, "step must be one of .* got 'newton'"),
        ("l1_ratio", {"l1_ratio": 0.0}, r"l1_ratio must be above 0 and at most 1, got 0\.0"),
        ("weights", {"weights": "int16"}, "weights must be one of .* got 'int16'"),
        ("method", {"method": "sgd"}, "method must be one of ftrl, truncated-gradient"),
        *((f"l1_ratio and {name}", {"l1_ratio": 0.5, **own}, "elastic cannot be combined with")
          for name, own in (("theta", {"theta": 0.5}), ("adagrad", {"step": "adagrad"}),
                            ("rounding", {"truncation": "round", "theta": 1.0}))),
        ("subgradient without theta", {"truncation": "subgradient"},
         "theta: truncation subgradient needs a finite number"),
        ("round without theta", {"truncation": "round"},
         "theta: truncation round needs a finite number"),
        ("subgradient and adagrad", {**SUB, "step": "adagrad"}, "with step adagrad"),
        ("subgradient and average", {**SUB, "average": True}, "with average"),
        ("subgradient and l1_ratio", {**SUB, "l1_ratio": 0.5}, "rounding or sub-gradients"),
        ("average and adagrad", {"average": True, "step": "adagrad"}, "average needs weights float64"),
        ("average and float32", {"average": True, "weights": "float32"},
         "average needs weights float64"),
        ("average and l1_ratio", {"average": True, "l1_ratio": 0.5},
         "the penalty elastic cannot be combined with average"),
        ("grid and average", {"weights": "q2.13", "average": True},
         "got average; choose float64 weights"),
        ("grid and l1_ratio", {"weights": "q2.13", "l1_ratio": 0.5}, "got the penalty elastic"),
        ("grid and subgradient", {"weights": "q2.13", **SUB}, "got truncation subgradient"),
    ]),
    *of(ball, [
        ("no radius", {"radius": None}, "radius: method ball needs the largest"),
        ("radius", {"radius": -1}, "radius must be a finite number above 0, got -1"),
        ("step", {"step": "adagrad"}, "step adagrad: method ball has"),
        ("batch", {"batch": 10}, "batch 10: a step of several rows is explicit"),
        ("batch 0", {"batch": 0}, "batch must be a whole number of at least 1, got 0"),
        ("weights", {"weights": "float32"}, "weights float32: method ball keeps"),
        ("l1_ratio", {"l1_ratio": 0.5}, "l1_ratio: method ball has no such"),
    ]),
    *of(learner, [
        *((f"weights {text!r}", {"weights": text}, f"weights.* got '?{text}'?$")
          for text in ("q1.1", "q16.16", "q2", "q-1.16", "q2.13 ", "int16", "q")),
        ("gamma 0", {"gamma": 0.0, "weights": "q2.5"},
         r"gamma must be a finite number above 0, got 0\.0"),
        ("gamma", {"gamma": 1.0}, r"gamma: expected weights qN\.M"),
        ("max_weight", {"max_weight": -1.0}, r"max_weight must be a finite number above 0, got -1\.0"),
        ("max_weight off the grid", {"max_weight": 0.1, "weights": "q2.5"}, r"choose 0\.09375$"),
        ("max_weight too large", {"max_weight": 9.0, "weights": "q2.5"},
         r"choose 3\.96875, or more bits$"),
        ("global rates", {"rates": "global", "l1_ratio": 0.5},
         "rates global weights are learnt without a penalty"),
        ("rates", {"rates": "none"}, "rates must be one of feature, global, got 'none'"),
        ("bits", {"weights": "q20.20"}, r"from 3 to 31 bits .* got q20\.20"),
    ]),
    *of(start, [
        ("4", ({"weights": "q2.13"}, 1, 4.0),
         r"q2\.13 holds weights up to 3\.99988, got one of size 4; choose q3\.12 or"),
        ("-3.9999", ({"weights": "q2.13"}, 1, -3.9999),
         r"got one of size 3\.9999; choose q3\.12 or float32"),
        ("300", ({"weights": "q0.15"}, 1, 300.0), r"choose q9\.6 or float32"),
        ("40000", ({"weights": "q15.0"}, 1, 4e4), "got one of size 40000; choose float32"),
        ("inf", ({"weights": "q2.13"}, 1, np.inf), "expected a finite weight for each id"),
        ("id", ({"weights": "q2.13"}, 3, 0.5), "ids: expected integers from 0 to 2"),
        *((method, ({"method": method, "weights": "q2.13"}, 0, 5.0), r"choose q3\.12 or float32")
          for method in ("ftrl", "truncated-gradient")),
        ("max_weight", ({"max_weight": 1.0}, 0, 2.0),
         "expected weights up to max_weight 1, got one of size 2"),
    ]),
    *of(call, [(f"range of {rms}", lambda rms=rms: WeightGrid.fitting(rms),
                f"expected a root mean square above 0, got {rms}") for rms in (0.0, math.inf, math.nan)]),
]  # fmt: skip

STATES = [
    *of(restore, [
        (f"{name} of {method}", ({"method": method, **options}, change),
         f"saved state is not one of {method} over 3 features")
        for method, options, cases in (
            ("ogd", {"weights": "q2.13"}, (
                ("ids", lambda saved: {"ids": saved["ids"] + 1}),
                ("weights", of_table(lambda table: table + 40_000)),
                ("counts", of_table(lambda table: table - 300)),
                ("width", of_table(lambda table: table[:, :1])),
                ("state", lambda saved: {"state": saved["state"][:3]}),
            )),
            *((method, {"weights": "q2.6", "period": 3}, (
                ("weights", of_table(lambda table: table + 1e6)),
                ("counts", of_table(lambda table: table - 1e6)),
            )) for method in ("ftrl", "truncated-gradient")),
            ("truncated-gradient", AVERAGE, (
                ("truncations", of_state(averaged.TRUNCATIONS, averaged.MOST_HISTORY)),
                ("half a truncation", of_state(averaged.TRUNCATIONS, 1.5)),
                ("history", of_state(averaged.HISTORY, 1e9)),
            )),
        )
        for name, change in cases
    ]),
    *of(restore_other, [
        ("method", ({"method": "ftrl"}, {"method": "truncated-gradient", "step": "adagrad"}),
         "not one of truncated-gradient over 3 features"),
        ("features", ({"method": "ftrl"}, {"method": "ftrl", "p": 2}), "not one of ftrl over 2 features"),
    ]),
    ("rows", start_late, None, "expected a learner before its first row"),
    *of(restore_ball, [
        ("state", (RADIUS, lambda saved: {"state": saved["state"][:-1]}, {}), OF_BALL),
        ("ids", (RADIUS, lambda saved: {"ids": saved["ids"] + 20}, {}), OF_BALL),
        ("order", (RADIUS, lambda saved: {"ids": saved["ids"][::-1]}, {}), OF_BALL),
        ("width", (RADIUS, of_table(lambda table: table[:, :1]), {}), OF_BALL),
        ("place twice", (RADIUS, of_table(lambda table: table[:2, 1].fill(1.0)), {}), OF_BALL),
        ("falling keys", (RADIUS, of_table(fall), {}), OF_BALL),
        ("nan", (RADIUS, of_table(lambda table: table.fill(np.nan)), {}), OF_BALL),
        ("factors", (RADIUS, same, {"factors": np.zeros(20)}), f"{OF_BALL} and these penalty factors"),
        ("pending", (BATCH, of_state(ball_heap.PENDING, 7.0), {}), OF_BALL),
        ("batch place twice", (BATCH, of_table(twice), {}), OF_BALL),
        ("no places", (BATCH, of_table(lambda table: table[:, 1::2].fill(0.0)), {}), OF_BALL),
        ("batch width", (BATCH, of_table(lambda table: table[:, :2]), {}), OF_BALL),
        ("batch ids", (BATCH, lambda saved: {"ids": saved["ids"] + 20}, {}), OF_BALL),
        ("another batch", (BATCH, same, {"step": "implicit", "batch": 1}),
         OF_BALL),
    ]),
    *of(load, [
        ("features", (3, "q2.13"), "resume with the options of the first run"),
        ("weights", (4, "q3.12"), r"expected weights q3\.12, got q2\.13"),
    ]),
    *of(forge, [
        (f"{value} at {place}", (place, value), "saved state is not one of ogd over 15 features")
        for place, value in (((0, 0), 32768.0), ((0, 1), 256.0), ((0, 0), 0.5), ((0, 1), np.nan))
    ]),
]  # fmt: skip

WIDE = {"data": lambda: fcl.open_data(np.hstack([ROWS] * 14), y=LABELS)}
TRAIN = [
    *of(train, [
        ("average of ftrl", {"method": "ftrl:average=true"}, "expected no options, got .average=true"),
        ("zeros", {"data": lambda: fcl.open_data(0.0 * ROWS, y=LABELS), "method": "ogd", "weights": "q"},
         "weights q need features other than 0"),
        ("hash_bits 8", {**WIDE, "hash_bits": 8}, r"below the 210 features of Columns, got 2\^8"),
        ("hash_bits 3", {**WIDE, "hash_bits": 3},
         "hash_bits must be a whole number of at least 4, got 3"),
        ("hash_bits 32", {**WIDE, "hash_bits": 32}, "hash_bits: expected 4 to 31, got 32"),
        ("hash_bits true", {**WIDE, "hash_bits": True}, "hash_bits must be a whole number .* got True"),
        ("factors", {**WIDE, "features": "columns * 2", "hash_bits": 5},
         "hash_bits: expected features of penalty factor 1"),
        ("fourier", {**WIDE, "features": "fourier", "hash_bits": 5},
         "cannot list the features of a row"),
        ("hashed", {**WIDE, "features": "hashed:bits=5"},
         "only online learners hash features.*--hash-bits"),
    ]),
    *of(initial, [
        ("ball", {"method": "ball:radius=5"}, "the method ball starts from weights 0"),
        ("numbers", {"loss": "squared"}, "expected a model of numbers, got one of the labels"),
        ("labels", {"data": lambda: fcl.open_data(ROWS, y=(LABELS + 1) // 2)},
         "expected a model of the labels"),
        ("features", {"data": lambda: fcl.open_data(ROWS[:, :5], y=LABELS)},
         "expected a model of the same features"),
    ]),
    ("resumed", resumed_initial, None, "a resumed run has weights already"),
    *of(hashed_initial, [(start.__name__, start, "initial: expected a weight for each feature")
                         for start in (fcl.train, fcl.train_online)]),
    *of(call, [
        ("hinge of fcl.train", lambda: fcl.train(data(), "columns", C=0.1, loss="hinge"),
         "loss: expected one with a derivative everywhere"),
        ("hinge of an estimator", lambda: fcl.FCLClassifier("columns", loss="hinge").fit(ROWS, LABELS),
         "loss must be one of .* got 'hinge'"),
    ]),
]  # fmt: skip

LEARN = "--features columns --C 0.05"
BALL = f"{LEARN} --method ball:radius=2"
COMMAND = of(ball_command, [
    ("no radius", f"{LEARN} --method ball", "radius: method ball needs the largest L1 norm"),
    *((f"radius {value}", f"{LEARN} --method ball:radius={value}", f"radius: {FINITE} {value}")
      for value in ("0", "-1", "inf", "nan")),
    ("radius of ftrl", f"{LEARN} --method ftrl:radius=1", "expected no options, got 'radius=1'"),
    ("theta of ftrl", f"{LEARN} --method ftrl:theta=3", "expected no options, got 'theta=3'"),
    ("decay of ftrl", f"{LEARN} --method ftrl:decay=0.5", "expected no options, got 'decay=0.5'"),
    ("step of ogd", f"{LEARN} --method ogd:step=explicit", "got 'step=explicit'"),
    ("adagrad", f"{BALL},step=adagrad", "step adagrad: method ball has implicit"),
    ("table", f"{BALL} --table float32", "method ball keeps its weights as float64"),
    ("l1-ratio", f"{BALL} --penalty elastic:l1_ratio=0.5", "l1_ratio: method ball has no such"),
    ("no C", "--features columns --method ball:radius=2", "give --alpha or --C"),
])  # fmt: skip

PROJECT = of(call, [
    ("empty", lambda: project_simplex([]), "v: expected at least one number"),
    ("nan", lambda: project_simplex([1.0, np.nan]), "got nan at position 1"),
    ("inf", lambda: project_l1_ball([np.inf, 1.0], 1.0), "got inf at position 0"),
    ("weighted -inf", lambda: project_l1_ball([1.0, -np.inf], 1.0, [1.0, 1.0]),
     "got -inf at position 1"),
    ("free nan", lambda: project_l1_ball([1.0, np.nan], 1.0, [0.0, 0.0]), "got nan at position 1"),
    ("z 0", lambda: project_simplex([1.0], 0.0), r"z must be a finite number above 0, got 0\.0"),
    ("radius -1", lambda: project_l1_ball([1.0], -1), "radius must be a finite number above 0, got -1"),
    ("radius nan", lambda: project_l1_ball([1.0], np.nan), "radius must be .* got nan"),
    ("matrix", lambda: project_l1_ball([[1.0]], 1.0),
     r"v: expected a vector, got an array of shape \(1, 1\)"),
    ("complex", lambda: project_l1_ball([1j], 1.0), "v: expected real numbers"),
    ("text", lambda: project_l1_ball(["a"], 1.0), "v: expected real numbers"),
    ("ragged", lambda: project_l1_ball([[1.0], [2.0, 3.0]], 1.0), "v: expected a vector of numbers"),
    ("one weight", lambda: project_l1_ball([1.0, 2.0], 1.0, [1.0]),
     "weights: expected one for each of the 2"),
    ("negative weight", lambda: project_l1_ball([1.0, 2.0], 1.0, [1.0, -0.5]),
     r"got -0\.5 at position 1"),
    ("nan weight", lambda: project_l1_ball([1.0, 2.0], 1.0, [np.nan, 1.0]),
     "weights: expected finite .* 0"),
    ("tiny weight", lambda: project_l1_ball([1.0, 2.0], 1.0, [1e-200, 1.0]),
     "differ by a factor of at most"),
])  # fmt: skip


@pytest.mark.thin(3)
@parametrized(OPTIONS, STATES, TRAIN, COMMAND, PROJECT)
def test_refused(
    door: Any, given: Any, message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(InputError, match=message):
        door(given)
