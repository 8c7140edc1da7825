"""The choice of a point, and standard errors."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fcl.drivers.rows import Rows
from fcl.objective import find_loss
from fcl.path.rules import Rules, best_point, is_no_gain, one_se_point
from fcl.path.scores import bootstrap_error, fold_scores, random_order
from fcl.run.reasons import StopReason

SCORES = st.lists(st.floats(-5, 5, allow_nan=False), min_size=1, max_size=12)


@settings(max_examples=25, deadline=None)
@given(SCORES, st.data())
def test_the_1se_point_is_the_smallest_C_within_one_error_of_the_best(
    scores: list[float], draw: st.DataObject
) -> None:
    n = len(scores)
    errors = draw.draw(st.lists(st.floats(0, 3) | st.just(math.nan), min_size=n, max_size=n))
    best, chosen = best_point(np.array(scores)), one_se_point(np.array(scores), np.array(errors))
    allowed = 0.0 if math.isnan(errors[best]) else errors[best]
    within = [k for k in range(n) if scores[k] >= max(scores) - allowed]
    assert chosen == min(within) and chosen <= best and scores[best] == max(scores)


def test_undefined_scores_are_never_chosen() -> None:
    scores = np.array([math.nan, 0.3, 0.5, 0.45])
    assert best_point(scores) == 2 and one_se_point(scores, np.full(4, 0.25)) == 1


@settings(max_examples=25, deadline=None)
@given(SCORES, st.integers(1, 4), st.floats(0, 1))
def test_patience(scores: list[float], patience: int, min_gain: float) -> None:
    """The path ends at the first point that is ``patience`` points after the last better score.

    Points that repeat a score below the perfect one are not counted.
    """
    rules, expected, best, last = Rules(patience, min_gain), None, -math.inf, 0
    for number, score in enumerate(scores):
        if score > best + min_gain:
            best, last = score, number
        repeated = [k for k in range(1, number + 1) if scores[k] == scores[k - 1] != 1.0]
        if number - last - sum(k > last for k in repeated) >= patience:
            expected = number + 1
            break
    assert rules.patient_until(np.array(scores)) == expected
    reasons = [rules.reason(np.array(scores[:n]), 0) for n in range(1, len(scores) + 1)]
    assert (StopReason.PATIENCE in reasons) == (expected is not None)
    assert Rules(None, min_gain).patient_until(np.array(scores)) is None


def test_patience_does_not_count_a_ranking_by_one_feature() -> None:
    """The order of the rows, and so the score, is the same at every weight."""
    assert Rules(3).patient_until(np.array([0.1, 0.3, 0.3, 0.3, 0.3, 0.3, 0.4])) is None
    assert Rules(3).patient_until(np.array([0.1, 0.3, 0.3, 0.29, 0.28, 0.27])) == 6
    assert Rules(3).patient_until(np.array([0.1, 1.0, 1.0, 1.0, 1.0, 1.0])) == 5


def test_patience_needs_a_score() -> None:
    assert Rules(1).reason(np.full(5, math.nan), 0) is None


def test_the_bootstrap_finds_the_error_of_a_mean() -> None:
    loss, random = find_loss("squared"), np.random.default_rng(1)
    n = 4000
    y, groups = random.normal(size=n), np.repeat(np.arange(n // 40), 40)
    y += np.repeat(random.normal(size=n // 40), 40)  # rows of a group are alike
    rows, margins = Rows(None, None, y, np.ones(n)), np.zeros(n)  # type: ignore[arg-type]
    by_row = bootstrap_error(loss, rows, margins, 0)
    assert by_row == bootstrap_error(loss, rows, margins, 0)
    assert by_row == pytest.approx((y**2).std() / math.sqrt(n), rel=0.3)
    by_group = bootstrap_error(loss, rows, margins, 0, groups)
    means = (y**2).reshape(-1, 40).mean(axis=1)
    assert by_group == pytest.approx(means.std() / math.sqrt(len(means)), rel=0.3)
    assert by_group > 1.3 * by_row


def test_means_over_folds() -> None:
    scores = np.array([[0.5, 0.25, math.nan], [0.75, 0.5, math.nan], [1.0, math.nan, math.nan]])
    mean, se = fold_scores(scores)
    np.testing.assert_allclose(mean, [0.75, 0.375, math.nan])
    np.testing.assert_allclose(se[:2], [0.25 / math.sqrt(3), np.std([0.25, 0.5], ddof=1) / 2**0.5])


def test_a_point_with_an_infinite_error_is_not_the_best() -> None:
    mean, _ = fold_scores(np.array([[2.0, 1.0], [2.0, math.inf]]))
    assert mean.tolist() == [2.0, math.inf] and best_point(-mean) == 0


@pytest.mark.parametrize(("n", "r"), [(6, 2), (7, 3), (5, 1)])
def test_the_mean_precision_of_random_orders(n: int, r: int) -> None:
    """Against the average over all orders, by the definition of the average precision."""
    found = []
    for places in itertools.combinations(range(1, n + 1), r):
        found.append(np.mean([(at + 1) / place for at, place in enumerate(places)]))
    y = np.where(np.arange(n) < r, 1.0, -1.0)
    assert random_order(y, np.full(n, 0.5)) == pytest.approx(np.mean(found), rel=1e-12)
    assert np.isnan(random_order(np.ones(n), np.ones(n)))


@pytest.mark.parametrize(
    ("score", "empty", "se", "higher", "no_gain"),
    [
        (0.14, 0.12, 0.02, True, True),
        (0.17, 0.12, 0.02, True, False),
        (0.131, 0.119, np.nan, True, True),
        (0.2, 0.119, np.nan, True, False),
        (0.99, 1.0, np.nan, False, True),
        (0.9, 1.0, np.nan, False, False),
        (1.1, 1.0, 0.01, False, True),
        (0.5, np.nan, 0.01, True, False),
    ],
)
def test_no_gain(score: float, empty: float, se: float, higher: bool, no_gain: bool) -> None:
    assert is_no_gain(score, empty, se, higher) == no_gain
