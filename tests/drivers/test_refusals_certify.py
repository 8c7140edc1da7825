"""Models, data and bounds that cannot be certified: one message, which says what was expected."""

from __future__ import annotations

import math
import re
from functools import cache
from typing import Any

import numpy as np
import pytest
import scipy.sparse

import fcl
from tests import by_name

X = np.random.default_rng(1).normal(size=(300, 8))
Y = (X[:, 0] - X[:, 2] + X[:, 7] > 0.2).astype(int)
CLASSES = np.digitize(X[:, 0] - X[:, 1], [-1.0, 1.0])
DATA = fcl.open_data(X, y=Y)
EXACT = fcl.open_data(np.eye(4), y=np.array([3.0, 5.0, 5.0, 5.0]))
ZEROS = np.zeros(8), 0.0
COEF = np.array([[0.7, 0.0, -0.2, *[0.0] * 5]])
#: stands for a model of fcl, trained on DATA
MODEL = "model"


@cache
def model() -> fcl.Model:
    return fcl.train(DATA, "columns", C=0.2).model


def certify(given: Any, data: Any = DATA, C: Any = None, bound: Any = None, **more: Any) -> None:
    given, bound = (model() if isinstance(one, str) else one for one in (given, bound))
    by_name.certify(given, data, C, bound=bound, **more)


def bound(data: fcl.DataSet = DATA, **how: Any) -> None:
    """The bound of another model."""
    other = by_name.train(data, **({"features": "columns", "C": 0.2} | how)).model
    fcl.certify(model(), DATA, bound=other)


CASES = [
    # models
    ("too many weights", certify, {"given": (np.zeros(9), 0.0), "C": 1.0},
     "expected 8 weights, one for each feature"),
    ("weight nan", certify, {"given": ([0, 0, np.nan] * 3, 0.0), "C": 1.0},
     "finite numbers, got nan at position 2"),
    ("several outputs", certify, {"given": (np.zeros((3, 8)), np.zeros(3)), "C": 1.0},
     r"weights of one output, of shape .*, got \(3, 8\)"),
    ("two intercepts", certify, {"given": (np.zeros(8), np.zeros(2)), "C": 1.0},
     "expected one intercept, got 2"),
    ("weights of text", certify, {"given": (["a"] * 8, 0.0), "C": 1.0},
     "weights: expected numbers, got <U1"),
    ("id outside", certify, {"given": ([1, 8], [1.0, 2.0], 0.0), "C": 1.0}, "id 8 is outside 0 .. 7"),
    ("more ids than weights", certify, {"given": ([1, 7], [1.0], 0.0), "C": 1.0},
     "got 2 ids and 1 weights"),
    ("id twice", certify, {"given": ([1, 3, 3], [1.0, 2.0, 0.0], 0.0), "C": 1.0},
     "each id once, got 3 2 times"),
    ("id of 0.5", certify, {"given": ([0.5], [1.0], 0.0), "C": 1.0}, "ids: expected whole numbers"),
    ("intercept of a model without", certify,
     {"given": (np.zeros(8), 1.0), "C": 1.0, "intercept": False}, "leave --no-intercept out"),
    ("list of numbers", certify, {"given": [1.0, 2.0], "C": 1.0}, "expected a Model, .* got list"),
    ("overflowing weights", certify, {"given": (np.full(8, 1e200), 0.0), "C": 1.0, "loss": "squared"},
     "the objective of the model is not finite on these rows"),
    *((f"weights alone, {kind.__name__}", certify, {"given": kind(COEF), "C": 1.0},
       r"give \(model.coef_, model.intercept_\)")
      for kind in (np.array, scipy.sparse.csr_matrix, scipy.sparse.csr_array, scipy.sparse.csc_array,
                   scipy.sparse.coo_array)),
    # options
    ("loss of a model of fcl", certify, {"given": MODEL, "loss": "logistic"},
     "a model of fcl has the problem"),
    ("C and alpha", certify, {"given": ZEROS, "C": 1.0, "alpha": 1.0}, "give either C .* or alpha"),
    ("C of another word", certify, {"given": ZEROS, "C": "most"}, "or best, got 'most'"),
    ("C below 0", certify, {"given": ZEROS, "C": -1.0}, "C must be a finite number above 0, got -1.0"),
    ("radius below the norm", certify, {"given": (np.ones(8), 0.0), "C": 1.0, "radius": 7.0},
     "at least the norm of the weights"),
    ("radius of 0", certify, {"given": ZEROS, "C": 1.0, "radius": 0.0},
     "radius must be a finite number above 0, got 0.0"),
    ("best C without prices", certify,
     {"given": ([-2.0, 0, 0, 0], 5.0), "data": EXACT, "loss": "squared", "intercept": True},
     "no feature has a price"),
    # data
    ("array as data", certify, {"given": ZEROS, "data": X, "C": 1.0},
     "data must be a data set, got ndarray"),
    ("no target", certify, {"given": ZEROS, "data": fcl.open_data(X, y=None), "C": 1.0},
     "training needs a target, and none was opened"),
    ("other target", certify, {"given": MODEL, "data": fcl.open_data(X, y=Y + 1)},
     "expected the target of the model"),
    ("classes", certify,
     {"given": ZEROS, "data": fcl.open_data(X, y=CLASSES), "C": 1.0, "loss": "softmax"},
     "expected a target of one output .*, got 3 outputs"),
    ("fewer columns", certify, {"given": MODEL, "data": fcl.open_data(X[:, :7], y=Y)},
     "X has 7 columns, but the model was trained on 8"),
    ("offset", certify, {"given": MODEL, "offset": np.zeros(300)},
     "expected no offset, since the model was trained without one"),
    ("covariates", certify, {"given": MODEL, "covariates": X[:, :1]}, "covariates of the model, none"),
    # bounds
    *((f"bound of another {name}", bound, how, f"of another job: .*{name}") for name, how in (
        ("C", {"C": 0.3}),
        ("family", {"features": "products:degree=2"}),
        ("loss", {"loss": "squared_hinge"}),
        ("l1_ratio", {"l1_ratio": 0.5}),
        ("standardize", {"standardize": True}),
        ("class_weight", {"class_weight": "balanced"}),
        ("intercept", {"intercept": False}),
        ("number of training rows", {"valid_fraction": 0.2}),
        ("data differ: fingerprint", {"data": fcl.open_data(X + 1e-3, y=Y)}))),
    ("bound at the best C", certify, {"given": MODEL, "C": "best", "bound": MODEL},
     "is of another job: C was 0.2, is"),
    ("bound above the objective", certify, {"given": MODEL, "bound": 1e6},
     "at most the objective of the model"),
    ("bound nan", certify, {"given": MODEL, "bound": math.nan}, "expected a finite number, got nan"),
]  # fmt: skip


@pytest.mark.parametrize(
    ("door", "given", "message"), [pytest.param(*case[1:], id=case[0]) for case in CASES]
)
def test_refused(door: Any, given: dict[str, Any], message: str) -> None:
    with pytest.raises(fcl.InputError) as caught:
        door(**given)
    assert re.search(message, f"{type(caught.value).__name__}: {caught.value}")
