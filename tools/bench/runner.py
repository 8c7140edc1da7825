"""Run cases: each run in a child process on one core, medians of runs in turns, a table for each case.

A case is data x call x metrics (x what it compares). The child makes the data, calls the function once on
a few rows, which loads or compiles everything, then on all rows, and prints its figures as JSON.
"""

from __future__ import annotations

import inspect
import itertools
import json
import math
import os
import resource
import signal
import subprocess
import sys
import time
import warnings
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from tools.bench import common

#: What a call returns: figures by name, or a dictionary for each line of the table.
Figures = dict[str, Any]
Options = Mapping[str, Any]


@dataclass(frozen=True)
class Case:
    """A benchmark: data x call x metrics, for each of the compared options.

    Parameters
    ----------
    name, group : str
    title : str
        What the table shows, above it.
    data : callable
        Makes the data; its keyword arguments are options of the case.
    call : callable
        ``call(data, clock, **options)`` works inside ``with clock:`` and returns figures.
    shows : tuple of str
        The metrics, which are the columns of the table. Any case may show ``seconds`` and ``processor``
        of the clock, ``peak`` (MiB of the child process) and ``ratio`` (of the first metric to that of
        the first line).
    options : mapping
        Of the data and the call.
    compare : mapping
        Label -> options that differ. The labels are the lines of the table.
    ladder : Ladder or None
        How tolerances are tightened, if solvers are compared by their distance from the optimum.
    picture : tuple or None
        File name without its ending, labels of the axes, axes with logarithmic scales ("xy"). Cases with
        the same file share the picture.
    cores : int
        Cores of a run; 0: all, and nothing is pinned.
    command : bool
        The call starts ``fcl`` commands, whose kernels are compiled first.
    page : bool
        Whether ``python -m tools.bench page`` runs the case.
    patience : float
        Seconds after which a run is killed.
    """

    name: str
    group: str
    title: str
    data: Callable[..., Any]
    call: Callable[..., Any]
    shows: tuple[str, ...]
    options: Options = field(default_factory=dict)
    compare: Mapping[str, Options] = field(default_factory=lambda: {"": {}})
    ladder: Ladder | None = None
    picture: tuple[str, str, str, str] | None = None
    cores: int = 1
    command: bool = False
    page: bool = False
    patience: float = 3600.0


@dataclass(frozen=True)
class Ladder:
    """Tolerances that are tightened until the objective is near the optimum.

    Parameters
    ----------
    levels : tuple of float
        Relative distances from the optimum that are timed.
    tolerances : tuple of float
    optimal : float
        Gap that the first compared solver certifies first; its objective is the optimum.
    timed : str
        The metric that counts.
    limit : float
        Seconds of a run after which the tolerance is not tightened further.
    """

    levels: tuple[float, ...] = (1e-2, 1e-3, 1e-4, 1e-6)
    tolerances: tuple[float, ...] = (0.9, *(10.0 ** (-k / 2) for k in range(1, 19)))
    optimal: float = 1e-8
    timed: str = "seconds"
    limit: float = 60.0


class Clock:
    """Seconds, and processor seconds of this process and its ended children, inside ``with clock:``."""

    def __init__(self) -> None:
        self.seconds = self.processor = 0.0
        self.compiled: list[str] = []

    def __enter__(self) -> Clock:
        from numba.core import event

        self._recorder = event.install_recorder("numba:compile")
        self._events = self._recorder.__enter__()
        self._before = time.perf_counter(), _processor()
        return self

    def __exit__(self, *error: object) -> None:
        self.seconds += time.perf_counter() - self._before[0]
        self.processor += _processor() - self._before[1]
        self._recorder.__exit__(None, None, None)
        self.compiled += sorted({str(e.data["dispatcher"]) for _, e in self._events.buffer})


def _processor() -> float:
    times = os.times()
    return time.process_time() + times.children_user + times.children_system


def measured(clock: Clock, work: Callable[[], Any]) -> tuple[Any, Figures]:
    """What a function returns, with its own seconds and processor seconds; the clock runs meanwhile."""
    own = Clock()
    with own:
        found = work()
    clock.seconds, clock.processor = clock.seconds + own.seconds, clock.processor + own.processor
    clock.compiled += own.compiled
    return found, {"seconds": own.seconds, "processor": own.processor}


