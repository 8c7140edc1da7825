"""Several families as one, against their explicit matrices side by side."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import fcl
from fcl.cache import ColumnCache
from fcl.data.prepared import pack_sides, unpack_sides
from fcl.features import (
    Bag,
    Columns,
    Concat,
    ConcatFamily,
    Fourier,
    Kmers,
    bind_features,
    family_from_config,
    parse_features,
    spell_features,
)
from fcl.features.base import BitColumns, Family, StepColumns
from fcl.features.concat.members import _values
from fcl.features.fourier import STEP
from fcl.features.generator.contract import Generator
from fcl.features.prices import Prices
from tests import brute
from tests.bag_matrix import matrix as bag_matrix
from tests.explicit import prepare, select_rows
from tests.features.test_bag import dense as bag_dense
from tests.pricing import Pricing
from tests.windows import (
    BLOCK_ROWS,
    MAX_ROWS,
    UNKNOWN,
    examples,
    make_residuals,
    make_windows,
    tolerance,
)


class Shares(Generator):
    """The share of each letter in the window, and whether the letter is absent: values, not binary."""

    rows = "sequences"

    def __init__(self, letters: str = "ACGT") -> None:
        self.letters = letters

    def fit(self, sample: np.ndarray) -> None:
        self.n_features = 2 * len(self.letters)

    def columns(self, ids: np.ndarray, block: np.ndarray) -> np.ndarray:
        codes = np.array(["ACGT".index(c) for c in self.letters])
        share = (block[:, :, None] == codes).mean(axis=1)
        return np.hstack([share, share == 0.0])[:, ids]


class Alone(Generator):
    """Whether the window begins with each letter: binary, prepared in a form of its own."""

    rows = "sequences"
    binary = True

    def __init__(self) -> None:
        pass

    def fit(self, sample: np.ndarray) -> None:
        self.n_features = 4

    def prepare(self, block: np.ndarray) -> np.ndarray:
        return np.ascontiguousarray(block[:, :1])

    def columns(self, ids: np.ndarray, block: np.ndarray) -> np.ndarray:
        return block == ids


SPECS = (
    Kmers(2),
    Kmers(3),
    Bag(2),
    Bag(3, "presence", "both"),
    Bag(2, wildcards=True),
    Shares(),
    Alone(),
)


def matrix(spec: Any, codes: np.ndarray) -> np.ndarray:
    """The explicit features of a member, float64 (n, p)."""
    if isinstance(spec, Kmers):
        return brute.matrix(codes, spec.d).astype(float)
    if isinstance(spec, Bag):
        family = fcl.features.BagFamily(
            spec.d, codes.shape[1], spec.value, spec.strands, spec.wildcards
        )
        return bag_matrix(family, codes)
    made = type(spec)(**spec.options())
    made.fit(codes)
    block = codes[:, :1] if isinstance(spec, Alone) else codes
    return np.asarray(made.columns(np.arange(made.n_features), block), float)


def bind(spec: Any, codes: np.ndarray) -> Family:
    return bind_features(spec, fcl.open_data(codes, y=np.arange(len(codes)) % 2).rows)


@st.composite
def cases(draw: st.DrawFn) -> tuple[ConcatFamily, np.ndarray, np.ndarray, np.ndarray, int]:
    """A family, windows, its explicit features, their factors, and a seed."""
    specs = draw(st.lists(st.sampled_from(SPECS), min_size=1, max_size=4))
    factors = [draw(st.sampled_from([0.25, 1.0, 3.0])) for _ in specs]
    n = draw(st.sampled_from([1, 63, BLOCK_ROWS + 5, MAX_ROWS]))
    seed = draw(st.integers(0, 2**31))
    codes = make_windows(seed, n, draw(st.integers(3, 7)), draw(st.sampled_from(UNKNOWN)))
    family = bind(Concat(list(zip(specs, factors, strict=True))), codes)
    assert isinstance(family, ConcatFamily)
    parts = [matrix(spec, codes) for spec in specs]
    f = np.repeat(factors, [part.shape[1] for part in parts])
    return family, codes, np.hstack(parts), f, seed


def dense(made: Any) -> np.ndarray:
    return np.concatenate([bag_dense(block) for block in made], axis=1)


def same_bits(a: Prices, b: Prices) -> bool:
    arrays = ("ids", "gradients", "watched", "excess")
    same = all(getattr(a, x).tobytes() == getattr(b, x).tobytes() for x in arrays)
    return same and a.largest == b.largest and a.n_priced == b.n_priced


@examples(60)
@given(
    case=cases(), keep=st.sampled_from([1, 3, 10_000]), quantile=st.sampled_from([0.0, 0.5, 0.99])
)
def test_prices(case: Any, keep: int, quantile: float) -> None:
    family, codes, phi, f, seed = case
    assert family.n_features == phi.shape[1]
    assert family.penalty_factors(np.arange(len(f))).tolist() == f.tolist()
    rng = np.random.default_rng(seed)
    r = rng.normal(size=len(codes))
    r -= r.mean()  # what generators add to their bounds is nothing then
    g = r @ phi
    size = np.abs(g) / f
    slack = tolerance(r) * 20 / f.min()
    threshold = float(np.quantile(size, quantile))
    watch = rng.permutation(len(g))[: rng.integers(6)]
    pricer = Pricing(family, prepare(family, codes, BLOCK_ROWS), keep)
    level = 0.6 * threshold + 1e-3
    reach = np.concatenate([np.full(m.n_features, m.integer_bound) for m in family.members])
    more = 0.0 if (reach == 0.0).any() else 1e-4 * level * f.min()
    found = pricer.price(r, watch, threshold, level=level, imbalance=more)

    np.testing.assert_allclose(found.watched, g[watch], rtol=0, atol=slack)
    np.testing.assert_allclose(found.gradients, g[found.ids], rtol=0, atol=slack)
    assert found.n_priced == len(g)
    largest = found.largest - more * (reach / f).max()
    assert size.max() - 2 * slack <= found.largest
    assert largest <= max(size.max(), threshold) + slack
    excess = float(np.sum(f * np.maximum((np.abs(g) + more * reach) / f - level, 0.0) ** 2))
    assert len(found.excess) == pricer.n_parts == family.n_price_parts
    assert math.fsum(found.excess) == pytest.approx(excess, rel=1e-9, abs=slack)
    assert (np.diff(found.ids) > 0).all()
    assert not np.isin(found.ids, watch).any()
    size[watch] = 0.0
    assert (size[found.ids] > threshold - slack).all()
    if size.max() > threshold + slack:  # the largest is a candidate, whichever member has it
        assert size[found.ids].max() >= size.max() - slack
    if keep == 10_000:
        assert np.isin(np.flatnonzero(size > threshold + slack), found.ids).all()

    cut = int(rng.integers(1, pricer.n_parts + 1))
    fresh = Pricing(family, prepare(family, codes, BLOCK_ROWS), keep)
    halves = [
        fresh.price(r, watch, threshold, some, level, more)
        for some in (range(cut, pricer.n_parts), range(cut))
        if len(some)
    ]
    order = np.argsort(np.concatenate([h.ids for h in halves]), kind="stable")
    assert np.concatenate([h.ids for h in halves])[order].tolist() == found.ids.tolist()
    gradients = np.concatenate([h.gradients for h in halves])[order]
    assert gradients.tobytes() == found.gradients.tobytes()
    assert np.concatenate([h.excess for h in halves[::-1]]).tobytes() == found.excess.tobytes()
    assert max(h.largest for h in halves) == found.largest
    assert sum(h.n_priced for h in halves) == len(g)
    assert same_bits(pricer.price(r, watch, threshold, level=level, imbalance=more), found)


@examples(60)
@given(case=cases(), scratch=st.booleans())
def test_columns_sums_margins_and_chosen_rows(
    tmp_path_factory: pytest.TempPathFactory, case: Any, scratch: bool
) -> None:
    family, codes, phi, _, seed = case
    rng = np.random.default_rng(seed)
    folder = tmp_path_factory.mktemp("scratch") if scratch else None
    prepared = prepare(family, codes, BLOCK_ROWS, folder)
    for number in range(prepared.n_blocks):  # as another process gets them
        sides = prepared.sides(number)
        packed = unpack_sides(np.frombuffer(b"".join(pack_sides(sides)), np.uint8))
        assert [a.tobytes() for a in packed] == [a.tobytes() for a in sides]
    ids = np.sort(rng.permutation(phi.shape[1])[:30])

    def check_columns(maker: Any, rows: np.ndarray) -> None:
        order = maker.order(ids)
        for at in range(0, len(ids), maker.batch):
            some = ids[order[at : at + maker.batch]]
            made = maker.make(some)
            assert all(isinstance(block, BitColumns) == family.binary for block in made)
            rounded = phi[np.ix_(rows, some)].astype(np.float32)
            assert (rounded == dense(made).T.astype(np.float32)).all()

    every = np.arange(len(codes))
    check_columns(family.column_maker(prepared, 1 << 20), every)
    check_columns(
        family.column_maker(prepared, 10 * len(codes)), every
    )  # a column or few at a time
    rows = np.sort(rng.permutation(len(codes))[: max(1, len(codes) // 3)])
    check_columns(family.column_maker(select_rows(family, prepared, rows, 64), 1 << 16), rows)

    v = rng.normal(size=len(codes))
    again = rng.choice(ids, 40)
    pricer = Pricing(family, prepared, 3)
    np.testing.assert_allclose(
        pricer.sums(v, again), (v @ phi**2)[again], rtol=0, atol=tolerance(v) * 100
    )
    cut = int(rng.integers(1, pricer.n_parts + 1))
    split = pricer.sums(v, again, range(cut))
    if cut < pricer.n_parts:
        split = split + pricer.sums(v, again, range(cut, pricer.n_parts))
    np.testing.assert_allclose(split, pricer.sums(v, again), rtol=0, atol=0)
    assert (pricer.counts(again) == (phi != 0).sum(axis=0)[again]).all()

    w = rng.normal(size=len(ids))
    m = phi[:, ids] @ w
    close = {"rtol": 0, "atol": 1e-10}
    whole, by_block = np.full((2, len(codes)), np.nan)
    family.write_margins(prepared, ids, w, whole)
    for number in reversed(range(prepared.n_blocks)):
        family.write_margins(prepared, ids, w, by_block, range(number, number + 1))
    assert whole.tobytes() == by_block.tobytes()
    np.testing.assert_allclose(whole, m, **close)
    np.testing.assert_allclose(family.scorer(ids, w).margins(codes), m, **close)
    assert not family.scorer(ids[:0], w[:0]).margins(codes).any()
    assert family.extra_bytes(prepared) >= 0


def test_margins_of_many_groups_of_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    codes = make_windows(5, 400, 6, "few")
    family = bind(Concat([Kmers(2), Bag(2)]), codes)
    prepared = prepare(family, codes, 64)
    ids, w = np.arange(0, family.n_features, 5), np.linspace(-1, 1, -(-family.n_features // 5))
    whole, cut = np.empty((2, 400))
    family.write_margins(prepared, ids, w, whole)
    monkeypatch.setattr("fcl.features.concat.family.SUM_ROWS", 128)
    family.write_margins(prepared, ids, w, cut)
    assert whole.tobytes() == cut.tobytes()
    np.testing.assert_allclose(whole, family.scorer(ids, w).margins(codes), rtol=0, atol=1e-12)


def test_a_scratch_file_of_many_planes_and_blocks_does_not_change_a_bit(tmp_path: Path) -> None:
    codes = make_windows(6, 400, 26, "few")
    family = bind(Concat([Kmers(7), Shares(), Bag(3), (Kmers(2), 0.5), Alone()]), codes)
    in_memory, on_disk = (prepare(family, codes, 64, scratch) for scratch in (None, tmp_path))
    rng = np.random.default_rng(6)
    ids = np.sort(rng.choice(family.n_features, 300, replace=False))
    w, r = rng.normal(size=300), make_residuals(6, 400, "balanced")
    margins = np.empty((2, 400))
    found = []
    for out, prepared in zip(margins, (in_memory, on_disk), strict=True):
        family.write_margins(prepared, ids, w, out)
        found.append(Pricing(family, prepared, 20).price(r, ids, 0.5))
    assert margins[0].tobytes() == margins[1].tobytes()
    assert found[0].gradients.tobytes() == found[1].gradients.tobytes()
    assert found[0].watched.tobytes() == found[1].watched.tobytes()
    for number in (2, 5, 2, 0):  # numbers of the class are aligned, whatever was read before
        record = family.part(on_disk, 1).read(number)[0]
        assert record.ctypes.data % 64 == on_disk.read(number)[0].ctypes.data % 64


def test_members_that_prepare_alike_share_records() -> None:
    codes = make_windows(1, 100, 8, "few")
    one = bind(Kmers(2), codes).record_shape(128)
    shared = bind(Concat([Kmers(2), Bag(3), Kmers(4)]), codes)
    assert math.prod(shared.record_shape(128)) == math.prod(one)
    other = bind(Concat([Kmers(2), Shares(), Alone()]), codes)
    assert math.prod(other.record_shape(128)) == math.prod(one) + 128 * (8 + 1)


def test_descriptions_name_the_member() -> None:
    codes = make_windows(1, 100, 8, "none")
    family = bind(Concat([Kmers(2), (Bag(2), 2.0), Kmers(3, origin=4)]), codes)
    first = family.n_features - 6 * 100
    assert family.describe(0) == "kmers 1: AA at 0"
    assert family.describe(first - 16) == "bag: AA anywhere"
    assert family.describe(first) == "kmers 2: AAA at -4"
    assert bind(Concat([(Kmers(2), 2.0)]), codes).describe(0) == "AA at 0"


def test_config_makes_the_same_family() -> None:
    codes = make_windows(1, 100, 8, "few")
    family = bind(Concat([Kmers(2), (Shares("AC"), 2.0), (Alone(), 0.5)]), codes)
    again = family_from_config(family.to_config())
    assert again.to_config() == family.to_config()
    ids = np.arange(family.n_features)
    assert [again.describe(j) for j in ids] == [family.describe(j) for j in ids]
    assert again.penalty_factors(ids).tolist() == family.penalty_factors(ids).tolist()
    w = np.linspace(-1, 1, len(ids))
    assert (again.scorer(ids, w).margins(codes) == family.scorer(ids, w).margins(codes)).all()


@pytest.mark.parametrize(
    ("text", "spec"),
    [
        ("kmers:d=6 + bag:d=3", Concat([Kmers(6), Bag(3)])),
        ("kmers:d=6,origin=70 * 2", Concat([(Kmers(6, 70), 2.0)])),
        ("columns + columns * 0.1", Concat([Columns(), (Columns(), 0.1)])),
        ("kmers:d=2 * 1", Concat([Kmers(2)])),
        (
            "bag:d=3,value=presence,strands=both * 1.5 + kmers:d=4",
            Concat([(Bag(3, "presence", "both"), 1.5), Kmers(4)]),
        ),
    ],
)
def test_text(text: str, spec: Concat) -> None:
    assert parse_features(text) == spec
    assert parse_features(spell_features(spec)) == spec
    assert spell_features(parse_features(text)) == spell_features(spec)


def test_nested_members_are_flat() -> None:
    inner = Concat([Kmers(2), ("bag:d=3", 2.0)])
    assert Concat([(inner, 3.0), Bag(4)]) == Concat([(Kmers(2), 3.0), (Bag(3), 6.0), Bag(4)])


@pytest.mark.parametrize(
    ("others", "step"),
    [([Fourier(n=30, kernel="laplace", dtype="int8")], STEP), ([Columns()], 0.0)],
)
def test_eight_bits_beside_others(others: list[Any], step: float) -> None:
    """Steps where all have the same one; else float32, in which the cache finds them."""
    x = np.random.default_rng(2).normal(size=(1500, 3))
    y = np.where(x[:, 0] > 0.0, 1, -1)
    data = fcl.open_data(x, y=y)
    spec = Concat([Fourier(n=50, dtype="int8"), *others])
    family = bind_features(spec, data.rows)
    assert family.step == step and not family.binary
    prepared = prepare(family, x, 2048)
    ids = np.arange(family.n_features)
    made = family.column_maker(prepared, 1 << 20).make(ids)
    assert all(isinstance(block, StepColumns) == (step > 0.0) for block in made)
    phi = np.concatenate([_values(block) for block in made], axis=1)
    for m, member in enumerate(family.members):
        generator: Any = member.generator
        block = generator.prepare(x) if m == 0 or step else x
        own = slice(family.first_ids[m], family.first_ids[m + 1])
        expected = generator.columns(np.arange(member.n_features), block)
        assert (phi[own].T.astype(np.float32) == expected.astype(np.float32)).all()
    cache = ColumnCache(1 << 17, 200, 1500, 2048, False, family.step)
    staged = cache.measure(ids, made)
    # found where a value of one step is among the rows, as it mostly is
    assert (staged.sizes[:50] == 8 + 1504).sum() >= (50 if step else 40)
    for driver in ("inline", "processes"):
        result = fcl.train(data, spec, C=1.0, tol=1e-6, memory="1GiB", driver=driver)
        assert result.converged
        m = result.model.weights @ phi[result.model.ids] + result.model.intercept
        objective = np.abs(result.model.weights).sum() + np.logaddexp(0.0, -y * m).sum()
        assert objective == pytest.approx(result.certificate.objective, rel=1e-6)


def test_numbers_stay_whole_beside_one_another(tmp_path: Path) -> None:
    """Two members of one dense matrix: both float64, records aligned, a ragged block."""
    x = np.random.default_rng(2).normal(size=(150, 3))
    rows = fcl.open_data(x, y=np.arange(150) % 2).rows
    family = bind_features(Concat([Columns(), (Columns(), 2.0)]), rows)
    assert family.record_shape(128) == (3 * 8 * 128,)
    prepared = prepare(family, x, 128, tmp_path)
    made = dense(family.column_maker(prepared, 1 << 16).make(np.arange(6)))
    assert (made.T.astype(np.float32) == np.hstack([x, x]).astype(np.float32)).all()
    assert family.describe(4) == "columns 2: x1"
    assert family.describe(4, ["a", "b", "c"]) == "columns 2: b"
