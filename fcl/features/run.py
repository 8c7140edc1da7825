"""Run pricers: prices of residual vectors, of one output or of K over the same features.

The *size* of a feature's prices g_j1 .. g_jK is the largest |g_jk|, or their Euclidean norm if the
penalty is grouped. Outputs are priced together if the family's pricer can do so, or else in turn, and the
features that any of them reports get their prices in all outputs.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np
import numpy.typing as npt

from fcl.features.prices import (
    PriceQuery,
    Pricer,
    Prices,
    Progress,
    RowVector,
    answer,
    only_watched,
    silent,
)
from fcl.types import Floats, Ids

#: Share of the level of an excess that is left for the change of prices by balancing.
MARGIN = 1e-3
#: Allowance for rounding in a norm over outputs.
SLACK = 1e-12

#: The numbers of the rows: of one output, or of each of K.
Rows = RowVector | Sequence[RowVector]


def row_vectors(
    values: Floats, step: Any = 0.0, units: npt.NDArray[np.int64] | None = None
) -> Rows:
    """The numbers of the rows on a grid: a vector, or a list of K for values of shape (K, n).

    step : of the grid, or float64 (K,); 0 for none.  units : as of :class:`RowVector`, of the shape of
    the values; used if there is a grid.
    """
    if values.ndim == 1:
        return RowVector(values, float(step), units if step else None)
    steps = np.broadcast_to(step, len(values)).tolist()
    return [
        RowVector(own, at, units[k] if units is not None and at else None)
        for k, (own, at) in enumerate(zip(values, steps, strict=True))
    ]


@dataclass(frozen=True)
class Joining:
    """How the candidates of K outputs become those of the family."""

    listed: int  #: most candidates that the pricer lists for each part and output
    keep: int  #: most candidates to return for each part
    factors: Callable[[Ids], Floats]  #: penalty factors of features
    grouped: bool  #: whether the size of a feature's prices is their Euclidean norm


def run(
    pricer: Pricer,
    query: PriceQuery,
    rows: Rows,
    blocks: range,
    progress: Progress = silent,
    joining: Joining | None = None,
) -> Prices:
    """Price in this process.

    rows : residuals. With K outputs ``query.imbalance`` may be float64 (K,).
    joining : needed to find candidates of K outputs.

    With K outputs, gradients are (candidates, K) and watched sums (watched, K); ``largest`` and
    ``excess`` are about sizes.
    """
    if isinstance(rows, RowVector):
        return price_each(pricer, [query], [rows], blocks, progress)[0]
    if query.find:
        assert joining is not None
        return _run_joined(pricer, query, rows, blocks, progress, joining)
    found = price_each(pricer, [query] * len(rows), rows, blocks, progress)
    return only_watched(np.stack([prices.watched for prices in found], axis=1))


def sums_of(
    pricer: Pricer,
    ids: Ids,
    rows: Rows,
    blocks: range,
    power: int = 2,
    parts: range | None = None,
) -> Floats:
    """sum_i rows_i phi_ij^power of some features, given in any order; 0 for features of other parts.

    With K outputs float64 (features, K).
    """
    parts = range(pricer.n_parts) if parts is None else parts
    query = PriceQuery(parts, ids, find=False, power=power)
    return run(pricer, query, rows, blocks).watched


def price_each(
    pricer: Pricer,
    queries: Sequence[PriceQuery],
    rows: Sequence[RowVector],
    blocks: range,
    progress: Progress = silent,
) -> list[Prices]:
    """The prices of each output; the queries differ only in their imbalance."""
    price: Callable[..., list[Prices]] = getattr(pricer, "price", partial(price_in_turn, pricer))
    return price(queries, rows, blocks, progress)


def price_in_turn(
    pricer: Pricer,
    queries: Sequence[PriceQuery],
    rows: Sequence[RowVector],
    blocks: range,
    progress: Progress,
) -> list[Prices]:
    """The prices of each output, one output after another."""

    def accumulate(own: RowVector, request: Any, progress: Progress) -> Any:
        return pricer.accumulate(request, own, blocks, progress)

    return scan_in_turn(pricer, queries, rows, accumulate, progress)


def scan_in_turn(
    pricer: Pricer,
    queries: Sequence[PriceQuery],
    rows: Sequence[RowVector],
    accumulate: Callable[[RowVector, Any, Progress], Any],
    progress: Progress,
) -> list[Prices]:
    """The prices of each output from sums that ``accumulate(rows, request, progress)`` makes."""
    found = []
    for k, (query, own) in enumerate(zip(queries, rows, strict=True)):

        def sums(request: Any, begin: float, end: float, k: int = k, own: RowVector = own) -> Any:
            def report(share: float) -> None:
                progress((k + begin + share * (end - begin)) / len(rows))

            report(0.0)
            return accumulate(own, request, report)

        found.append(answer(pricer.scan(query, own.step), sums))
    return found


def _run_joined(
    pricer: Pricer,
    query: PriceQuery,
    rows: Sequence[RowVector],
    blocks: range,
    progress: Progress,
    joining: Joining,
) -> Prices:
    """The prices of K outputs, and the candidates of any of them."""
    factors, grouped = joining.factors, joining.grouped
    K = len(rows)
    imbalance = np.broadcast_to(np.asarray(query.imbalance, np.float64), K)
    threshold, level = query.threshold, query.level
    if grouped:
        if level is not None:  # all features that contribute to the excess, balanced or not
            threshold = min(threshold, level * (1.0 - MARGIN))
            level /= np.sqrt(K)
        threshold /= np.sqrt(K)  # a feature of some size has some price of this share of it
    queries = [
        replace(query, threshold=threshold, level=level, imbalance=own)
        for own in imbalance.tolist()
    ]
    found = price_each(pricer, queries, rows, blocks, progress)
    ids, gradients = _joined(pricer, found, rows, blocks, query.parts)
    watched = np.stack([prices.watched for prices in found], axis=1)
    first = found[0]
    prices = replace(
        first,
        ids=ids,
        gradients=gradients,
        watched=watched,
        by_output=np.array([prices.largest for prices in found]),
        largest=max(prices.largest for prices in found),
        excess=np.sum([prices.excess for prices in found], axis=0),
        reach=max(prices.reach for prices in found),
        n_visited=sum(prices.n_visited for prices in found),
    )
    if grouped:
        bounds = [
            _bound_on_others(one, own, joining.listed, factors)
            for one, own in zip(found, queries, strict=True)
        ]
        others = float(np.linalg.norm(bounds)) * (1.0 + SLACK)
        prices = _grouped(prices, query, factors, float(np.linalg.norm(imbalance)), others)
    return _cut(prices, joining.keep * len(query.parts), factors, grouped)


def _joined(
    pricer: Pricer,
    found: Sequence[Prices],
    rows: Sequence[RowVector],
    blocks: range,
    parts: range,
) -> tuple[Ids, Floats]:
    """The candidates of any output, increasing, and their prices in all outputs, (candidates, K)."""
    ids: Ids = np.unique(np.concatenate([prices.ids for prices in found]))
    gradients = np.full((len(ids), len(rows)), np.nan)
    for k, prices in enumerate(found):
        gradients[np.searchsorted(ids, prices.ids), k] = prices.gradients
    missing = np.isnan(gradients)
    some = missing.any(axis=1)
    if some.any():
        sums = sums_of(pricer, ids[some], rows, blocks, 1, parts)
        gradients[some] = np.where(missing[some], sums, gradients[some])
    return ids, gradients


def _bound_on_others(
    prices: Prices, query: PriceQuery, keep: int, factors: Callable[[Ids], Floats]
) -> float:
    """A bound on one output's |g~_j| / f_j over all features but its candidates and watched ones.

    A feature that is missing in a list of ``keep`` candidates is no larger than the smallest of them.
    The lists of several parts are joined here, but the ``keep`` largest of them are no smaller.
    """
    bar = max(query.threshold, prices.omitted)
    if len(prices.ids) >= keep:
        sizes = np.abs(prices.gradients) / factors(prices.ids)
        bar = max(bar, float(np.sort(sizes)[-keep]))
    return min(prices.largest, bar + query.imbalance * prices.reach)


def _grouped(
    prices: Prices,
    query: PriceQuery,
    factors: Callable[[Ids], Floats],
    imbalance: float,
    others: float,
) -> Prices:
    """The prices with ``largest`` and ``excess`` by Euclidean norms.

    If features without known prices may have an excess, its bound is the sum of the outputs' excess over
    l = level / sqrt(K): |g_j| <= |max(0, |g_jk| - l)| + sqrt(K) l, by the triangle inequality.

    others : bound on the sizes of all features but candidates and watched ones.
    """
    own = np.any(prices.watched != 0.0, axis=1)  # sums of features of other parts are 0
    ids = np.concatenate([prices.ids, query.watched[own]])
    f = factors(ids)
    sizes = np.linalg.norm(np.concatenate([prices.gradients, prices.watched[own]]), axis=1) / f
    sizes += imbalance * prices.reach
    largest = float(sizes.max(initial=0.0))
    excess = prices.excess
    if query.level is not None and others <= query.level:
        over = np.maximum(sizes - query.level, 0.0)
        excess = np.zeros_like(excess)
        excess[0] = float((f * over * over).sum())
    return replace(prices, largest=max(largest, others), excess=excess)


def _cut(prices: Prices, most: int, factors: Callable[[Ids], Floats], grouped: bool) -> Prices:
    """The prices with the ``most`` largest candidates."""
    if len(prices.ids) <= most:
        return prices
    sizes = np.linalg.norm(prices.gradients, ord=2 if grouped else np.inf, axis=1)
    sizes /= factors(prices.ids)
    kept = np.sort(np.argsort(-sizes, kind="stable")[:most])
    return replace(prices, ids=prices.ids[kept], gradients=prices.gradients[kept])
