"""Forty small jobs of all kinds, and a trace of each: what every pass found, to the last bit.

The driver inline is deterministic: the same versions on the same processor give the same bits. A change
that only rearranges code therefore leaves all traces equal. `python3 tools/dev.py traces` compares them.

    python tests/traces.py OUT                write the traces of the fcl that Python imports
    python tests/traces.py --compare OLD NEW  say what differs; the exit code is then 1
"""

from __future__ import annotations

import hashlib
import importlib.metadata
import json
import os
import platform
import sys
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse

STORED = Path(__file__).parent / "traces.json"
#: Libraries whose versions may change the bits.
LIBRARIES = ("numpy", "scipy", "numba", "llvmlite")
#: Figures of a pass that a trace keeps.
FIGURES = ("objective", "bound", "max_violation", "beta", "priced", "cached", "active", "evicted")
#: Passes whose model a trace keeps; those after them have their figures alone.
MOST_MODELS = 8
Rows = tuple[Any, np.ndarray]


@dataclass(frozen=True)
class Job:
    """A job: its name, a function that makes rows and targets, the family, and the other options."""

    name: str
    rows: Callable[[], Rows]
    features: str
    options: dict[str, Any] = field(default_factory=dict)


# -- rows ------------------------------------------------------------------------------------------


@cache
def letters(unknown: bool = False) -> Rows:
    """600 windows of 16 letters, of which two patterns raise the chance of a positive label."""
    random = np.random.default_rng(1)
    codes = random.integers(0, 4, (600, 16), np.uint8)
    score = 2.0 * (codes[:, 3] == 0) + 2.0 * ((codes[:, 7] == 2) & (codes[:, 8] == 3)) - 1.2
    y = np.where(random.random(600) < 1.0 / (1.0 + np.exp(-score)), 1, -1)
    if unknown:
        codes = np.where(random.random(codes.shape) < 0.05, 4, codes).astype(np.uint8)
    return codes, y


@cache
def numbers() -> Rows:
    """500 rows of 24 numbers of very different scales; the target depends on 4 of them."""
    random = np.random.default_rng(2)
    X = random.normal(size=(500, 24)) * np.logspace(-1, 1, 24)
    score = X[:, 0] * 5.0 - X[:, 12] + 0.1 * X[:, 23] + X[:, 3] * X[:, 4]
    return X, np.where(score + random.normal(size=500) > 0.0, 1, 0)


def even() -> Rows:
    """The numbers on one scale."""
    X, y = numbers()
    return X / X.std(axis=0), y


@cache
def words() -> Rows:
    """700 rows of counts of 900 words, sparse."""
    random = np.random.default_rng(3)
    X = scipy.sparse.random_array(
        (700, 900), density=0.02, format="csr", rng=random, dtype=np.float32
    )
    X.data = np.ceil(3.0 * X.data).astype(np.float32)
    weights = random.normal(size=900) * (random.random(900) < 0.1)
    return X, np.where(X @ weights + 0.3 * random.normal(size=700) > 0.0, 1, 0)


def measured() -> Rows:
    """The numbers with a numeric target."""
    X, y = numbers()
    return X, X[:, 0] * 5.0 + y + np.random.default_rng(4).normal(size=len(y))


def counted() -> Rows:
    """The windows with counts as targets."""
    codes, _ = letters()
    return codes, (codes == 3).sum(axis=1)


def three_classes(rows: Callable[[], Rows]) -> Callable[[], Rows]:
    """Rows with a third class."""

    def made() -> Rows:
        X, y = rows()
        some = np.random.default_rng(5).random(len(y)) < 0.3
        return X, np.where(some, 2, y > 0).astype(int)

    return made


def two_labels() -> Rows:
    """The windows with two labels each."""
    codes, y = letters()
    return codes, np.stack([y > 0, codes[:, 3] == 1], axis=1).astype(int)


def two_targets() -> Rows:
    """The numbers with two numeric targets."""
    X, y = measured()
    return X, np.stack([y, X[:, 12] - X[:, 0]], axis=1)


# -- jobs ------------------------------------------------------------------------------------------


