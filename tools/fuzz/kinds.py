"""The kinds of cases: the input that is made odd, and the command or call that gets it."""

from __future__ import annotations

import os
import re
import stat
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np

import fcl
from tools.fuzz import certify, odd, stock
from tools.fuzz.case import Case, Trial
from tools.fuzz.commands import Line, commands, toml_of
from tools.fuzz.damage import damage, damage_checkpoints
from tools.fuzz.run import STREAMS
from tools.fuzz.verdict import judge_call


def _rows(case: Case) -> str:
    return case.rng.choice(("numbers", "letters"))


def _command(case: Case) -> str:
    """Choose a command; commands with more options come more often."""
    return max(
        case.rng.sample(sorted(commands()), k=2), key=lambda name: len(commands()[name].params)
    )


def command_line(case: Case) -> Trial:
    """A valid command line, perhaps with more valid options, perhaps with something odd."""
    line = Line(case, _command(case), _rows(case)).base()
    plain = case.chance(0.1)
    if not plain:
        for _ in range(case.rng.randint(0, 4)):
            line.add()
        for _ in range(case.rng.choice((0, 1, 1, 1, 2, 3))):
            line.spoil()
    return Trial(line.arguments(), must_succeed=plain)


def config(case: Case) -> Trial:
    """An odd configuration file."""
    commanded = case.rng.choice(("train", "train", "online", "stagewise"))
    line = Line(case, commanded, _rows(case)).base()
    name = case.fresh(".toml")
    for option in case.rng.sample(list(line.values), k=case.rng.randint(0, 3)):
        del line.values[option]  # it may be in the file
    (case.folder / name).write_bytes(toml_of(case, line))
    line.values["config"] = name
    line.values.setdefault("out", line.good("out"))
    if "driver" in line.parameters:
        line.values["driver"] = "inline"
    if case.chance(0.1):
        damage(case, case.folder / name)
    return Trial(line.arguments())


def file(case: Case) -> Trial:
    """A file of any kind that a command reads, damaged or crafted."""
    names = [name for name in sorted(stock.READERS) if case.within in name]
    name = names[case.number % len(names)]  # each of them comes equally often
    text = case.rng.choice(stock.READERS[name]).format(name)
    arguments, stdin = stock.place(case, text)
    case.note(name)
    plain = case.chance(0.1)
    if not plain:
        path = case.folder / name
        (damage_checkpoints if path.suffix == ".ck" else damage)(case, path)
        if os.path.lexists(path) and stat.S_ISFIFO(path.lstat().st_mode):
            path.unlink()  # an input may be a pipe, which is waited for
        if case.chance(0.15):
            line = Line(case, arguments[0], "numbers")
            line.add()
            arguments += [word for each in line.values for word in line.spell(each)]
    refuse = case.misspelt if name in stock.STRICT and arguments[0] != "online" else ""
    if not os.path.isfile(case.folder / stdin):
        stdin = ""
    return Trial(arguments, must_succeed=plain, stdin=stdin, refuse=refuse)


def data(case: Case) -> Trial:
    """A data set that is damaged, crafted, or stored from odd arrays."""
    rows = _rows(case)
    line = Line(case, case.rng.choice(("train", "train", "predict")), rows)
    sparse = rows == "numbers" and case.chance(0.4)
    form = case.rng.choice(stock.SPARSE_FORMATS if sparse else stock.FORMATS)
    made: dict[str, Any] = stock.arrays(case.numbers, rows, case.rng.choice((40, 60, 200)))
    case.note(form)
    name, refuse = case.fresh(), ""
    if not sparse and case.chance(0.3):
        key = case.rng.choice(("X", "X", "y", "s"))
        changed = dict(made)
        changed[key] = np.asarray(odd.change(case, made[key], key))
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            try:
                source = stock.store(case.folder, name, form, changed)
            except Exception:  # the format cannot store such arrays
                case.note("which this format cannot store")
                source = stock.store(case.folder, case.fresh(), form, made)
    else:
        source = stock.store(case.folder, name, form, made)
        damage(case, case.folder / source.partition("::")[0].removesuffix("/X.npy"))
        where, what = [*case.notes, ""][-2:]
        if what in ("cut", "empty") and re.search(r"/X(\.npy$|/c/|/\d)", where):
            refuse = f"rows of which some bytes are gone: {what}"
    # sometimes the odd data are the validation data
    odd_is_valid = line.command == "train" and case.chance(0.15)
    line.base()
    rows_of = "data" if "data" in line.parameters else "inputs"
    line.values["valid" if odd_is_valid else rows_of] = source
    if "weights" in line.parameters and case.chance(0.4):
        line.values["weights"] = "s"
    if "loss" in line.parameters and case.chance(0.3):
        line.values["loss"] = case.rng.choice(stock.LOSSES)
    if "plan" in line.parameters and case.chance(0.1):
        line.values["plan"], refuse = None, ""
    return Trial(line.arguments(), refuse=refuse)


