"""Readers of other programs' models. ``vw`` holds files that Vowpal Wabbit 9.11.9 wrote."""

from __future__ import annotations

import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import fcl
from fcl.errors import InputError
from fcl.features import Family, bind_features, parse_features
from fcl.model.foreign import Weights, load_weights
from fcl.model.foreign.hashing import Hashing, murmur

VW = Path(__file__).parent / "vw"
#: The features with which the models in ``vw`` were trained.
COLUMNS = ["age", "x1", "height_cm", "3"]
#: Vowpal Wabbit's own predictions at rows of a single 1, minus the one at 0; and the one at 0.
PREDICTED = {
    "l1.txt": ([0.772766, -0.242521, -0.319684, -0.123393], 0.4667336),
    "bare.inv": ([0.835904, -0.284461, -0.367099, -0.165783], 0.4991614),
    "bare.txt": ([0.835904, -0.284461, -0.367099, -0.165783], 0.4991614),
    "ns.txt": ([1.354867, -0.356988, -0.92712, -0.244234], 0.4552777),
    "ns.inv": ([1.354867, -0.356988, -0.92712, -0.244234], 0.4552777),
    "all.txt": ([1.000995, -0.315868, -0.505454, -0.165212], 0.0),
    "quad.inv": ([0.33944, -0.068943, -0.137899, -0.062563], 0.1496345),
}


def family(features: str = "columns", width: int = 4) -> Family:
    rows = np.random.default_rng(0).integers(0, 4, (30, width)).astype(np.uint8)
    if not features.startswith(("kmers", "bag")):
        rows = rows.astype(float)
    return bind_features(parse_features(features), fcl.open_data(rows, y=None).rows)


def weights_of(found: Weights, *where: Any) -> dict[int, float]:
    ids, values = found.of(*where)
    return dict(zip(ids.tolist(), values.tolist(), strict=True))


@pytest.mark.parametrize("name", PREDICTED)
def test_models_of_vowpal_wabbit_predict_as_it_does(name: str) -> None:
    found = load_weights(VW / name)
    predicted, constant = PREDICTED[name]
    assert found.intercept == pytest.approx(constant, abs=2e-6)
    of = family("products:degree=2" if "quad" in name else "columns")
    own = weights_of(found, of, COLUMNS, "f" if name == "ns.txt" else "")
    margins = []
    for j, column in enumerate(COLUMNS):  # of a row with 1 in column j, and powers of it
        mine = of.find([column, f"{column}^2"], COLUMNS).tolist()
        margins.append(sum(own.get(id, 0.0) for id in mine if id >= 0))
        assert j in own
    assert margins == pytest.approx(predicted, abs=1e-5)


#: The columns of models of few bits, several of which have the same hash; and as PREDICTED.
EIGHT = ["age", "x1", "height_cm", "3", "b", "c", "dd", "e9"]
FEW = {
    "few.inv": (
        [-0.033076, -0.033076, 0.082508, 0.563874, 0.563874, 0.148512, 0.082508, 0.459733],
        0.082508,
    ),
    "few.txt": (
        [-0.033076, -0.033076, 0.082508, 0.563874, 0.563874, 0.148512, 0.082508, 0.459733],
        0.082508,
    ),
    "few-ns.inv": (
        [0.172339, -0.47004, 0.172339, 0.172339, 0.668315, 0.126073, 0.126073, 0.668315],
        0.668315,
    ),
    "few-all.inv": (
        [-0.061842, -0.061842, 0.006963, 0.006963, 1.233777, 0.146828, 0.006963, 0.48761],
        0.006963,
    ),
    "few-quad.inv": (
        [0.168294, -0.314231, 0.089352, 0.168294, 0.042053, -0.052002, -0.05242, 0.09357],
        0.119989,
    ),
    "few-cubic.inv": (
        [0.082897, -0.045845, 0.068898, -0.001076, 0.145199, 0.039753, 0.086604, 0.048317],
        0.040177,
    ),
}


@pytest.mark.parametrize("name", FEW)
def test_features_of_equal_hashes_share_a_weight_as_in_vowpal_wabbit(name: str) -> None:
    """--invert_hash names one of them, or the intercept; predictions are Vowpal Wabbit's own."""
    found = load_weights(VW / name)
    predicted, constant = FEW[name]
    assert found.intercept == pytest.approx(constant, abs=2e-6)
    degree = {"few-quad.inv": 2, "few-cubic.inv": 3}.get(name, 0)
    of = family(f"products:degree={degree}" if degree else "columns", 8)
    own = weights_of(found, of, EIGHT)
    margins = []
    for column in EIGHT:  # of a row with 1 in the column, and powers of it
        mine = of.find([column, f"{column}^2", f"{column}^3"], EIGHT).tolist()
        margins.append(sum(own.get(id, 0.0) for id in mine if id >= 0))
    assert margins == pytest.approx(predicted, abs=5e-6)
    if degree == 3:  # it was trained without products of two columns
        assert own.get(int(of.find(["age * x1"], EIGHT)[0]), 0.0) == 0.0
    if not degree:
        assert len(own) == 8 > (VW / name).read_text().count(":0.")


