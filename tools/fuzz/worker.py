"""Run cases in one process, whose kernels stay loaded."""

from __future__ import annotations

import contextlib
import json
import os
import random
import resource
import shutil
import sys
import tempfile
import time
import traceback
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from pathlib import Path

from tools.fuzz import kinds
from tools.fuzz.case import Case, Trial
from tools.fuzz.execute import Done, Watch, capture, run_inside, run_process
from tools.fuzz.odd import CANARIES
from tools.fuzz.stock import make_stock
from tools.fuzz.verdict import judge, tree

#: Share of the cases that run as a separate process although they could run inside the worker.
SHARE_OF_PROCESSES = 0.05
#: What a module in the working folder does if a command imports it: it leaves a file that is no output.
CANARY = "import pathlib\npathlib.Path(__file__).with_suffix('.imported').touch()\n"
#: Bytes of address space of a worker; libraries and threads reserve a few GiB.
MOST_ADDRESSES = 16 << 30


@dataclass
class Result:
    """The result of one case: a line of the output."""

    case: int
    kind: str
    outcome: str = ""  #: "success", "exit 2", "refused", "hang", "crash"
    faults: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)  #: what was odd
    arguments: list[str] = field(default_factory=list)
    seconds: float = 0.0
    said: str = ""  #: the end of stderr, if anything is wrong
    again: str = ""  #: a command that does this case alone


def kind_of(seed: int, number: int, wanted: list[str]) -> str:
    """The kind of a case."""
    shares = [kinds.KINDS[kind][0] for kind in wanted]
    return random.Random(f"kind-{seed}-{number}").choices(wanted, shares)[0]


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
    limit : float
        Most seconds of a case that runs as a separate process.
    """

    def __init__(self, seed: int, wanted: list[str], folder: Path, limit: float) -> None:
        self.seed, self.wanted, self.limit = seed, wanted, limit
        self.folder = Path(os.path.realpath(folder))
        self.stock = self.folder / "stock"
        self.temporary = self.folder / "temporary"
        for path in (self.stock, self.temporary):
            path.mkdir(parents=True)
        make_stock(self.stock)

    def do(self, number: int, begun: Callable[[Result], None] = lambda result: None) -> Result:
        """Make, run and judge a case; ``begun`` is called with the incomplete result before the run."""
        kind = kind_of(self.seed, number, self.wanted)
        result = Result(number, kind, again=again(self.seed, number, self.wanted))
        place = self.folder / f"case-{number}"
        discard(place)
        place.mkdir()
        case = Case(self.seed, number, kind, place, self.stock)
        began = time.monotonic()
        temporary = os.environ.get("TMPDIR"), tempfile.tempdir
        os.environ["TMPDIR"], tempfile.tempdir = os.fspath(self.temporary), None
        try:
            trial = kinds.KINDS[kind][1](case)
            result.notes, result.arguments = case.notes, trial.arguments
            begun(result)
            (self._call if trial.call else self._run)(case, trial, result)
            for left in self.temporary.iterdir():
                result.faults.append(f"left in the temporary folder: {left.name[:9]}...")
                discard(left)
        except Exception:  # a bug of the fuzzer itself
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
            done = run_process(trial.arguments, case.folder, streams, self.limit, trial.stdin)
        # the checks print messages of their own
        with capture(Done()):
            result.outcome, faults = judge(case, trial, done, before, tree(case.folder))
        result.faults += faults
        if result.faults:
            result.said = done.errors[-1500:]

    def _call(self, case: Case, trial: Trial, result: Result) -> None:
        assert trial.call is not None
        done = Done()
        watch = Watch(case.folder)
        with capture(done), contextlib.chdir(case.folder):
            result.faults += trial.call()
        trial.call = None  # with the arrays that it holds
        result.faults += watch.left()
        result.outcome = "refused" if "refused" in case.notes else "success"
        if done.errors or done.output:
            result.faults.append(f"unexpected output: {(done.errors or done.output)[:200]}")


def _lies_in(module: object, folder: Path) -> bool:
    return str(getattr(module, "__file__", None) or "").startswith(os.fspath(folder))


def again(seed: int, number: int, wanted: list[str]) -> str:
    """The command that runs one case."""
    some = "" if len(wanted) == len(kinds.KINDS) else f" --kinds {','.join(wanted)}"
    return f"python -m tools.fuzz --seed {seed}{some} --only {number}"


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


def serve(seed: int, wanted: list[str], folder: Path, limit: float) -> None:
    """Run the cases whose numbers come on standard input.

    For each case, two lines of JSON go to standard output: what is run, and the result.
    """
    limit_memory()
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # all other output goes to stderr
    numbers = os.fdopen(os.dup(0), "r")
    worker = Worker(seed, wanted, folder, limit)

    def answer(result: Result) -> None:
        print(json.dumps(asdict(result)), file=answers, flush=True)

    print("ready", file=answers, flush=True)
    for line in iter(numbers.readline, ""):
        begun: list[Result] = []

        def begin(result: Result, begun: list[Result] = begun) -> None:
            begun.append(result)
            answer(result)

        result = worker.do(int(line), begin)
        if not begun:  # the harness itself failed before
            answer(result)
        answer(result)


def limit_memory() -> None:
    """Make huge allocations fail in this process, before the machine runs out of memory."""
    _, hard = resource.getrlimit(resource.RLIMIT_AS)
    resource.setrlimit(resource.RLIMIT_AS, (MOST_ADDRESSES, hard))
