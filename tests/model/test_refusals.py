"""Calls that are refused, and leave no file: models, rows, outputs, checkpoints of other jobs."""

from __future__ import annotations

import math
import os
import re
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest
import zarr

import fcl
from fcl.data.column_map import refuse_mapped
from fcl.data.columns import ColumnRecord
from fcl.errors import InputError
from fcl.files import schema
from fcl.files.atomic import check_output
from fcl.files.compact import round_weights
from fcl.files.folder import CheckpointFolder
from fcl.files.signature import check_places
from fcl.model.columns import matched
from fcl.model.labels import encoded_target
from fcl.model.scores import write_scores
from fcl.scoring.margins import BlockScorer
from tests.model.conftest import (
    FRAME,
    NAMES,
    SEVERAL,
    TURNED,
    Y,
    family_of,
    layout,
    make_model,
    read_back,
    record_header,
    stored,
    trained,
)

Case = tuple[str, Callable[[], object], str]
X = FRAME.to_numpy()
WINDOWS = np.zeros((700, 12), np.uint8)
UNKNOWN = np.where(np.arange(700 * 12).reshape(700, 12) == 650 * 12 + 3, 77, WINDOWS)
OUTPUTS = ("s.npy", "s.tsv", "s.zarr")


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of the calls."""
    place = tmp_path_factory.mktemp("refusals")
    (place / "file").touch()
    (place / "empty").mkdir()
    with h5py.File(place / "announced.h5", "w") as file:  # of these rows none was ever written
        file.create_dataset("X", (1 << 60, 12), "u1", chunks=(1000, 12))
    for name, columns in (("same", NAMES), ("turned", TURNED), ("five", NAMES[:5]),
                          ("seven", [*TURNED, "q"])):  # fmt: skip
        stored(place / f"{name}.zarr", columns)
    fcl.train(fcl.open_data(place / "same.zarr"), "columns", C=1.0, checkpoint=place / "job")
    for n, attribute in enumerate(ATTRIBUTES):
        stored(place / f"{n}.zarr", NAMES)
        zarr.open_group(place / f"{n}.zarr", mode="a").attrs["fcl"] = attribute
    return place


# -- models

named = cache(lambda: trained("columns", FRAME))
unnamed = cache(lambda: trained("columns", X))
sparse = cache(lambda: trained("columns", FRAME, 0.05))  # some columns have no weight


def several(**changes: Any) -> fcl.Model:
    return make_model(**(SEVERAL | changes))


def steps(weight: float) -> Case:
    message = (
        f"bits: expected fewer than 9, since the largest weight, {re.escape(f'{abs(weight):g}')}"
    )
    rounded = np.array([weight]), np.zeros(1, np.int64), 9, "random", 0
    return f"weight {weight:g} in steps", lambda: round_weights(*rounded), message


LOSS = "logistic or softmax loss, this one has {} loss"
MODELS: list[Case] = [
    ("intercept nan", lambda: make_model(intercept=math.nan), "^weights .* must be finite"),
    ("one intercept", lambda: several(intercept=0.5), r"intercept: expected 3 numbers.* got shape \(\)"),
    ("two intercepts", lambda: several(intercept=[1.0, 2.0]), r"expected 3 numbers.* got shape \(2,\)"),
    ("intercepts nan", lambda: several(intercept=[1.0, 2.0, np.nan]), "^weights .* must be finite"),
    ("one column of weights", lambda: several(weights=np.ones((3, 1))), "need at least two columns"),
    ("four weights", lambda: several(weights=np.ones((4, 3))), "one length"),
    ("two labels", lambda: several(labels=("a", "b")), "labels: expected 3, one for each class, got 2"),
    ("loss", lambda: several(loss="huber:delta=1"), "expected one of softmax, squared, logistic"),
    ("probability, squared", lambda: make_model(loss="squared").predict_proba(WINDOWS),
     LOSS.format("squared")),
    ("probability, hinge", lambda: make_model(loss="squared_hinge").predict_proba(WINDOWS),
     LOSS.format("squared_hinge")),
    ("probability, numbers", lambda: several(loss="squared").predict_proba(WINDOWS),
     LOSS.format("squared")),
    ("other length", lambda: make_model().margins(WINDOWS[:, :9]), "9 letters.* 12"),
    ("one offset", lambda: several(options={"offset": True}).margins(WINDOWS, offset=np.ones(700)),
     r"expected an offset of shape \(700, 3\).*got shape \(700,\)"),
    ("no offset", lambda: several(options={"offset": True}).margins(WINDOWS),
     "expected an offset.*got none"),
    ("output", lambda: several().describe(output="quince"),
     "one of the 3 outputs .*'apple'.* got 'quince'"),
    ("explain", lambda: several().explain(WINDOWS), r"a model of one output.*explain\(\.\.\., output="),
    ("labels", lambda: encoded_target(several(), np.array(["a"]), "y"),
     "y: expected the labels of the model, 'apple', 'fig' and 'pear', got 'a' in row 0"),
    ("classes 2D", lambda: encoded_target(several(), np.zeros((40, 2)), "y"),
     "y has shape .* expected one value per row"),
    ("numbers 2D", lambda: encoded_target(several(loss="squared"), np.zeros((40, 2)), "y"),
     "y: expected 3 columns of num"),
    ("labels 2D", lambda: encoded_target(several(loss="logistic"), np.zeros((40, 2)), "y"),
     "y: expected 3 columns of 0 and 1"),
    steps(1e300), steps(-1e300), steps(2.0**43),
]  # fmt: skip

# -- rows of other columns


def scored(model: fcl.Model, x: Any, names: list[str] | None = None, kind: str = "dense") -> object:
    return BlockScorer(model).margins(x, layout(names, x.shape[1], kind), "t.csv")


def with_names(names: list[str]) -> fcl.DataSet:
    data = fcl.open_data(X, y=None)
    data.column_record = ColumnRecord(names)
    return data


def certified(frame: Any) -> object:
    return fcl.certify(sparse(), fcl.open_data(frame, y=Y))


def turned() -> object:
    data = matched(fcl.open_data("turned.zarr"), ColumnRecord(NAMES), 6)
    return refuse_mapped(data.rows, data.name)


def began() -> object:
    """A model of six columns, for rows of seven."""
    initial = trained("products", FRAME, 1.0)
    return fcl.train(fcl.open_data("seven.zarr"), "products", C=1.0, initial=initial)


def record(key: str, value: Any) -> Case:
    header = record_header()
    header["columns"][key] = value
    return f"{key} {value}", lambda: read_back(header), rf"columns\.{key}.*: expected"


GIVEN = ["age", "a * b", "x=(1)", "colour=green"]
ATTRIBUTES = (
    {"means": [1]},
    {"means": {"a": "x"}},
    {"categories": {"a": "xy"}},
    {"filled": {"a": 0.5}},
)
ALL = "expected all columns of the training data and no others"
ROWS: list[Case] = [
    ("missing columns", lambda: scored(named(), X[:, :4], GIVEN),
     r"t\.csv: the model reads the columns 'colour=red', 'colour=blue', 'height', which the"),
    ("five columns", lambda: scored(unnamed(), X[:, :5]),
     r"t\.csv has 5 columns, but the model has no names .* 6;"),
    ("sequences", lambda: scored(unnamed(), WINDOWS, None, "codes"),
     r"t\.csv has rows of sequences, but .* numbers"),
    ("offset", lambda: BlockScorer(make_model(options={"offset": True})),
     "with an offset, which these inputs lack"),
    *((f"frame, {features}",
       lambda features=features: trained(features, FRAME).margins(FRAME.drop(columns="age")),
       "data frame: the model reads the columns 'age', which")
      for features in ("columns", "products:degree=2", "fourier:n=64")),
    ("frame of other names", lambda: named().margins(FRAME.rename(columns=str.upper)),
     "data frame: the model reads the columns 'age', .* and 1 more"),
    ("stored data", lambda: named().margins("five.zarr"),
     r"five\.zarr: the model reads the columns 'height', which"),
    ("equal names", lambda: named().margins(with_names(["height", "age", *NAMES[1:4], "age"])),
     "several columns are called 'age'; rename them"),
    ("certificate of some columns", lambda: certified(FRAME[list(sparse().column_names.values())]), ALL),
    ("certificate of more columns", lambda: certified(FRAME.assign(more=1.0)), ALL),
    ("resumed", lambda: fcl.train(fcl.open_data("turned.zarr"), "columns", C=1.0, resume="job"),
     "checkpoint 1 .* the features differ"),
    ("initial model", began, r"initial: expected a model of the same features; .* is \d+ here"),
    ("worker of a cluster", turned, r"turned\.zarr: expected the columns of the training data in"),
    ("names", lambda: family_of(width=3).find(["a"], ["a", "b", "a"]), "got 'a' for the columns 0 and 2"),
    ("names of many features", lambda: family_of("fourier:n=200000").find(["cos"]), "found by name"),
    *((f"attribute {attribute}", lambda n=n: fcl.open_data(f"{n}.zarr"),
       f"expected {next(iter(attribute))} in the attribute fcl")
      for n, attribute in enumerate(ATTRIBUTES)),
    *(record("first_id", value) for value in (2, "0", True)),
    *(record("scale", value) for value in (0, None)),
    *(record("places", value) for value in ([[0, "1", 0]], [[0, 1, 5]], {"0": "1"})),
    *(record("means", value) for value in ([["a", None]], [["a"]])),
    *(record("categories", value) for value in ([["a", "b"]], [["a", [1]]])),
    record("offset", 3),
]  # fmt: skip

# -- outputs and checkpoints


def checked(name: str, overwrite: bool = True, **options: Any) -> Callable[[], object]:
    return lambda: check_output(name, overwrite, **options)


FILES: list[Case] = [
    ("output in no folder", checked("no/out"), "no/out: the folder .*/no does not exist; make it first"),
    ("output a folder", checked("empty"), "empty: exists and is not a regular file"),
    ("output a device", checked("/dev/null"), "/dev/null: exists and is not a regular file"),
    ("output for a folder", checked("file", folder=True),
     "file: is a file, which a folder does not replace"),
    ("output exists", checked("file", False, folder=True), "file: exists already; .*--overwrite"),
    *((f"output of {n} letters", checked("x" * n, False),
       r"cannot be written \(File name too long\); choose a shorter")
      for n in (242, 255, 256)),
    *((f"unknown letter, {out}", lambda out=out: write_scores(make_model(), UNKNOWN, out, block_rows=256),
       "row 650") for out in OUTPUTS),
    *((f"full disk, {out}", lambda out=out: write_scores(make_model(), "announced.h5", out),
       f"{out}: .* scores take about .* are free") for out in OUTPUTS),
    ("no checkpoints", lambda: CheckpointFolder("no").load(), "^no: no such folder of checkpoints"),
    ("long name", lambda: CheckpointFolder("a" * 400).load(), "^a{400}: no such folder of checkpoints"),
    ("empty folder", lambda: CheckpointFolder("empty").load(), "empty: holds no checkpoint"),
    ("checkpoints in a file", lambda: CheckpointFolder("file").lock(), "file: is not a folder"),
    ("checkpoints in no folder", lambda: CheckpointFolder("no/c").lock(),
     "no/c: the folder .*/no does not exist; make it"),
    # earlier versions kept passwords
    *((f"password in {url[:8]}",
       lambda url=url: check_places("c", "train", {"data": url}, "", (), ("h",)),
       f"^(?!.*hunter2).*{words}")
      for url, words in (("http://a:hunter2@h/x", "password"), ("s3://a:hunter2@h/x", "password"),
                         ("http://[x/hunter2@", "expected a URL such as http://HOST"))),
]  # fmt: skip
if os.path.isdir("/proc/self"):  # where permissions let root make files that the kernel refuses
    FILES.append(("output in /proc", checked("/proc/out"), "not writable|no file can be created"))


@pytest.mark.thin(3)
@pytest.mark.parametrize(
    ("call", "message"), [pytest.param(*case, id=name) for name, *case in MODELS + ROWS + FILES]
)
def test_refusals(
    call: Callable[[], object], message: str, place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(place)
    before = sorted(place.rglob("*"))
    with pytest.raises((InputError, schema.Mismatch), match=message):
        call()
    assert sorted(place.rglob("*")) == before
