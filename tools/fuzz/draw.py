"""Random small optimisation problems with explicit matrices; a seed and a number determine each."""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np

import fcl
from fcl.features import bind_features, parse_features
from tests.judge import LOSSES, Problem
from tools.fuzz.certify import plain_matrix
from tools.fuzz.general import General

#: Most features of a problem, and of the few problems that may have more.
MOST_FEATURES, MOST_OF_FEW = 312, 2000
#: Families in tests/generators.py.
GENERATORS = ("Hinges", "Pairs", "Tanh", "Above", "Quarters")
#: From this number on, problems have all losses and offsets; earlier problems stay as they were.
SINCE = 5000
#: From this number on, problems also have several outputs, covariates, and other drivers.
SINCE_GENERAL = 10_000
#: From this number on, some problems of several outputs have covariates.
SINCE_COVARIATES = 30_000
#: From this number on, some features are the splines of fcl.
SINCE_HINGES = 35_000
#: Most weights of a problem of several outputs, which the judge solves in extended precision.
MOST_WEIGHTS = 400
#: From this number on, weights may have limits.
SINCE_LIMITS = 25_000
#: The losses of problems from each number on, until the next number.
LOSSES_SINCE = {
    0: LOSSES,
    SINCE: (*LOSSES, "huber:delta=0.5", "huber:delta=2", "poisson", "poisson"),
    20_000: (
        *LOSSES,
        "huber:delta=0.5",
        "huber:delta=2",
        "poisson",
        "pinball:tau=0.5,width=0.1",
        "pinball:tau=0.9,width=0.01",
    ),
}


@dataclass
class RandomProblem:
    """A problem, in the forms for fcl and for the judge."""

    number: int
    rows: Any  #: the input of fcl.open_data
    y: np.ndarray
    weights: np.ndarray | None
    features: str
    options: dict[str, Any]
    traits: list[str]  #: what is hard about it
    problem: Problem | General = field(repr=False)
    offset: np.ndarray | None = None
    covariates: np.ndarray | None = None
    outputs: str = "one"  #: "one", "classes", "targets" or "labels"
    driver: str = "inline"

    def data(self) -> Any:
        """The rows as a data set."""
        return fcl.open_data(
            self.rows,
            y=self.y,
            weights=self.weights,
            offset=self.offset,
            covariates=self.covariates,
        )

    def stored(self, folder: str) -> Any:
        """The rows as a data set in files, which the workers of Dask can open."""
        arrays = {"X": self.rows, "y": self.y, "weights": self.weights, "offset": self.offset}
        given = {name: values for name, values in arrays.items() if values is not None}
        for name, values in given.items():
            np.save(Path(folder, f"{name}.npy"), values)
        names: dict[str, Any] = {name: name for name in given if name not in ("X", "y")}
        return fcl.open_data(folder, **names)

    def describe(self) -> dict[str, Any]:
        """A description for people, ready for JSON."""
        n, p = self.problem.phi.shape
        sizes = np.abs(self.problem.phi).max(axis=0, initial=0.0)
        sizes = sizes[sizes > 0.0]
        return {
            "features": self.features[:200],
            "shape": [n, p],
            **{name: str(value) for name, value in self.options.items()},
            "scales": [f"{x:.3g}" for x in ((sizes.min(), sizes.max()) if len(sizes) else ())],
            "traits": self.traits,
            "outputs": self.outputs,
            "covariates": 0 if self.covariates is None else self.covariates.shape[1],
            "driver": self.driver,
            "is_sparse": hasattr(self.rows, "tocsr"),
        }


def make_problem(number: int, seed: int = 0, hard: bool = False) -> RandomProblem:
    """Make the problem of a number; hard : badly scaled, weakly penalised, to a gap of 1e-8."""
    random = np.random.default_rng([seed, number, hard])
    while True:
        case = _draw(random, number, hard)
        if case is not None:
            if number >= SINCE_GENERAL:  # processes start within seconds
                shares = {"inline": 0.9, "processes": 0.09, "dask": 0.01}
                # the driver dask refuses both
                if isinstance(case.problem, General) or hasattr(case.rows, "tocsr"):
                    shares = {"inline": 0.9, "processes": 0.1}
                case.driver = str(random.choice(list(shares), p=list(shares.values())))
            return case


