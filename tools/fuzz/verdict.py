"""Judge the result of a command: it must be a certified success, or one message with its code."""

from __future__ import annotations

import contextlib
import hashlib
import os
import re
import stat
import traceback
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

import fcl
from tools.fuzz import certify
from tools.fuzz.case import Case, Trial
from tools.fuzz.commands import commands, documented_codes, parsed
from tools.fuzz.odd import SECRET
from tools.fuzz.run import FOREIGN, Done

#: Most characters of a message.
LONGEST_MESSAGE = 3000


def tree(folder: Path) -> dict[str, str]:
    """The contents of a folder: relative path -> kind and content."""
    found = {}
    for root, folders, files in os.walk(folder):
        for name in (*folders, *files):
            path = os.path.join(root, name)
            mode = os.lstat(path).st_mode
            content = ""
            if stat.S_ISREG(mode):
                with open(path, "rb") as file:
                    content = hashlib.file_digest(file, "md5").hexdigest()
            elif stat.S_ISLNK(mode):
                content = os.readlink(path)
            found[os.path.relpath(path, folder)] = f"{stat.S_IFMT(mode):o} {content}"
    return found


def judge(
    case: Case, trial: Trial, done: Done, before: dict[str, str], after: dict[str, str]
) -> tuple[str, list[str]]:
    """The outcome of a command, and its faults."""
    faults = list(done.left)
    name = str(commands()[trial.arguments[0]].name)
    stream = trial.streams or ""
    silent = stream in ("stderr closed", "all closed", "stderr full", "stderr broken")
    if found := FOREIGN.search(done.errors):
        faults.append(f"text of other software: {_line(done.errors, found.start())}")
    ends = re.findall(rf"^{re.escape(name)}: error: ", done.errors, re.MULTILINE)
    written = sorted(path for path in after if before.get(path) != after[path])
    gone = sorted(set(before) - set(after))
    allowed = _allowed(case)
    for path in (*written, *gone):
        if not any(path == place or path.startswith(f"{place}/") for place in allowed):
            faults.append(f"written: {path[:80]!r} is not an output of the command")
    faults += _secrets(case, done, written)
    if done.code == 0:
        if ends:
            faults.append("an error message with exit code 0")
        if trial.refuse:
            faults.append(f"accepted {trial.refuse}")
        if trial.streams not in ("stdout closed", "all closed", "stdout broken", "stdout full"):
            faults += _judge_success(case, trial, done)
        return "success", faults
    if done.code == 2:
        if [path for path in (*written, *gone) if not _said(trial, done, path)]:
            faults.append(f"exit code 2, but written: {(written + gone)[0][:80]!r}")
    elif _ended_above_tolerance(trial, done):
        faults += _judge_success(case, trial, done, converged=False)
    elif not _explained(trial, done):
        faults.append(f"exit code {done.code}")
    if trial.must_succeed and not stream.startswith("stdout"):
        faults.append(f"exit code {done.code} for a valid command")
    if not silent and len(ends) != 1 and done.code in (1, 2):
        faults.append(f"{len(ends) or 'no'} messages")
    message = done.errors.partition(f"{name}: error: ")[2]
    if len(message) > LONGEST_MESSAGE:
        faults.append(f"long message: {len(message)} characters")
    return f"exit {done.code}", faults


def _line(text: str, at: int) -> str:
    """The most informative line: the one found, or the last one of a traceback."""
    lines = text[at:].splitlines()
    return (lines[-1] if lines[0].startswith("Traceback") else lines[0])[:160]


def _said(trial: Trial, done: Done, path: str) -> bool:
    """Whether a message names a path that was written although the code is 2, as the help allows."""
    top = path.partition("/")[0]
    return trial.arguments[0] in ("online", "stagewise") and top in done.errors


def _secrets(case: Case, done: Done, written: list[str]) -> list[str]:
    """The places where a password of an option was said or kept."""
    texts = {"standard output": done.output, "standard error": done.errors}
    for name in written:
        path = case.folder / name
        if path.is_file() and not path.is_symlink():
            texts[name] = path.read_bytes().decode("latin1")
    return [f"password in {place}" for place, text in texts.items() if SECRET in text]


def _allowed(case: Case) -> list[str]:
    root = os.path.realpath(case.folder)
    places = []
    for name in case.outputs:
        try:
            places.append(os.path.relpath(os.path.realpath(case.folder / name), root))
        except (OSError, ValueError):
            continue
    return [place for place in places if place != "."]


def _explained(trial: Trial, done: Done) -> bool:
    """Whether the standard streams explain an exit code other than 0 and 2."""
    if trial.streams in ("stdout broken", "stderr broken") and done.code in (141, -13):
        return True
    return trial.streams == "stdout full" and done.code == 1


def _ended_above_tolerance(trial: Trial, done: Done) -> bool:
    """Whether the code is a documented one that means neither an error nor a signal."""
    others = {0, 1, 2, 5, 6, 129, 130, 143}
    return done.code in documented_codes(trial.arguments[0]) - others


def _judge_success(case: Case, trial: Trial, done: Done, converged: bool = True) -> list[str]:
    """Check the output of a successful command."""
    name, rest = trial.arguments[0], trial.arguments[1:]
    if {"--help", "--version", "--plan"} & set(rest):
        return []
    with contextlib.chdir(case.folder):
        options = parsed(trial.arguments)
        if options.get("plan") or options.get("out") is None:
            return []
        if options["out"] == "-":
            return []
        options["out"] = os.path.realpath(options["out"])  # "x/../a" needs no folder x
        if not os.path.lexists(options["out"]):
            return ["success, but no output"]
        if name == "train":
            return _judge_model(options, done.seconds, converged)
        judges = {"predict": _judge_scores, "convert": _judge_converted, "report": _judge_page}
        return judges.get(name, _judge_loads)(options)


