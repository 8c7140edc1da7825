"""Sums over columns in every encoding, against dense numpy."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fcl.kernels import bits, encoding
from fcl.kernels import columns as kernels
from tests.columns import Filled, close, filled, read_back
from tests.windows import INTERPRETED, examples


@given(filled)
@examples(80)
def test_sums_moments_and_additions(made: Filled) -> None:
    cache, phi, rng = made
    assert (read_back(cache) == phi).all()
    r, q = rng.normal(size=cache.n_rows), rng.exponential(size=cache.n_rows)
    pieces = cache.pieces
    g, h = phi @ r, phi**2 @ q
    size_g, size_h = np.abs(phi) @ np.abs(r), h
    order = rng.permutation(len(phi))
    found_g, found_h = np.zeros(len(phi)), np.zeros(len(phi))
    for block in range(cache.store.n_blocks):
        part_g, part_h = np.empty(len(phi)), np.empty(len(phi))
        kernels.block_moments(pieces, order, block, r, q, part_g, part_h)
        found_g += part_g
        found_h += part_h
    close(found_g, g[order], size_g[order])
    close(found_h, h[order], size_h[order])

    deltas = rng.normal(size=len(phi))
    deltas[0] = 0.0
    m = r.copy()
    for block in rng.permutation(cache.store.n_blocks):
        kernels.add_block(pieces, order, deltas, block, m)
    close(m, r + deltas @ phi[order], np.abs(r) + np.abs(deltas) @ np.abs(phi[order]))


@given(filled, st.sampled_from([64, 128, 4096]), st.booleans())
@examples(60)
def test_products_of_columns(made: Filled, size: int, sampled: bool) -> None:
    """A sample has fewer rows than its cache has room for; what stands beyond them does not count."""
    cache, phi, rng = made
    q = rng.exponential(size=rng.integers(1, cache.n_rows + 1) if sampled else cache.n_rows)
    order = rng.permutation(len(phi))[: rng.integers(1, len(phi) + 1)]
    k = len(order)
    gram = np.zeros((k, k))
    buffers = np.empty((size, k), np.int32), np.empty((size, k))
    for block in range(-(-len(q) // cache.block_rows)):
        kernels.add_sparse_gram(cache.pieces, order, block, q, *buffers, gram)
    part = phi[order, : len(q)]
    size_of = np.abs(part) * q @ np.abs(part).T
    close(gram, np.triu(part * q @ part.T), size_of)


@given(
    st.lists(st.integers(0, 2**64 - 1) | st.sampled_from([0, 1, 2**63, 7]), min_size=1),
    st.sampled_from([0, 60]),
)
@examples(100)
def test_bits_of_words(words: list[int], empty: int) -> None:
    words = [0] * empty + words[: 3 if empty else None] + [0] * empty
    array = np.array([words], np.uint64)
    set_bits = [64 * w + i for w, word in enumerate(words) for i in range(64) if word >> i & 1]
    total = len(set_bits)
    rows = np.full(total + 4, 999, np.uint16)
    encoding.bits_to_rows(array[0], len(words), np.int64(total), rows)
    assert rows.tolist() == [*set_bits, *4 * [999]]  # what follows may belong to another column


@pytest.mark.skipif(not INTERPRETED, reason="the compiled forms are no Python functions")
@given(st.integers(0, 2**64 - 1))
@examples(100)
def test_the_plain_forms_of_bit_operations(word: int) -> None:
    places = [i for i in range(64) if word >> i & 1]
    assert bits.population(np.uint64(word)) == len(places)
    assert bits.trailing_zeros(np.uint64(word)) == (places[0] if places else 64)
    assert bits.without_lowest(np.uint64(word)) == sum(1 << i for i in places[1:])


def test_columns_move_down_without_harm() -> None:
    for first, size, into in ((7, 4, 3), (12, 18, 7), (30, 1, 25), (5, 0, 2), (3, 6, 3)):
        arena = np.arange(40, dtype=np.uint64)
        encoding.move_words(arena, first, size, into)
        assert arena[into : into + size].tolist() == list(range(first, first + size))
        assert arena[:into].tolist() == list(range(into))