def jobs() -> Iterator[Job]:
    """The jobs, by family, loss, number of outputs, penalty and view."""
    view = {"row_view": 256}
    for loss, C in (("logistic", 1.0), ("squared_hinge", 0.3), ("squared", 0.05)):
        yield Job(f"kmers-{loss}", letters, "kmers:d=3", {"loss": loss, "C": C})
    yield Job("kmers-huber", counted, "kmers:d=2", {"loss": "huber", "C": 0.1})
    yield Job("kmers-poisson", counted, "kmers:d=2", {"loss": "poisson", "C": 0.3})
    yield Job("kmers-unknown", lambda: letters(True), "kmers:d=3", {"C": 1.0})
    yield Job("kmers-sample", letters, "kmers:d=3", {"C": 1.0} | view)
    yield Job(
        "kmers-sample-hinge", letters, "kmers:d=3", {"C": 0.3, "loss": "squared_hinge"} | view
    )
    yield Job("kmers-elastic", letters, "kmers:d=3", {"C": 1.0, "l1_ratio": 0.5})
    yield Job("kmers-no-intercept", letters, "kmers:d=3", {"C": 1.0, "intercept": False})
    yield Job("kmers-balanced", letters, "kmers:d=3", {"C": 0.5, "class_weight": "balanced"})
    yield Job("kmers-strong", letters, "kmers:d=4", {"C": 10.0, "tol": 1e-3})
    yield Job("kmers-softmax", three_classes(letters), "kmers:d=2", {"C": 1.0, "loss": "softmax"})
    grouped = {"C": 1.0, "loss": "softmax", "group": True}
    yield Job("kmers-softmax-group", three_classes(letters), "kmers:d=2", grouped)
    yield Job("kmers-labels", two_labels, "kmers:d=2", {"C": 1.0})
    yield Job("kmers-labels-group", two_labels, "kmers:d=2", {"C": 1.0, "group": True})
    yield Job("kmers-softmax-sample", three_classes(letters), "kmers:d=2", {**grouped, **view})
    yield Job("bag", letters, "bag:d=3", {"C": 1.0})
    yield Job("bag-both", letters, "bag:d=3,strands=both", {"C": 1.0})
    yield Job("bag-presence", letters, "bag:d=3,value=presence", {"C": 1.0})
    yield Job("bag-wildcards", lambda: letters(True), "bag:d=3,wildcards=true", {"C": 1.0})
    search = "bag:d=3,value=presence,wildcards=true,strands=both"
    yield Job("bag-search", letters, search, {"C": 1.0})
    yield Job("columns", numbers, "columns", {"C": 1.0})
    yield Job("columns-hinge", numbers, "columns", {"C": 0.3, "loss": "squared_hinge"})
    yield Job("columns-squared", measured, "columns", {"C": 0.05, "loss": "squared"})
    yield Job("columns-targets", two_targets, "columns", {"C": 0.05, "loss": "squared"})
    group = {"C": 0.05, "loss": "squared", "group": True}
    yield Job("columns-targets-group", two_targets, "columns", group)
    yield Job("columns-standardize", numbers, "columns", {"C": 1.0, "standardize": True})
    yield Job("columns-elastic", numbers, "columns", {"C": 1.0, "l1_ratio": 0.2})
    yield Job("columns-covariates", numbers, "columns", {"C": 1.0, "covariates": "own"})
    yield Job("columns-offset", numbers, "columns", {"C": 1.0, "offset": "own"})
    yield Job("sparse", words, "columns", {"C": 1.0})
    yield Job("sparse-strong", words, "columns", {"C": 10.0, "loss": "squared_hinge"})
    yield Job("sparse-softmax", three_classes(words), "columns", {"C": 0.3, "loss": "softmax"})
    yield Job("products", even, "products:degree=2", {"C": 0.3})
    yield Job("products-3", even, "products:degree=3", {"C": 0.1, "loss": "squared_hinge"})
    yield Job("fourier", numbers, "fourier:n=500", {"C": 0.3})
    yield Job("fourier-steps", numbers, "fourier:n=500,dtype=int8", {"C": 0.3})
    yield Job("union", letters, "kmers:d=2 + bag:d=2", {"C": 1.0})
    yield Job("union-numbers", numbers, "columns + fourier:n=200", {"C": 0.3})


