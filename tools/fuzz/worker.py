"""Run cases in one process, whose kernels stay loaded."""

from __future__ import annotations

import contextlib
import json
import os
import random
import re
import resource
import shutil
import sys
import tempfile
import time
import traceback
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from tools.fuzz.case import Case, Trial
from tools.fuzz.kinds import KINDS
from tools.fuzz.odd import CANARIES
from tools.fuzz.run import PATIENCE, Done, Session, Watch, capture, run_inside
from tools.fuzz.stock import make_stock
from tools.fuzz.verdict import judge, tree

#: Share of the cases that run as a separate process although they could run inside the worker.
SHARE_OF_PROCESSES = 0.05
#: What a module in the working folder does if a command imports it: it leaves a file that is no output.
CANARY = "import pathlib\npathlib.Path(__file__).with_suffix('.imported').touch()\n"
COMPILING = re.compile(r"^fcl: (compiling kernels|kernels compiled).*$", re.MULTILINE)
#: Bytes of address space of a worker; libraries and threads reserve a few GiB.
MOST_ADDRESSES = 16 << 30


@dataclass
class Result:
    """The result of one case: a line of the output."""

    case: int
    kind: str
    group: str = ""  #: the row of the summary table
    outcome: str = ""  #: "success", "exit 2", "refused", "met", "hang", "crash", ...
    faults: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)  #: what was odd
    arguments: list[str] = field(default_factory=list)
    figures: dict[str, Any] = field(default_factory=dict)
    seconds: float = 0.0
    said: str = ""  #: the end of stderr, if anything is wrong
    again: str = ""  #: a command that does this case alone


def kind_of(seed: int, number: int, wanted: list[str]) -> str:
    """The kind of a case, perhaps with a text in the names of its cases: ``fault:writer``."""
    shares = [KINDS[kind.partition(":")[0]].share for kind in wanted]
    return random.Random(f"kind-{seed}-{number}").choices(wanted, shares)[0]


def new_result(seed: int, number: int, wanted: list[str]) -> Result:
    """The result of a case that has not begun."""
    kind = kind_of(seed, number, wanted).partition(":")[0]
    again = f"python -m tools.fuzz --seed {seed} --kinds {','.join(wanted)} --only {number}"
    return Result(number, kind, kind, again=again)


