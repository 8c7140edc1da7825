"""The model file against its specification, docs/reference/model_file.md."""

from __future__ import annotations

import io
import json
import math
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from checkpoints import rewrite, set_header
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import fcl
from fcl.errors import InputError, ModelFileError
from fcl.model import Certificate, Model, load_model
from fcl.model.certificate import Scope
from fcl.model.covariates import CovariateTerm
from tests.model.conftest import make_compact, make_model


def header_of(path: Path) -> dict[str, Any]:
    with zipfile.ZipFile(path) as archive:
        header: dict[str, Any] = json.loads(archive.read("header.json"))
    return header


FINITE = st.floats(allow_nan=False, allow_infinity=False)


@given(weights=st.lists(FINITE, max_size=6), intercept=FINITE)
@settings(max_examples=30, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_floats_keep_their_bits(tmp_path: Path, weights: list[float], intercept: float) -> None:
    ids = np.arange(len(weights))
    model = make_model(ids=ids, weights=weights, support=ids + 1, intercept=intercept)
    model.save(tmp_path / "bits.fcl", overwrite=True)
    again = load_model(tmp_path / "bits.fcl")
    assert again.weights.tobytes() == model.weights.tobytes()
    assert np.float64(again.intercept).tobytes() == np.float64(intercept).tobytes()


def test_members_are_as_specified(path: Path) -> None:
    names = ("ids", "weights", "support")
    with zipfile.ZipFile(path) as archive:
        infos = archive.infolist()
        arrays = [np.load(io.BytesIO(archive.read(f"{name}.npy"))) for name in names]
    header = header_of(path)
    assert {info.filename for info in infos} == {"header.json", *(f"{name}.npy" for name in names)}
    assert all(info.compress_type == zipfile.ZIP_STORED for info in infos)
    assert all(info.date_time == (1980, 1, 1, 0, 0, 0) for info in infos)
    assert (header["format"], header["version"]) == ("fcl-model", 1)
    assert [array.dtype.str for array in arrays] == ["<i8", "<f8", "<i8"]
    page = (Path(__file__).parents[2] / "docs/reference/model_file.md").read_text()
    assert all(f"`{key}`" in page for key in [*header, *header["certificate"]])


def test_unknown_numbers_are_null(path: Path) -> None:
    nothing = Certificate(1.0, -math.inf, math.inf, math.inf, 0, Scope.NOTHING, 0)
    make_model(certificate=nothing).save(path, overwrite=True)
    text = json.dumps(header_of(path))
    assert "Infinity" not in text and "NaN" not in text
    assert load_model(path).certificate == nothing


@pytest.mark.parametrize("scope", Scope)
def test_scopes_of_a_certificate(scope: Scope) -> None:
    certificate = Certificate(2.0, 1.0, 0.5, 1.0, 1234, scope)
    stored = certificate.to_dict()
    text = "1,234 sampled features priced at the point before, not over all"
    assert (stored["scope"] == text) == (scope is Scope.SAMPLE_BEFORE)
    assert Certificate.from_dict(stored) == certificate
    with pytest.raises(ValueError, match="expected a scope such as"):
        Certificate.from_dict({**stored, "scope": "all features there are"})


@pytest.mark.parametrize(
    "labels",
    [None, (0, 1), (-1.0, 1.0), ("exon", "intron"), (False, True), (np.int8(0), np.int8(3))],
    ids=str,
)
def test_labels(path: Path, labels: Any) -> None:
    make_model(labels=labels).save(path, overwrite=True)
    assert load_model(path).labels == labels


def test_empty_model(path: Path, windows: np.ndarray) -> None:
    make_model(ids=[], weights=[], support=[]).save(path, overwrite=True)
    model = load_model(path)
    assert model.n_active == 0 and model.describe() == []
    assert np.array_equal(model.margins(windows), np.full(len(windows), -0.7))


def test_an_existing_file_is_kept(path: Path, model: Model) -> None:
    before = path.read_bytes()
    with pytest.raises(InputError, match=r"m\.fcl: exists already.*overwrite=True"):
        model.save(path)
    assert path.read_bytes() == before
    model.save(path, overwrite=True)


def test_unknown_members_and_keys_are_ignored(path: Path, model: Model) -> None:
    set_header(path, later="thing")
    rewrite(path, lambda members: members.update({"more.bin": b"1"}))
    assert np.array_equal(load_model(path).ids, model.ids)


def test_covariates_need_a_reader_that_knows_them(tmp_path: Path) -> None:
    """Files of models without covariates stay as they were."""
    terms = CovariateTerm("obs/sex", ("f", "m"), (0.5,)), CovariateTerm("pc", None, (1.0, -1 / 3))
    for covariates, version in ((terms, 2), ((), 1)):
        path = tmp_path / f"{version}.fcl"
        make_model(covariates=covariates).save(path)
        assert load_model(path).covariates == covariates
        header = header_of(path)
        assert header["version"] == version and (header.get("covariates") is None) == (
            covariates == ()
        )


@pytest.mark.parametrize("make", [make_model, make_compact])
def test_damage_is_noticed_or_harmless(tmp_path: Path, make: Callable[[], Model]) -> None:
    model, path = make(), tmp_path / "m.fcl"
    model.save(path)
    content = path.read_bytes()
    for size in range(0, len(content), 29):
        path.write_bytes(content[:size])
        with pytest.raises(ModelFileError, match=r"m\.fcl: "):
            load_model(path)
    for at in range(0, len(content), 7):
        path.write_bytes(content[:at] + bytes([content[at] ^ 0x10]) + content[at + 1 :])
        try:
            again = load_model(path)
        except ModelFileError:
            continue
        # bits of dates and attributes mean nothing here; no content may change unseen
        assert again.weights.tobytes() == model.weights.tobytes()
        assert again.certificate == model.certificate


# -- files of each version, written while it was the newest one

STORED = Path(__file__).parent / "stored"
ROWS = np.arange(3)[:, None]
X = np.sin(1.7 * ROWS + 2.3 * np.arange(4) + ROWS * np.arange(4))
#: version -> loss, and the margins of the rows by the fcl that wrote the file
MARGINS: dict[int, tuple[str, Any]] = {
    1: ("logistic", [1.636024550864, 1.005618498788, 0.48418812284]),
    2: ("squared", [1.269291333261, -0.411591883385, 0.712514724474]),
    3: ("softmax", [[-1.330759746398, 0.653886445605, 1.489225036753],
                    [-1.423514414886, 0.659328486642, -1.599081922342],
                    [-0.292757375748, 0.658300187096, -0.137210327849]]),
}  # fmt: skip


@pytest.mark.parametrize("version", MARGINS)
def test_stored_version(version: int, tmp_path: Path) -> None:
    path, again = STORED / f"version_{version}.fcl", tmp_path / "again.fcl"
    assert header_of(path)["version"] == version
    model = fcl.load_model(path)
    loss, margins = MARGINS[version]
    covariates = pd.DataFrame({"age": np.cos(3.0 * ROWS)[:, 0]}) if version == 2 else None
    np.testing.assert_allclose(model.margins(X, covariates=covariates), margins, atol=1e-11)
    assert model.loss == loss and 0.0 <= model.certificate.gap <= 1e-3
    model.save(again)  # the same version, of the same content
    with zipfile.ZipFile(path) as first, zipfile.ZipFile(again) as second:
        for name in ("ids.npy", "weights.npy", "support.npy"):
            assert first.read(name) == second.read(name)
    assert header_of(again)["version"] == version