def test_the_certificate_of_a_model_with_equal_hashes() -> None:
    """Its objective is that of the margins of Vowpal Wabbit, by numpy alone."""
    import pandas as pd

    random = np.random.default_rng(3)
    x, C = random.normal(size=(120, 8)), 0.5
    y = np.where(x @ random.normal(size=8) > 0, 1, -1)
    (weights, _), radius = FEW["few.txt"], 0.0
    data = fcl.open_data(pd.DataFrame(x, columns=EIGHT), y=y)
    found = [fcl.certify(VW / name, data, C) for name in ("few.inv", "few.txt")]
    margins = x @ np.array(weights)
    shifts = np.linspace(-2, 2, 4001)  # the intercept is fitted
    loss = min(np.logaddexp(0, -y * (margins + b)).sum() for b in shifts)
    radius = float(np.abs(weights).sum())
    for each in found:
        assert each.objective == pytest.approx(radius + C * loss, rel=2e-5)
    assert found[0].objective == pytest.approx(found[1].objective, rel=1e-9)


@pytest.mark.parametrize("name", ["few.inv", "few.txt", "bare.inv", "l1.txt"])
def test_a_file_that_is_cut_off_is_refused(name: str, tmp_path: Path) -> None:
    """After its header, within the state of the learner, or within a weight."""
    text = (VW / name).read_text()
    lines = text.splitlines(keepends=True)
    header = next(at for at, line in enumerate(lines) if line.startswith("options:"))
    path = tmp_path / "model.txt"
    for cut in (
        "".join(lines[: header + 1]),
        "".join(lines[: header + 3]),
        "".join(lines[:header]),
        text[:-3],
    ):
        path.write_text(cut)
        with pytest.raises(InputError, match="cut off") as error:
            load_weights(path)
        assert str(path) in str(error.value)


def test_a_hash_that_is_not_at_its_place_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "model.txt"
    path.write_text((VW / "few.inv").read_text().replace("age:1:", "age:6:"))
    with pytest.raises(InputError, match="expected the hash 1 of 'age', got 6; it cannot be found"):
        load_weights(path).of(family(width=8), EIGHT)
    text = (VW / "few-ns.inv").read_text()
    path.write_text(text.replace("f^b:4", f"g^b:{murmur(b'b', murmur(b'g', 0)) % 8}"))
    with pytest.raises(InputError, match=r"expected features of one namespace, got \['f', 'g'\]"):
        load_weights(path).of(family(width=8), EIGHT)


def test_numbers_of_columns_without_names(caplog: pytest.LogCaptureFixture) -> None:
    """They fit a hash by chance: refused if any would, said if the chance is not small."""
    with pytest.raises(
        InputError, match="the numbers of 8 columns without names fit any hash of 3 bits"
    ):
        load_weights(VW / "few.txt").of(family(width=8))
    places = [str(place) for place in range(3)]
    found = Weights("m", np.array([0.5, -1.0, 2.0]), 0.0, places, hashing=Hashing(4))
    assert weights_of(found, family(width=8)) == {0: 0.5, 1: -1.0, 2: 2.0}
    assert "fit all 3 weights with a chance of 0.12" in caplog.text
    caplog.clear()
    few = Weights("m", np.array([0.5, -1.0]), 0.0, ["3", "1"], hashing=Hashing(18))
    assert weights_of(few, family()) == {3: 0.5, 1: -1.0} and not caplog.text


def test_columns_without_names_are_numbered() -> None:
    of = family(width=70_000)
    found = Weights("m", np.array([0.5, -1.0]), 0.0, ["3", "66000"], hashing=Hashing(18))
    assert weights_of(found, of) == {3: 0.5, 66_000: -1.0}


def test_murmur_of_the_reference() -> None:
    # of the reference implementation by Austin Appleby
    known = {(b"", 0): 0, (b"", 1): 0x514E28B7, (b"test", 0): 0xBA6BD213}
    known[b"Hello, world!", 0] = 0xC0363E43
    assert {key: murmur(*key) for key in known} == known


