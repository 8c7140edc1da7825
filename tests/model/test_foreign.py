"""Readers of other programs' models. ``vw`` holds files that Vowpal Wabbit 9.11.9 wrote."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

import fcl
from fcl.errors import InputError
from fcl.model.foreign import ForeignWeights, load_weights
from fcl.model.foreign.hashing import Hashing, murmur
from tests.model.conftest import EIGHT, FOUR, VW, family_of

#: Vowpal Wabbit's own predictions at rows of a single 1, minus the one at 0; and the one at 0.
BARE = [0.835904, -0.284461, -0.367099, -0.165783], 0.4991614
NS = [1.354867, -0.356988, -0.92712, -0.244234], 0.4552777
FEW = [-0.033076, -0.033076, 0.082508, 0.563874, 0.563874, 0.148512, 0.082508, 0.459733], 0.082508
PREDICTED = {
    "l1.txt": ([0.772766, -0.242521, -0.319684, -0.123393], 0.4667336),
    "bare.inv": BARE,
    "bare.txt": BARE,
    "ns.txt": NS,
    "ns.inv": NS,
    "all.txt": ([1.000995, -0.315868, -0.505454, -0.165212], 0.0),
    "quad.inv": ([0.33944, -0.068943, -0.137899, -0.062563], 0.1496345),
    # of few bits: --invert_hash names one of the features of a hash, or the intercept
    "few.inv": FEW,
    "few.txt": FEW,
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


def weights_of(found: ForeignWeights, *where: Any) -> dict[int, float]:
    ids, values = found.of(*where)
    return dict(zip(ids.tolist(), values.tolist(), strict=True))


@pytest.mark.parametrize("name", PREDICTED)
def test_models_of_vowpal_wabbit_predict_as_it_does(name: str) -> None:
    found = load_weights(VW / name)
    predicted, constant = PREDICTED[name]
    assert found.intercept == pytest.approx(constant, abs=2e-6)
    degree = 3 if "cubic" in name else 2 if "quad" in name else 0
    few, names = name.startswith("few"), FOUR if len(predicted) == 4 else EIGHT
    of = family_of(f"products:degree={degree}" if degree else "columns", len(names))
    own = weights_of(found, of, names, "f" if name == "ns.txt" else "")
    margins = []
    for j, column in enumerate(names):  # of a row with 1 in column j, and powers of it
        mine = of.find([column, f"{column}^2", f"{column}^3"], names).tolist()
        margins.append(sum(own.get(id, 0.0) for id in mine if id >= 0))
        assert few or j in own
    assert margins == pytest.approx(predicted, abs=5e-6 if few else 1e-5)
    if degree == 3:  # it was trained without products of two columns
        assert own.get(int(of.find(["age * x1"], names)[0]), 0.0) == 0.0
    if few and not degree:  # features of equal hashes share a weight
        assert len(own) == 8 > (VW / name).read_text().count(":0.")


def test_the_certificate_of_a_model_with_equal_hashes() -> None:
    """Its objective is that of the margins of Vowpal Wabbit, by numpy alone."""
    random = np.random.default_rng(3)
    x, C = random.normal(size=(120, 8)), 0.5
    y = np.where(x @ random.normal(size=8) > 0, 1, -1)
    data = fcl.open_data(pd.DataFrame(x, columns=EIGHT), y=y)
    found = [fcl.certify(VW / name, data, C) for name in ("few.inv", "few.txt")]
    shifts = np.linspace(-2, 2, 4001)  # the intercept is fitted
    loss = min(np.logaddexp(0, -y * (x @ np.array(FEW[0]) + b)).sum() for b in shifts)
    for each in found:
        assert each.objective == pytest.approx(np.abs(FEW[0]).sum() + C * loss, rel=2e-5)
    assert found[0].objective == pytest.approx(found[1].objective, rel=1e-9)


def test_numbers_of_columns_without_names(caplog: pytest.LogCaptureFixture) -> None:
    """They fit a hash by chance: refused if any would, said if the chance is not small."""
    with pytest.raises(
        InputError, match="the numbers of 8 columns without names fit any hash of 3 bits"
    ):
        load_weights(VW / "few.txt").of(family_of(width=8))
    places = [str(place) for place in range(3)]
    found = ForeignWeights("m", np.array([0.5, -1.0, 2.0]), 0.0, places, hashing=Hashing(4))
    assert weights_of(found, family_of(width=8)) == {0: 0.5, 1: -1.0, 2: 2.0}
    assert "fit all 3 weights with a chance of 0.12" in caplog.text
    caplog.clear()
    few = ForeignWeights("m", np.array([0.5, -1.0]), 0.0, ["3", "1"], hashing=Hashing(18))
    assert weights_of(few, family_of()) == {3: 0.5, 1: -1.0} and not caplog.text
    far = ForeignWeights("m", np.array([0.5, -1.0]), 0.0, ["3", "66000"], hashing=Hashing(18))
    assert weights_of(far, family_of(width=70_000)) == {3: 0.5, 66_000: -1.0}


def test_murmur_of_the_reference() -> None:
    # of the reference implementation by Austin Appleby
    known = {(b"", 0): 0, (b"", 1): 0x514E28B7, (b"test", 0): 0xBA6BD213}
    known[b"Hello, world!", 0] = 0xC0363E43
    assert {key: murmur(*key) for key in known} == known


def test_columns_of_equal_hashes_share_a_weight() -> None:
    of, hashing = family_of(), Hashing(1)
    found = ForeignWeights("m", np.array([0.5, 2.0]), 2.0, ["1", "0"], hashing=hashing)
    assert hashing.constant == 0
    assert weights_of(found, of, ["1", "3", "0", "5"]) == {0: 0.5, 1: 0.5, 3: 0.5, 2: 2.0}
    assert weights_of(found, of, ["1", "3", "7", "5"]) == {0: 0.5, 1: 0.5, 2: 0.5, 3: 0.5}
    with pytest.raises(InputError, match="expected names of features"):
        found.of(family_of("products:degree=2"), FOUR)


def test_a_model_without_a_constant_has_no_intercept(tmp_path: Path) -> None:
    path = tmp_path / "model.txt"
    text = "Version 9.11.9\nbits:2\noptions: {}\n:0\n0:0.5\n1:0.25\n"
    for option, constant in (("", 0.5), ("--noconstant", 0.0)):
        path.write_text(text.format(option))
        found = load_weights(path)
        assert found.intercept == constant
        assert weights_of(found, family_of(), ["0", "1", "2", "3"]) == {0: 0.5, 1: 0.25}


# -- tables and arrays -----------------------------------------------------------------------------


def test_tables(tmp_path: Path) -> None:
    path = tmp_path / "w.tsv"
    path.write_text("age\t0.25\r\n(intercept)\t-1.5\n\n3\t0\nx1\t1e-3\n")
    found = load_weights(path)
    assert found.intercept == -1.5 and weights_of(found, family_of(), FOUR) == {0: 0.25, 1: 1e-3}
    path.write_text("support\tweight\tfeature\n7\t0.5\tTT.A at +2\n8\t-1\tA at -1\n")
    found = load_weights(path)
    of = family_of("kmers:d=4,origin=2", 9)
    assert found.intercept is None
    assert [of.describe(id) for id in weights_of(found, of)] == ["TT.A at +2", "A at -1"]


def test_arrays(tmp_path: Path) -> None:
    coef = np.array([[0.0, 1.5, 0.0, -2.0]])
    np.save(tmp_path / "w.npy", coef.astype(np.float32))
    found = load_weights(tmp_path / "w.npy")
    assert found.intercept is None and weights_of(found, family_of()) == {1: 1.5, 3: -2.0}
    np.savez(tmp_path / "w.npz", coef_=coef, intercept_=np.array([0.25]), classes_=[0, 1])
    found = load_weights(tmp_path / "w.npz")
    assert found.intercept == 0.25 and weights_of(found, family_of()) == {1: 1.5, 3: -2.0}
    np.savez(tmp_path / "v.npz", weights=np.asfortranarray(coef))
    assert load_weights(tmp_path / "v.npz").intercept is None


# -- features by name ------------------------------------------------------------------------------

FAMILIES = (
    "kmers:d=4,origin=5", "bag:d=3", "bag:d=4,strands=both,wildcards=true", "kmers:d=3 + bag:d=2 * 2",
    "columns", "products:degree=3", "fourier:n=30", "columns + products:degree=2",
)  # fmt: skip
ODD_NAMES = ["a", "b^2", "c", "d d", "e"]


@pytest.mark.slow
@pytest.mark.parametrize("features", FAMILIES)
@given(share=st.floats(0.0, 1.0, exclude_max=True))
def test_descriptions_lead_back_to_the_features(features: str, share: float) -> None:
    of = family_of(features, 12 if "d=" in features else 5)
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
