"""Runs of the commands beside ``fcl train DATA``: an earlier output stays, or the new one is whole.

A command is killed, stopped or meets a full disk. Afterwards it is resumed, or started again, until it
ends; its output must then have the bits of a job that nothing disturbed.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import random
import re
import shutil
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

import fcl
from fcl.errors import FclError
from tools.campaign.cases import Case
from tools.campaign.command import Command, Hang
from tools.campaign.run import STOP_LIMIT, Outcome, _shared_memory

#: What an earlier job may have left under the name of the output: a file, or this file of a group.
EARLIER = b'{"zarr_format": 3, "node_type": "group", "attributes": {"earlier": true}}'


@dataclass(frozen=True)
class Other:
    """A command, with places in braces: ``{data}``, ``{out}`` and ``{place}`` for files beside it."""

    words: str
    out: str
    resume: str = ""  #: how to resume; otherwise the same command starts again


COMMANDS = {
    "online": Other(
        "online {data}/rows --features columns --alpha 1e-4 --rate 0.1 --passes 12 --block-rows 512 "
        "--out {out}",
        "model.fcl",
        "online {data}/rows --resume {out} --passes 12 --out {out}",
    ),
    "stagewise": Other(
        "stagewise {data}/rows --features fourier:n=1536,gamma=0.1 --block 64 --patience 999 --cores 1 "
        "--checkpoint {place}/states --checkpoint-every 0.02s --out {out}",
        "model.fcl",
        "stagewise --resume {place}/states --out {out}",
    ),
    "path": Other(
        "train {data}/rows --features products:degree=2 --path 5 --cv 3 --driver inline --out {out}",
        "model.fcl",
    ),
    "convert": Other("convert {data}/rows.csv {out} --y y --groups g", "rows.zarr"),
    "predict": Other("predict {data}/model.fcl {data}/rows.csv --y y --out {out}", "scores.tsv"),
    "report": Other("report {data}/model.fcl --data {data}/rows.zarr --out {out}", "page.html"),
}
#: Faults: how often one round has them for each command, and the exit codes that may follow.
FAULTS: dict[str, tuple[int, tuple[int, ...]]] = {
    "kill": (5, (0, -9)),
    "terminate": (2, (0, 143)),
    "interrupt": (2, (0, 130)),
    "hangup": (1, (0, 129)),
    "terminate-twice": (2, (0, 143)),
    "freeze": (1, (0,)),
    "no-reader": (2, (0,)),
    "output-disk-full": (3, (0, 1, 6)),
    "output-disk-freed": (2, (0, 1, 6)),
}
_SIGNALS = {
    "kill": signal.SIGKILL,
    "terminate": signal.SIGTERM,
    "terminate-twice": signal.SIGTERM,
    "interrupt": signal.SIGINT,
    "hangup": signal.SIGHUP,
}


def other_cases() -> list[Case]:
    """One round of the commands of this module."""
    return [
        Case(f"{command}-{kind}", kind, codes, command=command)
        for command in COMMANDS
        for kind, (times, codes) in FAULTS.items()
        for _ in range(times)
    ]


class Material:
    """The data of the commands, and what each writes if nothing disturbs it."""

    def __init__(self, folder: Path, n_rows: int = 20_000) -> None:
        self.folder, self.n_rows = folder / "others", n_rows

    @cache  # noqa: B019  (there is one)
    def make(self) -> Path:
        """Make the data; returns their folder."""
        shutil.rmtree(self.folder, ignore_errors=True)
        (self.folder / "rows").mkdir(parents=True)
        numbers, n = np.random.default_rng(0), self.n_rows
        X = numbers.normal(size=(n, 12)).round(3)
        y = (X[:, 0] - X[:, 1] * X[:, 2] + numbers.normal(size=n) > 0).astype(int)
        np.save(self.folder / "rows" / "X.npy", X.astype(np.float32))
        np.save(self.folder / "rows" / "y.npy", y.astype(np.int8))
        head = ",".join([*(f"x{j}" for j in range(12)), "g", "y"])
        lines = [
            ",".join([*map(str, row), f"g{i % 7}", str(label)])
            for i, (row, label) in enumerate(zip(X.tolist(), y.tolist(), strict=True))
        ]
        (self.folder / "rows.csv").write_text("\n".join([head, *lines, ""]))
        train = (
            "train {data}/rows.zarr --features columns --C 1 --driver inline --out {data}/model.fcl"
        )
        for words in (COMMANDS["convert"].words, train):
            self._run(words.format(data=self.folder, out=self.folder / "rows.zarr"))
        return self.folder

    @cache  # noqa: B019
    def reference(self, name: str) -> tuple[dict[str, str], float]:
        """The content of the output of an undisturbed command, and its seconds after its first word."""
        place = self.make() / f"reference-{name}"
        place.mkdir()
        out = place / COMMANDS[name].out
        seconds = self._run(COMMANDS[name].words.format(data=self.folder, out=out, place=place))
        return content(out), seconds

    def _run(self, words: str) -> float:
        place = self.folder / "tmp"
        place.mkdir(exist_ok=True)
        command = Command(self.folder, words.split(), command="fcl")
        _wait_for_words(command)
        begun = time.monotonic()
        code = command.wait()
        if code != 0:
            raise RuntimeError(f"{words}: exit code {code}: {command.errors}")
        command.left()
        return time.monotonic() - begun


def _wait_for_words(command: Command) -> None:
    """Wait until a command says what it reads: from then on it, not Python, answers signals."""
    while command.running and not command.errors:
        command.pause(0.005)


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
    return {
        name: hashlib.sha256(np.ascontiguousarray(each).tobytes() if each.dtype != object
                             else repr(each.tolist()).encode()).hexdigest()
        for name, each in ((name, np.asarray(array)) for name, array in arrays.items())
    }  # fmt: skip


class OtherRun:
    """One run of a command of this module, in its own folder."""

    def __init__(
        self, number: int, case: Case, seed: int, material: Material, folder: Path
    ) -> None:
        self.case, self.material, self.folder = case, material, folder
        self.rng = random.Random(f"{seed}-{number}-{case.name}")
        self.has_earlier = self.rng.random() < 0.5
        setting = {"command": case.command, "earlier": self.has_earlier}
        self.outcome = Outcome(number, case.name, case.group, setting)
        for name in ("tmp", "place"):
            (folder / name).mkdir(parents=True)
        self.place = folder / "place"
        self.moved: list[Path] = []  # where a message says that the output is instead
        self.other = COMMANDS[case.command]

    @property
    def out(self) -> Path:
        return self.place / self.other.out

    @property
    def _earlier(self) -> Path:
        return self.out / "zarr.json" if self.out.suffix == ".zarr" else self.out

    def go(self) -> Outcome:
        """Make the run, and judge its outcome."""
        outcome, shared = self.outcome, _shared_memory()
        expected, seconds = self.material.reference(self.case.command)
        begun = time.monotonic()
        with self._disk() as (reason, room):
            if reason:
                outcome.skipped = reason
                return outcome
            if self.has_earlier:
                self._earlier.parent.mkdir(exist_ok=True)
                self._earlier.write_bytes(EARLIER)
            command = self._start(self.other.words)
            try:
                outcome.fired = self._fault(command, seconds, room)
                code = command.wait()
            except Hang:
                outcome.hang = True
                command.kill()
                return outcome
            outcome.codes.append(code)
            outcome.left += command.left()
            self._judge(command, code, expected)
            room()
            while code not in (0, 6) and len(outcome.codes) < 4:
                code = self._again()
                outcome.codes.append(code)
            if code not in (0, 6):
                outcome.wrong.append(f"not finished: exit codes {outcome.codes}")
            else:
                self._compare(expected)
            outcome.left += self._files()
        outcome.left += [f"/dev/shm/{name}" for name in sorted(_shared_memory() - shared)]
        outcome.seconds = round(time.monotonic() - begun, 2)
        if not outcome.good:
            outcome.said = command.errors[-3000:]
        return outcome

    def _start(self, words: str) -> Command:
        data = self.material.folder
        arguments = words.format(data=data, out=self.out, place=self.place).split()
        more = [] if self.case.command == "path" else ["--overwrite"]
        if self.case.command == "path" and self.has_earlier:
            self.out.unlink(missing_ok=True)  # with --overwrite a path would start over
            self.has_earlier = False
        return Command(self.folder, [*arguments, *more], command="fcl")

    def _again(self) -> int:
        """Resume the job, or start it again, without a fault."""
        words = self.other.words
        if self.other.resume and self._can_resume():
            words = self.other.resume
        if self.case.command == "path" and self.out.exists():
            self.out.unlink()
        command = self._start(words)
        code = command.wait()
        self.outcome.left += command.left()
        if code == 2 and "the run has made 12 of 12 passes" in command.errors:
            return 0  # it was killed after its last word
        if code != 0:
            self.outcome.wrong.append(f"without a fault: exit code {code}: {command.errors[-800:]}")
        return code

    def _can_resume(self) -> bool:
        if self.case.command == "stagewise":
            return (self.place / "states" / "checkpoint-1.fcl-ckpt").is_file()
        return self.out.is_file() and not self._is_earlier()

    def _is_earlier(self) -> bool:
        return self._earlier.is_file() and self._earlier.read_bytes() == EARLIER

    def _fault(self, command: Command, seconds: float, room: Callable[[], None]) -> bool:
        """Wait for a random moment, and make the command fail; returns whether it still ran."""
        kind = self.case.kind
        _wait_for_words(command)
        until = time.monotonic() + self.rng.uniform(0.0, 1.1 * seconds)
        while command.running and time.monotonic() < until:
            command.pause(0.005)
        if not command.running:
            return "disk" in kind  # which was full from the start
        if kind in _SIGNALS:
            stopped = time.monotonic()
            command.signal(_SIGNALS[kind])
            if kind.endswith("twice"):
                command.pause(self.rng.uniform(0.26, 0.5))
                command.signal(_SIGNALS[kind])
            command.wait()
            self.outcome.stop_seconds = round(time.monotonic() - stopped, 2)
            if self.outcome.stop_seconds > STOP_LIMIT:
                self.outcome.wrong.append(f"{self.outcome.stop_seconds} s to stop")
        elif kind == "freeze":
            os.killpg(command.pid, signal.SIGSTOP)
            time.sleep(self.rng.uniform(0.1, 0.5))
            os.killpg(command.pid, signal.SIGCONT)
        elif kind == "no-reader":
            command.stop_reading()
        elif kind == "output-disk-freed":
            room()
        return True

    # -- outcome

    def _judge(self, command: Command, code: int, expected: dict[str, str]) -> None:
        """Judge the exit code, the messages, and what is under the name of the output."""
        outcome = self.outcome
        if code not in self.case.codes or (code != 0 and not outcome.fired):
            outcome.wrong.append(f"exit code {code}, expected one of {self.case.codes}")
        for words in ("Traceback", "Exception ignored", "Fatal Python"):
            if words in command.errors:
                outcome.wrong.append(words)
        moved = re.findall(r"written to (\S+) instead", command.errors)
        self.moved = [Path(path.rstrip(";")) for path in moved]
        for path in self.moved:
            self._whole(path)
            if path.is_dir():
                shutil.rmtree(path)
            else:
                path.unlink(missing_ok=True)
        if self._is_earlier():
            if code in (0, 6):
                outcome.wrong.append("the earlier output stands, although the command succeeded")
        elif os.path.lexists(self.out):
            self._whole(self.out)
        elif self.has_earlier:
            outcome.wrong.append("the earlier output is gone")
        elif code in (0, 6) and not moved:
            outcome.wrong.append("no output, although the command succeeded")

    def _whole(self, path: Path) -> None:
        try:
            content(path)
        except (FclError, OSError, ValueError, KeyError) as error:
            self.outcome.wrong.append(f"{path.name} is not whole: {error}")

    def _compare(self, expected: dict[str, str]) -> None:
        """Compare the bits of the output with the output of an undisturbed job."""
        interrupted = self.outcome.codes == [0] and self.case.kind in _SIGNALS
        if interrupted and self.case.command in ("stagewise", "online") and self._go_on():
            return
        found = content(self.out)
        differs = [name for name in expected if found.get(name) != expected[name]]
        if differs or found.keys() != expected.keys():
            self.outcome.wrong.append(f"other bits than an undisturbed job: {', '.join(differs)}")

    def _go_on(self) -> bool:
        """Continue a job that a signal ended with exit code 0; returns whether that failed."""
        code = self._again()
        self.outcome.codes.append(code)
        return code != 0

    def _files(self) -> list[str]:
        """Files that should not be left."""
        known = {self.other.out, "states", f"{self.other.out}.path", f"{self.other.out}.checkpoint"}
        found = [path for path in (self.folder / "tmp").iterdir()
                 if not any(moved.is_relative_to(path) for moved in self.moved)]  # fmt: skip
        found += [path for path in self.place.iterdir() if path.name not in known]
        return [os.fspath(path.relative_to(self.folder)) for path in found]

    @contextlib.contextmanager
    def _disk(self) -> Iterator[tuple[str, Callable[[], None]]]:
        """A small disk for the output, if the case needs it; yields a reason, and how to enlarge it."""
        if "disk" not in self.case.kind:
            yield "", lambda: None
            return
        size = self.rng.choice((4, 8, 16, 64, 256, 1024))
        mount = ["mount", "-t", "tmpfs", "-o", f"size={size}k", "tmpfs", os.fspath(self.place)]
        try:
            done = subprocess.run(mount, capture_output=True, text=True, check=False)
            failed = done.stderr.strip() if done.returncode else ""
        except OSError as error:
            failed = str(error)
        if failed:
            yield f"cannot mount a small disk: {failed}", lambda: None
            return

        def room() -> None:
            enlarge = ["mount", "-o", "remount,size=256m", os.fspath(self.place)]
            subprocess.run(enlarge, check=True)

        try:
            yield "", room
        finally:
            subprocess.run(["umount", "-l", os.fspath(self.place)], check=True)
