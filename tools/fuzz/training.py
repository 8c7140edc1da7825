"""``fcl train`` with a fault, on C. elegans acceptor sites, with a random driver, family and row view.

It must end at the certified optimum, and may lose at most the work since its last checkpoint.
"""

from __future__ import annotations

import json
import os
import random
import shutil
import signal
from bisect import bisect_left
from dataclasses import asdict, dataclass
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

import fcl
from fcl.errors import BudgetError, InputError
from fcl.files.folder import CheckpointFolder
from tools.fuzz.case import Case
from tools.fuzz.faulted import DEADLINE, INTERVAL, START, STOPPED, Run
from tools.fuzz.faults import ACTS, Fault
from tools.fuzz.run import PATIENCE, ROOT, Done, Session


@dataclass(frozen=True)
class Size:
    """The size of a job."""

    every: int = 97  #: takes every k-th row that is not a site, and every ``every_site``-th site
    every_site: int = 2
    d: int = 4
    tol: float = 1e-5
    C: float = 1.0
    block_rows: int = 512
    chunk_rows: int = 1024
    spare: int = 3  #: MiB above the smallest budget, if memory is small


NORMAL = Size()
#: For tests: starting processes takes nearly all of the time.
SMALL = Size(every=800, every_site=8, d=3, tol=1e-4, block_rows=256, chunk_rows=256, spare=0)
#: Families by name: the array of rows, and the value of --features with ``{d}`` from the size.
FAMILIES = {
    "kmers": ("X", "kmers:d={d},origin=15"),
    "columns": ("letters", "columns"),
    "products": ("few", "products:degree=2"),
    "generator": ("X", "examples.generators.spaced_pairs:SpacedPairs:k=1,gap=1"),
    "several": ("X", "kmers:d=2 + bag:d=3 * 2"),
}


@dataclass(frozen=True)
class Setting:
    """The settings of one run; all of them lead to the optimum of their problem."""

    writers: int = 2  #: for the driver ``processes``
    driver: str = "processes"
    family: str = "kmers"  #: one of `FAMILIES`
    l1_ratio: float = 1.0
    small: bool = False  #: memory so small that columns are evicted and rows go to a scratch file
    sampled: bool = False  #: the trainer works on a sample of the rows
    valid: bool = False
    shared_files: bool = False
    resumed: bool = False  #: the fault occurs in a job that was resumed from a checkpoint

    @classmethod
    def choose(cls, fault: Fault, rng: random.Random) -> Setting:
        """Choose settings at random that satisfy the needs of the fault."""
        driver = rng.choice(("processes", "processes", "inline"))
        family = rng.choice(("kmers", "kmers", *FAMILIES))
        if fault.needs_processes:
            driver = "processes"
        if fault.needs in ("small", "sampled", "resumed"):
            family = "kmers"  # its size is known to suit these cases
        writers = rng.choice((1, 2, 2, 3))
        shares = {
            "small": 0.35,
            "sampled": 0.25,
            "valid": 0.15,
            "shared_files": 0.1,
            "resumed": 0.2,
        }
        chosen = {
            name: rng.random() < share or fault.needs == name for name, share in shares.items()
        }
        chosen["small"] &= driver == "processes" and family == "kmers"
        chosen["shared_files"] &= driver == "processes"
        if chosen["small"] and chosen["sampled"]:
            # A sample that cannot grow for lack of memory takes 200 passes to this gap. That is 30 s or
            # more, too long for a run.
            chosen["small"] = fault.needs != "sampled"
            chosen["sampled"] = not chosen["small"]
        return cls(writers, driver, family, rng.choice((1.0, 1.0, 1.0, 0.5)), **chosen)


