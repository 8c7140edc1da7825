"""Make a compact model: choose the bits and the rounding of its weights, and measure what they cost."""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace
from typing import Any

from fcl import checks
from fcl.data import DataSet, open_data
from fcl.errors import InputError
from fcl.files.compact import (
    LEAST_BITS,
    MOST_BITS,
    ROUNDINGS,
    Encoding,
    bits_for,
    margin_bound,
    mean_rise,
    refuse_compact,
)
from fcl.files.packing import best_codec
from fcl.scoring.judge import Judge, judge_of

#: Numbers of bits that are tried to keep a loss.
MOST_TRIES = 4


@dataclass(frozen=True)
class Compacted:
    """A compact model, and the encodings that were tried.

    model : with rounded weights; its ``encoding`` says what they cost.
    tries : all that were measured, in order.
    """

    model: Any
    tries: list[Encoding] = field(default_factory=list)


def compact_model(
    model: Any,
    data: Any = None,
    *,
    bits: int | None = None,
    max_loss: float | None = None,
    rounding: str | None = None,
    seed: int = 0,
) -> Compacted:
    """Round the weights of a model to multiples of 2^-m, so that its file is much smaller.

    model : of :func:`fcl.train` or stagewise, with full weights.
    data : a data set or its source, on whose rows with a target losses are measured. The certificate is
        computed again if they are the training data.
    bits, max_loss : m; or the relative rise of the mean loss to which the smallest m is chosen, in at
        most 4 tries.
    rounding : "nearest" or "random"; by default the one of the smaller loss on `data`; without data
        nearest for sparse models, and random for stagewise models.
    seed : of random rounding.

    Source: Golovin, Sculley, McMahan and Young, "Large-scale learning with less RAM via randomization",
    ICML 2013.
    """
    if (bits is None) == (max_loss is None):
        raise InputError("give either bits or max_loss to choose the size of the compact model")
    if bits is not None:
        bits = checks.whole("bits", bits, LEAST_BITS)
        if bits > MOST_BITS:
            raise InputError(f"bits: expected at most {MOST_BITS} behind the point, got {bits}")
    if max_loss is not None:
        max_loss = checks.positive("max_loss", max_loss)
    if rounding is not None:
        checks.choice("rounding", rounding, ROUNDINGS)
    if max_loss is not None and data is None:
        raise InputError("max_loss: expected data on which to measure losses, got none; give data")
    refuse_compact(model.encoding, "model")
    if data is not None and not isinstance(data, DataSet):
        data = open_data(data)
    judge = judge_of(model, data)
    first = Encoding(0, rounding or judge.roundings[0], checks.whole("seed", seed, 0), best_codec())
    if judge.data is None:
        assert bits is not None
        return Compacted(judge.rounded(replace(first, m=bits)))
    roundings = judge.roundings if rounding is None else (rounding,)
    search = _Search(judge, first, roundings)
    best = search.at(bits) if bits is not None else search.smallest(float(max_loss or 0.0))
    return Compacted(judge.rounded(best, search.objectives.get(best)), search.tries)


class _Search:
    """Measures encodings of a model.

    objectives : dict of Encoding to float, the objectives of those whose certificate can be computed
        again.
    """

    def __init__(self, judge: Judge, first: Encoding, roundings: tuple[str, ...]) -> None:
        self._judge, self._roundings = judge, roundings
        assert judge.data is not None
        loss, objective = judge.measure(judge.model)
        self._has_certificate = judge.explains(objective)
        self._squares, self._largest = judge.squares()
        self._first = replace(
            first, loss_full=loss, rows=judge.data.n_rows, fingerprint=judge.data.fingerprint()
        )
        self._full = loss
        self.tries: list[Encoding] = []
        self.objectives: dict[Encoding, float] = {}

    def at(self, m: int) -> Encoding:
        """The encoding with m bits, and with the rounding of the smallest loss."""
        found = [self._measured(m, rounding) for rounding in self._roundings]
        return min(found, key=lambda encoding: float(encoding.loss or 0.0))

    def _measured(self, m: int, rounding: str) -> Encoding:
        n, K = self._first.rows, self._judge.model.n_outputs
        tried = replace(self._first, m=m, rounding=rounding)
        loss, objective = self._judge.measure(self._judge.rounded(tried))
        is_linear = self._judge.is_linear
        bound = margin_bound(tried.eps, self._largest, n, K) if is_linear else None
        promise = mean_rise(tried.eps, self._squares, self._judge.curvature)
        tried = replace(tried, loss=loss, promise=promise, margin_bound=bound)
        self.tries.append(tried)
        if self._has_certificate and objective is not None:
            self.objectives[tried] = objective
        return tried

    def smallest(self, max_loss: float) -> Encoding:
        """The encoding of the smallest m that keeps the loss; max_loss : its largest relative rise."""
        allowed = max_loss * self._full
        curvature = self._judge.curvature
        # a loss without a bound is tried first as if its second derivative were 1
        m = bits_for(allowed, self._squares, curvature if math.isfinite(curvature) else 1.0)
        good: Encoding | None = None
        bad: Encoding | None = None
        for _ in range(MOST_TRIES):
            tried = self.at(m)
            rise = float(tried.loss or 0.0) - self._full
            if rise <= allowed:
                good = tried
            else:
                bad = tried
            # the rise falls to a quarter with each bit
            fourths = 0.5 * math.log2(rise / allowed) if rise > 0.0 < allowed else -2.0
            m = (
                m - max(1, math.floor(-fourths))
                if tried is good
                else m + max(1, math.ceil(fourths))
            )
            least = LEAST_BITS if bad is None else bad.m + 1
            most = MOST_BITS if good is None else good.m - 1
            if least > most:
                break
            m = min(max(m, least), most)
        if good is None:
            raise InputError(
                f"max_loss: expected a relative rise of the loss of at most {max_loss:g}, and all tries, "
                f"up to {self.tries[-1].m} bits, gave more; raise max_loss or give bits"
            )
        return good