@pytest.mark.parametrize(
    ("name", "change", "message"),
    [
        ("quad.txt", None, "expected names, since the hashes of products"),
        ("oaa.inv", None, "trained with --oaa"),
        ("bare.txt", ("137097:-0.28", "5:-0.28"), "'5' is no feature of Columns; if the feat"),
        ("ns.txt", None, "'14405' is no feature of Columns \\(4 such weights\\)"),
        ("bare.inv", ("age:", "eon:"), "line 15: 'eon' is no feature of Columns"),
        ("bare.inv", ("age:", "x1:"), "line 15: 'x1' is the same feature as 'x1' .*line 14"),
        ("bare.inv", ("0.835904", "nan"), "line 15: expected a finite number as weight, got 'nan'"),
        ("bare.inv", ("age:", ""), "line 15: expected a name before the hash"),
        ("bare.inv", ("age:165201:0.835904", "and so on"), "line 15: expected a weight"),
        ("bare.inv", ("age:", "age[1]:"), "line 15: .* of another output"),
        ("bare.txt", ("options:", "optional:"), "expected a line options:"),
        ("bare.txt", ("lda:0", "lda:7"), "got one with lda '7'"),
        ("bare.txt", ("0 ngram", "2 ngram"), "got one with ngram '2'"),
        ("bare.txt", ("bits:18", "bits:no"), "such as bits:18"),
    ],
)  # fmt: skip
def test_unreadable_models_of_vowpal_wabbit(
    name: str, change: tuple[str, str] | None, message: str, tmp_path: Path
) -> None:
    text = (VW / name).read_text()
    if change is not None:
        assert change[0] in text
        text = text.replace(*change)
    path = tmp_path / "model.txt"
    path.write_text(text)
    with pytest.raises(InputError, match=message) as error:
        load_weights(path).of(family(), COLUMNS)
    assert str(path) in str(error.value)


def test_columns_of_equal_hashes_share_a_weight() -> None:
    of, hashing = family(), Hashing(1)
    found = Weights("m", np.array([0.5, 2.0]), 2.0, ["1", "0"], hashing=hashing)
    assert hashing.constant == 0
    assert weights_of(found, of, ["1", "3", "0", "5"]) == {0: 0.5, 1: 0.5, 3: 0.5, 2: 2.0}
    assert weights_of(found, of, ["1", "3", "7", "5"]) == {0: 0.5, 1: 0.5, 2: 0.5, 3: 0.5}
    with pytest.raises(InputError, match="expected names of features"):
        found.of(family("products:degree=2"), COLUMNS)


def test_a_model_without_a_constant_has_no_intercept(tmp_path: Path) -> None:
    path = tmp_path / "model.txt"
    text = "Version 9.11.9\nbits:2\noptions: {}\n:0\n0:0.5\n1:0.25\n"
    for option, constant in (("", 0.5), ("--noconstant", 0.0)):
        path.write_text(text.format(option))
        found = load_weights(path)
        assert found.intercept == constant
        assert weights_of(found, family(), ["0", "1", "2", "3"]) == {0: 0.5, 1: 0.25}


# -- tables and arrays -----------------------------------------------------------------------------


def test_tables(tmp_path: Path) -> None:
    path = tmp_path / "w.tsv"
    path.write_text("age\t0.25\r\n(intercept)\t-1.5\n\n3\t0\nx1\t1e-3\n")
    found = load_weights(path)
    assert found.intercept == -1.5 and weights_of(found, family(), COLUMNS) == {0: 0.25, 1: 1e-3}
    path.write_text("support\tweight\tfeature\n7\t0.5\tTT.A at +2\n8\t-1\tA at -1\n")
    found = load_weights(path)
    of = family("kmers:d=4,origin=2", 9)
    assert found.intercept is None
    assert [of.describe(id) for id in weights_of(found, of)] == ["TT.A at +2", "A at -1"]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "got an empty file"),
        ("age\tb\tc\n", "line 1: expected a name and a weight, separated by a tab, got 3 cells"),
        ("age 1\n", "line 1: expected a name and a weight, separated by a tab, got 1 cells"),
        ("name\tvalue\tweight\nage\t1\n", "line 2: expected 3 cells, got 2"),
        ("word\tweight\nage\t1\n", "line 1: expected a column called feature"),
        ("feature\toutput\tweight\nage\ta\t1\n", "line 1: expected the weights of one output"),
        ("age\t1\nage\t2\n", "line 2: 'age' is the same feature as 'age' .*line 1"),
        ("age\t1\nsize\t2\n", "line 2: 'size' is no feature of Columns"),
        ("age\t1\nx1\tinf\n", "line 2: expected a finite number as weight, got 'inf'"),
        ("age\t1\nintercept\t1\n(intercept)\t1\n", "line 3: expected one intercept"),
    ],
)
def test_wrong_tables(text: str, message: str, tmp_path: Path) -> None:
    path = tmp_path / "w.tsv"
    path.write_text(text)
    with pytest.raises(InputError, match=message) as error:
        load_weights(path).of(family(), COLUMNS)
    assert str(path) in str(error.value)