def _draw(random: np.random.Generator, number: int, hard: bool) -> RandomProblem | None:
    """Draw a problem; None if it has too many features, or no nonzero feature or target."""
    traits: list[str] = []

    def chance(share: float, trait: str) -> bool:
        hit = bool(random.random() < share)
        if hit:
            traits.append(trait)
        return hit

    n = int(random.choice([3, 5, 8, 10, 20, 30, 64, 65, 100, 130, 200]))
    if not hard and chance(0.02, "many rows"):
        n = int(random.choice([500, 1500]))
    most = MOST_FEATURES
    if not hard and chance(0.02, "many features"):
        most = MOST_OF_FEW
    letters = random.random() < (0.1 if hard else 0.25)
    if letters:
        X = random.choice(4, (n, int(random.integers(3, 9))), p=[0.4, 0.3, 0.2, 0.1])
        X = X.astype(np.uint8)
        X[random.random(X.shape) < random.choice([0.0, 0.03, 0.3])] = 4
        features = _letter_features(random, X.shape[1])
    else:
        X, features = _numbers(random, n, hard, chance, number)
    loss = str(random.choice(_losses(number)))
    labels = loss in ("logistic", "squared_hinge")
    weights = _weights(random, n, chance)
    keep = np.ones(n, bool) if weights is None else weights > 0.0
    rows: Any = X
    of_any_rows = not any(word in features for word in ("fourier", "generators", "hinges"))
    if not letters and of_any_rows and chance(0.25, "sparse"):
        from scipy.sparse import csr_matrix

        rows = csr_matrix(X)
    try:
        phi, factors = explicit_matrix(features, rows, keep, most)
    except TooMany:
        return None
    if not phi[keep].any():
        return None
    if number >= SINCE_GENERAL and random.random() < 0.75:
        return _general(random, number, hard, rows, features, phi, factors, weights, traits)
    y = _target(random, phi, loss, chance)
    if len(np.unique(y[keep])) < 2 and (labels or loss == "poisson"):
        return None
    offset = None
    if number >= SINCE and chance(0.2, "offsets"):
        offset = random.normal(size=n) * random.choice([0.1, 1.0, 3.0])
    s = np.ones(n) if weights is None else weights
    options: dict[str, Any] = {
        "loss": loss,
        "l1_ratio": float(random.choice([1.0, 1.0, 1.0, 0.9, 0.5, 0.05])),
        "intercept": bool(random.random() < 0.8),
        "tol": 1e-8 if hard else float(random.choice([1e-2, 1e-3, 1e-4, 1e-6, 1e-8])),
        "row_view": random.choice(np.array(["auto", "all", 64], object)),
        "seed": int(random.integers(10)),
    }
    if chance(0.3, "small blocks"):
        options["block_rows"] = 64
    s = s[keep]
    if labels and chance(0.2, "class weight"):
        options["class_weight"] = "balanced" if random.random() < 0.5 else {1.0: 5.0}
        up = y[keep] > 0.0
        sums = s[up].sum(), s[~up].sum()
        if options["class_weight"] == "balanced":
            s = s * np.where(up, 0.5 * sum(sums) / sums[0], 0.5 * sum(sums) / sums[1])
        else:
            s = s * np.where(up, 5.0, 1.0)
    problem = Problem(
        *(phi[keep], y[keep], s, loss, 1.0, options["intercept"], options["l1_ratio"], factors),
        offset=0.0 if offset is None else offset[keep],
    )
    if number >= SINCE_LIMITS and chance(0.3, "limits"):
        options["limits"], low, high = _limits(random, phi, features == "columns")
        problem = replace(problem, low=low, high=high)
    C = 10.0 ** random.uniform(-4, 4)
    if hard or random.random() < 0.7:
        least = problem.null()[1]
        if not 0.0 < least < math.inf:
            return None
        C = float(least * 10.0 ** random.uniform(2.0 if hard else math.log10(0.5), 6.0))
    else:
        traits.append("C from 1e-4 to 1e4")
    options["C"] = C
    return RandomProblem(
        *(number, rows, y, weights, features, options, traits, replace(problem, C=C)), offset
    )


