"""Compact models: weights rounded to multiples of 2^-m, stored at the entropy of their values.

*Random* rounding of a weight w gives one of the two grid points around w, so that its mean is w;
*nearest* rounding gives the nearer one. Source: Golovin, Sculley, McMahan and Young, "Large-scale
learning with less RAM via randomization", ICML 2013. With eps = 2^-m, and a row x:

- the variance of a randomly rounded weight is at most eps^2 / 4, and its mean is w. A loss whose second
  derivative is at most nu then rises by at most nu eps^2 |x|^2 / 8 in the mean over roundings, and does
  not fall (Jensen). K outputs with separate losses add up; for the softmax loss, whose Hessian is at most
  (I - 11'/K) / 2, the sum is at most (K - 1) eps^2 |x|^2 / 16;
- by Hoeffding's inequality for intervals of width eps |x_i|, Pr(|change of the margin| >= t) is at most
  2 exp(-2 t^2 / (eps^2 |x|^2)).
"""

from __future__ import annotations

import math
import struct
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from fcl import kernels
from fcl.errors import InputError
from fcl.files import schema
from fcl.files.packing import CODECS, pack, unpack
from fcl.memory.allowance import allow
from fcl.plain import plain
from fcl.types import Floats, Ids

ROUNDINGS = ("nearest", "random")
#: Smallest and largest number of bits behind the point.
LEAST_BITS, MOST_BITS = -32, 52
#: Largest |step| that is stored: float64 holds it exactly.
_MOST_STEPS = 1 << 52
_MOST_IDS = 2.0**62
#: Arrays that are held at once while numbers are unpacked: the numbers, and a copy of them.
_COPIES = 2
#: Members of a compact model file.
PACKED = ("ids.gaps", "weights.q", "support.q")


@dataclass(frozen=True)
class Encoding:
    """How the weights of a compact model were rounded and stored, and what that cost.

    Losses are means over rows, weighted by the rows' sample weights; None if they were not measured.
    """

    m: int  #: weights are multiples of 2^-m
    rounding: str  #: ``nearest`` or ``random``
    seed: int = 0  #: of the random rounding
    codec: str = "zstd"  #: or ``zlib``
    loss: float | None = None  #: mean loss of this model
    loss_full: float | None = None  #: mean loss of the model before rounding
    #: the mean over random roundings of ``loss - loss_full`` is at most this; None if the loss has no
    #: bound of its second derivative
    promise: float | None = None
    #: with probability 1 - 1/rows over random roundings, no margin of a row moved by more than this
    margin_bound: float | None = None
    rows: int = 0  #: number of measured rows
    fingerprint: str = ""  #: of the data with these rows

    @property
    def eps(self) -> float:
        """The step of the grid, 2^-m."""
        return math.ldexp(1.0, -self.m)

    @property
    def text(self) -> str:
        """How the weights are stored, in words."""
        how = "to the nearest" if self.rounding == "nearest" else f"at random (seed {self.seed})"
        return f"compact, weights rounded {how} to multiples of 2^{-self.m}"

    def to_dict(self) -> dict[str, Any]:
        """The fields as JSON values."""
        return {name: plain(value) for name, value in asdict(self).items()}


#: What a header says of the encoding.
ENCODING_TABLE = schema.record(
    m=schema.whole(LEAST_BITS, MOST_BITS),
    rounding=schema.one_of(*ROUNDINGS),
    codec=schema.one_of(*CODECS),
    **dict.fromkeys(("seed", "rows"), schema.whole()),
    **dict.fromkeys(("loss", "loss_full", "promise", "margin_bound"), schema.unknown),
    fingerprint=schema.text,
)


# -- rounding ------------------------------------------------------------------------------------


def round_weights(weights: Floats, ids: Ids, m: int, rounding: str, seed: int) -> Floats:
    """Round weights (k,) or (k, K) to multiples of 2^-m; a weight does not depend on other features."""
    _check_range(weights, m)
    columns = np.array(weights.T, np.float64, order="C", ndmin=2)
    steps = np.empty(columns.shape, np.int64)
    own = np.array(ids, np.int64)
    for k, column in enumerate(columns):
        kernels.tables.round_steps(
            column, math.ldexp(1.0, m), seed, k, own, rounding == "nearest", steps[k]
        )
    out = np.ldexp(steps.astype(np.float64), -m)
    return np.ascontiguousarray(out.T).reshape(weights.shape)


def _check_range(weights: Floats, m: int) -> None:
    most = float(np.abs(weights).max(initial=0.0))
    if math.ldexp(most, m) >= _MOST_STEPS:
        raise InputError(
            f"bits: expected fewer than {m}, since the largest weight, {most:g}, has 2^52 or more steps "
            f"of 2^{-m}"
        )