def names(case: Case) -> Trial:
    """Files and folders with odd names, and special stock."""
    line = Line(case, _command(case), _rows(case)).base()
    for _ in range(case.rng.choice((1, 1, 2))):
        places: list[str] = [n for n in ("data", "inputs", "out", "model") if n in line.values]
        places += [n for n in ("tsv", "log_json", "checkpoint", "valid") if n in line.parameters]
        where = case.rng.choice(places)
        new = case.rng.choice(odd.NAMES)
        if case.chance(0.25):
            new = case.fresh(case.rng.choice(("", ".npy", ".fcl", ".zarr")))
            odd.make_special(case, case.folder / new)
        case.note(f"{where} is called {new[:30]!r}")
        here = line.values.get(where) or (line.good(where) if where == "valid" else None)
        suffix = Path(here or "").suffix if where == "out" and case.chance(0.7) else ""
        if where in ("data", "inputs", "model", "valid"):
            try:
                os.rename(
                    case.folder / str(here).removesuffix("/X.npy").partition("::")[0],
                    case.folder / new,
                )
            except OSError:
                case.note("which cannot be created")
        else:
            case.output(new + suffix)
        line.values[where] = new + suffix
    if case.chance(0.2) and "log_json" in line.parameters:
        line.values["log_json"] = line.good("log_json")
    positional = case.chance(0.5)
    arguments = line.arguments()
    return Trial(arguments if positional else [a if a != "" else "." for a in arguments])


def processes(case: Case) -> Trial:
    """A separate process: its standard streams are closed, broken or full, or it has children."""
    name = case.rng.choice([*STREAMS, "", ""])
    case.note(name or "plain streams")
    line = Line(case, "train" if case.chance(0.25) else _command(case), _rows(case)).base()
    if "driver" in line.parameters and case.chance(0.5):
        writers = case.rng.choice(("", "", "", ":writers=1", ":writers=2", ":writers=3"))
        line.values["driver"] = f"processes{writers}"
    more = case.rng.choice((0, 0, 1))
    for _ in range(more):
        case.rng.choice((line.add, line.spoil))()
    return Trial(line.arguments(), must_succeed=not more, streams=name)


# -- Python ----------------------------------------------------------------------------------------


def _sparse(case: Case, X: np.ndarray) -> Any:
    """A CSR matrix of numbers, valid or not."""
    from scipy.sparse import csr_matrix

    matrix = csr_matrix(np.where(np.abs(X) < 0.4, 0.0, X))
    what = case.rng.choice(("", "", "csc", "coo", "indices", "indptr", "data", "shape", "int64"))
    case.note(f"sparse {what}")
    if what in ("csc", "coo"):
        return matrix.asformat(what)
    if what == "int64":
        matrix.indices, matrix.indptr = matrix.indices.astype("i8"), matrix.indptr.astype("i8")
    elif what == "shape":
        matrix._shape = (matrix.shape[0], case.rng.choice((2**40, 1, 2**62)))
    elif what and getattr(matrix, what).size:
        part = getattr(matrix, what)
        part[case.rng.randrange(len(part))] = case.rng.choice((-1, 0, 3, 2**31 - 1))
    return matrix


