"""A pass has the same bits with any writers, drivers, deaths, or processes that make the sums."""

from __future__ import annotations

import hashlib
import pickle
from typing import Any

import numpy as np
import pytest
from explicit import make_solver
from explicit import run as run_solver
from judge import LOSSES, Problem, kmer_matrix
from rows import acceptors, pyrimidines
from scipy.sparse import csr_array

import fcl
from fcl.data.prepared import PreparedRows
from fcl.features import KmerFamily, bind_features
from fcl.features.prices import GRID_BITS, PriceQuery, Prices, RowVector, answer, merge_prices
from fcl.features.run import run
from fcl.solve.outer import Certified, Outer
from fcl.solve.solver import Solver
from tests.pricing import Pricing

LENGTH, N, BLOCK_ROWS = 16, 700, 128
DNA = (
    "kmers:d=4",
    "bag:d=4",
    "bag:d=3,strands=both,wildcards=true",
    "bag:d=4,value=presence",
    "bag:d=3,value=presence,strands=both,wildcards=true",
    "kmers:d=3 * 0.5 + bag:d=3 * 2",
)
TABLES = (
    "columns",
    "products:degree=2",
    "products:degree=3",
    "fourier:n=300,gamma=0.1",
    "hinges:n=20",
    "fourier:per_pass=300,gamma=0.1",
    "columns * 2 + products:degree=2",
)
ARRAYS = ("ids", "gradients", "largest", "watched", "excess", "reach")


def data_of(text: str, sparse: bool = False, classes: int = 2) -> fcl.Dataset:
    codes, y = acceptors(LENGTH, N)
    codes[::9, 3] = 4
    target = y if classes == 2 else np.where(y > 0, 0, np.arange(N) % (classes - 1) + 1)
    if text.startswith(("kmers", "bag")):
        return fcl.open_data(codes, y=target)
    rng = np.random.default_rng(0)
    X = rng.normal(size=(N, 12)) * (rng.random((N, 12)) < 0.4)
    X[:, 0] += y
    return fcl.open_data(csr_array(X) if sparse else X, y=target)


def digest(prices: Prices) -> str:
    found = hashlib.blake2b(digest_size=16)
    for name in ARRAYS:
        found.update(np.asarray(getattr(prices, name)).tobytes())
    return found.hexdigest()


# -- any process -----------------------------------------------------------------------------------


