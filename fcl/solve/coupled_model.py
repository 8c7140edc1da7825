"""The inner model of a step of K outputs, and coordinate descent on it.

A sample of the rows is gathered as for one output (:mod:`fcl.solve.inner`), by the sums of the outputs'
curvatures. For softmax the model has the Hessian that couples the outputs (:mod:`fcl.kernels.coupled`);
with the group norm one move minimises over all weights of a feature. The unpenalised coefficients are
eliminated, which needs K products of each column with each class and covariate; beyond
:data:`MOST_CROSS` of them, and for lists of nonzeros such as words, which depend little on the
constants, columns are centred, and the coefficients are minimised after each sweep.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from fcl.kernels import coupled as kernels
from fcl.kernels import coupled_blocks
from fcl.kernels.coupled import LANES, CoupledModel
from fcl.objective.class_covariates import close_blocks
from fcl.objective.covariates import CHUNK_ROWS, inverse_root
from fcl.solve import inner_descent
from fcl.solve.elimination import FLAT
from fcl.solve.gathered import Gathered
from fcl.solve.inner import DAMPING, FLOOR, LEAST_ROWS, ROWS_A_COLUMN, InnerModel
from fcl.solve.inner_descent import extrapolation, is_enough, is_over
from fcl.solve.state import Columns, LocalPoint, Step
from fcl.types import Floats

#: Maximum columns times outputs times free coefficients whose coupling is stored.
MOST_CROSS = 1 << 22
#: Maximum products of two probabilities in memory at a time, unless those of K pairs of classes are more.
MOST_PRODUCTS = 1 << 22
#: Numbers over rows up to which extrapolation has memory: rows times outputs.
EXTRAPOLATE_NUMBERS = 1 << 20
#: Least curvature of a coordinate or an eigenvalue, relative to the largest of its feature.
LEAST_CURVE = 1e-9
#: Probabilities below this count as 0: products of smaller numbers are subnormal, which takes a hundred
#: times as long.
LEAST_P = 1e-15
#: Arrays of columns times outputs squared that exist at a time: for the L1 norm the cross terms, the
#: matrices that they are made of, and a product of them; for the group norm also blocks and vectors.
SQUARES, GROUP_SQUARES = 3, 5
#: Bytes for each row and output: probabilities in float64, of the view and of the sample, and the largest
#: temporary arrays of the sample.
ROW_BYTES = 8 + 8 + 24
#: Bytes for each row and covariate: the sample's values in float64 and in float32.
FREE_ROW_BYTES = 8 + 4
#: Bytes for each row and output of an extrapolation: iterates, and their combination in float64.
ITERATE_BYTES = 4 * (inner_descent.EXTRAPOLATE_FROM + 1) + (4 + 8) * inner_descent.EXTRAPOLATE_FROM


def model_bytes(n_rows: int, n_columns: int, n_outputs: int, group: bool, q: int) -> int:
    """Bytes that a step allocates over the rows of a view, and for products of the outputs.

    n_columns : number of columns that may be active.  group : whether the penalty is the group norm.
    q : number of covariates.
    """
    numbers = n_rows * n_outputs
    squares = min(MOST_CROSS, n_columns * n_outputs**2 * max(1, q))
    products = min(max(MOST_PRODUCTS, numbers), numbers * n_outputs)
    return (
        ROW_BYTES * numbers
        + ITERATE_BYTES * min(numbers, EXTRAPOLATE_NUMBERS)
        + 2 * 4 * products
        + (GROUP_SQUARES if group else SQUARES) * 8 * squares
        + q * (FREE_ROW_BYTES * n_rows + 8 * n_outputs * CHUNK_ROWS + 24 * q * n_outputs**2)
    )


@dataclass(frozen=True)
class RowHessians:
    """The Hessians of the losses of the rows of a view, as the model takes them.

    The Hessian of row i is s_i (diag(p_i) - p_i p_i') if ``coupled``, else diag(p_i) and s_i is 1.
    """

    p: npt.NDArray[Any]  #: (K, rows); in float64, as s and z, but see :meth:`single`
    s: npt.NDArray[Any]  #: (rows,)
    coupled: bool
    z: npt.NDArray[Any] | None = None  #: (rows, q), covariates; None if there are no covariates

    def take(self, rows: Columns, ratio: Floats) -> RowHessians:
        """The Hessian of a sample of the rows, each multiplied by its ratio; p and s in float32."""
        p = np.take(self.p, rows, axis=1)  # indexing would transpose the memory
        if not self.coupled:
            p = p * ratio
        s = self.s[rows] * (ratio if self.coupled else 1.0)
        return RowHessians(p, s, self.coupled, None if self.z is None else self.z[rows])

    def raised(self, share: float) -> RowHessians:
        """The Hessian with probabilities mixed with equal ones, which have a share of the weight.

        Where all probabilities are 0 or 1, the loss is flat although a step may cross to another class;
        a multiple of its curvature would not shorten such a step.
        """
        if not self.coupled or share == 0.0:
            return self
        equal = share / (1.0 + share)
        return replace(self, p=(1.0 - equal) * self.p + equal / len(self.p))

    def factors(self) -> Floats:
        """c_il, float64 (rows, K, K), whose products c_il c_il' add up to the Hessian of row i."""
        n_outputs, n = self.p.shape
        outputs = np.arange(n_outputs)
        if not self.coupled:
            out = np.zeros((n, n_outputs, n_outputs))
            out[:, outputs, outputs] = np.sqrt(self.p.T)
            return out
        out = np.repeat(-self.p.T[:, None, :], n_outputs, axis=1)
        out[:, outputs, outputs] = 0.0
        out[:, outputs, outputs] = -out.sum(axis=2)  # 1 - p, without loss of digits
        out *= np.sqrt(self.s * self.p).T[:, :, None]
        return out

    @property
    def total(self) -> Floats:
        """Sums of the outputs' curvatures, float64 (rows,)."""
        total = np.zeros(len(self.s))
        for p in self.p:  # one output at a time: all of them would take three arrays (K, rows)
            own = p * self.s
            total += own * (1.0 - p) if self.coupled else own
        return total

    def gram(self) -> Floats:
        """Curvature of the free coefficients, float64 (K q, K q); (K, K) without covariates."""
        z = self.z
        if z is None:
            own = self.p @ self.s
            return np.diag(own) - ((self.p * self.s) @ self.p.T if self.coupled else 0.0)
        K, q = len(self.p), z.shape[1]
        out = np.zeros((K, q, K, q))
        if not self.coupled:
            for k, p in enumerate(self.p):
                out[k, :, k] = (z * (p * self.s)[:, None]).T @ z
            return out.reshape(K * q, K * q)
        for first in range(0, len(z), CHUNK_ROWS):
            rows = slice(first, first + CHUNK_ROWS)
            part = (np.sqrt(self.s[rows]) * self.p[:, rows]).T[:, :, None] * z[rows, None, :]
            part = part.reshape(-1, K * q)
            out -= (part.T @ part).reshape(out.shape)
        return close_blocks(out)

    # -- sums over gathered columns, in float32 ----------------------------------------------------

    def single(self) -> RowHessians:
        """The same in float32."""
        z = None if self.z is None else self.z.astype(np.float32)
        p, s = self.p.astype(np.float32), self.s.astype(np.float32)
        return replace(self, p=p, s=s, z=z)

    def cross(self, gathered: Gathered, root: Floats) -> Floats:
        """sum_i phi_ij H_i z_i' times the root of the elimination, float64 (k, K, r)."""
        if self.z is None:
            return self.matrices(gathered, self.s, squared=False) @ root
        by_column = root.reshape(len(self.p), -1, root.shape[1])
        parts = (
            self.matrices(gathered, self.s * column, squared=False) @ by_column[:, c]
            for c, column in enumerate(self.z.T)
        )
        return sum(parts, np.zeros(()))

    def matrices(self, gathered: Gathered, s: Any, squared: bool) -> Floats:
        """sum_i phi_ij H_i, or phi_ij^2 H_i, of rows with other weights s, float64 (k, K, K)."""
        n_outputs, k = len(self.p), len(gathered.columns.cuts)
        out = np.zeros((k, n_outputs, n_outputs))
        outputs = np.arange(n_outputs)
        if not self.coupled:
            out[:, outputs, outputs] = _sums(gathered, self.p * s, squared)
            return out
        first, second = np.tril_indices(n_outputs)
        at_once = max(n_outputs, MOST_PRODUCTS // max(1, len(self.s)))  # products of two classes
        for a in range(0, len(first), at_once):
            one, other = first[a : a + at_once], second[a : a + at_once]
            products = self.p[one]
            products *= s
            products *= self.p[other]
            found = -_sums(gathered, products, squared)
            out[:, one, other], out[:, other, one] = found, found
        out[:, outputs, outputs] -= out.sum(axis=2)  # probabilities add up to 1
        return out

    def diagonals(self, gathered: Gathered) -> Floats:
        """sum_i phi_ij^2 H_i,kk, float64 (k, K)."""
        own = self.p * self.s
        return _sums(gathered, own * (1.0 - self.p) if self.coupled else own, True)


def _sums(gathered: Gathered, rows: Any, squared: bool) -> Floats:
    return gathered.products(np.ascontiguousarray(rows.T), squared)


class _Descent:
    """Coordinate descent on one model: its state, and the sets of coordinates that it sweeps over."""

    def __init__(
        self,
        model: CoupledModel,
        group: bool,
        b: Floats,
        root: Floats,
        slopes: Floats,
        most: int,
        z: npt.NDArray[Any] | None,
    ) -> None:
        self.model, self.group, self._most, self._z = model, group, most, z
        self.w = model.before.copy()
        self.u = np.zeros(model.p.shape, np.float32)
        self.v = np.zeros(len(model.s), np.float32)
        self.b = b
        self.x = np.zeros(len(slopes))  # free coefficients, if they are not eliminated
        self._root, self._slopes = root, slopes
        self._met = np.zeros(len(self.w) if group else self.w.shape)
        self._lanes = np.empty(LANES, np.float32)
        self._iterates: list[tuple[npt.NDArray[np.floating], ...]] = []
        self.sweeps = 0

    def run(self, order: Columns, tolerance: float, inner: InnerModel) -> None:
        """Sweep until no coordinate violates by more than the tolerance, or the step has to end."""
        first = 0.0
        start = before = self.value() if inner.plain else 0.0
        while True:
            worst = self._sweep(order)
            first = first or worst
            if worst <= tolerance or is_over(inner, self.sweeps, self._most, first, worst):
                return
            while True:
                active = order[self._weighted()[order]]
                worst = self._sweep(active)
                if worst <= tolerance:
                    break
                if is_over(inner, self.sweeps, self._most, first, worst):
                    return
                if inner.plain:  # as with one output, but at any size
                    last, before = before, self.value()
                    if is_enough(first, worst, last - before, start - before):
                        return
                self._extrapolate(len(active))

    def _weighted(self) -> npt.NDArray[np.bool_]:
        return (self.w != 0.0).any(axis=1) if self.group else (self.w != 0.0).ravel()

    def _sweep(self, order: Columns) -> float:
        self.sweeps += 1
        sweep: Any = coupled_blocks.block_sweep if self.group else kernels.weight_sweep
        state = self.w, self.u, self.v, self.b, self._met, self._lanes
        worst: float = sweep(self.model, order, *state)
        if not self.b.size and self._root.size:
            self._fit_unpenalised()
        return worst

    def _fit_unpenalised(self) -> None:
        """Minimise over the free coefficients, with the weights fixed."""
        model, z = self.model, self._z
        bent = (self.u - self.v) * model.p
        sums = bent @ model.s if z is None else ((bent * model.s) @ z).ravel()
        slopes = self._slopes + model.unit * sums
        x = -self._root @ (self._root.T @ slopes)
        self.x += x
        single = x.astype(np.float32)
        if z is None:
            self.u += single[:, None]
            if model.coupled:
                self.v += single @ model.p
            return
        moved = single.reshape(len(model.p), -1) @ z.T
        self.u += moved
        if model.coupled:
            self.v += (moved * model.p).sum(axis=0)

    def value(self) -> float:
        model = self.model
        d = self.w - model.before
        smooth = float((model.lin * d + 0.5 * model.extra * d * d).sum())
        rows: float = kernels.row_value(model, self.u, self.v)
        smooth += rows - 0.5 * float(self.b @ self.b)
        sizes = np.linalg.norm(self.w, axis=1) if self.group else np.abs(self.w).sum(axis=1)
        return smooth + float(model.absolute @ sizes) + float(self._slopes @ self.x)

    def _extrapolate(self, active: int) -> None:
        """Anderson extrapolation, as for one output (:mod:`fcl.solve.inner_descent`)."""
        state: list[npt.NDArray[Any]] = [self.w, self.u, self.v, self.b, self.x]
        if self.u.size > EXTRAPOLATE_NUMBERS:
            return
        self._iterates.append(tuple(part.copy() for part in state))
        if len(self._iterates) <= inner_descent.EXTRAPOLATE_FROM:
            return
        c = extrapolation([iterate[0].ravel() for iterate in self._iterates])
        last, self._iterates = self._iterates[1:], []
        if c is None:
            return
        before = self.value()
        for number, part in enumerate(state):
            parts = [iterate[number] for iterate in last]
            part[:] = np.tensordot(c, parts, axes=1)
        if not self.value() < before:
            for part, kept in zip(state, last[-1], strict=True):
                part[:] = kept


def minimise_model(
    inner: InnerModel,
    at: LocalPoint,
    hessians: RowHessians,
    raised: float,
    tolerance: float,
    near: float,
    most: int,
) -> Step:
    """The step that minimises the model at a point.

    at : weights, gradients, curvatures and floor float64 (k, K); slopes float64 (n_free,). Curvatures are
        used only if rows are sampled.
    hessians : over the rows of the view.
    raised : share of the curvatures that is added to them.
    tolerance : violation up to which the model counts as minimised.
    near : size of a slope up to which a weight of 0 stays 0.
    most : maximum number of sweeps.

    Returns d, float64 (k, K), and x, float64 (n_free,).
    """
    view, (k, n_outputs) = at.view, at.weights.shape
    cross_sums, h = np.empty(k), np.empty(k)
    total = hessians.total
    wanted = max(LEAST_ROWS, ROWS_A_COLUMN * k)
    rows = inner.gather(at.working, at.columns, total, cross_sums, h, wanted)
    whole = h.copy()
    constant = view.objective.parts[0].has_constant
    # the free coefficients of constants, one for each output
    own = slice(None, None, max(1, len(at.slopes) // n_outputs))
    centres = inner.centre(cross_sums, h) if constant else np.zeros(k)
    gathered, chosen = inner.gathered(k), inner.chosen(len(total))
    part = hessians.take(chosen, gathered.q / total[chosen])
    single = part.single()
    root: Floats = np.empty((0, 0))
    if len(at.slopes):
        root = inverse_root(part.gram() + np.diag(view.free_floor), FLAT)
    if constant:
        at = replace(at, gradients=at.gradients - np.outer(centres, at.slopes[own]))
    share = np.divide(h, whole, out=np.ones(k), where=whole > 0.0)
    missed = FLOOR * share[:, None] * at.curvatures if rows < len(total) else np.zeros((1, 1))
    group = view.objective.penalty.grouped
    eliminated = root[:, :0] if inner.plain else root
    model = _model(at, single, gathered, eliminated, missed, raised, group)
    eliminates = model.cross.shape[2] > 0
    b = -(at.slopes @ root) if eliminates else np.empty(0)
    descent = _Descent(model, group, b, root, at.slopes, most, single.z)
    order = inner.order(k)
    if not group:
        order = (order[:, None] * n_outputs + np.arange(n_outputs)).ravel()
        moving = (at.weights != 0.0) | (np.abs(at.gradients) > near * at.absolute[:, None])
        order = order[moving.ravel()[order]]
    descent.run(order, tolerance, inner)
    d = descent.w - at.weights
    x = descent.x + (root @ descent.b if eliminates else 0.0)
    if constant:
        x[own] = x[own] - centres @ d
    return Step(d, x, descent.sweeps)


def _model(
    at: LocalPoint,
    rows: RowHessians,
    gathered: Gathered,
    root: Floats,
    missed: Floats,
    raised: float,
    group: bool,
) -> CoupledModel:
    """The model over the gathered columns, whose gradients are those of the centred columns.

    rows : of the sample, in float32.
    root : float64 (n_free, r), see :mod:`fcl.solve.elimination`.
    missed : least curvatures, of columns that the sample may miss.
    """
    k, n_outputs = at.weights.shape
    eliminated = root.shape[1] if k * n_outputs * max(n_outputs, len(root)) <= MOST_CROSS else 0
    cross: Floats = np.zeros((k, n_outputs, eliminated))
    if cross.size:
        cross = rows.cross(gathered, root)
    blocks = None
    if group and k * n_outputs**2 <= MOST_CROSS:
        blocks = rows.matrices(gathered, rows.s, squared=True)
    outputs = np.arange(n_outputs)
    own = rows.diagonals(gathered) if blocks is None else blocks[:, outputs, outputs]
    along = np.einsum("jkr,jkr->jk", cross, cross)
    extra = DAMPING * (np.maximum(own - along, 0.0) + at.floor) + raised * own
    extra += at.floor + at.ridge[:, None] + np.maximum(missed - own, 0.0)
    curve, vectors = own + extra - along, np.empty((0, 0, 0))
    curve = np.maximum(np.maximum(curve, LEAST_CURVE * (own + extra)), 1e-300)
    if blocks is not None:
        blocks[:, outputs, outputs] += extra
        curve, vectors = np.linalg.eigh(blocks - cross @ cross.transpose(0, 2, 1))
        curve = np.maximum(curve, np.maximum(LEAST_CURVE * curve[:, -1:], 1e-300))
    elif group:  # diag(p) - p p' is at most 2 diag(p (1 - p))
        top = ((2.0 if rows.coupled else 1.0) * own + extra).max(axis=1)
        curve = np.repeat(top[:, None], n_outputs, axis=1)
    unit = float(rows.s.max(initial=0.0)) or 1.0
    p = rows.p
    p[p < LEAST_P] = 0.0
    return CoupledModel(
        gathered.columns,
        p,
        rows.s / np.float32(unit),
        unit,
        rows.coupled,
        at.absolute,
        at.gradients,
        extra,
        np.ascontiguousarray(curve),
        vectors,
        cross,
        at.weights,
    )
