"""``--covariates`` of the commands: train, resume, predict, explain, inspect, report."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import zarr

import fcl
from tests.cli.conftest import ok

N = 240
NAMES = "obs/age,obs/sex,obsm/pc"


def write(path: Path, **changes: Any) -> Path:
    """A Zarr group in the layout of anndata, with numbers, categories and two components."""
    random = np.random.default_rng(0)
    group = zarr.open_group(path, mode="w", zarr_format=2)
    X, age = random.normal(size=(N, 6)).astype(np.float32), random.uniform(20, 90, N)
    codes = random.integers(0, 3, N)
    y = (X[:, 0] + 0.03 * (age - 50) + 0.5 * (codes == 2) + random.logistic(size=N) > 0) * 1
    arrays = {"X": X, "y": y, "obs/age": age, "obsm/pc": random.normal(size=(N, 2))} | changes
    for name, array in arrays.items():
        if array is not None:
            group.create_array(name, data=array)
    if "obs/sex" not in changes:
        attributes = {"encoding-type": "categorical", "encoding-version": "0.2.0", "ordered": False}
        sex = group.create_group("obs/sex", attributes=attributes)
        sex.create_array("codes", data=codes.astype(np.int8))
        sex.create_array("categories", data=np.array(["male", "female", "other"]))
    return path


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """Data, and a model of them by the command."""
    from click.testing import CliRunner

    from fcl.cli.train import command

    folder = tmp_path_factory.mktemp("covariates")
    data, out = write(folder / "d.zarr"), folder / "m.fcl"
    options = ["--features", "columns", "--C", "0.2", "--driver", "inline", "--memory", "1GiB"]
    options += ["--valid", str(data), "--out", str(out), "--covariates", NAMES]
    ok(CliRunner().invoke(command, [str(data), *options]))
    return data, out


def test_predict_reads_the_same_arrays(
    trained: tuple[Path, Path], tmp_path: Path, run: Any
) -> None:
    data, path = trained
    model = fcl.load_model(path)
    assert [term.levels for term in model.covariates] == [None, ("female", "male", "other"), None]
    assert [len(term.coefficients) for term in model.covariates] == [1, 2, 2]
    ok(run("predict", path, data, "--out", tmp_path / "s.npy"))
    group = zarr.open_group(data, mode="r")
    sex = np.array(["male", "female", "other"])[group["obs/sex/codes"][:]]
    z = np.column_stack([group["obs/age"][:], sex == "male", sex == "other", group["obsm/pc"][:]])
    v = np.concatenate([term.coefficients for term in model.covariates])
    expected = group["X"][:][:, model.ids] @ model.weights + model.intercept + z @ v
    np.testing.assert_allclose(np.load(tmp_path / "s.npy"), expected, rtol=1e-6)
    np.testing.assert_allclose(model.margins(data), expected, rtol=1e-6)
    run("predict", path, data, "--out", tmp_path / "s.tsv", "--explain", 2)
    lines = (tmp_path / "s.tsv").read_text().splitlines()
    cells = dict(zip(lines[0].split("\t"), lines[1].split("\t"), strict=True))
    assert float(cells["covariates"]) == pytest.approx((z @ v)[0]) and "offset" not in cells


def test_other_inputs_lack_covariates(trained: tuple[Path, Path], tmp_path: Path, run: Any) -> None:
    (tmp_path / "t.csv").write_text("a,b,c,d,e,f\n" + "1,2,3,4,5,6\n" * 3)
    result = run("predict", trained[1], tmp_path / "t.csv", "--out", tmp_path / "s.tsv")
    assert result.exit_code == 2 and "with the covariates obs/age,obs/sex" in result.stderr


@pytest.mark.slow
def test_inspect_and_report_list_them_apart(
    trained: tuple[Path, Path], tmp_path: Path, run: Any
) -> None:
    data, path = trained
    text = run("inspect", path).stdout
    features, covariates = text.split("covariate, not penalised")
    assert "fcl-model 2, written" in features and "obs/age" not in features
    names = [line.split()[1] for line in covariates.strip().splitlines()]
    assert names == ["obs/age", "obs/sex=male", "obs/sex=other", "obsm/pc[0]", "obsm/pc[1]"]
    out = tmp_path / "r.html"
    ok(run("report_command", path, "--data", data, "--out", out))
    page = out.read_text()
    assert "obs/sex=male, obs/sex=other" in page and all(name in page for name in NAMES.split(","))