def _limits(
    random: np.random.Generator, phi: np.ndarray, enumerated: bool
) -> tuple[Any, np.ndarray, np.ndarray]:
    """Limits of the weights as fcl takes them, and as the judge does.

    enumerated : whether all weights may have finite limits.
    """
    p = phi.shape[1]
    low, high = np.full(p, -np.inf), np.full(p, np.inf)
    ends = [(0.0, np.inf), (-np.inf, 0.0), (-np.inf, np.inf)]
    if enumerated:
        ends.append((-(10.0 ** random.uniform(-3, 1)), 10.0 ** random.uniform(-3, 1)))
    low[:], high[:] = every = ends[random.integers(len(ends))]
    limits: dict[Any, Any] = {"*": tuple(map(float, every))}
    some = random.choice(p, int(random.integers(0, min(p, 20) + 1)), replace=False)
    sizes = 10.0 ** random.uniform(-3, 1, (2, p)) / (phi.std(axis=0) + 1e-3)
    for j in some.tolist():
        low[j] = random.choice([-np.inf, 0.0, -sizes[0, j]])
        high[j] = random.choice([np.inf, 0.0, sizes[1, j]])
        limits[j] = float(low[j]), float(high[j])
    return limits, low, high


def _general(
    random: np.random.Generator,
    number: int,
    hard: bool,
    rows: Any,
    features: str,
    phi: np.ndarray,
    factors: np.ndarray | None,
    weights: np.ndarray | None,
    traits: list[str],
) -> RandomProblem | None:
    """Draw targets of several outputs, or covariates, or both; None to draw again."""

    def chance(share: float, trait: str) -> bool:
        hit = bool(random.random() < share)
        if hit:
            traits.append(trait)
        return hit

    n, p = phi.shape
    outputs = str(random.choice(["classes", "classes", "targets", "targets", "labels", "one"]))
    K = 1 if outputs == "one" else int(random.integers(2, 5))
    if p * K > MOST_WEIGHTS or n < 2 * K:
        return None
    loss = {"classes": "softmax", "targets": "squared", "labels": "logistic"}.get(outputs, "")
    loss = loss or str(random.choice(_losses(number)))
    keep = np.ones(n, bool) if weights is None else weights > 0.0
    columns = [_target(random, phi, "squared" if K > 1 and outputs != "labels" else loss, chance)
               for _ in range(K)]  # fmt: skip
    targets = np.column_stack(columns)
    y: np.ndarray = targets if K > 1 else targets[:, 0]
    if outputs == "classes":
        scaled = (targets - targets.mean(axis=0)) / (targets.std(axis=0) + 1e-300)
        classes = np.argmax(scaled, axis=1)
        y, targets = np.array([-3, 4, 11, 12])[classes], np.eye(K)[classes]
    elif outputs == "labels":
        y = (targets > 0.0).astype(np.float64)
    few = 2 if outputs == "classes" else 1  # rows of each class
    for each in targets.T:
        counts = np.unique(each[keep], return_counts=True)[1]
        if len(counts) < 2 or counts.min() < few:
            return None
    covariates, z = None, np.ones((n, int(random.random() < 0.8)))
    if outputs == "one" or (number >= SINCE_COVARIATES and chance(0.5, "covariates")):
        covariates = random.normal(size=(n, int(random.integers(1, 4))))
        covariates *= 10.0 ** random.uniform(-3.0, 3.0, covariates.shape[1])
        if chance(0.15, "covariate of large mean"):
            covariates[:, 0] += 1e4 * np.abs(covariates[:, 0]).max()
        z = np.column_stack([z, covariates])
    offset = None
    if chance(0.2, "offsets"):
        offset = random.normal(size=(n, K)) * random.choice([0.1, 1.0, 3.0])
    options: dict[str, Any] = {
        "loss": loss,
        "l1_ratio": float(random.choice([1.0, 1.0, 0.9, 0.5, 0.05])),
        "intercept": z.shape[1] > (0 if covariates is None else covariates.shape[1]),
        "tol": 1e-8 if hard else float(random.choice([1e-2, 1e-3, 1e-4, 1e-6])),
        "row_view": random.choice(np.array(["auto", "all", 64], object)),
        "seed": int(random.integers(10)),
    }
    if K > 1:
        options["group"] = chance(0.4, "group")
    if chance(0.3, "small blocks"):
        options["block_rows"] = 64
    problem = General(
        *(phi[keep], z[keep], targets[keep], (np.ones(n) if weights is None else weights)[keep]),
        np.zeros((n, K))[keep] if offset is None else offset[keep],
        np.ones(p) if factors is None else factors,
        loss,
        rho=options["l1_ratio"],
        group=options.get("group", False),
    )
    with np.errstate(all="ignore"):
        least = problem.null()[1]
    if not 0.0 < least < math.inf:
        return None
    options["C"] = float(least * 10.0 ** random.uniform(2.0 if hard else math.log10(0.5), 5.0))
    if offset is not None and K == 1:
        offset = offset[:, 0]
    return RandomProblem(
        *(number, rows, y, weights, features, options, traits),
        replace(problem, C=options["C"]),
        *(offset, covariates, outputs),
    )


