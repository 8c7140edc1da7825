"""Values of C, penalties, losses, targets and scores that are accepted in two forms, or refused."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from fcl.errors import InputError
from fcl.objective import Penalty, find_loss, make_objective, relative_gap, resolve_C
from fcl.objective.metrics import average_precision

Case = tuple[str, Callable[..., object], tuple[Any, ...], str]

CASES: list[Case] = [
    ("C and alpha", resolve_C, (1.0, 1.0, 1.0), "C .*alpha.*not both"),
    ("no C", resolve_C, (None, None, 1.0), "give either C .* or alpha .*, one of them"),
    *((f"C {bad!r}", resolve_C, (bad, None, 1.0), "^C must be a finite number above 0, got")
      for bad in (0.0, -1.0, np.inf, np.nan, "1")),
    *((f"alpha {bad!r}", resolve_C, (None, bad, 1.0), "^alpha must be a finite number above 0, got")
      for bad in (0.0, -1.0, np.inf, np.nan, "1")),
    *((f"sum of weights {total:g} with {name}", resolve_C, (*given, total),
       "weights add up to .*; multiply all weights by")
      for total in (5e-324, 1e-300, 1e-101, 1e101, 1e300, math.inf)
      for name, given in (("C", (1.0, None)), ("alpha", (None, 1.0)))),
    ("alpha that cannot be saved", resolve_C, (1e-300, None, 1e-100),
     r"alpha = 1 / \(C \* sum\) is inf, .*; raise C, or"),
    ("loss", find_loss, ("quantile",), "'quantile'.*logistic, squared, squared_hinge"),
    *((f"l1_ratio {rho}", Penalty, (rho,), f"l1_ratio must be above 0 and at most 1, got {rho}")
      for rho in (0.0, -1.0, 1.5, math.nan)),
    ("half a class", find_loss("softmax").check_targets, (np.array([0.0, 1.5]), "y"),
     r"y: softmax loss needs class numbers .* got 1.5 in row 1"),
]  # fmt: skip
#: What only a fault of the caller can give.
FAULTS: list[Case] = [
    ("shape of targets", make_objective,
     (find_loss("squared"), np.zeros((2, 5)), np.ones(5), 1.0, 3),
     r"expected targets of shape \(3, 5\), got \(2, 5\)"),
    ("score nan", average_precision, ([1, 0], [0, math.nan]), "scores hold NaN, first in row 1"),
    ("number of scores", average_precision, ([1, 0], [1, 2, 3]), r"\(2,\) and \(3,\)"),
]  # fmt: skip


@pytest.mark.parametrize(
    ("door", "arguments", "message", "error"),
    [
        pytest.param(*case, error, id=name)
        for error, cases in ((InputError, CASES), (ValueError, FAULTS))
        for name, *case in cases
    ],
)
def test_refusals(
    door: Callable[..., object], arguments: tuple[Any, ...], message: str, error: type[Exception]
) -> None:
    with pytest.raises(error, match=message):
        door(*arguments)


def test_relative_gap() -> None:
    assert relative_gap(10.0, 9.0) == pytest.approx(0.1)
    assert relative_gap(10.0, 11.0) == relative_gap(0.0, 0.0) == relative_gap(0.0, -1.0) == 0.0
    for objective in (1.0, math.nan, math.inf):  # an unknown gap is infinite
        for bound in (math.nan, -math.inf, *([1.0, math.inf] if objective != 1.0 else [])):
            assert relative_gap(objective, bound) == math.inf


def test_options_in_two_forms() -> None:
    assert resolve_C(0.5, None, 20.0) == resolve_C(None, 0.1, 20.0) == (0.5, 0.1)
    assert find_loss("squared-hinge") == find_loss("squared_hinge")
