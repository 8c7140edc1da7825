"""scikit-learn's saga with an L1 penalty, which each version asks for in its own way."""

from __future__ import annotations

from typing import Any

from sklearn.linear_model import LogisticRegression


def l1_saga(**options: Any) -> LogisticRegression:
    """A logistic regression with an L1 penalty."""
    model = LogisticRegression(solver="saga", **options)
    is_old = model.get_params().get("penalty") == "l2"
    return model.set_params(**{"penalty": "l1"} if is_old else {"l1_ratio": 1.0})