def _letter_features(random: np.random.Generator, length: int) -> str:
    """One or two families of patterns of letters."""

    def one() -> str:
        d = int(random.integers(1, min(3, length) + 1))
        if random.random() < 0.5:
            return f"kmers:d={d}"
        wild = "true" if random.random() < 0.4 else "false"
        value, strands = random.choice(["count", "presence"]), random.choice(["one", "both"])
        return f"bag:d={d},value={value},strands={strands},wildcards={wild}"

    return _joined(random, one)


def _joined(random: np.random.Generator, one: Any) -> str:
    """One family, or two families with penalty factors."""
    if random.random() < 0.75:
        return str(one())
    parts = []
    for _ in range(2):
        factor = random.choice([0.1, 1.0, 2.0, 7.5])
        parts.append(one() + ("" if factor == 1.0 else f" * {factor:g}"))
    return " + ".join(parts)


def _numbers(
    random: np.random.Generator, n: int, hard: bool, chance: Any, number: int
) -> tuple[np.ndarray, str]:
    """Draw columns of every scale and kind, and families of features over them.

    From SINCE_GENERAL on, products may also keep the scales of their columns.
    """
    degree = int(random.choice([1, 1, 2, 3]))
    m = int(random.integers(max(2, degree), {1: 60, 2: 16, 3: 9}[degree]))
    X = random.normal(size=(n, m))
    kind = random.choice(["normal", "normal", "binary", "counts", "uniform", "rare"])
    if kind == "binary":
        X = (random.normal(size=m) < X).astype(np.float64)
    elif kind == "counts":
        X = random.poisson(10.0 ** random.uniform(-1, 1, m), (n, m)).astype(np.float64)
    elif kind == "uniform":
        X = random.random((n, m))
    elif kind == "rare":
        X *= random.random((n, m)) < random.choice([0.02, 0.1, 0.4], m)
    wide = random.choice([0.0, 0.0, 2.0, 6.0, 8.0], p=[0.1, 0.1, 0.2, 0.5, 0.1])
    if not hard and random.random() < 0.4:
        wide = 0.0
    if wide:
        # For products, the scales apply to the features or, which is far harder, to the columns.
        power = 1.0 if hard and degree > 1 and chance(0.2, "products of wide columns") else degree
        X = X * 10.0 ** (random.uniform(-min(wide, 6.0), wide, m) / power)
        chance(1.0, f"scales of 10^{wide:g}")
    if m > 2 and chance(0.2, "duplicates"):
        a, b = random.choice(m, 2, replace=False)
        X[:, a] = X[:, b] * random.choice([1.0, -1.0, 2.0, 1.0 + 1e-7, 3e5])
    if chance(0.15, "constants"):
        X[:, random.integers(m)] = random.choice([0.0, 1.0, -3.0, 1e6 ** (1 / degree)])
    if degree == 1 and chance(0.1, "far from zero"):
        X = X + np.abs(X).max(axis=0) * random.choice([0.0, 10.0, 1e4], m)
    if chance(0.1, "saturated row"):
        X[random.integers(n), random.integers(m)] *= random.choice([30.0, 1e4])
    dtype = np.dtype(random.choice(["float64", "float32"]))
    if kind in {"binary", "counts"} and not wide and random.random() < 0.5:
        dtype = np.dtype(random.choice(["uint8", "int64"]))
        X = np.clip(X, 0.0, 100.0)
    X = X.astype(dtype)

    def one() -> str:
        if degree > 1 and random.random() < 0.75:
            scale = (
                random.choice(["", ",scale=true", ",scale=false"])
                if number >= SINCE_GENERAL
                else ""
            )
            return f"products:degree={degree}{scale}"
        kinds = ["columns", "columns", "columns", "factors", "fourier", *GENERATORS]
        family = random.choice(kinds + ["hinges"] * 3 * (number >= SINCE_HINGES))
        if family == "factors":
            factors = 10.0 ** random.uniform(-3, 3, m)
            return "columns:factors=[" + ",".join(f"{f:.6g}" for f in factors) + "]"
        if family == "fourier":
            extra = random.choice(["", ",dtype=int8"]) + random.choice(["", ",kernel=laplace"])
            return f"fourier:n={random.integers(5, 150)},gamma=0.2,seed={random.integers(9)}{extra}"
        if family == "hinges":
            scale = random.choice(["", ",scale=false"])
            return f"hinges:n={random.integers(1, 7)}{scale}"
        if family == "Hinges":
            return f"generators:Hinges:k={random.integers(1, 6)}"
        if family == "Pairs":
            return f"generators:Pairs:t={random.normal():.3f}"
        if family == "columns":
            return "columns"
        return f"generators:{family}:scale={10.0 ** random.uniform(-2, 1):.3g}"

    return X, _joined(random, one)


