"""Options and data that cannot be used: one message that names the option, array or row."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pytest
from rows import acceptors

import fcl
from fcl.drivers.job import make_job

NAN, INF = float("nan"), float("inf")


def job(
    features: Any = "kmers:d=2", codes: Any = None, y: Any = None, s: Any = None, **options: Any
) -> Any:
    real, labels = acceptors(10, 300)
    codes = real if codes is None else codes
    y = labels[: len(codes)] if y is None else y
    return make_job(fcl.open_data(codes, y=y, weights=s), features, **({"C": 1.0} | options))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"C": 0.0}, "C must be a finite number above 0, got 0.0"),
        ({"C": -2}, "C must be a finite number above 0, got -2"),
        ({"C": NAN}, "C must be a finite number above 0, got nan"),
        ({"C": "1"}, "C must be a finite number above 0, got '1'"),
        ({"C": None}, "give either C .* or alpha .*one of them"),
        ({"alpha": 1.0}, "give either C .* or alpha .*not both"),
        ({"C": None, "alpha": -1.0}, "alpha must be a finite number above 0, got -1.0"),
        ({"loss": "quantile"}, "unknown loss 'quantile'; expected one of logistic"),
        (
            {"group": True},
            "group: expected several outputs, .* got one output of the logistic loss",
        ),
        ({"intercept": "no"}, "intercept must be True or False, got 'no'"),
        *[
            ({name: value}, f"{name} must be a finite number above 0, got")
            for name in ("tol", "max_time")
            for value in (0.0, -1.0, NAN, INF, "1", True)
        ],
        *[
            ({"max_passes": value}, "max_passes must be a whole number of at least 1, got")
            for value in (0, -1, 1.5, "3", True)
        ],
        *[
            ({"seed": value}, "seed must be a whole number of at least 0, got")
            for value in (-1, 0.5, "a", True)
        ],
        ({"seed": 1 << 63}, r"seed must be a whole number of at least 0 and at most 2\^62, got"),
        *[
            ({"block_rows": value}, "block_rows must be a multiple of 64 from 64 to 65536, got")
            for value in (0, 63, 100, 65600, 64.0, "64", True)
        ],
        *[
            ({"valid_fraction": value}, "valid_fraction must be strictly between 0 and 1, got")
            for value in (0.0, 1.0, -0.5, 2, NAN, "0.1")
        ],
        ({"memory": "lots"}, "memory: expected a size such as"),
        ({"memory": "3MiB"}, r"memory: a budget of 3 MiB is too small; .*--memory \d+MiB"),
        ({"features": "kmer:d=3"}, "unknown family 'kmer'; expected one of kmers"),
        ({"features": "kmers"}, "d is missing"),
        ({"features": "kmers:d=0"}, "d must be from 1 to 12, got 0"),
        ({"features": "kmers:d=13"}, "d must be from 1 to 12, got 13"),
        ({"features": "kmers:d=x"}, "d must be a whole number, got 'x'"),
        ({"features": "kmers:k=3"}, "name one of d, origin; got 'k=3'"),
        ({"features": "kmers:d=11"}, "X: windows of 10 letters are shorter than d = 11; .*d=10"),
    ],
)
def test_options(options: dict[str, Any], message: str) -> None:
    with pytest.raises(fcl.InputError, match=message):
        job(**options)


def test_numbers_of_numpy_are_numbers() -> None:
    options = job(
        C=np.float32(0.5), tol=np.float64(0.01), seed=np.int64(3), max_passes=np.int32(4)
    ).options
    assert (options.C, options.tol, options.seed, options.max_passes) == (0.5, 0.01, 3, 4)
    assert [type(v) for v in (options.C, options.tol, options.seed, options.max_passes)] == [
        float,
        float,
        int,
        int,
    ]


def labels(*values: float, n: int = 300) -> np.ndarray:
    return np.resize(np.array(values), n)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"y": labels(1.0)}, "y holds only one class, 1.0"),
        ({"y": labels(0.0, 1.0, 2.0)}, r"y holds 3 distinct labels \(0.0, 1.0, 2.0\)"),
        ({"y": labels(0.0, 1.0, NAN)}, "y: .*row 2"),
        ({"y": labels(0.0, 1.0, INF), "loss": "squared"}, "y: .*row 2"),
        ({"y": labels(0.5, 1.0, NAN), "loss": "squared"}, "y: .*row 2"),
        ({"y": labels(1.0, -1.0, n=299)}, "X has 300 rows, but y has 299"),
        ({"s": labels(1.0, -0.5)}, "weights: .*row 1"),
        ({"s": labels(1.0, 2.0, NAN)}, "weights: .*row 2"),
        ({"s": labels(0.0)}, "weights: .*0"),
        (
            {"y": labels(1.0, -1.0), "s": labels(1.0, 0.0)},
            "y: only one class is left among the 150",
        ),
    ],
)
def test_data(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(fcl.InputError, match=message):
        job(**changes)


def test_no_target() -> None:
    codes, _ = acceptors(10, 300)
    with pytest.raises(fcl.InputError, match="arrays in memory: training needs a target"):
        make_job(fcl.open_data(codes, y=None), "kmers:d=2", C=1.0)


def test_validation_data() -> None:
    codes, y = acceptors(10, 300)
    cases = [
        (fcl.open_data(codes[:, :9], y=y), "windows of 9 letters, but .*windows of 10"),
        (fcl.open_data(codes, y=None), "validation needs a target"),
        (fcl.open_data(codes, y=y + 1.0), "labels .* differ from those trained on"),
    ]
    for valid, message in cases:
        with pytest.raises(fcl.InputError, match=message):
            job(valid=valid)
    with pytest.raises(fcl.InputError, match="either valid or valid_fraction, not both"):
        job(valid=fcl.open_data(codes, y=y), valid_fraction=0.5)


def test_an_invalid_letter_is_named_while_reading() -> None:
    codes, y = acceptors(10, 300)
    codes = codes.copy()
    codes[123, 4] = 9
    with pytest.raises(fcl.InputError, match=r"X: .*row 123, column 4"):
        fcl.train(fcl.open_data(codes, y=y), "kmers:d=2", C=1.0)


def test_the_smallest_budget_named_is_the_smallest_that_works() -> None:
    with pytest.raises(fcl.BudgetError) as caught:
        job(memory="1MiB")
    found = re.search(r"--memory (\d+)MiB", str(caught.value))
    assert found
    smallest = int(found[1])
    assert job(memory=f"{smallest}MiB").plan.total <= smallest << 20
    with pytest.raises(fcl.BudgetError, match=f"--memory {smallest}MiB"):
        job(memory=f"{smallest - 1}MiB")
