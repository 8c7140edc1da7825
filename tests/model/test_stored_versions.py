"""Model files of each version, written while it was the newest one, load and predict the same."""

from __future__ import annotations

import json
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import fcl

STORED = Path(__file__).parent / "stored"
ROWS = np.arange(3)[:, None]
X = np.sin(1.7 * ROWS + 2.3 * np.arange(4) + ROWS * np.arange(4))
#: version -> loss, and the margins of the rows by the fcl that wrote the file
MARGINS: dict[int, tuple[str, Any]] = {
    1: ("logistic", [1.636024550864, 1.005618498788, 0.48418812284]),
    2: ("squared", [1.269291333261, -0.411591883385, 0.712514724474]),
    3: (
        "softmax",
        [
            [-1.330759746398, 0.653886445605, 1.489225036753],
            [-1.423514414886, 0.659328486642, -1.599081922342],
            [-0.292757375748, 0.658300187096, -0.137210327849],
        ],
    ),
}


@pytest.mark.parametrize("version", MARGINS)
def test_stored_version(version: int, tmp_path: Path) -> None:
    path = STORED / f"version_{version}.fcl"
    with zipfile.ZipFile(path) as archive:
        assert json.loads(archive.read("header.json"))["version"] == version
    model = fcl.load_model(path)
    loss, margins = MARGINS[version]
    covariates = np.cos(3.0 * ROWS) if version == 2 else None
    if covariates is not None:
        pd = pytest.importorskip("pandas")
        covariates = pd.DataFrame({"age": covariates[:, 0]})
    np.testing.assert_allclose(model.margins(X, covariates=covariates), margins, atol=1e-11)
    assert model.loss == loss and 0.0 <= model.certificate.gap <= 1e-3
    model.save(tmp_path / "again.fcl")  # the same version, of the same content
    with zipfile.ZipFile(path) as first, zipfile.ZipFile(tmp_path / "again.fcl") as second:
        for name in ("ids.npy", "weights.npy", "support.npy"):
            assert first.read(name) == second.read(name)
        assert json.loads(second.read("header.json"))["version"] == version
