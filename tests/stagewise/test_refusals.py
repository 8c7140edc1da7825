"""What stagewise models refuse: options, targets, families, model files, checkpoints, predictions."""

from __future__ import annotations

import json
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from checkpoints import npy, rewrite, set_header
from click.testing import CliRunner
from waves import Problem, Waves

import fcl
from fcl.errors import InputError, ModelFileError
from fcl.stagewise.checkpoint import StateFolder
from fcl.stagewise.settings import Settings
from fcl.stagewise.train import StagewiseRunOptions, train_stagewise
from tests.cli.refusals import of, parametrized
from tests.stagewise.conftest import interrupted, labels_of
from tests.stagewise.test_forged import OPTIONS, change_array, zeros

# -- doors: each does what is refused, in an empty working folder


def train(given: dict[str, Any]) -> None:
    """Options; y, valid and data make targets, those of validation rows, or data, of a problem."""
    problem, options = Problem(), dict(given)
    problem.x[:, 2] = 1.0
    y = options.pop("y", lambda problem: problem.y)(problem)
    rows = options.pop("data", lambda rows: rows)(problem.data(y))
    valid, features = options.pop("valid", None), options.pop("features", Waves())
    other = None if valid is None else fcl.open_data(problem.x, y=valid(problem))
    numbers, certify = (options.pop(name, False) for name in ("numbers", "certify"))
    running = StagewiseRunOptions(certify=certify)
    train_stagewise(rows, features, Settings(**options), other, numbers=numbers, running=running)


@cache
def saved() -> bytes:
    """A model of the four columns, of three classes."""
    Problem().train("columns", block=3).model.save("made")
    return Path("made").read_bytes()


def file(given: tuple[str, Any]) -> None:
    """A model file with another array, or other values at a place of its header."""
    place, values = given
    path = Path("m.fcl")
    path.write_bytes(saved())
    if isinstance(values, dict):
        set_header(path, *place.split(), **values)
    else:
        stored = npy(values, pickle=values.dtype == object)
        rewrite(path, lambda members: members.update({f"{place}.npy": stored}))
    fcl.load_model(path)


def resume(given: dict[str, Any]) -> None:
    """A job with options ``first`` is stopped; it goes on with others, after a change of its file."""
    first, then = given.get("first", {}), given.get("then", {})
    folder = interrupted(Problem(), Path("c"), 2, **OPTIONS | first)
    given.get("edit", lambda path: None)(Path("c/checkpoint-1.fcl-ckpt"))
    problem = given.get("problem", Problem)()
    running = StagewiseRunOptions(cores=1, resume=folder.load())
    problem.train(**OPTIONS | first | then, running=running)


def fewer_rows(members: dict[str, bytes]) -> None:
    found = json.loads(members["header.json"])
    found["rows"][0] -= 1
    members["header.json"] = json.dumps(found).encode()
    change_array("margins-0.npy", lambda m: m[:-3])(members)


def call(given: Callable[[Problem], Any]) -> None:
    given(Problem())


def offset(problem: Problem, columns: int) -> fcl.DataSet:
    values = np.ones((300, columns))
    return problem.data(problem.numbers).with_offset(values[:, 0] if columns == 1 else values)


def of_numbers(problem: Problem) -> Any:
    """A model of two numbers with offsets."""
    return train_stagewise(offset(problem, 2), Waves(), Settings(block=15), numbers=True).model


def predict(given: str) -> None:
    """The command, with models m.fcl of classes and n.fcl of two numbers; it writes nothing."""
    from fcl.cli.predict import command

    problem = Problem()
    Path("data").mkdir()
    for name, values in {"X": problem.x, "y": problem.y, "s": problem.s}.items():
        np.save(f"data/{name}.npy", values)
    problem.train(update="gls", block=8).model.save("m.fcl")
    problem.train(target=problem.numbers).model.save("n.fcl")
    result = CliRunner().invoke(command, [*given.split(), "--out", "x.tsv"])
    assert result.exit_code == 2 and not Path("x.tsv").exists(), result.output
    raise InputError(result.stderr.splitlines()[-1])


def numbers_of(problem: Problem) -> np.ndarray:
    return problem.numbers


def letters(_: fcl.DataSet) -> fcl.DataSet:
    return fcl.open_data(np.arange(540, dtype=np.uint8).reshape(60, 9) % 4, y=np.arange(60) % 3)


def single(problem: Problem) -> np.ndarray:
    """One row is of a class of its own."""
    y = problem.y.copy()
    y[5] = "z"
    return y