class Worker:
    """Runs cases by number, each in a new folder, which is removed if the case passes.

    Parameters
    ----------
    seed : int
        Together with the number it determines a case.
    wanted : list of str
        Kinds of cases.
    folder : Path
        The folder of this worker; no other worker uses it.
    """

    def __init__(self, seed: int, wanted: list[str], folder: Path) -> None:
        self.seed, self.wanted = seed, wanted
        self.folder = Path(os.path.realpath(folder))
        self.stock = self.folder / "stock"
        self.temporary = self.folder / "temporary"
        for path in (self.stock, self.temporary):
            path.mkdir(parents=True)
        if any(KINDS[kind.partition(":")[0]].is_quick for kind in wanted):
            make_stock(self.stock)

    def do(self, number: int, begun: Callable[[Result], None] = lambda result: None) -> Result:
        """Make, run and judge a case; ``begun`` is called with the incomplete result before the run."""
        result = new_result(self.seed, number, self.wanted)
        within = kind_of(self.seed, number, self.wanted).partition(":")[2]
        place = self.folder / f"case-{number}"
        discard(place)
        place.mkdir()
        case = Case(self.seed, number, result.kind, place, self.stock, within)
        began = time.monotonic()
        temporary = os.environ.get("TMPDIR"), tempfile.tempdir
        os.environ["TMPDIR"], tempfile.tempdir = os.fspath(self.temporary), None
        try:
            trial = KINDS[result.kind].make(case)
            result.notes, result.arguments = case.notes, trial.arguments
            begun(result)
            (self._call if trial.call else self._run)(case, trial, result)
            for left in self.temporary.iterdir() if trial.is_watched else ():
                result.faults.append(f"left in the temporary folder: {left.name[:9]}...")
                discard(left)
        except Exception:  # a bug of the harness itself
            result.faults.append(f"harness: {traceback.format_exc()[-600:]}")
        finally:
            tempfile.tempdir = temporary[1]
            del os.environ["TMPDIR"]
            if temporary[0] is not None:
                os.environ["TMPDIR"] = temporary[0]
        result.seconds = round(time.monotonic() - began, 3)
        if not result.faults:
            discard(place)
        return result

    def _run(self, case: Case, trial: Trial, result: Result) -> None:
        """Run a command, in this process or in a session of its own."""
        for name in CANARIES:
            (case.folder / f"{name}.py").write_text(CANARY)
        before = tree(case.folder)
        streams = trial.streams
        if streams is None and case.chance(SHARE_OF_PROCESSES):
            streams = ""
        if streams is None:
            watch = Watch(case.folder)
            done = run_inside(trial.arguments, case.folder, trial.stdin)
            done.left += watch.left()
            for name in [n for n, m in sys.modules.items() if _lies_in(m, case.folder)]:
                del sys.modules[name]
        else:
            limit = KINDS[case.kind].limit * PATIENCE
            done = Session(
                trial.arguments, case.folder, streams=streams, stdin=trial.stdin, limit=limit
            ).finish()
        # the checks print messages of their own
        with capture(Done()):
            result.outcome, faults = judge(case, trial, done, before, tree(case.folder))
        result.faults += faults
        if result.faults:
            result.said = done.errors[-1500:]

    def _call(self, case: Case, trial: Trial, result: Result) -> None:
        """Make a Python call."""
        assert trial.call is not None
        done = Done()
        watch = Watch(case.folder)
        with capture(done), contextlib.chdir(case.folder):
            result.faults += trial.call()
        trial.call = None  # with the arrays that it holds
        result.outcome = case.outcome or ("refused" if "refused" in case.notes else "success")
        result.group, result.figures, result.said = case.group, case.figures, case.said[-3000:]
        if trial.is_watched:
            result.faults += watch.left()
            # kernels of rare types are compiled once for each machine
            said = COMPILING.sub("", done.output + done.errors).strip()
            if said:
                result.faults.append(f"unexpected output: {said[:200]}")


def _lies_in(module: object, folder: Path) -> bool:
    return str(getattr(module, "__file__", None) or "").startswith(os.fspath(folder))


def discard(path: Path) -> None:
    """Remove a file or a folder, even without permissions."""
    if not os.path.isdir(path) or path.is_symlink():
        path.unlink(missing_ok=True)
        return
    path.chmod(0o700)
    for root, folders, _ in os.walk(path):  # top-down: changes a folder before it is listed
        for name in folders:
            if not os.path.islink(os.path.join(root, name)):
                os.chmod(os.path.join(root, name), 0o700)
    shutil.rmtree(path)


def serve(seed: int, wanted: list[str], folder: Path) -> None:
    """Run the cases whose numbers come on standard input.

    For each case, two lines of JSON go to standard output: what is run, and the result.
    """
    # huge allocations must fail in this process, before the machine runs out of memory
    _, hard = resource.getrlimit(resource.RLIMIT_AS)
    resource.setrlimit(resource.RLIMIT_AS, (MOST_ADDRESSES, hard))
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # all other output goes to stderr
    numbers = os.fdopen(os.dup(0), "r")
    worker = Worker(seed, wanted, folder)
    print("ready", file=answers, flush=True)
    for line in iter(numbers.readline, ""):
        begun: list[Result] = []

        def begin(result: Result, begun: list[Result] = begun) -> None:
            begun.append(result)
            print(json.dumps(asdict(result)), file=answers, flush=True)

        result = worker.do(int(line), begin)
        if not begun:  # the harness itself failed before
            begin(result)
        print(json.dumps(asdict(result)), file=answers, flush=True)
