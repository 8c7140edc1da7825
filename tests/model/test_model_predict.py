"""Margins, probabilities, labels, words, and the outputs of scores."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import fcl
from fcl.data import open_data
from fcl.errors import InputError
from fcl.features import KmerFamily
from fcl.model import Certificate, Model
from fcl.model.scores import write_scores
from fcl.objective import find_loss
from tests.model.conftest import make_model

probability = find_loss("logistic").mean


def test_probability_and_labels(windows: np.ndarray) -> None:
    model = make_model(labels=("no", "yes"))
    margins, both = model.margins(windows), model.predict_proba(windows)
    assert both.shape == (len(windows), 2)
    assert np.allclose(both.sum(axis=1), 1)
    assert np.allclose(np.log(both[:, 1] / both[:, 0]), margins)
    assert np.array_equal(model.predict(windows) == "yes", margins > 0)
    regression = make_model(labels=None, loss="squared")
    assert np.array_equal(regression.predict(windows), regression.margins(windows))
    with np.errstate(all="raise", under="ignore"):
        assert probability(np.array([-1e4, 0.0, 1e4])).tolist() == [0.0, 0.5, 1.0]


def test_describe_sorts_by_size() -> None:
    model = make_model(ids=[1, 5, 9, 11], weights=[0.5, -2.0, 0.0, -0.5], support=[1, 2, 3, 4])
    assert [(row.id, row.weight, row.support) for row in model.describe()] == [
        (5, -2.0, 2),
        (1, 0.5, 1),
        (11, -0.5, 4),
    ]
    assert model.n_active == 3
    assert [row.id for row in model.describe(top=1)] == [5]
    assert model.describe(top=1)[0].feature == model.family.describe(5)


@pytest.mark.parametrize("kind", ["margin", "probability"])
def test_outputs(
    tmp_path: Path, model: Model, windows: np.ndarray, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    zarr = pytest.importorskip("zarr")
    monkeypatch.setattr("fcl.model.scores.ZARR_CHUNK_NUMBERS", 150)  # a power of two is taken
    expected = model.margins(windows)
    if kind == "probability":
        expected = probability(expected)
    done: list[int] = []

    def count(start: int, stop: int, margins: np.ndarray) -> None:
        done.append(stop)

    for suffix in ("npy", "tsv", "zarr"):
        out = tmp_path / f"s.{suffix}"
        rows = write_scores(model, windows, out, kind, block_rows=256, on_margins=count)
        assert rows == len(windows)
    assert done == [256, 512, 700] * 3
    loaded = np.load(tmp_path / "s.npy", allow_pickle=False)
    assert loaded.dtype == np.float64 and np.array_equal(loaded, expected)
    lines = (tmp_path / "s.tsv").read_text().splitlines()
    assert lines[0] == kind
    assert np.array_equal(np.array(lines[1:], dtype=float), expected)
    array = zarr.open_array(tmp_path / "s.zarr", mode="r")
    assert array.chunks == (128,) and array.attrs["kind"] == kind
    assert np.array_equal(array[:], expected)
    assert sorted(os.listdir(tmp_path)) == ["s.npy", "s.tsv", "s.zarr"]


@pytest.mark.slow
def test_memory_stays_within_blocks(tmp_path: Path, model: Model) -> None:
    import tracemalloc

    write_scores(model, np.zeros((10, 12), np.uint8), tmp_path / "warm.npy")
    # text takes longer to write
    for suffix, n, most in (("npy", 2e6, 20e6), ("tsv", 8e5, 15e6), ("zarr", 2e6, 20e6)):
        path = tmp_path / f"{suffix}-X.npy"
        np.lib.format.open_memmap(path, mode="w+", dtype=np.uint8, shape=(int(n), 12)).flush()
        data = open_data(path, y=None)
        tracemalloc.start()
        write_scores(model, data, tmp_path / f"s.{suffix}", block_rows=4096)
        peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        # a million rows are 12 MB and their scores 8 MB; a step of reading is 5 MB, a Zarr chunk 4 MB
        assert peak < most, suffix


def test_data_frames_of_features_and_passes() -> None:
    history = [
        {"event": "PassDone", "number": 0, "seconds": 1.0, "gap": None, "active": 0},
        {"number": 1, "seconds": 3.0, "gap": 0.5, "busy": {"trainer 0": 0.9}},
        {"number": 2, "seconds": 0.5, "gap": 0.1, "validation": {"auprc": 0.7, "n_rows": 5}},
        {"number": 3, "seconds": 2.5, "gap": 0.01},
    ]
    model = make_model(history=history, family=KmerFamily(3, 12, 4))
    assert model.history == history and model.history[1]["busy"] == {"trainer 0": 0.9}
    # the job was resumed after pass 1
    assert model.history.elapsed().tolist() == [1.0, 3.0, 3.5, 5.5]
    marked: list[dict[str, Any]] = [{"seconds": n} for n in (1.0, 2.0, 5.0, 4.0)]
    marked[1]["resumed"] = True
    assert make_model(history=marked).history.elapsed().tolist() == [1.0, 3.0, 6.0, 10.0]
    assert make_model(history=marked[1:2]).history.elapsed().tolist() == [2.0]
    assert not len(make_model(history=[]).history.restarts())
    frame = model.history.to_dataframe()
    assert frame.number.tolist() == [0, 1, 2, 3] and "event" not in frame
    assert frame["validation.auprc"].tolist()[2] == 0.7 and frame["busy.trainer 0"][1] == 0.9
    assert frame.elapsed.tolist() == [1.0, 3.0, 3.5, 5.5]
    metric, scores = model.history.validation()
    assert metric == "auprc" and np.isnan(scores[[0, 1, 3]]).all() and scores[2] == 0.7

    frame = model.to_dataframe()
    rows = model.describe()
    assert frame.iloc[:, :4].values.tolist() == [list(row) for row in rows]
    for line, row in zip(frame.itertuples(), rows, strict=True):
        assert row.feature == f"{line.motif} at {line.position:+d}" and line.strand == "+"
    assert not len(make_model(ids=[], weights=[], support=[]).to_dataframe())


def test_html_for_notebooks() -> None:
    from fcl.drivers.result import TrainResult
    from fcl.run.reasons import StopReason

    model = make_model(certificate=Certificate(12.5, -np.inf, np.inf, 1.0, 1000))
    html = model._repr_html_()
    for text in ("3 of 1,000 priced features", "unknown", "GAA at 2", "-2.5"):
        assert text in html, text
    hostile = "<script>alert(1)</script>"
    result = TrainResult(
        model=model, reason=StopReason.TOLERANCE, message=hostile, peak_memory=1 << 28, passes=4
    )
    html = result._repr_html_()
    assert "<script" not in html and "&lt;script&gt;" in html and "256 MiB" in html
    assert result.history is model.history


def test_names_that_come_after_the_training(tmp_path: Path) -> None:
    """Inside a pipeline the rows have no names; the model takes them later, and keeps them."""
    x = np.random.default_rng(3).normal(size=(200, 3))
    model = fcl.train(fcl.open_data(x, y=x[:, 2] > x[:, 0]), "products:degree=2", C=1.0).model
    named = model.with_column_names(["a", "b", "c"])
    assert [row.feature.replace("a", "x0").replace("c", "x2") for row in named.describe(2)] == [
        row.feature for row in model.describe(2)
    ]
    named.save(tmp_path / "m.fcl")
    assert fcl.load_model(tmp_path / "m.fcl").describe() == named.describe()
    np.testing.assert_array_equal(named.margins(x), model.margins(x))
    with pytest.raises(InputError, match="names: expected 3, one for each column of X, got 2"):
        model.with_column_names(["a", "b"])
