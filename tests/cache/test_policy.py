"""Eviction and admission: properties of the two functions."""

from __future__ import annotations

import itertools

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from fcl.cache import evict_order, fit_in_room
from tests.windows import examples

# few distinct values, so that ties are met
sizes = st.sampled_from([0.0, 1e-9, 0.5, 1.0, 2.0, 7.5])


@st.composite
def live_columns(draw: st.DrawFn) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    n = draw(st.integers(0, 12))

    def numbers(elements: st.SearchStrategy[float]) -> np.ndarray:
        return np.array(draw(st.lists(elements, min_size=n, max_size=n)), np.float64)

    weights = numbers(st.sampled_from([0.0, 0.0, 1e-12, -0.5, 3.0]))
    gradients = numbers(st.sampled_from([-1.0, -0.4, 0.0, 0.3, 1.0]))
    seen = numbers(st.sampled_from([0.0, 1.0])) > 0.0
    return weights, gradients, numbers(sizes), seen


@given(live_columns())
@examples(200)
def test_order_of_eviction(columns: tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]) -> None:
    weights, gradients, violations, seen = columns
    order = evict_order(weights, gradients, violations, seen)
    assert sorted(order) == np.flatnonzero(seen).tolist()  # each seen one once, no unseen one
    dead = weights[order] == 0.0
    n_dead = int(dead.sum())
    assert dead[:n_dead].all()  # dead ones first
    assert (np.diff(np.abs(gradients)[order[:n_dead]]) >= 0.0).all()
    frozen = order[n_dead:]
    assert (np.diff(violations[frozen]) >= 0.0).all()
    for a, b in itertools.pairwise(frozen):
        assert violations[a] < violations[b] or a < b  # of settled ones the longest cached
    again = evict_order(weights, gradients, violations, seen)
    assert (order == again).all()


@st.composite
def candidates(draw: st.DrawFn) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    n = draw(st.integers(0, 12))
    violations = draw(st.lists(sizes, min_size=n, max_size=n))
    curvatures = draw(st.lists(st.sampled_from([0.0, 0.1, 5.0]), min_size=n, max_size=n))
    bytes_ = draw(st.lists(st.sampled_from([0, 8, 16, 80, 400]), min_size=n, max_size=n))
    return np.array(violations), np.array(curvatures), np.array(bytes_, np.int64)


@given(candidates(), st.integers(0, 1200))
@examples(300)
def test_what_fits_in_room(drawn: tuple[np.ndarray, np.ndarray, np.ndarray], room: int) -> None:
    violations, curvatures, bytes_ = drawn
    chosen = fit_in_room(violations, curvatures, bytes_, room)
    assert chosen.dtype == bool and chosen.shape == violations.shape
    if not len(violations):
        return
    first = int(np.argmax(violations))
    assert chosen[first]  # even where it must make room by itself
    used = int(bytes_[chosen].sum())
    assert used <= max(room, int(bytes_[first]))
    # who stays out has no room among those that are worth more by the byte
    worth = violations**2 / (np.maximum(curvatures, 1e-300) * np.maximum(bytes_, 8))
    for j in np.flatnonzero(~chosen):
        better = chosen & (worth >= worth[j])
        better[first] = True
        assert int(bytes_[better].sum()) + bytes_[j] > room
    assert (chosen == fit_in_room(violations, curvatures, bytes_, room)).all()


@given(candidates())
@examples(60)
def test_with_room_enough_all_are_admitted(
    drawn: tuple[np.ndarray, np.ndarray, np.ndarray],
) -> None:
    violations, curvatures, bytes_ = drawn
    assert fit_in_room(violations, curvatures, bytes_, int(bytes_.sum())).all()


def test_the_best_by_the_byte_comes_before_the_larger_violation() -> None:
    violations = np.array([5.0, 2.0, 1.0])
    chosen = fit_in_room(violations, np.ones(3), np.array([8, 400, 8], np.int64), 408)
    assert chosen.tolist() == [True, False, True]