def in_turns(works: Mapping[str, Callable[[], Any]], repeat: int) -> dict[str, list[float]]:
    """Processor seconds of some functions of this process, which take turns; first calls do not count."""
    times: dict[str, list[float]] = {name: [] for name in works}
    for turn in range(repeat + 1):
        for name, work in works.items():
            since = time.process_time()
            work()
            if turn:
                times[name].append(time.process_time() - since)
    return times


# -- the child -------------------------------------------------------------------------------------


def child(case: Case, options: Options, what: str, core: int | None) -> None:
    """Make the data; unless ``what`` is "make", also run the call. Prints figures as JSON."""
    if case.cores == 1 and what == "run":
        common.pin(core)
    warnings.simplefilter("ignore")
    known = parameters(case)
    if unknown := set(options) - known[0] - known[1]:
        sys.exit(f"{case.name}: unknown options {', '.join(sorted(unknown))}")
    since = time.perf_counter()
    data = case.data(**{k: v for k, v in options.items() if k in known[0]})
    reading = time.perf_counter() - since
    if what == "make":
        return
    own, clock = {k: v for k, v in options.items() if k in known[1]}, Clock()
    try:
        if hasattr(data, "few"):
            # a rough answer, or the empty model, would leave kernels of other solvers uncompiled
            harder = {"C": 1.0, "tol": 1e-3} if case.ladder else {}
            case.call(data.few(), Clock(), **{**own, **harder})
        found = case.call(data, clock, **own)
    except ModuleNotFoundError as error:
        print(json.dumps([{"error": f"{error.name} is not installed"}]))
        return
    lines = found if isinstance(found, list) else [found]
    for line in lines:
        if "load" in line:
            line["load"] += reading
    shared: Figures = {"seconds": clock.seconds, "processor": clock.processor}
    shared["peak"] = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * _RSS_UNIT / common.MIB
    if clock.compiled:
        shared["compiled"] = ", ".join(clock.compiled)
    print(json.dumps([shared | line for line in lines]))


#: Bytes of the unit in which the system reports peaks.
_RSS_UNIT = 1 if sys.platform == "darwin" else 1024


def parameters(case: Case) -> tuple[set[str], set[str]]:
    """Names of the options of the data, and of the call."""
    of_call = list(inspect.signature(case.call).parameters)[2:]
    return set(inspect.signature(case.data).parameters), set(of_call)


# -- the parent ------------------------------------------------------------------------------------


def spawn(case: Case, options: Options, core: int | None, what: str = "run") -> list[Figures]:
    """Run a child of a case; returns a dictionary for each line, with ``error`` if it failed."""
    given = json.dumps({"options": dict(options), "what": what, "core": core})
    command = [sys.executable, "-m", "tools.bench", case.name, "--child", given]
    paths = [str(common.ROOT), *filter(None, [os.environ.get("PYTHONPATH")])]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(paths)}
    if case.cores:
        threads = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS")
        names = (*threads, "NUMBA_NUM_THREADS")
        environment |= dict.fromkeys(names, str(case.cores))

    process = subprocess.Popen(
        command, cwd=common.ROOT, env=environment, stdout=subprocess.PIPE, text=True,
        start_new_session=True,
    )  # fmt: skip
    try:
        said, _ = process.communicate(timeout=case.patience)
    except subprocess.TimeoutExpired:
        return [{"error": f"> {case.patience:g} s"}]
    finally:
        if process.poll() is None:  # also ends the commands that the child has started
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()
    if process.returncode:
        return [{"error": f"exit code {process.returncode}"}]
    return json.loads(said.splitlines()[-1]) if what == "run" else []


def run(
    case: Case, repeat: int, core: int | None, out: Path | None = None
) -> dict[str, dict[str, Any]]:
    """Run a case, and print its table; returns the panels of its picture."""
    print(f"\n## {case.name}: {case.title}\n", flush=True)
    if case.command:
        common.warm_commands()
    made = set()
    for own in case.compare.values():
        options = {**case.options, **own}
        key = json.dumps({k: v for k, v in options.items() if k in parameters(case)[0]})
        if key not in made:
            made.add(key)
            if failed := spawn(case, options, core, "make"):
                sys.exit(f"{case.name}: the data could not be made ({failed[0]['error']})")
    lines = climb(case, repeat, core, out) if case.ladder else take_turns(case, repeat, core, out)
    shown = [name for name in case.shows if any(name in r for _, runs in lines for r in runs)]
    if "ratio" in case.shows and len(lines) > 1:
        shown.append("ratio")
    rows = [[label, *(cell(name, runs, lines[0][1], shown[0]) for name in shown)]
            for label, runs in lines]  # fmt: skip
    header = [common.UNITS.get(name, name) for name in shown]
    print(common.table(["", *header], rows), flush=True)
    return panels_of(case, lines)


