"""Data, stagewise runs and pictures of the benchmarks of stagewise models."""

from __future__ import annotations

import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from fcl.features import Fourier
from tools.bench import common
from tools.figures import COLOURS

#: Kernel of pixels from 0 to 1, and number of principal components, as in examples/mnist.
GAMMA, COMPONENTS = 0.012, 50
#: Rows of the random split of the news, as in the paper.
NEWS_ROWS = 15_000


@dataclass
class Split:
    """Training and test rows (dense or CSR) and their classes."""

    x: Any
    y: np.ndarray
    test_x: Any
    test_y: np.ndarray


@dataclass
class Point:
    """The test error after some work.

    what : the work in words.  processor, clock : seconds up to here.
    """

    what: str
    error: float
    processor: float
    clock: float
    loss: float = float("nan")


def _source(name: str) -> Path:
    path = common.SHARED / name
    if not path.exists():
        sys.exit(f"expected {name} in shared/data beside the repository, but it is missing")
    return path


def mnist(rows: int | None = None) -> Split:
    """MNIST with its own test rows; pixels from 0 to 1."""
    with np.load(_source("mnist.npz")) as stored:
        x, test_x = (stored[name].astype(np.float32) / 255.0 for name in ("train_x", "test_x"))
        return Split(x[:rows], stored["train_y"][:rows], test_x, stored["test_y"])


def news(split: str) -> Split:
    """20 newsgroups: log(1 + count) of words in at least three texts, in a random order of the words.

    split : "date", or "random" for 15,000 rows drawn from all.
    """
    from scipy.sparse import load_npz

    X = load_npz(_source("20news_counts.npz")).tocsr().astype(np.float32)
    y = np.load(_source("20news_y.npy"))
    held = np.load(_source("20news_is_test.npy")).astype(bool)
    rng = np.random.default_rng(0)
    if split == "random":
        held = np.arange(len(y)) >= NEWS_ROWS
        held = held[rng.permutation(len(y))]
    X.data = np.log1p(X.data)
    X = X[:, np.flatnonzero(X.getnnz(axis=0) >= 3)]
    X = X[:, rng.permutation(X.shape[1])].tocsr()
    return Split(X[~held], y[~held], X[held], y[held])


def components(data: Split) -> Split:
    """The principal components of the rows, by the training rows."""
    mean = data.x.mean(axis=0, dtype=np.float64)
    _, vectors = np.linalg.eigh(np.cov(data.x.astype(np.float64).T))
    axes = vectors[:, : -COMPONENTS - 1 : -1]
    x, test_x = ((rows - mean) @ axes for rows in (data.x, data.test_x))
    return Split(x.astype(np.float32), data.y, test_x.astype(np.float32), data.test_y)


def cosines(n: int, gamma: float = GAMMA) -> Fourier:
    """Fourier features of the principal components of pixels."""
    return Fourier(n=n, gamma=gamma, pca=COMPONENTS)


def stagewise(
    data: Split,
    n: int,
    cores: int | None = None,
    gamma: float = GAMMA,
    features: Any = None,
    **options: Any,
) -> list[Point]:
    """Train on all rows, scoring the test rows after each block; the scores decide nothing.

    Parameters
    ----------
    data : Split
    n : int
        Number of cosines; 0: the columns of the rows.
    cores : int or None
    gamma : float
        Of the cosines.
    features : Generator, optional
        Other features.
    options
        Of :class:`fcl.stagewise.settings.Settings`.
    """
    import fcl
    from fcl.stagewise.settings import Settings
    from fcl.stagewise.train import Running, train_stagewise

    settings = Settings(valid_fraction=0.0, patience=1 << 30, memory="12GiB", **options)
    if features is None:
        features = cosines(n, gamma) if n else "columns"
    points: list[Point] = []
    clock, processor = time.perf_counter(), time.process_time()

    def note(event: Any) -> None:
        if hasattr(event, "valid_error"):
            spent = time.process_time() - processor, time.perf_counter() - clock
            points.append(
                Point(f"block {event.number}", event.valid_error, *spent, event.valid_loss)
            )

    train = fcl.open_data(data.x, y=data.y)
    test = fcl.open_data(data.test_x, y=data.test_y)
    train_stagewise(train, features, settings, test, running=Running(cores, progress=note))
    return points


def draw(curves: Mapping[str, Sequence[Point]], target: Path, seconds: str, label: str) -> None:
    """Draw error against seconds, both on logarithmic axes: TARGET-light.svg and TARGET-dark.svg.

    seconds : "processor seconds", or "seconds" of the clock.
    """
    import matplotlib as mpl

    mpl.use("svg")
    from matplotlib import pyplot as plt
    from matplotlib.ticker import FuncFormatter, NullFormatter

    for mode, (ink, *_) in COLOURS.items():
        style: Any = {
            "svg.fonttype": "none",
            "svg.hashsalt": "fcl",  # the same run gives the same file, byte for byte
            "font.family": "sans-serif",
            "font.size": 10,
            **dict.fromkeys(("text.color", "axes.labelcolor", "axes.edgecolor"), ink),
            **dict.fromkeys(("xtick.color", "ytick.color"), ink),
        }
        with mpl.rc_context(style):
            figure, axes = plt.subplots(figsize=(7.2, 4.2), layout="constrained")
            for name, points in curves.items():
                at = [p.processor if "processor" in seconds else p.clock for p in points]
                errors = [100.0 * point.error for point in points]
                mark = "o-" if len(points) < 5 else "-"
                axes.plot(at, errors, mark, label=name, markersize=4, linewidth=1.4)
            axes.set_xscale("log")
            axes.set_yscale("log")
            for axis in (axes.xaxis, axes.yaxis):
                axis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
            axes.yaxis.set_minor_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
            axes.xaxis.set_minor_formatter(NullFormatter())
            axes.set_xlabel(seconds)
            axes.set_ylabel(f"{label}, %")
            axes.spines[["top", "right"]].set_visible(False)
            axes.grid(which="both", linewidth=0.3, alpha=0.6)
            axes.legend(frameon=False, fontsize=8)
            named = target.with_stem(f"{target.stem}-{mode}")
            figure.savefig(named, transparent=True, metadata={"Date": None})
            plt.close(figure)