@dataclass(frozen=True)
class Sites:
    """Windows of acceptor sites in a folder, and the optima of jobs on them."""

    data: Path
    size: Size

    def make(self) -> Sites:
        """Write the data, unless they are there."""
        import zarr

        if self.data.exists():
            return self
        example = ROOT / "examples" / "celegans" / "train.zarr"
        source: Any = zarr.open_group(os.fspath(example), mode="r")
        y = np.asarray(source["y"][:])
        sites = np.flatnonzero(y == 1)[:: self.size.every_site]
        rows = np.sort(np.concatenate([sites, np.flatnonzero(y != 1)[:: self.size.every]]))
        x = np.asarray(source["X"][:])[rows][:, 55:86]
        letters = (x[:, :, None] == np.arange(4)).reshape(len(x), -1).astype(np.float32)
        arrays = {"X": x, "letters": letters, "few": letters[:, 40:72], "y": y[rows]}
        target = zarr.create_group(os.fspath(self.data), overwrite=True)
        for name, values in arrays.items():
            chunks = (self.size.chunk_rows, *values.shape[1:])
            target.create_array(name, data=values, chunks=chunks)
        return self

    def open(self, family: str) -> fcl.DataSet:
        """The data with the rows of a family."""
        return fcl.open_data(self.data, x=FAMILIES[family][0])

    def features(self, family: str) -> str:
        """The value of --features."""
        return FAMILIES[family][1].format(d=self.size.d)

    @cache  # noqa: B019
    def optimum(self, family: str, l1_ratio: float, valid: bool) -> tuple[float, float]:
        """Objective and bound of the optimum, found with the inline driver."""
        certificate = fcl.train(
            self.open(family),
            self.features(family),
            C=self.size.C,
            penalty=f"elastic:l1_ratio={l1_ratio}",
            block_rows=self.size.block_rows,
            memory="1GiB",
            tol=min(1e-8, 1e-3 * self.size.tol),
            valid=0.2 if valid else None,
        ).certificate
        return certificate.objective, certificate.bound

    @cache  # noqa: B019
    def least_memory(self, writers: int) -> int:
        """The smallest budget in MiB with which a job gets this many writers."""

        def is_enough(mib: int) -> bool:
            try:
                plan = fcl.plan_training(
                    self.open("kmers"),
                    self.features("kmers"),
                    C=self.size.C,
                    block_rows=self.size.block_rows,
                    memory=f"{mib}MiB",
                    driver=f"processes:writers={writers}",
                )
            except BudgetError:
                return False
            return plan.writers == writers

        return 1 + bisect_left(range(1, 4096), True, key=is_enough)