def arrays(case: Case) -> Trial:
    """Odd arrays and options for `fcl.train` and the estimators, from Python."""
    rows = _rows(case)
    made = stock.arrays(case.numbers, rows, case.rng.choice((3, 20, 60, 130)))
    X: Any = made["X"]
    y: Any = made["y"]
    s: Any = made["s"] if case.chance(0.4) else None
    if rows == "numbers" and case.chance(0.2):
        X = _sparse(case, X)
    elif case.chance(0.5):
        X = odd.change(case, X, "X")
    if case.chance(0.4):
        y = odd.change(case, y, "y")
    if s is not None and case.chance(0.6):
        s = odd.change(case, s, "s")
    options: dict[str, Any] = {
        "C": 10.0 ** case.rng.uniform(-3, 2),
        "loss": case.rng.choice(stock.LOSSES),
    }
    if case.chance(0.3):
        options["C"] = case.rng.choice(
            (1e-4, 1e4, 1e-300, 1e300, 0, -1, np.nan, np.inf, "1", None, True)
        )
        case.note(f"C={options['C']!r}")
    if case.chance(0.2):
        name = case.rng.choice(("tol", "penalty", "memory", "max_passes", "seed", "block_rows"))
        options[name] = case.rng.choice(
            (0, 1, -1, 0.5, 1e-12, 2**70, np.nan, "x", None, 64, 1e-300)
        )
        case.note(f"{name}={options[name]!r}")
    spec = case.rng.choice(stock.FAMILIES[rows])
    if case.chance(0.3):
        return Trial(call=lambda: _fit(case, X, y, s, options, spec))
    return Trial(call=lambda: _train(case, X, y, s, options, spec))


def _train(case: Case, X: Any, y: Any, s: Any, options: dict[str, Any], spec: str) -> list[str]:
    def train() -> Any:
        data = fcl.open_data(X, y=y, weights=s)
        return data, fcl.train(data, spec, **options)

    made, found = judge_call(case, train)
    if made is None:
        return found
    data, result = made
    gap = result.certificate.gap
    if result.reason == "stalled":
        case.note("stalled")
        if gap > certify.explained_gap(result.model, data, options):
            found.append(f"false stall: gap {gap:.1e}")
    if result.converged != (gap <= options.get("tol", 1e-3)):
        found.append(f"converged is {result.converged} at a gap of {gap:.1e}")
    return found + certify.wrong(result.model, data, options | {"features": spec})


def _fit(case: Case, X: Any, y: Any, s: Any, options: dict[str, Any], spec: str) -> list[str]:
    regression = options["loss"] == "squared"
    estimator = (fcl.FCLRegressor if regression else fcl.FCLClassifier)(spec)
    taken = {name: value for name, value in options.items() if name in estimator.get_params()}
    estimator.set_params(**taken)
    case.note(type(estimator).__name__)
    refusals = ValueError, TypeError, RuntimeError
    predicted, found = judge_call(case, lambda: estimator.fit(X, y, s).predict(X), refusals)
    if predicted is None:
        return found
    if len(predicted) != np.shape(X)[0]:
        found.append(f"{len(predicted)} predictions for {np.shape(X)[0]} rows")
    gap = float(np.max(estimator.dual_gap_))
    unfinished = "a warning of convergence" in case.notes
    if gap > estimator.tol and not unfinished:
        found.append(f"gap {gap:.1e} without a warning")
    if unfinished and "max_passes" not in taken:
        allowed = certify.ROUNDING_GAP
        if hasattr(estimator, "model_"):
            data = fcl.open_data(X, y=y, weights=s)
            allowed = certify.explained_gap(estimator.model_, data, options)
        if gap > allowed:
            found.append(f"false stall: gap {gap:.1e}")
    return found


# -- faults ----------------------------------------------------------------------------------------


def slow(module: str) -> Callable[[Case], Trial]:
    """Cases of a module, which is imported when it is needed."""

    def make(case: Case) -> Trial:
        run = import_module(f"tools.fuzz.{module}").run_case
        return Trial(call=lambda: run(case), is_watched=False)

    return make


@dataclass(frozen=True)
class Kind:
    """A kind of cases."""

    make: Callable[[Case], Trial]
    share: float  #: the relative number of cases
    limit: float = 30.0  #: most seconds of a case
    is_quick: bool = True  #: takes milliseconds and needs the stock; slow kinds must be named


KINDS = {
    "command": Kind(command_line, 0.24),
    "config": Kind(config, 0.07),
    "file": Kind(file, 0.35),
    "data": Kind(data, 0.13),
    "arrays": Kind(arrays, 0.10),
    "names": Kind(names, 0.05),
    "processes": Kind(processes, 0.04),
    "problem": Kind(slow("problems"), 1.0, 300.0, is_quick=False),
    "hard": Kind(slow("problems"), 1.0, 300.0, is_quick=False),
    "fault": Kind(slow("outputs"), 1.0, 500.0, is_quick=False),
}