def split_sums(pricers: list[Pricing], rows: RowVector, seed: int) -> Any:
    """Sums from several pricers, each over some of the blocks, merged in random order.

    The first pricer dies, and another one repeats its sums.
    """
    rng = np.random.default_rng(seed)

    def sums(request: Any, begin: float, end: float) -> Any:
        blocks = pricers[0].blocks
        cuts = np.sort(rng.integers(0, len(blocks) + 1, len(pricers) - 1)).tolist()
        ranges = [range(a, b) for a, b in zip([0, *cuts], [*cuts, len(blocks)], strict=True)]
        pricers[0].pricer.accumulate(request, rows, blocks[: len(blocks) // 2], lambda s: None)
        made = []
        for pricer, some in zip(rng.permutation(np.array(pricers, object)), ranges, strict=True):
            sent = pickle.loads(pickle.dumps(request))
            part = pricer.pricer.accumulate(sent, rows, some, lambda s: None)
            made.append(pickle.loads(pickle.dumps(part)))
        made = [made[i] for i in rng.permutation(len(made))]
        total = made[0]
        for more in made[1:]:
            total = pricers[0].pricer.merge(total, more)
        return total

    return sums


@pytest.mark.parametrize("text", [*DNA, *TABLES])
def test_sums_of_any_rows_made_anywhere(text: str) -> None:
    data = data_of(text)
    spec: Any = fcl.features.parse_features(text)
    family = bind_features(spec, data.rows)
    prepared = PreparedRows(N, BLOCK_ROWS, family.record_shape(BLOCK_ROWS), None)
    for number, (_, _, raw) in enumerate(family.read_rows(data.rows, BLOCK_ROWS)):
        sides = family.prepare(raw, prepared.writable(number), prepared.block_rows)
        prepared.commit(number, sides)
    rng = np.random.default_rng(1)
    r = rng.normal(size=N) * 10.0 ** rng.integers(-6, 6, N)
    watch = rng.integers(0, min(family.n_features, 10_000), 20)
    whole = Pricing(family, prepared, 8)
    rows = whole.on_grid(r)
    largest = whole.price(r, watch, np.inf).largest
    options = {"threshold": 0.1 * largest, "level": 0.3 * largest, "imbalance": 1e-3 * largest}
    query = PriceQuery(range(whole.n_parts), watch, number=3, **options)
    expected = digest(run(whole.pricer, query, rows, whole.blocks))
    for n in (2, 3, 4):
        pricers = [Pricing(family, prepared, 8) for _ in range(n)]
        sums = split_sums(pricers, rows, n)
        assert digest(answer(pricers[0].pricer.scan(query, rows.step), sums)) == expected
        cut = int(rng.integers(1, whole.n_parts + 1))
        parts = [p for p in (range(cut), range(cut, whole.n_parts)) if len(p)]
        queries = [PriceQuery(p, watch, number=3, **options) for p in parts]
        found = [answer(pricers[-1].pricer.scan(q, rows.step), sums) for q in queries]
        assert digest(merge_prices(found)) == expected


# -- drivers ---------------------------------------------------------------------------------------


@pytest.fixture
def passes(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Digests of the prices that were certified, pass by pass."""
    found: list[str] = []
    certify = Outer.certify

    def record(self: Outer, prices: Prices, *arguments: Any) -> Any:
        found.append(digest(prices))
        return certify(self, prices, *arguments)

    monkeypatch.setattr(Outer, "certify", record)
    return found


# -- the certificate -------------------------------------------------------------------------------


@pytest.mark.thin(3)
@pytest.mark.parametrize("loss", LOSSES)
@pytest.mark.parametrize("rho", [1.0, 0.7])
@pytest.mark.parametrize("bits", [GRID_BITS, 24])
def test_truncated_residuals_are_the_dual_point(
    loss: str, rho: float, bits: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The judge's bound at them is at least the certified one, even on a coarse grid."""
    monkeypatch.setattr("fcl.features.prices.GRID_BITS", bits)
    codes, labels = acceptors(10, 400)
    y = pyrimidines(400) if loss == "squared" else labels
    s = 10.0 ** np.random.default_rng(0).uniform(-6.0, 6.0, 400)  # over twelve orders
    problem = Problem(kmer_matrix(codes, 3), y, s, loss, 1e-5, rho=rho)
    solver = make_solver(KmerFamily(3, 10), codes, problem, tol=1e-6, block_rows=128)
    optimum = problem.solve(1e-8)

    def check(solver: Solver, certified: Certified) -> None:
        passes = solver.passes
        dual = passes.dual_point()
        raw = passes.vectors.residuals
        r = np.concatenate([dual.residuals[rows] for rows in passes.objective.blocks()])
        assert (np.abs(r) <= np.abs(raw)).all() and (r * raw >= 0.0).all()
        assert (np.abs(r - raw) < dual.residuals.step).all()
        assert (r / dual.residuals.step == np.rint(r / dual.residuals.step)).all()
        assert (passes.vectors.units * dual.residuals.step == r).all()
        none = np.empty(0, np.int64)
        prices = passes.price(dual, none, 0.0, passes.parts)
        bound = passes.bound(dual, prices.largest, float(prices.excess.sum()))
        own = problem.bound(r)
        assert bound <= own + 1e-9 * abs(own)
        assert certified.bound <= optimum.objective * (1.0 + 1e-12)

    run_solver(solver, 12, check)