def trace(job: Job) -> dict[str, Any]:
    """The figures of every pass, and the active ids and weights after the first passes and the last."""
    import fcl

    X, y = job.rows()
    options: dict[str, Any] = {"tol": 1e-6, "block_rows": 256, "memory": "1GiB", "threads": 1}
    options |= {"warn": False, **job.options}
    own = np.random.default_rng(6).normal(size=(len(y), 2))
    if options.get("covariates"):
        options["covariates"] = own
    if options.get("offset"):
        options["offset"] = own[:, 0]

    def result(**more: Any) -> Any:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return fcl.train(fcl.open_data(X, y=y), job.features, **{**options, **more})

    whole = result(max_passes=60)
    passes = [{name: _exact(entry[name]) for name in FIGURES} for entry in whole.model.history]
    first = range(1, min(MOST_MODELS, len(passes) - 1))
    models = {str(k): _model(result(max_passes=k).model) for k in first}
    return {"passes": passes, "models": models, "last": _model(whole.model)}


def _model(model: Any) -> dict[str, str]:
    ids = np.asarray(model.ids, np.int64)
    bits = model.weights.tobytes() + np.asarray(model.intercept, float).tobytes()
    return {"ids": f"{len(ids)} {_hash(ids.tobytes())}", "weights": _hash(bits)}


def _hash(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()[:16]


def _exact(value: Any) -> Any:
    return value.hex() if isinstance(value, float) else value


def machine() -> str:
    """The processor and the versions that determine the bits."""
    import numba
    from llvmlite import binding

    own = numba.config.CPU_NAME or binding.get_host_cpu_name()
    cpu = f"{platform.machine()} {own} {os.environ.get('NPY_DISABLE_CPU_FEATURES', '')}".rstrip()
    versions = [f"{name} {importlib.metadata.version(name)}" for name in LIBRARIES]
    return ", ".join([cpu, f"Python {sys.version_info[0]}.{sys.version_info[1]}", *versions])


def traces() -> dict[str, Any]:
    """The traces of all jobs, with the machine."""
    return {"machine": machine(), "jobs": {job.name: trace(job) for job in jobs()}}


# -- comparison ------------------------------------------------------------------------------------


def differences(name: str, here: dict[str, Any], there: dict[str, Any], exact: bool) -> list[str]:
    """What differs between two traces of a job, in words.

    exact : whether all bits must agree, as with the same versions on the same processor. Else the numbers
        of passes must agree, the last ids, and the objectives to 1e-9: rounding may decide about a
        feature whose weight is nearly 0.
    """
    found = []
    if len(here["passes"]) != len(there["passes"]):
        found.append(f"{name}: {len(there['passes'])} passes, now {len(here['passes'])}")
    for number, (now, then) in enumerate(zip(here["passes"], there["passes"], strict=False)):
        for key in now:
            a, b = _number(then[key]), _number(now[key])
            if a != b and (exact or (key == "objective" and abs(a - b) > 1e-9 * abs(a))):
                by = f" ({(b - a) / abs(a):+.1e})" if a and b is not None else ""
                found.append(f"{name}: pass {number}, {key}: {a}, now {b}{by}")
        if found:
            break  # what follows differs for the same reason
    models = {"last": there["last"], **(there["models"] if exact else {})}
    for key, then in models.items():
        now = {"last": here["last"], **here["models"]}.get(key, then)
        if now["ids"] != then["ids"]:
            found.append(f"{name}: model {key}: ids {then['ids']}, now {now['ids']}")
        elif exact and now != then:
            found.append(f"{name}: model {key}: other weights")
    return found


def _number(value: Any) -> Any:
    return float.fromhex(value) if isinstance(value, str) else value


def compare(old: Path, new: Path) -> int:
    """Print what differs between two files; returns 1 if anything does."""
    then, now = json.loads(old.read_text()), json.loads(new.read_text())
    exact = then["machine"] == now["machine"]
    if not exact:
        sys.stdout.write(f"other machine: {then['machine']}; now {now['machine']}\n")
    found, changed = [], 0
    for name, trace_now in now["jobs"].items():
        if name in then["jobs"]:
            own = differences(name, trace_now, then["jobs"][name], exact)
            changed += bool(own)
            found += own
    lines = [*found, f"{changed} of {len(now['jobs'])} traces differ"]
    sys.stdout.write("\n".join(lines) + "\n")
    return int(changed > 0)


def main() -> None:
    """Write the traces to a file, or compare two files."""
    if sys.argv[1] == "--compare":
        sys.exit(compare(Path(sys.argv[2]), Path(sys.argv[3])))
    Path(sys.argv[1]).write_text(json.dumps(traces(), indent=0) + "\n")


if __name__ == "__main__":
    main()