def _weights(random: np.random.Generator, n: int, chance: Any) -> np.ndarray | None:
    """Sample weights, or none."""
    if random.random() < 0.5:
        return None
    if chance(0.5, "weights over 12 orders"):
        return np.asarray(10.0 ** random.uniform(-6, 6, n))
    if chance(0.2, "weights of 0"):
        return random.integers(0, 4, n).astype(np.float64)
    return random.uniform(0.1, 10.0, n)


def _losses(number: int) -> tuple[str, ...]:
    """The losses of a problem of one output."""
    return LOSSES_SINCE[max(first for first in LOSSES_SINCE if first <= number)]


def _target(random: np.random.Generator, phi: np.ndarray, loss: str, chance: Any) -> np.ndarray:
    """Draw targets that a few features explain nearly exactly or hardly at all."""
    n, p = phi.shape
    size = np.abs(phi).max(axis=0)
    some = random.choice(p, min(p, int(random.integers(1, 6))), replace=False)
    scaled = phi[:, some] / np.where(size[some] > 0.0, size[some], 1.0)
    m = scaled @ random.normal(size=len(some))
    m = m - m.mean()
    noise = random.choice([0.0, 1e-6, 1e-3, 0.1, 1.0, 10.0])
    if noise < 0.01:
        chance(1.0, "nearly interpolated")
    m = m + noise * (m.std() + 1e-3) * random.normal(size=n)
    if loss == "poisson":
        # rates from one event in a thousand rows to hundreds per row
        rates = np.exp(np.clip(random.uniform(0.0, 3.0) * m + random.normal(), -7.0, 6.0))
        return random.poisson(rates).astype(np.float64)
    if loss in ("logistic", "squared_hinge"):
        y = np.where(m > 0.0, 1.0, -1.0)
        if chance(0.1, "one positive"):
            y[:] = -1.0
            y[np.argmax(m)] = 1.0
        return y
    if chance(0.15, "targets of 1e6 +- 1"):
        return np.asarray(1e6 + m / (np.abs(m).max() + 1e-12))
    if chance(0.3, "scale of the targets"):
        m = m * 10.0 ** random.uniform(-6, 6)
    return np.asarray(m)


class TooMany(Exception):
    """A family has too many features."""


def explicit_matrix(
    features: str, rows: Any, keep: np.ndarray, most: int
) -> tuple[np.ndarray, np.ndarray | None]:
    """All features of the families in a text, float64 (n, p), and their penalty factors."""
    parts: list[np.ndarray] = []
    factors = []
    for member in features.split(" + "):
        text, _, factor = member.partition(" * ")
        spec = parse_features(text)
        family: Any = bind_features(spec, fcl.open_data(rows, y=None).rows, keep)
        if int(family.n_features) + sum(part.shape[1] for part in parts) > most:
            raise TooMany
        phi = _matrix_of(text, family, rows)
        parts.append(phi)
        own = getattr(spec, "factors", None) or np.ones(phi.shape[1])
        factors.append(np.asarray(own, np.float64) * float(factor or 1.0))
    f = np.concatenate(factors)
    return np.hstack(parts), None if (f == 1.0).all() else f


def _matrix_of(text: str, family: Any, rows: Any) -> np.ndarray:
    """The matrix of one family; computed with plain numpy unless the family is a Generator."""
    X = rows.toarray() if hasattr(rows, "toarray") else rows
    phi = plain_matrix(text.partition(":")[0], family, X)
    if phi is not None:
        return phi
    generator = family.generator
    block = X if X.dtype == np.float32 else X.astype(np.float32 if X.itemsize == 1 else np.float64)
    if type(generator).prepare is not fcl.features.Generator.prepare:
        block = generator.prepare(block)
    return np.asarray(generator.columns(np.arange(generator.n_features), block), np.float64)
