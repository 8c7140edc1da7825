"""Other commands with a fault.

They must leave the earlier output or write the whole new one, and end with the bits of a job that nothing
disturbed.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import time
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

import fcl
from fcl.errors import FclError
from tools.fuzz.case import Case
from tools.fuzz.faulted import ENDED, Run
from tools.fuzz.faults import Fault, choose
from tools.fuzz.run import Done, Session
from tools.fuzz.training import Training

#: What an earlier job may have left under the name of the output: a file, or this file of a group.
EARLIER = b'{"zarr_format": 3, "node_type": "group", "attributes": {"earlier": true}}'


@dataclass(frozen=True)
class Output:
    """A command, with places in braces: ``{data}``, ``{out}`` and ``{place}`` for files beside it."""

    words: str
    out: str
    resume: str = ""  #: how to resume; otherwise the same command starts again


OUTPUTS = {
    "online": Output(
        "online {data}/rows --features columns --alpha 1e-4 --rate 0.1 --passes 12 --block-rows 512 "
        "--out {out}",
        "model.fcl",
        "online {data}/rows --resume {out} --passes 12 --out {out}",
    ),
    "stagewise": Output(
        "stagewise {data}/rows --features fourier:n=1536,gamma=0.1 --block 64 --patience 999 --cores 1 "
        "--checkpoint {place}/states --checkpoint-every 0.02s --out {out}",
        "model.fcl",
        "stagewise --resume {place}/states --out {out}",
    ),
    "path": Output(
        "train {data}/rows --features products:degree=2 --path 5 --cv 3 --driver inline --out {out}",
        "model.fcl",
    ),
    "convert": Output("convert {data}/rows.csv {out} --y y --groups g", "rows.zarr"),
    "predict": Output("predict {data}/model.fcl {data}/rows.csv --y y --out {out}", "scores.tsv"),
    "report": Output("report {data}/model.fcl --data {data}/rows.zarr --out {out}", "page.html"),
}


@dataclass(frozen=True)
class Table:
    """The data of the commands in a folder, and what each writes if nothing disturbs it."""

    folder: Path
    n_rows: int = 20_000

    def make(self) -> Table:
        """Write the data, unless they are there."""
        if self.folder.exists():
            return self
        (self.folder / "rows").mkdir(parents=True)
        (self.folder / "tmp").mkdir()
        numbers, n = np.random.default_rng(0), self.n_rows
        X = numbers.normal(size=(n, 12)).round(3)
        y = (X[:, 0] - X[:, 1] * X[:, 2] + numbers.normal(size=n) > 0).astype(int)
        np.save(self.folder / "rows" / "X.npy", X.astype(np.float32))
        np.save(self.folder / "rows" / "y.npy", y.astype(np.int8))
        lines = [",".join([*(f"x{j}" for j in range(12)), "g", "y"])]
        for i, (row, label) in enumerate(zip(X.tolist(), y.tolist(), strict=True)):
            lines.append(",".join([*map(str, row), f"g{i % 7}", str(label)]))
        (self.folder / "rows.csv").write_text("\n".join([*lines, ""]))
        train = (
            "train {data}/rows.zarr --features columns --C 1 --driver inline --out {data}/model.fcl"
        )
        for words in (OUTPUTS["convert"].words, train):
            self._run(words.format(data=self.folder, out=self.folder / "rows.zarr"))
        return self

    @cache  # noqa: B019
    def undisturbed(self, name: str) -> tuple[dict[str, str], float]:
        """The content of the output of a command, and its seconds after its first word."""
        place = self.folder / f"reference-{name}"
        place.mkdir()
        out = place / OUTPUTS[name].out
        seconds = self._run(OUTPUTS[name].words.format(data=self.folder, out=out, place=place))
        return content(out), seconds

    def _run(self, words: str) -> float:
        session = start_output(words.split(), self.folder)
        _wait_for_words(session)
        begun = time.monotonic()
        done = session.finish()
        if done.code != 0:
            raise RuntimeError(f"{words}: exit code {done.code}: {done.errors}")
        return time.monotonic() - begun


def start_output(words: list[str], folder: Path) -> Session:
    """Start one of the commands."""
    environment = {"TMPDIR": os.fspath(folder / "tmp"), "FCL_FAULTS_SAVE_OFTEN": "1"}
    return Session(words, folder, environment)


def _wait_for_words(session: Session) -> None:
    """Wait until a command says what it reads: from then on it, not Python, answers signals."""
    while session.running and not session.errors:
        session.pause(0.005)


def content(path: Path) -> dict[str, str]:
    """What an output holds, without times: digests of arrays or bytes; raises if it is not whole."""
    arrays: dict[str, Any] = {}
    if path.suffix == ".fcl":
        model: Any = fcl.load_model(path)
        weights = getattr(model.weights, "features", model.weights)
        arrays = {"weights": weights, "ids": getattr(model, "ids", np.zeros(0))}
        arrays["intercept"] = getattr(model.weights, "intercepts", getattr(model, "intercept", 0.0))
    elif path.suffix == ".zarr":
        import zarr

        members: Any = zarr.open_group(os.fspath(path), mode="r").members(max_depth=None)
        arrays = {name: each[...] for name, each in members if hasattr(each, "shape")}
    else:
        arrays = {"bytes": np.frombuffer(path.read_bytes(), np.uint8)}
    found = {}
    for name, values in arrays.items():
        array = np.ascontiguousarray(values)
        raw = repr(array.tolist()).encode() if array.dtype == object else array.tobytes()
        found[name] = hashlib.sha256(raw).hexdigest()
    return found


class OutputRun(Run):
    """A run of a command that must leave the earlier output, or write the whole new one."""

    def __init__(self, case: Case, fault: Fault, n_rows: int = 20_000) -> None:
        super().__init__(case, fault)
        # with --overwrite, a path would start over
        self.has_earlier = fault.command != "path" and self.rng.random() < 0.5
        case.note("an earlier output" if self.has_earlier else "no earlier output")
        self.table = Table(case.stock / f"table-{n_rows}", n_rows).make()
        self.output = OUTPUTS[fault.command]
        self.expected, self.seconds = self.table.undisturbed(fault.command)
        self.out = self.disk / self.output.out

    @property
    def _earlier(self) -> Path:
        return self.out / "zarr.json" if self.out.suffix == ".zarr" else self.out

    def _is_earlier(self) -> bool:
        return self._earlier.is_file() and self._earlier.read_bytes() == EARLIER

    def set_up(self) -> None:
        """Write an earlier output."""
        if self.has_earlier:
            self._earlier.parent.mkdir(exist_ok=True)
            self._earlier.write_bytes(EARLIER)

    def words(self) -> list[str]:
        words = self.output.words
        if self.output.resume and self._can_resume():
            words = self.output.resume
        more = ["--overwrite"]
        if self.fault.command == "path":
            self.out.unlink(missing_ok=True)
            more = []
        return [*words.format(data=self.table.folder, out=self.out, place=self.disk).split(), *more]

    def _can_resume(self) -> bool:
        if self.fault.command == "stagewise":
            return (self.disk / "states" / "checkpoint-1.fcl-ckpt").is_file()
        return self.out.is_file() and not self._is_earlier()

    def start(self, words: list[str], faulty: bool = False) -> Session:
        return start_output(words, self.folder)

    def wait_for_moment(self, session: Session) -> bool:
        _wait_for_words(session)
        return session.pause_until(time.monotonic() + self.rng.uniform(0.0, 1.1 * self.seconds))

    def judge(self, session: Session, done: Done) -> None:
        """Judge what is under the name of the output."""
        moved = [Path(path) for path in self.moved]
        for path in moved:
            self._check_whole(path)
            if path.is_dir():
                shutil.rmtree(path)
            else:
                path.unlink(missing_ok=True)
        if self._is_earlier():
            if done.code in ENDED:
                self.wrong.append("the earlier output stands, although the command succeeded")
        elif os.path.lexists(self.out):
            self._check_whole(self.out)
        elif self.has_earlier:
            self.wrong.append("the earlier output is gone")
        elif done.code in ENDED and not moved:
            self.wrong.append("no output, although the command succeeded")

    def _check_whole(self, path: Path) -> None:
        try:
            content(path)
        except (FclError, OSError, ValueError, KeyError) as error:
            self.wrong.append(f"{path.name} is not whole: {error}")

    def again(self) -> Done:
        done = self.finish(self.start(self.words()))
        if done.code == 2 and "the run has made 12 of 12 passes" in done.errors:
            self.codes[-1] = 0  # it was killed after its last word
        elif done.code != 0:
            self.wrong.append(f"without a fault: exit code {done.code}: {done.errors[-800:]}")
        return done

    def compare(self) -> None:
        """Compare the bits of the output with the output of an undisturbed job."""
        # online and stagewise end with exit code 0 when a signal stops them
        may_continue = self.codes == [0] and self.stop_requested
        if may_continue and self.fault.command in ("stagewise", "online"):
            self.again()
            if self.codes[-1] != 0:
                return
        found = content(self.out)
        differs = [name for name in self.expected if found.get(name) != self.expected[name]]
        if differs or found.keys() != self.expected.keys():
            self.wrong.append(f"other bits than an undisturbed job: {', '.join(differs)}")

    def left_files(self) -> list[str]:
        out = self.output.out
        known = {out, "states", f"{out}.path", f"{out}.checkpoint"}
        found = [path for path in self.disk.iterdir() if path.name not in known]
        return super().left_files() + [os.fspath(path.relative_to(self.folder)) for path in found]


def run_case(case: Case) -> list[str]:
    """Run the case of a fault; return what is wrong."""
    fault = choose(case)
    case.note(fault.name)
    run: Run = Training(case, fault) if fault.command == "train" else OutputRun(case, fault)
    return run.go()