CLS: dict[str, Any] = {"update": "cls", "rounds": 9}
BLOCKS = "expected a family that makes columns of numbers in blocks"
TRAIN = of(train, [
    ("endless", {"features": "fourier"}, "a family with a number of features, got one without an end"),
    ("kmers", {"features": "kmers:d=2", "data": letters}, f"features kmers: {BLOCKS}"),
    ("bag", {"features": "bag:d=2", "data": letters}, f"features bag: {BLOCKS}"),
    ("several", {"features": "columns + fourier:n=8"},
     "expected one family, got several that are joined"),
    ("singular", {"alpha": 0.0, "block": 2}, r"block 2 of 15, features 2 to 3: .* singular at alpha"),
    ("alpha", {"alpha": -1.0}, r"alpha must be a finite number of at least 0, got -1\.0"),
    ("rounds of ls", {"rounds": 2}, "rounds: applies only to the update cls"),
    ("rounds 0", {"update": "cls", "rounds": 0}, "rounds must be a whole number of at least 1"),
    ("calibration", {"calibration": "linear"}, "calibration: applies only to the update cls"),
    ("block", {"block": 0}, "block must be a whole number of at least 1"),
    ("valid fraction", {"valid_fraction": 1.5}, r"valid_fraction must be at least 0 .* got 1\.5"),
    ("softmax of ls", {"update": "ls", "loss": "softmax"}, "no softmax loss; set update to gls"),
    ("probit of ls", {"update": "ls", "loss": "probit"}, "no probit loss; set update to gls"),
    ("softmax of cls", {"update": "cls", "loss": "softmax"}, "the update cls has no softmax loss"),
    ("squared of gls", {"update": "gls", "loss": "squared"}, "no squared loss; set update to ls"),
    ("cauchit", {"update": "gls", "loss": "cauchit"},
     "unknown loss 'cauchit'; expected one of squared"),
    ("power below 1", {"update": "gls", "loss": "power:p=0.5"}, r"expected p of at least 1, got 0\.5"),
    ("power of q", {"update": "gls", "loss": "power:q=2"}, "expected p=NUMBER, each once, got 'q=2'"),
    ("softmax of labels", {"y": labels_of, "update": "gls", "loss": "softmax"},
     "softmax is for one class in each row"),
    ("weights of labels", {"y": labels_of, "class_weight": "balanced"}, "class_weight: expected None"),
    ("weights of numbers", {"y": numbers_of, "numbers": True, "class_weight": "balanced"},
     "class_weight is for classification"),
    ("weight of d", {"class_weight": {"d": 1.0}}, "class_weight: there is no label 'd'"),
    ("weights of a word", {"class_weight": "even"}, "class_weight must be .* or a dict .*, got 'even'"),
    ("gls of numbers", {"y": numbers_of, "numbers": True, "update": "gls"}, "gls is for classes"),
    ("nan", {"y": lambda _: np.full(300, np.nan), "numbers": True}, "y: row 0 is nan"),
    ("shape", {"y": lambda _: np.zeros((300, 2, 2)), "numbers": True},
     "expected one or more columns of numbers"),
    ("class of one row", {"y": single}, "two rows of each class .* got one of class 'z', row 5"),
    ("one class", {"y": lambda _: np.full(300, "a")}, "two classes, got only one class, 'a'"),
    ("no label", {"y": lambda _: np.full((300, 2), [1, 2])},
     "expected 0 or 1 in each column.* got 2 in row 0, column 1"),
    ("another class", {"valid": single}, "expected the labels of the model, .* got 'z' in row 5"),
    ("no target", {"valid": lambda _: None}, "needs a target, and none was opened"),
    ("one column", {"y": numbers_of, "numbers": True, "valid": lambda problem: problem.numbers[:, 0]},
     "y: expected 2 columns of numbers"),
    ("certificate of cls", {"update": "cls", "certify": True}, "certify: the update cls has no joint"),
    ("certificate of alpha 0", {"alpha": 0.0, "certify": True}, "the bound needs alpha above 0, got 0"),
    ("covariates", {"data": lambda rows: rows.with_covariates(np.ones((300, 1)))},
     "take no covariates"),
    ("offset of cls", {"update": "cls", "data": lambda rows: rows.with_offset(np.ones((300, 3)))},
     "the update cls takes no offset"),
])  # fmt: skip

