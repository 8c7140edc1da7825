"""The model file against its specification, fcl/model/README.md."""

from __future__ import annotations

import io
import json
import math
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from checkpoints import npy, rewrite, set_header
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from fcl.errors import InputError, ModelFileError
from fcl.model import Certificate, Model, load_model
from fcl.model.certificate import Scope


@pytest.fixture
def path(tmp_path: Path, model: Model) -> Path:
    model.save(tmp_path / "m.fcl")
    return tmp_path / "m.fcl"


def test_round_trip(path: Path, model: Model) -> None:
    again = Model.load(path)
    for name in ("ids", "weights", "support"):
        assert np.array_equal(getattr(again, name), getattr(model, name))
        assert getattr(again, name).dtype == getattr(model, name).dtype
    for name in ("intercept", "loss", "C", "alpha", "labels", "n_rows", "sum_weights", "created"):
        assert getattr(again, name) == getattr(model, name), name
    assert again.certificate == model.certificate
    assert again.family.to_config() == model.family.to_config()
    assert again.options == {"seed": 0, "memory": 1 << 30}
    assert again.history == [{"number": 1, "gap": 0.1}]
    assert [p.name for p in path.parent.iterdir()] == ["m.fcl"]  # no temporary file is left


@given(
    weights=st.lists(st.floats(allow_nan=False, allow_infinity=False), max_size=6),
    intercept=st.floats(allow_nan=False, allow_infinity=False),
)
@settings(max_examples=30, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_floats_keep_their_bits(
    tmp_path: Path, make_model: Callable[..., Model], weights: list[float], intercept: float
) -> None:
    k = len(weights)
    model = make_model(
        ids=np.arange(k), weights=weights, support=np.ones(k, int), intercept=intercept
    )
    model.save(tmp_path / "bits.fcl", overwrite=True)
    again = load_model(tmp_path / "bits.fcl")
    assert again.weights.tobytes() == model.weights.tobytes()
    assert np.float64(again.intercept).tobytes() == np.float64(intercept).tobytes()


def test_same_content_same_bytes(path: Path, model: Model) -> None:
    other = path.with_name("other.fcl")
    model.save(other)
    assert other.read_bytes() == path.read_bytes()
    load_model(path).save(other, overwrite=True)
    assert other.read_bytes() == path.read_bytes()


def test_members_are_as_specified(path: Path) -> None:
    with zipfile.ZipFile(path) as archive:
        infos = archive.infolist()
        header = json.loads(archive.read("header.json"))
        arrays = {
            name: np.load(io.BytesIO(archive.read(f"{name}.npy")), allow_pickle=False)
            for name in ("ids", "weights", "support")
        }
    assert {info.filename for info in infos} == {
        "header.json", "ids.npy", "weights.npy", "support.npy",
    }  # fmt: skip
    assert all(info.compress_type == zipfile.ZIP_STORED for info in infos)
    assert all(info.date_time == (1980, 1, 1, 0, 0, 0) for info in infos)
    assert (header["format"], header["version"]) == ("fcl-model", 1)
    assert {name: array.dtype.str for name, array in arrays.items()} == {
        "ids": "<i8", "weights": "<f8", "support": "<i8",
    }  # fmt: skip
    page = (Path(__file__).parents[2] / "fcl/model/README.md").read_text()
    assert all(f"`{key}`" in page for key in [*header, *header["certificate"]])


def test_unknown_numbers_are_null(path: Path, make_model: Callable[..., Model]) -> None:
    nothing = Certificate(1.0, -math.inf, math.inf, math.inf, 0, Scope.NOTHING, 0)
    make_model(certificate=nothing).save(path, overwrite=True)
    with zipfile.ZipFile(path) as archive:
        text = archive.read("header.json").decode()
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


@pytest.mark.parametrize("labels", [None, (0, 1), (-1.0, 1.0), ("exon", "intron"), (False, True)])
def test_labels(path: Path, make_model: Callable[..., Model], labels: Any) -> None:
    make_model(labels=labels).save(path, overwrite=True)
    assert load_model(path).labels == labels


def test_numpy_labels_become_plain(path: Path, make_model: Callable[..., Model]) -> None:
    make_model(labels=(np.int8(0), np.int8(3))).save(path, overwrite=True)
    assert load_model(path).labels == (0, 3)


def test_empty_model(path: Path, make_model: Callable[..., Model], windows: np.ndarray) -> None:
    make_model(ids=[], weights=[], support=[]).save(path, overwrite=True)
    model = load_model(path)
    assert model.n_active == 0 and model.describe() == []
    assert np.array_equal(model.margins(windows), np.full(len(windows), -0.7))


def test_refuses_to_overwrite(path: Path, model: Model) -> None:
    before = path.read_bytes()
    with pytest.raises(InputError, match=r"m\.fcl: exists already.*--overwrite"):
        model.save(path)
    assert path.read_bytes() == before
    model.save(path, overwrite=True)


# -- files that are no good


def test_newer_version(path: Path) -> None:
    set_header(path, version=5, fcl_version="9.9", certificate="unreadable here")
    with pytest.raises(ModelFileError, match=r"m\.fcl: format version 5.*made by a newer fcl\?"):
        load_model(path)


@pytest.mark.parametrize("version", [0, -1, 1.0, True, "1", None])
def test_version_must_be_a_number(path: Path, version: Any) -> None:
    set_header(path, version=version)
    with pytest.raises(ModelFileError, match="version must be an integer"):
        load_model(path)


def test_missing_and_foreign_files(tmp_path: Path) -> None:
    with pytest.raises(ModelFileError, match=r"none\.fcl: no such model file"):
        load_model(tmp_path / "none.fcl")
    with pytest.raises(ModelFileError, match="is a folder"):
        load_model(tmp_path)
    for content in (b"", b"hello", b"PK\x03\x04" + bytes(50), np.random.default_rng(0).bytes(999)):
        (tmp_path / "x.fcl").write_bytes(content)
        with pytest.raises(ModelFileError, match=r"x\.fcl: not a model file"):
            load_model(tmp_path / "x.fcl")
    np.savez(tmp_path / "x.npz", ids=np.arange(3))
    with pytest.raises(ModelFileError, match=r"holds no header\.json"):
        load_model(tmp_path / "x.npz")


def test_other_format_name(path: Path) -> None:
    set_header(path, format="somebody-else")
    with pytest.raises(ModelFileError, match="format is 'somebody-else'"):
        load_model(path)


def test_every_truncation_is_noticed(path: Path) -> None:
    content = path.read_bytes()
    for size in range(0, len(content), 37):
        path.write_bytes(content[:size])
        with pytest.raises(ModelFileError, match=r"m\.fcl: "):
            load_model(path)


def test_a_flipped_bit_is_noticed_or_harmless(path: Path, model: Model) -> None:
    content = path.read_bytes()
    for at in np.random.default_rng(1).choice(len(content), 150, replace=False).tolist():
        path.write_bytes(content[:at] + bytes([content[at] ^ 0x10]) + content[at + 1 :])
        try:
            again = load_model(path)
        except ModelFileError:
            continue
        # bits of dates and attributes mean nothing here; no content may change unseen
        assert again.weights.tobytes() == model.weights.tobytes()
        assert again.certificate == model.certificate


@pytest.mark.parametrize(
    ("key", "value", "message"),
    [
        ("family", {"family": "unheard", "d": 2}, "unknown family"),
        ("family", 3, "family: expected an object"),
        ("loss", "quantile", "loss: unknown loss 'quantile'; expected one of logistic"),
        ("labels", [1], "labels: expected a list of 2"),
        ("intercept", None, "intercept: expected a finite number"),
        ("certificate", {}, "certificate.objective is missing"),
        ("certificate", 7, "certificate: expected an object"),
        ("n_active", 2, "says 2 active features"),
        ("history", 5, "history: expected a list"),
    ],
)
def test_bad_header_values(path: Path, key: str, value: Any, message: str) -> None:
    set_header(path, **{key: value})
    with pytest.raises(ModelFileError, match=message):
        load_model(path)


def test_missing_key_is_named(path: Path) -> None:
    def change(members: dict[str, bytes]) -> None:
        header = json.loads(members["header.json"])
        del header["sum_weights"]
        members["header.json"] = json.dumps(header).encode()

    rewrite(path, change)
    with pytest.raises(ModelFileError, match="sum_weights is missing"):
        load_model(path)


@pytest.mark.parametrize(
    ("name", "array", "message"),
    [
        ("ids", np.array([3, 250, 250]), "increase strictly, got 250 after 250 at position 2"),
        ("ids", np.array([3, 999, 250]), "increase strictly"),
        ("ids", np.array([-(2**63), 0, 2**63 - 1]), r"ids must be in \[0, 1000\)"),
        ("ids", np.array([0, 1, 1000]), r"ids must be in \[0, 1000\)"),
        ("ids", np.array([0, 1, 2], dtype="<i4"), r"ids\.npy must be a vector of <i8, got <i4"),
        ("ids", np.array([0, 1], dtype="<i8"), "one length"),
        ("weights", np.array([1.0, np.nan, 1.0]), "must be finite"),
        ("weights", np.array([1.0, 2.0, 3.0], dtype=">f8"), "vector of <f8, got >f8"),
        ("weights", np.ones((3, 1)), r"got <f8 of shape \(3, 1\)"),
        ("support", np.array([1, -1, 1]), "support counts rows"),
    ],
)
def test_bad_arrays(path: Path, name: str, array: np.ndarray, message: str) -> None:
    rewrite(path, lambda members: members.update({f"{name}.npy": npy(array)}))
    with pytest.raises(ModelFileError, match=message):
        load_model(path)


def test_pickles_are_refused(path: Path) -> None:
    pickled = npy(np.array([{"a": 1}, 2, 3], dtype=object), pickle=True)
    rewrite(path, lambda members: members.update({"ids.npy": pickled}))
    with pytest.raises(ModelFileError, match=r"ids\.npy"):
        load_model(path)


def test_announced_sizes_are_not_believed(path: Path) -> None:
    buffer = io.BytesIO()
    np.lib.format.write_array_header_1_0(
        buffer, {"descr": "<f8", "fortran_order": False, "shape": (10**15,)}
    )
    rewrite(path, lambda members: members.update({"weights.npy": buffer.getvalue()}))
    with pytest.raises(ModelFileError, match="1000000000000000 values"):
        load_model(path)


def test_compressed_members_are_refused(path: Path) -> None:
    rewrite(path, lambda members: None, compress=zipfile.ZIP_DEFLATED)
    with pytest.raises(ModelFileError, match="is compressed"):
        load_model(path)


def test_unknown_members_and_keys_are_ignored(path: Path, model: Model) -> None:
    set_header(path, later="thing")
    rewrite(path, lambda members: members.update({"more.bin": b"1"}))
    assert np.array_equal(load_model(path).ids, model.ids)


def test_model_checks_its_arrays(make_model: Callable[..., Model]) -> None:
    model = make_model()
    with pytest.raises(ValueError, match="read-only"):
        model.weights[0] = 1
    with pytest.raises(InputError, match="intercept must be finite"):
        make_model(intercept=math.nan)