class Training(Run):
    """A run of ``fcl train``."""

    def __init__(
        self, case: Case, fault: Fault, size: Size = NORMAL, setting: Setting | None = None
    ) -> None:
        super().__init__(case, fault)
        self.setting = setting or Setting.choose(fault, self.rng)
        case.note(json.dumps({k: v for k, v in asdict(self.setting).items() if v}))
        self.sites = Sites(case.stock / f"sites-{size.d}.zarr", size).make()
        self.data = self.sites.data
        self.model = self.folder / "model.fcl"
        self.checkpoints = self.folder / "checkpoints"
        if ACTS[fault.act].disk:
            if fault.act.startswith("model"):
                self.model = self.disk / "model.fcl"
            else:
                self.checkpoints = self.disk / "checkpoints"
        self.earlier = 0  #: passes before the command with the fault

    @property
    def array(self) -> Path:
        """The array of rows."""
        return self.data / FAMILIES[self.setting.family][0]

    def saved(self) -> set[Path]:
        """The files of checkpoints."""
        return set(self.checkpoints.glob("*.fcl-ckpt"))

    def state(self) -> Any:
        """The newest checkpoint; None without any."""
        if not self.saved() or not CheckpointFolder(self.checkpoints).numbers():
            return None
        return CheckpointFolder(self.checkpoints).load()

    def set_up(self) -> None:
        """Copy data that will be changed, and make the first passes of a job that is to be resumed."""
        if self.fault.act in ("bad-chunk", "changed", "changed-later"):
            self.data = self.folder / "data.zarr"
            shutil.copytree(self.sites.data, self.data)
        if self.setting.resumed:
            self.finish(self.start([*self.words(), "--max-passes", "2"]))
            self.codes.clear()
            state = self.state()  # a small disk may hold no checkpoint
            self.earlier = 0 if state is None else len(state.history)

    def words(self) -> list[str]:
        """The new job, or its resumption if there is a checkpoint."""
        setting, size = self.setting, self.sites.size
        features = ["--features", self.sites.features(setting.family)]
        if self.state() is not None:
            # a user-defined family is only imported if the command names it
            folder = os.fspath(self.checkpoints)
            return ["train", "--resume", folder, *features, "--max-passes", "1000", "--overwrite"]
        memory = 1024
        if setting.small:
            memory = self.sites.least_memory(setting.writers) + size.spare
        driver = setting.driver + f":writers={setting.writers}" * (setting.driver == "processes")
        if setting.shared_files:
            driver += f",shared_files={self.folder / 'scratch'}"
        more = ["--driver", driver, "--penalty", f"elastic:l1_ratio={setting.l1_ratio}"]
        if setting.valid:
            more += ["--valid-fraction", "0.2"]
        return [
            "train", os.fspath(self.data), "--x", FAMILIES[setting.family][0], *features, *more,
            "--C", str(size.C), "--tol", str(size.tol), "--block-rows", str(size.block_rows),
            "--memory", f"{memory}MiB", "--scratch", os.fspath(self.folder / "scratch"),
            "--out", os.fspath(self.model), "--checkpoint", os.fspath(self.checkpoints),
            "--checkpoint-every", f"{INTERVAL}s", "--overwrite",
        ]  # fmt: skip

    def start(self, words: list[str], faulty: bool = False) -> Session:
        """Start the command; faulty : with the fault at its point."""
        environment = {"TMPDIR": os.fspath(self.folder / "tmp"), "FCL_FAULT": ""}
        environment["FCL_FAULTS_SAMPLED"] = "1" if self.setting.sampled else ""
        if faulty:
            environment |= self._environment()
        log = self.folder / f"log-{len(list(self.folder.glob('log-*')))}.jsonl"
        session = Session([*words, "--log-json", os.fspath(log)], self.folder, environment)
        session.log = log
        return session

    def _environment(self) -> dict[str, str]:
        """Environment variables that make the command fail at the point of the fault."""
        fault = self.fault
        if fault.act == "changed":
            return {"FCL_FAULT": "writer:0:prepare-block:1:stop"}
        if not fault.point:
            return {"FCL_DEADLINE": str(DEADLINE)} if fault.act == "freeze" else {}
        count = self.rng.choice((1, 1, 2, 3, 6))
        first = fault.point.partition("-")[0]
        if fault.role == "writer" and first in ("prepare", "search", "certify", "draw", "accept"):
            count = 1
        if fault.act == "deaths":
            count = 1
        text = f"{fault.role}:0:{fault.point}:{count}:{fault.action}"
        if fault.point == "order-restore":
            text = f"trainer:0:step:2:kill,trainer:0:order-restore:1:{fault.action}!"
        return {"FCL_FAULT": text, "FCL_DEADLINE": str(DEADLINE)}

    def wait_for_moment(self, session: Session) -> bool:
        """Wait until a random moment, more often during the passes than before them."""
        if self.rng.random() < 0.3:
            return session.wait_for("Started", self.rng.uniform(0.0, 3.0))
        return session.wait_for("Prepared", self.rng.uniform(0.0, 1.5))

    def judge(self, session: Session, done: Done) -> None:
        """Find the age of the newest checkpoint, and the number of passes that it lacks."""
        if done.code == 0 or not session.events("Prepared"):
            return
        act, figures = self.fault.act, self.case.figures
        passes = session.events("PassDone")
        since = session.log.stat().st_mtime  # of the last event
        state = self.state()
        if state is None:
            # passes of a job that has just begun are in no checkpoint yet
            young = done.seconds <= START + INTERVAL + PATIENCE
            lost, age = 0 if young and done.code == -signal.SIGKILL else passes, 99.0
        else:
            lost = passes - (len(state.history) - self.earlier)
            age = max(0.0, since - max(path.stat().st_mtime for path in self.saved()))
            figures["lost_seconds"] = round(age, 2)
        figures["lost_passes"] = lost
        at_once = act.endswith("-twice") and "quitting immediately" in done.errors
        if done.code in (1, 5, *STOPPED) and self.fault.role != "supervisor" and not at_once:
            # the inline driver saves the state before its last pass, and repeats this pass
            if lost > (self.setting.driver == "inline"):
                self.wrong.append(f"{lost} passes are in no checkpoint")
        elif act.startswith("disk-") or act == "damaged-checkpoint":
            pass  # fcl reports that it cannot save; or this tool damaged the newest checkpoint
        elif lost > 1 and age > INTERVAL + PATIENCE:
            self.wrong.append(f"{lost} passes lost")

    def compare(self) -> None:
        """Check the model against the optimum."""
        try:
            model = fcl.Model.load(self.model, trusted="examples.generators.spaced_pairs")
        except InputError as error:
            self.wrong.append(f"no model: {error}")
            return
        setting, claimed, size = self.setting, model.certificate, self.sites.size
        objective, bound = self.sites.optimum(setting.family, setting.l1_ratio, setting.valid)
        slack = 1e-11 * objective
        if not claimed.gap <= size.tol:
            self.wrong.append(f"gap {claimed.gap:.2e}")
        if claimed.objective < bound - slack:
            self.wrong.append(f"objective {claimed.objective!r} is below the bound {bound!r}")
        if claimed.bound > objective + slack:
            self.wrong.append(f"bound {claimed.bound!r} is above the optimum {objective!r}")
        if not setting.valid:  # then all rows are training rows
            data = self.sites.open(setting.family)
            y = np.where(np.asarray(data.target) > 0, 1.0, -1.0)
            w, rho = model.weights, setting.l1_ratio
            penalties = rho * np.abs(w) + 0.5 * (1.0 - rho) * w**2
            losses = np.logaddexp(0.0, -y * model.margins(data))
            real = float(
                model.family.penalty_factors(model.ids) @ penalties + size.C * losses.sum()
            )
            if abs(real - claimed.objective) > 1e-9 * real:
                self.wrong.append(f"the model claims {claimed.objective!r}, but it is {real!r}")

    def left_files(self) -> list[str]:
        known = {"tmp", "scratch", "disk", "model.fcl", "checkpoints", "data.zarr"}
        found = [p for p in self.folder.iterdir() if p.name not in known and p.suffix != ".jsonl"]
        if self.checkpoints.is_dir():
            found += [
                path
                for path in self.checkpoints.iterdir()
                if path.name not in ("lock", "complete") and path.suffix != ".fcl-ckpt"
            ]
        return super().left_files() + [os.fspath(path.relative_to(self.folder)) for path in found]