def _judge_loads(options: dict) -> list[str]:
    """Check that a model can be read, and that its numbers are finite."""
    model = fcl.load_model(options["out"], options["imports"])
    weights = getattr(model, "weights", None)
    finite = not isinstance(weights, np.ndarray) or np.isfinite(weights).all()
    return [] if finite else ["weights that are not finite"]


def _judge_page(options: dict) -> list[str]:
    text = Path(options["out"]).read_text()
    found = text.lstrip().lower().startswith("<!doctype html") and "</html>" in text
    return [] if found else ["the page is not a complete HTML file"]


def _judge_converted(options: dict) -> list[str]:
    """Check that training can read what was converted."""
    from fcl.model.formats import is_model

    if is_model(options["out"]):
        return _judge_loads(options)
    if options["inputs"][0].endswith(".h5"):
        return []  # a copy of arrays that need not be data
    rows = fcl.open_data(options["out"], y=None).rows
    block = rows.read(0, rows.shape[0])
    values = np.asarray(block if isinstance(block, np.ndarray) else block.data)
    return [] if np.isfinite(values).all() else ["rows that are not finite"]


def _judge_model(options: dict, seconds: float, converged: bool) -> list[str]:
    """Check gap and certificate; converged : whether the exit code says that the gap is below --tol."""
    model = fcl.Model.load(options["out"])
    data = fcl.open_data(
        options["data"],
        x=options["x"],
        y=options["y"],
        weights=options["weights"],
        offset=options["offset"],
    )
    gap = model.certificate.gap
    if options["path"]:  # each of its points has a tolerance and limits of its own
        return certify.wrong(model, data, options)
    found = []
    passes, time_left = options["max_passes"], options["max_time"]
    limited = passes is not None and model.certificate.passes > passes
    limited |= time_left is not None and seconds >= time_left
    if not gap <= options["tol"] and not limited:
        if converged:
            found.append("exit code 0 at a gap above --tol")
        if gap > certify.explained_gap(model, data, options):
            found.append("false stall: no limit was reached, and rounding does not explain the gap")
    elif not converged:
        found.append("the exit code is for a gap above --tol, but the gap is below")
    return found + certify.wrong(model, data, options)


def _judge_scores(options: dict) -> list[str]:
    from fcl.data.open import is_native

    model = fcl.load_model(options["model"], options["imports"])
    out = options["out"]
    if out.endswith(".npy"):
        scores = np.load(out)
    elif out.endswith(".tsv"):
        head, *lines = [line.split("\t") for line in Path(out).read_text().splitlines()]
        some = [at for at, name in enumerate(head) if name.startswith("margin")]
        scores = np.array([[float(cells[at]) for at in some] for cells in lines])
    else:
        return []
    if len(options["inputs"]) != 1 or not is_native(options["inputs"][0]):
        return []  # text, with columns beside the scores
    data = fcl.open_data(options["inputs"][0], x=options["x"] or "X", y=None)
    if len(scores) != data.n_rows:
        return [f"{len(scores)} scores for {data.n_rows} rows"]
    empty = getattr(model, "n_active", 1) == 0
    return [] if empty or np.isfinite(scores).all() else ["scores that are not finite"]


# -- Python calls ----------------------------------------------------------------------------------


def judge_call(
    case: Case,
    call: Callable[[], Any],
    refusals: tuple[type[Exception], ...] = (fcl.InputError,),
) -> tuple[Any, list[str]]:
    """Make a call; return its result or None, and what is wrong with its warnings and its error.

    refusals : the exceptions that fcl may raise.
    """
    result, found = None, []
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        try:
            result = call()
        except Exception as error:
            where = _where(error)
            # scikit-learn and scipy check matrices themselves
            if not isinstance(error, refusals) or not where.startswith(_CHECKERS):
                name = type(error).__name__
                return None, [f"exception: {name} in {where}: {str(error)[:150]}"]
            case.note("refused")
            message = str(error).strip()
            if where.startswith("fcl/") and not message:
                found.append("no message")
            if where.startswith("fcl/") and len(message) > LONGEST_MESSAGE:
                found.append(f"long message: {len(message)} characters")
    for warning in caught:
        name, text = warning.category.__name__, str(warning.message)
        if "Convergence" in name:
            case.note("a warning of convergence")
        elif not issubclass(warning.category, _EXPECTED) and not (
            # warnings of scikit-learn's checks of arrays; check_estimator wants the last one
            "/sklearn/" in warning.filename
            or text.startswith("The number of unique classes")
            or name == "DataConversionWarning"
        ):
            found.append(f"warning: {name}: {text[:120]}")
    return result, sorted(set(found))


_CHECKERS = "fcl/", "sklearn/", "scipy/"
_EXPECTED = (
    DeprecationWarning, PendingDeprecationWarning, ImportWarning, ResourceWarning, fcl.ScaleWarning
)  # fmt: skip


def _where(error: BaseException) -> str:
    """The innermost file of a traceback, as ``package/module.py``."""
    files = [frame.filename for frame in traceback.extract_tb(error.__traceback__)]
    for mark in ("site-packages/", "/fcl/"):
        if files and mark in files[-1]:
            return ("fcl/" if mark == "/fcl/" else "") + files[-1].rpartition(mark)[2]
    return files[-1] if files else ""