def take_turns(
    case: Case, repeat: int, core: int | None, out: Path | None
) -> list[tuple[str, list[Figures]]]:
    """The figures of all runs, by line of the table; what is compared takes turns."""
    found: dict[str, list[Figures]] = {}
    for turn in range(repeat):
        for label, own in case.compare.items():
            for line in spawn(case, {**case.options, **own}, core):
                name = ", ".join(filter(None, [label, str(line.pop("line", ""))]))
                found.setdefault(name, []).append(line)
                record(case, name, turn, line, out)
    return list(found.items())


def record(case: Case, name: str, turn: int, line: Figures, out: Path | None) -> None:
    """Append figures to the file of results, and report compilations while the clock ran."""
    if "compiled" in line:
        print(f"{case.name}, {name}: compiled {line['compiled']} meanwhile", file=sys.stderr)
    if out is not None:
        full = {"case": case.name, "line": name, "run": turn, **line}
        with out.open("a") as file:
            file.write(json.dumps(full) + "\n")


def cell(name: str, runs: Sequence[Figures], first: Sequence[Figures], by: str) -> str:
    """A cell of the table: a median with the lowest and highest value, or a text."""
    if name == "ratio":
        own, other = ([r[by] for r in some if isinstance(r.get(by), float | int)]
                      for some in (runs, first))  # fmt: skip
        return f"{common.median(own) / common.median(other):.3g}" if own and other else ""
    # a figure that is not a number says nothing, as the rate of a learner that has none
    values = [r[name] for r in runs if r.get(name) is not None and r[name] == r[name]]
    if not values:
        return str(runs[-1].get("error", "")) if name == by else ""
    if isinstance(values[-1], str | bool):
        return ", ".join(sorted({str(value) for value in values}))
    return common.spread(values, common.FORMATS.get(name))


def panels_of(
    case: Case, lines: Iterable[tuple[str, Sequence[Figures]]]
) -> dict[str, dict[str, Any]]:
    """The curves of the last runs by panel and label; a line may name both."""
    panels: dict[str, dict[str, Any]] = {}
    for label, runs in lines:
        if "curve" in runs[-1]:
            panel = str(runs[-1].get("panel", case.title))
            panels.setdefault(panel, {})[runs[-1].get("label", label)] = runs[-1]["curve"]
    return panels


# -- solvers by their distance from the optimum ----------------------------------------------------


def climb(
    case: Case, repeat: int, core: int | None, out: Path | None
) -> list[tuple[str, list[Figures]]]:
    """Tighten tolerances; a figure ``within LEVEL`` is the fastest run that came so near."""
    ladder = case.ladder
    assert ladder is not None
    first = next(iter(case.compare.values()))
    best = spawn(case, {**case.options, **first, "tol": ladder.optimal}, core)[0]
    if "error" in best or best["gap"] > 10.0 * ladder.optimal:
        sys.exit(f"{case.name}: no optimum to a gap of {ladder.optimal:g}: {best}")
    optimum = best["objective"]
    print(f"optimum {optimum:.10g}, certified gap {best['gap']:.1e}\n", flush=True)
    climbs: dict[str, list[list[Figures]]] = {label: [] for label in case.compare}
    for turn in range(repeat):
        for label, own in case.compare.items():
            runs: list[Figures] = []
            for tol in own.get("tolerances", tolerances_of(ladder, climbs[label])):
                options = {k: v for k, v in own.items() if k != "tolerances"}
                figures = spawn(case, {**case.options, **options, "tol": tol}, core)[0]
                figures["away"] = figures.get("objective", math.inf) / optimum - 1.0
                figures["tolerance"] = tol
                runs.append(figures)
                record(case, label, turn, figures, out)
                if figures["away"] <= ladder.levels[-1] or "error" in figures:
                    break
                if figures[ladder.timed] > ladder.limit:
                    break
            climbs[label].append(runs)
    lines = []
    for label, found in climbs.items():
        lines.append((label, [summary(runs, ladder) for runs in found]))
        # what is reported has seconds of the clock
        if ladder.timed == "seconds" and all("reported" in runs[-1] for runs in found):
            reports = [progress(runs[-1], optimum, ladder) for runs in found]
            lines.append((f"... progress of {label}", [summary(r, ladder) for r in reports]))
    return lines


