"""Random Fourier features of dense numbers (Rahimi and Recht, "Random features for large-scale kernel
machines", NIPS 2007).

Feature j is cos(<omega_j, z> + b_j), where z are the standardised inputs, or their principal
components: the mean over features of 2 phi(x) phi(x') converges to a kernel of z and z'. omega_j and b_j
are determined by (seed, j), through a counter-based random number generator
(:mod:`fcl.kernels.fourier`), so no feature needs to be stored.

**The feature is the floating-point function** that is computed here: columns, prices, margins and
predictions all compute the angles and cosines by the same kernels, which give the same bits wherever a
row or feature stands, and on every machine. The Gaussian kernel uses float32: values differ from exact
arithmetic with the same omega by about 1e-6 (for angles of a few turns; tests measure it). The Laplace
kernel uses float64, because its frequencies have heavy tails.

With ``dtype="int8"`` **the feature is the rounded function**, round(127 cos(...)) times STEP, which is
1/127 up to a relative error of 5e-7. This is not an approximation in the cache but a different feature:
columns, prices, margins, certificate and predictions all use the same rounded values. Multiples of STEP
are exact in float32. Rounding moves a cosine by at most 1/254, and the cache holds four times as many
columns.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

import numpy as np

from fcl import kernels
from fcl.checks import choice, flag, positive, shown, whole
from fcl.errors import InputError
from fcl.features.generator.contract import Generator
from fcl.features.generator.scales import are_numbers
from fcl.features.principal import principal_axes
from fcl.types import Floats, Ids

#: Rows and features of a tile of angles. Larger tiles are slightly faster, but need larger caches.
TILE_ROWS, TILE_FEATURES = 256, 256
#: ... of which the last one may have fewer features, a multiple of this number.
TILE_MULTIPLE = 16
#: Values between two columns, so that their distance is not a power of two.
SPARE = 16
#: Frequencies of the features priced last are kept if they fit in this many bytes; the next block needs
#: them too.
KEPT_BYTES = 16 << 20
#: Default number of features that a pass draws from an unlimited family.
PER_PASS = 65536
#: Largest number of features, and number of ids of an unlimited family.
MOST_FEATURES = 1 << 40
#: Largest number of rows whose distances determine the bandwidth.
MEDIAN_ROWS = 1000
#: Largest number of rows of the sample for principal components.
PCA_ROWS = 20_000
#: Number of coefficients in the description of a feature.
SHOWN = 3

#: The step of ``dtype="int8"``: 1/127 rounded to 17 bits, so that 127 steps fit the 24 bits of float32.
STEP = 66052.0 / (1 << 23)

#: Index of the first feature of a tile; frequencies (m, features) and phases (features,), in turns.
_Wave = tuple[int, np.ndarray, np.ndarray]


class Fourier(Generator):
    """Random Fourier features: cosines along random directions.

    Parameters
    ----------
    n : int or None
        Number of features. None: the family is unlimited; each pass draws ``per_pass`` new features, and
        its certificate covers only the features that it has priced.
    kernel : {"gaussian", "laplace"}
        exp(-gamma ||z - z'||_2^2): omega ~ N(0, 2 gamma); exp(-gamma ||z - z'||_1): omega ~ gamma Cauchy.
    gamma : float or None
        Bandwidth parameter. None: computed from all pairs of up to 1,000 rows of the sample:
        gaussian 1 / (2 median ||z - z'||_2^2), laplace 1 / median ||z - z'||_1.
    standardise : bool or None
        Whether z = (x - mean) / standard deviation, both taken from the sample; a column that is constant
        there is only centred. False: z = x, or x - mean with ``pca``. None: True without ``pca``, and
        False with it, because components of standardised columns can be those of noise: for the pixels of
        MNIST, ``fcl stagewise --features fourier:n=4096,pca=50`` has a test error of 2.16 %, and with
        ``standardise=true`` 3.67 %.
    seed : int
        Seed of omega and b, from 0 to 2^62.
    per_pass : int or None
        Number of features that a pass draws if ``n`` is None; the default is 65,536.
    dtype : {"int8", None}
        "int8": the feature is round(127 cos(...)) / 127, and the cache holds four times as many columns.
        None: the unrounded cosine, cached in float32.
    pca : int or None
        Number of principal components, learned from up to 20,000 rows, that take the place of the
        centred (or with ``standardise=True`` standardised) inputs. None: the inputs as they are.

    Examples
    --------
    >>> X = np.random.default_rng(0).normal(size=(200, 5))
    >>> data = fcl.open_data(X, y=np.cos(2.0 * X[:, 0]))
    >>> result = fcl.train(data, fcl.Fourier(n=500, gamma=0.5), alpha=0.01, loss="squared")
    >>> result.converged, result.certificate.n_priced
    (True, 500)
    """

    rows = "numbers"
    name = "fourier"

    def __init__(
        self,
        n: int | None = None,
        kernel: str = "gaussian",
        gamma: float | None = None,
        standardise: bool | None = None,
        seed: int = 0,
        per_pass: int | None = None,
        dtype: str | None = None,
        pca: int | None = None,
    ) -> None:
        where = "features fourier: "
        self.n = None if n is None else whole(where + "n", n, 1)
        self.kernel = choice(where + "kernel", kernel, ("gaussian", "laplace"))
        self.gamma = None if gamma is None else positive(where + "gamma", gamma)
        # a stored family has the value, whatever the default is when it is read
        self.standardise = flag(
            where + "standardise", pca is None if standardise is None else standardise
        )
        self.seed = whole(where + "seed", seed, 0)
        for option, value, most in (("n", self.n, MOST_FEATURES), ("seed", self.seed, 1 << 62)):
            if value is not None and value > most:
                raise InputError(f"{where}{option} must be at most {most}, got {shown(value)}")
        if self.n is None:
            per_pass = PER_PASS if per_pass is None else per_pass
            self.per_pass = whole(where + "per_pass", per_pass, 1)
            if self.per_pass > MOST_FEATURES:
                raise InputError(
                    f"{where}per_pass must be at most {MOST_FEATURES}, got {shown(per_pass)}"
                )
        elif per_pass is not None:
            raise InputError(
                f"{where}per_pass applies only if n is not given: omit n or per_pass, got "
                f"n = {shown(n)} and per_pass = {shown(per_pass)}"
            )
        self.dtype = None if dtype is None else choice(where + "dtype", dtype, ("int8",))
        self.step = 0.0 if self.dtype is None else STEP
        self.pca = None if pca is None else whole(where + "pca", pca, 1)
        if self.pca is not None:
            self.fit_rows = PCA_ROWS
        self._last: tuple[tuple[int, int], list[_Wave]] | None = None

    # -- what is learnt from the sample --------------------------------------------------------

    def fit(self, sample: Any) -> None:
        sample = np.asarray(sample, np.float64)
        m = sample.shape[1]
        self.mean_, self.scale_ = np.zeros(m), np.ones(m)
        if self.standardise or self.pca is not None:
            with np.errstate(over="ignore", invalid="ignore"):  # rejected below
                self.mean_ = sample.mean(axis=0)
                spread = sample.std(axis=0)
            wrong = np.flatnonzero(~np.isfinite(self.mean_ + spread))
            if len(wrong):
                raise InputError(
                    f"features fourier: the squares of column {wrong[0]} overflow float64; divide its "
                    "values by a constant"
                )
        if self.standardise:
            # rounding can leave a constant column with a small deviation
            some = spread > 1e-12 * np.abs(sample).max(axis=0, initial=0.0)
            self.scale_[some] = spread[some]
        if self.pca is not None:
            self.components_ = principal_axes(
                sample, self.mean_, self.scale_, self.pca, "features fourier: pca"
            )
        self.gamma_ = self._median(sample) if self.gamma is None else self.gamma
        self.n_features = self._count()

    def _count(self) -> int:
        if self.n is not None:
            return self.n
        assert self.per_pass is not None
        return MOST_FEATURES - MOST_FEATURES % self.per_pass

    def check_restored(self, width: int) -> None:
        where = "features fourier: "
        positive(where + "gamma_", self.gamma_)
        for name in ("mean_", "scale_"):
            if not are_numbers(getattr(self, name), (width,)):
                raise InputError(f"{where}{name}: expected {width} finite numbers, one per column")
        if self.pca is not None and not are_numbers(self.components_, (self.pca, width)):
            raise InputError(f"{where}components_: expected {self.pca} x {width} finite numbers")
        if not (self.scale_ > 0.0).all() or self.n_features != self._count():
            raise InputError(f"{where}expected scale_ above 0 and n_features = {self._count()}")

    def _median(self, sample: Floats) -> float:
        """The bandwidth parameter gamma, from the median distance between rows of the sample."""
        from scipy.spatial.distance import pdist

        some = np.linspace(0, len(sample) - 1, min(len(sample), MEDIAN_ROWS)).astype(np.int64)
        z = (sample[some] - self.mean_) / self.scale_
        z = z if self.pca is None else z @ self.components_.T
        gaussian = self.kernel == "gaussian"
        distances = pdist(z, "sqeuclidean" if gaussian else "cityblock")
        median = float(np.median(distances)) if len(distances) else 0.0
        gamma = 1.0 / ((2.0 if gaussian else 1.0) * median) if median > 0.0 else math.inf
        if not 0.0 < gamma < math.inf:
            raise InputError(
                f"features fourier: the median distance between {len(z)} rows of the sample is "
                f"{median:g}, which gives no bandwidth (are most rows equal?); set gamma to a number "
                "above 0"
            )
        return gamma

    # -- rows ----------------------------------------------------------------------------------

    @property
    def _angle_dtype(self) -> type[np.float32] | type[np.float64]:
        return np.float32 if self.kernel == "gaussian" else np.float64

    @property
    def _n_inputs(self) -> int:
        """Number of values z of a row."""
        return len(self.mean_) if self.pca is None else self.pca

    def prepare(self, block: Any) -> np.ndarray:
        """The values z of the rows, column-major: float32 for the Gaussian kernel, else float64."""
        out = np.empty((len(block), self._n_inputs), self._angle_dtype, order="F")
        with np.errstate(over="ignore"):  # the error for an infinite value names its feature
            for at in range(0, len(block), 4096):
                some = slice(at, at + 4096)
                z = (block[some] - self.mean_) / self.scale_
                out[some] = z if self.pca is None else self._projected(z)
        return out

    def _projected(self, z: Floats) -> np.ndarray:
        """The principal components (n, pca) of rows, by the kernel whose bits depend on no other row."""
        axes = np.ascontiguousarray(self.components_.T, self._angle_dtype)
        parts = [part[: rows.stop - rows.start].copy() for rows, part in _tiles(z, axes)]
        return np.concatenate(parts)

    # -- features ------------------------------------------------------------------------------

    def columns(self, ids: Ids, block: Any) -> np.ndarray:
        ids = np.asarray(ids, np.int64)
        out = np.empty((len(ids), len(block) + SPARE), self._angle_dtype)
        for at, wave, phases in self._waves(ids):
            z = np.empty((len(wave), TILE_ROWS), wave.dtype)
            turns = np.empty((len(phases), TILE_ROWS), wave.dtype)
            for row in range(0, len(block), TILE_ROWS):
                n = min(TILE_ROWS, len(block) - row)
                z[:, :n] = block[row : row + n].T
                # a feature's angles are one row of ``turns``: each is the same sum as in _tiles
                kernels.fourier.angles(wave.T, z, turns)
                kernels.fourier.cosine_columns(turns, phases, *self._value, out, at, row, n)
        return out[:, : len(block)].T

    def gradients(self, first: int, last: int, block: Any, residuals: Floats) -> Floats:
        residuals = np.ascontiguousarray(residuals, np.float64)
        out = np.zeros(last - first)
        for at, wave, phases in self._range(first, last):
            sums = out[at : at + TILE_FEATURES]
            for rows, turns in _tiles(block, wave):
                kernels.fourier.cosine_sums(turns, phases, *self._value, residuals[rows], sums)
        return out

    def gradients_of_several(self, first: int, last: int, block: Any, residuals: Floats) -> Floats:
        out = np.empty((len(residuals), last - first))
        for at, wave, phases in self._range(first, last):
            sums = np.zeros((len(residuals), len(phases)))
            for rows, turns in _tiles(block, wave):
                ends = rows.start, rows.stop
                kernels.fourier.cosine_sums_of_several(
                    turns, phases, *self._value, residuals, ends, sums
                )
            part = out[:, at : at + TILE_FEATURES]
            part[:] = sums[:, : part.shape[1]]
        return out

    def margins(self, ids: Ids, weights: Floats, block: Any) -> Floats:
        out = np.zeros(len(block))
        for at, wave, phases in self._waves(np.asarray(ids, np.int64)):
            some = np.zeros(len(phases))
            part = weights[at : at + TILE_FEATURES]
            some[: len(part)] = part
            for rows, turns in _tiles(block, wave):
                kernels.fourier.cosine_margins(turns, phases, *self._value, some, out[rows])
        return out

    def nonzeros(self, block: Any) -> tuple[Ids, Ids, np.ndarray]:
        """All features of every row."""
        n, every = len(block), np.arange(self.n_features)
        return (
            np.arange(n + 1) * self.n_features,
            np.tile(every, n),
            np.ascontiguousarray(self.columns(every, block)).ravel(),
        )

    def largest(self, block: Any) -> float:
        # the polynomial for the cosine exceeds [-1, 1] by 1.2e-7; rounding to steps removes the excess
        return 127.0 * STEP if self.step else 1.0 + 1e-6

    def frequencies(self, ids: Ids) -> tuple[Floats, Floats]:
        """omega (m, k) and b (k,) of some features: float64, b in radians."""
        turns = [(wave.astype(np.float64), phases) for _, wave, phases in self._waves(ids)]
        omega = np.concatenate([wave for wave, _ in turns], axis=1)[:, : len(ids)]
        b = np.concatenate([phases for _, phases in turns])[: len(ids)]
        return 2.0 * math.pi * omega, 2.0 * math.pi * b.astype(np.float64)

    def describe(self, feature: int) -> str:
        """The cosine with its largest coefficients; z3 is the standardised x3, p3 a component."""
        omega, b = self.frequencies(np.array([feature], np.int64))
        coefficients = omega[:, 0]
        letter = "p" if self.pca is not None else "z" if self.standardise else "x"
        shown = np.sort(np.argsort(-np.abs(coefficients), kind="stable")[:SHOWN])
        text = ""
        for k in shown:
            value = coefficients[k]
            sign = " - " if value < 0.0 else " + "
            text += (sign if text else sign.strip(" +")) + f"{abs(value):.3g} {letter}{k}"
        rest = " + ..." if len(coefficients) > SHOWN else ""
        cosine = f"cos({text}{rest} + {b[0]:.3g})"
        return f"round(127 {cosine}) / 127" if self.step else cosine

    # -- frequencies ---------------------------------------------------------------------------

    @property
    def _value(self) -> tuple[Any, Any, Any, Any]:
        """Constants with which kernels convert angles to values, in the dtype of the angles."""
        if self.kernel == "gaussian":
            return (
                kernels.fourier.QUARTER_32,
                kernels.fourier.SINE_32,
                kernels.fourier.STEPS_32,
                np.float32(self.step),
            )
        return (
            kernels.fourier.QUARTER_64,
            kernels.fourier.SINE_64,
            kernels.fourier.STEPS_64,
            self.step,
        )

    def _waves(self, ids: Ids) -> Iterator[_Wave]:
        """Frequencies and phases in turns, one tile of features at a time, zero-padded."""
        gaussian = self.kernel == "gaussian"
        scale = (math.sqrt(2.0 * self.gamma_) if gaussian else self.gamma_) / (2.0 * math.pi)
        kind = kernels.fourier.NORMAL if gaussian else kernels.fourier.CAUCHY
        for at in range(0, len(ids), TILE_FEATURES):
            part = np.ascontiguousarray(ids[at : at + TILE_FEATURES])
            width = len(part) + -len(part) % TILE_MULTIPLE
            wave = np.zeros((self._n_inputs, width), self._angle_dtype)
            phases = np.zeros(width, self._angle_dtype)
            kernels.fourier.frequencies(self.seed, part, kind, scale, kernels.fourier.SINE_64, wave)
            kernels.fourier.phases(self.seed, part, phases)
            yield at, wave, phases

    def _range(self, first: int, last: int) -> Iterator[_Wave]:
        """Frequencies and phases of a range of features; kept, because the next block needs them too."""
        kept = self._last  # another thread may replace it
        if kept is None or kept[0] != (first, last):
            self._last = None
            waves = self._waves(np.arange(first, last))
            size = (last - first) * self._n_inputs * np.dtype(self._angle_dtype).itemsize
            if size > KEPT_BYTES:
                return waves
            self._last = kept = (first, last), list(waves)
        return iter(kept[1])


def _tiles(block: Any, wave: np.ndarray) -> Iterator[tuple[slice, np.ndarray]]:
    """Angles of a block (n, m), one tile of rows at a time: (rows, turns without the phases).

    The turns may have more rows than the tile; what they hold there is arbitrary.
    """
    n, m = block.shape
    height = min(TILE_ROWS, n + -n % 4)  # the kernel takes four rows at a time
    z = np.zeros((height, m), wave.dtype, order="F")
    turns = np.empty((height, wave.shape[1]), wave.dtype)
    for at in range(0, n, TILE_ROWS):
        rows = slice(at, min(at + TILE_ROWS, n))
        z[: rows.stop - at] = block[rows]
        kernels.fourier.angles(z, wave, turns)
        yield rows, turns