FILES = of(file, [
    ("format", ("", {"format": "other"}), "format is 'other', expected 'fcl-model'"),
    ("version 4", ("", {"version": 4, "fcl_version": "9.9"}),
     "format version 4.*made by a newer fcl"),
    ("version true", ("", {"version": True}), "version must be an integer"),
    ("kmers", ("", {"family": {"family": "kmers", "d": 3, "length": 8, "origin": 0}}),
     r"m\.fcl: expected a family of generated columns, got kmers"),
    ("family 3", ("", {"family": 3}), "family: expected an object"),
    ("no labels", ("", {"labels": None}), "labels: expected 3 different labels"),
    ("two labels", ("", {"labels": ["a", "b"]}), "labels: expected 3 different labels"),
    ("equal labels", ("", {"labels": ["a", "b", "a"]}), "labels: expected 3 different labels"),
    ("two outputs", ("", {"n_outputs": 2, "labels": ["a", "b"]}),
     r"features\.npy: expected finite values of shape"),
    ("many outputs", ("", {"n_outputs": 1 << 60}),
     "labels: expected 1,152,921,504,606,846,976 different labels"),
    ("rows", ("", {"n_rows": 0}), "n_rows: expected a whole number"),
    ("best number", ("", {"best_number": -1}), "best_number: expected a whole number"),
    ("names", ("", {"column_names": [[9, "x"]]}), r"column_names: expected columns in \[0, 4\)"),
    ("certificate", ("", {"certificate": {"objective": 1}}), r"certificate\.bound is missing"),
    ("history", ("", {"history": [{"number": 1}]}), r"history\[0\]\.loss is missing"),
    ("offset", ("", {"has_offset": 1}), "has_offset: expected true or false"),
    ("block", ("settings", {"block": 0}), r"settings\.block: expected a whole number"),
    ("large block", ("settings", {"block": 1 << 61}), r"intercepts\.npy: expected finite values"),
    ("update", ("settings", {"update": "gls"}), "loss: the update gls has no squared loss"),
    ("calibrated features of fcl 0.1", ("settings", {"update": "cls", "clip": True}),
     r"m\.fcl: update: this job of cls is of fcl 0\.1"),
    ("alpha", ("settings", {"alpha": -1.0}), r"settings\.alpha: expected a finite number .* got -1"),
    ("weights", ("settings", {"class_weight": [["a", -1], ["b", 1]]}),
     r"settings\.class_weight\[0\]\[1\]: expected a finite number above 0, got -1"),
    ("nan", ("features", np.full(12, np.nan)), r"features\.npy: expected finite values"),
    ("short", ("features", np.zeros(11)),
     r"features\.npy: expected finite values of shape \(4, 3\)"),
    ("matrix", ("features", np.zeros((4, 3))), "features.* must be a vector of <f8"),
    ("byte order", ("intercepts", np.zeros(9, ">f8")), "must be a vector of <f8, got >f8"),
    ("calibration", ("calibration", np.zeros(1)),
     r"calibration\.npy: expected finite values of shape"),
    ("pickle", ("features", np.array([{}], object)),
     r"features\.npy must be a vector of <f8, got \|O"),
])  # fmt: skip

RESUME = of(resume, [
    ("alpha", {"then": {"alpha": 2.0}}, r"alpha was 1\.0, is 2\.0"),
    ("features", {"then": {"features": Waves(30, 0.5)}}, "another job: the features differ"),
    ("data", {"problem": lambda: Problem(300, seed=9)}, "another job: .*the data differ"),
    ("visits 2", {"first": CLS, "then": {"visits": 2}}, "visits was 1, is 2"),
    ("visits 3", {"first": CLS, "then": {"visits": 3}}, "visits was 1, is 3"),
    ("cut", {"edit": lambda path: path.write_bytes(path.read_bytes()[:-100])},
     r"checkpoint-1\.fcl-ckpt: .*; start the job over"),
    ("rows", {"edit": lambda path: rewrite(path, fewer_rows)},
     "another job: rows and outputs was"),
    ("order", {"first": {"order": "gradient"},
               "edit": lambda path: rewrite(path, change_array("order.npy", zeros))},
     r"order\.npy: expected each feature once"),
])  # fmt: skip

OTHERS = [
    ("no checkpoint", call, lambda _: StateFolder("c").load(), "c: holds no checkpoint of a stagewise"),
    ("chances of numbers", call, lambda problem: of_numbers(problem).predict_proba(problem.x),
     "need a model of classes, this one predicts numbers"),
    ("no offset", call, lambda problem: of_numbers(problem).margins(problem.x),
     "expected an offset, since the model was trained with one, got none"),
    ("one offset", call, lambda problem: of_numbers(problem).margins(offset(problem, 1)),
     r"expected an offset of 2 columns, .* got shape \(300,\)"),
    ("probability", predict, "n.fcl data --probability", "need a model of classes"),
    ("explain", predict, "m.fcl data --explain 3", "--explain needs a model of fcl train"),
    ("labels", predict, "m.fcl data --y s",
     "data:s: expected the labels of the model, 'a', 'b' and 'c'"),
    ("offset", predict, "m.fcl data --mean --offset none", 'data has no array "none"'),
]  # fmt: skip


@parametrized(TRAIN, FILES, RESUME, OTHERS)
def test_refused(
    door: Any, given: Any, message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ModelFileError if door is file else InputError, match=message):
        door(given)