def tolerances_of(ladder: Ladder, before: Sequence[list[Figures]]) -> list[float]:
    """The tolerances to try; after the first climb, those that reached a level first or fastest."""
    if not before:
        return list(ladder.tolerances)
    worth: set[float] = set()
    for level in ladder.levels:
        near = [r for r in before[0] if r["away"] <= level]
        worth |= {r["tolerance"] for r in (*near[:1], *fastest(near, ladder))}
    return sorted(worth, reverse=True) or list(ladder.tolerances[:1])


def fastest(runs: Sequence[Figures], ladder: Ladder) -> list[Figures]:
    """The run of least time, as a list that is empty if there are no runs."""
    return sorted(runs, key=lambda r: float(r[ladder.timed]))[:1]


def summary(runs: Sequence[Figures], ladder: Ladder) -> Figures:
    """The figures of a climb: those of its last run, and the least time to each level."""
    found = dict(runs[-1])
    if "error" in found and len(runs) == 1:
        return found
    for level in ladder.levels:
        near = fastest([r for r in runs if r["away"] <= level], ladder)
        longest = max(float(r.get(ladder.timed, 0.0)) for r in runs)
        found[f"within {level:g}"] = near[0][ladder.timed] if near else f"> {longest:.3g}"
    near = fastest([r for r in runs if r["away"] <= 1e-4 and "load" in r], ladder)
    if near:
        found["from files"] = near[0]["load"] + near[0].get("making", 0.0) + near[0]["seconds"]
    return found


def progress(run: Figures, optimum: float, ladder: Ladder) -> list[Figures]:
    """The objectives that a run reported, as if each were a run of its own."""
    return [
        {ladder.timed: seconds, "objective": value, "away": value / optimum - 1.0}
        for seconds, value in run["reported"]
    ]


# -- options of the command line -------------------------------------------------------------------


def with_options(case: Case, given: Mapping[str, str], chosen: Sequence[str]) -> Case:
    """The case with other options; a list of values, separated by commas, is compared.

    Parameters
    ----------
    case : Case
    given : mapping
        Values as texts. A case ignores the options that it does not know.
    chosen : sequence of str
        The labels that are compared; empty: all.
    """
    known = parameters(case)[0] | parameters(case)[1]
    own = {name: [_value(part) for part in text.split(",")]
           for name, text in given.items() if name in known}  # fmt: skip
    compare = {label: options for label, options in case.compare.items()
               if not chosen or label in chosen}  # fmt: skip
    single = {name: values[0] for name, values in own.items() if len(values) == 1}
    several = {name: values for name, values in own.items() if len(values) > 1}
    left = {label: {k: v for k, v in options.items() if k not in own}
            for label, options in compare.items()}  # fmt: skip
    texts = [json.dumps(options) for options in left.values()]
    stripped = {}
    for label, options in left.items():
        # a label names values that are overridden, if another line has the same options without them
        if texts.count(json.dumps(options)) > 1 or any(f"{name} = " in label for name in own):
            label_of_rest = ", ".join(f"{k} = {v}" for k, v in options.items())
            stripped[label_of_rest] = options
        else:
            stripped[label] = options
    crossed = {}
    for label, options in stripped.items():
        for values in itertools.product(*several.values()):
            more = dict(zip(several, values, strict=True))
            words = [label, *(f"{name} = {value}" for name, value in more.items())]
            crossed[", ".join(filter(None, words))] = {**options, **more}
    return replace(case, options={**case.options, **single}, compare=crossed)


def _value(text: str) -> Any:
    """A number, a truth value, or the text itself; semicolons stand for commas within a value."""
    try:
        return json.loads(text)
    except json.JSONDecodeError:
        return {"none": None, "True": True, "False": False}.get(text, text.replace(";", ","))


def axes(**values: Sequence[Any]) -> dict[str, dict[str, Any]]:
    """All combinations of options, by labels."""
    found = {}
    for some in itertools.product(*values.values()):
        own = dict(zip(values, some, strict=True))
        found[", ".join(f"{name} = {value}" for name, value in own.items())] = own
    return found