def refuse_compact(encoding: Encoding | None, name: str) -> None:
    """Raise InputError for a compact model where full weights are needed; name : of the argument."""
    if encoding is not None:
        raise InputError(
            f"{name}: expected a model with its full weights, got a compact one, whose weights are "
            f"rounded to multiples of 2^{-encoding.m}; give the model that it was made from"
        )


# -- bounds --------------------------------------------------------------------------------------


def mean_rise(eps: float, squares: float, curvature: float) -> float | None:
    """The most by which the loss of rows rises in the mean over random roundings.

    eps : step of the grid.
    squares : mean of |x|^2 over the rows.
    curvature : the largest trace of the Hessian of the loss of a row in its margins: nu for one output,
        K nu for K separate ones, (K - 1) / 2 for the softmax loss.  None is returned if it is infinite.
    """
    return eps * eps * squares * curvature / 8.0 if math.isfinite(curvature) else None


def margin_bound(eps: float, largest_square: float, n: int, n_outputs: int = 1) -> float:
    """No margin of n rows moves by more than this, with probability 1 - 1/n over random roundings.

    largest_square : largest |x|^2 of the rows.
    """
    return eps * math.sqrt(0.5 * largest_square * math.log(2.0 * n * n * n_outputs))


def bits_for(rise: float, squares: float, curvature: float) -> int:
    """The smallest m of which :func:`mean_rise` is at most ``rise``; MOST_BITS if there is no bound."""
    most = mean_rise(1.0, squares, curvature)
    if most is None or rise <= 0.0:
        return MOST_BITS
    if most == 0.0:
        return LEAST_BITS
    return min(max(math.ceil(0.5 * math.log2(most / rise)), LEAST_BITS), MOST_BITS)


# -- members of the file -------------------------------------------------------------------------


def packed_weights(weights: Floats, m: int, codec: str) -> bytes:
    """The content of the member with weights that are multiples of 2^-m, row by row."""
    return pack(np.ldexp(weights.ravel(), m).astype(np.int64), codec)


def unpacked_weights(content: bytes, n: int, encoding: Encoding, member: str) -> Floats:
    """The n weights of a member, float64 (n,); raises ValueError for damaged content."""
    allow(f"{member}: {n:,} weights need", _COPIES * 8 * n, len(content))
    steps = _unpacked(content, n, encoding, member)
    if n and not -_MOST_STEPS < int(steps.min()) <= int(steps.max()) < _MOST_STEPS:
        raise ValueError(f"{member} is damaged (a weight of 2^52 steps or more)")
    return np.ldexp(steps.astype(np.float64), -encoding.m)


def _unpacked(content: bytes, n: int, encoding: Encoding, member: str) -> Ids:
    try:
        return unpack(content, n, encoding.codec)
    except (ValueError, struct.error) as error:
        raise ValueError(f"{member} is damaged ({error})") from error


def pack_arrays(arrays: Mapping[str, np.ndarray], encoding: Encoding) -> dict[str, bytes]:
    """The members of a compact model, by name; ids are stored as gaps less 1."""
    codec = encoding.codec
    members = {
        "ids.gaps": pack(np.diff(arrays["ids"], prepend=-1) - 1, codec),
        "weights.q": packed_weights(arrays["weights"], encoding.m, codec),
        "support.q": pack(np.ascontiguousarray(arrays["support"]), codec),
    }
    _allow(len(arrays["ids"]), arrays["weights"].size, members)
    return members


def _allow(k: int, n_weights: int, members: Mapping[str, bytes]) -> None:
    """Raise InputError unless the members explain the memory of k features."""
    stored = sum(map(len, members.values()))
    allow(
        f"{k:,} features with {n_weights:,} weights need", 8 * _COPIES * (2 * k + n_weights), stored
    )


def read_packed(
    contents: Mapping[str, bytes], k: int, width: int, encoding: Encoding
) -> dict[str, np.ndarray]:
    """The arrays of a compact model of k features and a number of outputs; weights are (k * width,).

    Raises ValueError for damaged members.
    """
    _allow(k, k * width, contents)
    gaps, support = (
        _unpacked(contents[name], k, encoding, name) for name in ("ids.gaps", "support.q")
    )
    if k and (int(gaps.min()) < 0 or float(gaps.sum(dtype=np.float64)) >= _MOST_IDS):
        raise ValueError("ids.gaps is damaged (ids that do not increase, or reach 2^62)")
    weights = unpacked_weights(contents["weights.q"], k * width, encoding, "weights.q")
    return {"ids": np.cumsum(gaps + 1) - 1, "weights": weights, "support": support}