def test_arrays(tmp_path: Path) -> None:
    coef = np.array([[0.0, 1.5, 0.0, -2.0]])
    np.save(tmp_path / "w.npy", coef.astype(np.float32))
    found = load_weights(tmp_path / "w.npy")
    assert found.intercept is None and weights_of(found, family()) == {1: 1.5, 3: -2.0}
    np.savez(tmp_path / "w.npz", coef_=coef, intercept_=np.array([0.25]), classes_=[0, 1])
    found = load_weights(tmp_path / "w.npz")
    assert found.intercept == 0.25 and weights_of(found, family()) == {1: 1.5, 3: -2.0}
    np.savez(tmp_path / "v.npz", weights=np.asfortranarray(coef))
    assert load_weights(tmp_path / "v.npz").intercept is None


def test_wrong_arrays(tmp_path: Path) -> None:
    def refused(message: str, name: str) -> None:
        with pytest.raises(InputError, match=message) as error:
            load_weights(tmp_path / name).of(family())
        assert name in str(error.value)

    np.save(tmp_path / "w.npy", np.zeros((3, 4)))
    refused("of shape \\(p,\\) or \\(1, p\\), got \\(3, 4\\)", "w.npy")
    np.save(tmp_path / "w.npy", np.zeros(5))
    refused("expected 4 weights, one for each feature of Columns, got 5", "w.npy")
    np.save(tmp_path / "w.npy", np.array([0.0, np.inf]))
    refused("finite numbers, got inf at position 1", "w.npy")
    np.save(tmp_path / "w.npy", np.array(["a"]))
    refused("expected numbers", "w.npy")
    (tmp_path / "w.npy").write_bytes((tmp_path / "w.npy").read_bytes()[:40])
    refused("not a readable .npy", "w.npy")
    np.savez(tmp_path / "w.npz", other=np.zeros(4))
    refused("expected an array called coef, found other", "w.npz")
    np.savez_compressed(tmp_path / "w.npz", coef=np.zeros(4))
    refused("compressed", "w.npz")
    np.savez(tmp_path / "w.npz", coef=np.zeros(4), intercept=np.zeros(3))
    refused("expected one number, got 3", "w.npz")
    np.savez(tmp_path / "w.npz", coef=np.array([{}], object))
    refused("an array is damaged", "w.npz")
    with zipfile.ZipFile(tmp_path / "w.npz", "w") as archive:
        header = np.lib.format.magic(1, 0) + b"\x76\x00"
        words = b"{'descr': '<f8', 'fortran_order': False, 'shape': (1000000000000,), }"
        archive.writestr("coef.npy", header + words.ljust(117) + b"\n" + bytes(8))
    refused("does not fit its size", "w.npz")
    (tmp_path / "w.bin").write_bytes(bytes(range(128, 256)))
    refused("expected a text in UTF-8", "w.bin")
    refused("expected the file of a model, found none", "none.txt")


# -- features by name ------------------------------------------------------------------------------

FAMILIES = (
    "kmers:d=4,origin=5", "bag:d=3", "bag:d=4,strands=both,wildcards=true", "kmers:d=3 + bag:d=2 * 2",
    "columns", "products:degree=3", "fourier:n=30", "columns + products:degree=2",
)  # fmt: skip
ODD_NAMES = ["a", "b^2", "c", "d d", "e"]


@pytest.mark.parametrize("features", FAMILIES)
@given(share=st.floats(0.0, 1.0, exclude_max=True))
def test_descriptions_lead_back_to_the_features(features: str, share: float) -> None:
    of = family(features, 12 if "d=" in features else 5)
    for names in (None, *([ODD_NAMES] if of.row_kind == "numbers" else [])):
        ids = np.unique([int(share * of.n_features), 0, of.n_features - 1])
        texts = [of.describe(int(id), names) for id in ids]
        unique = [of.find([text], names)[0] for text in texts]
        for id, text, back in zip(ids, texts, unique, strict=True):
            assert back == id or of.describe(int(back), names) == text
        others = [
            "nothing",
            "x99",
            "TTTTTTTT at 2",
            "AC at 900",
            "x0 * x0 * x0 * x0",
            "a at b",
            "^",
            "",
        ]
        assert (of.find(others, names) == -1).all()


def test_columns_of_equal_names_are_refused() -> None:
    with pytest.raises(InputError, match="got 'a' for the columns 0 and 2"):
        family(width=3).find(["a"], ["a", "b", "a"])


def test_large_families_without_names_are_refused() -> None:
    of = family("fourier:n=200000")
    with pytest.raises(InputError, match="found by name"):
        of.find(["cos"])
