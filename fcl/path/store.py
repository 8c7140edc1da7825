"""The folder of a path: a model for each point, a table, and the state to continue from.

    model.fcl.path/
        path.json          the grid, a row for each finished point, and at the end scores and choice
        point-01.fcl       the model of each point
        state/             a checkpoint of the solver after the last point
        fold-1/            the same for each fold
        outer-1/           the same, with its folds, for the rows outside each outer fold

A point's model is written first, then the table, then the state, each atomically. A killed path therefore
continues after the last point whose state was saved.
"""

from __future__ import annotations

import math
import os
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np

from fcl.checks import choice
from fcl.errors import CheckpointError, InputError, ModelFileError
from fcl.files.checkpoint import Checkpoint
from fcl.files.folder import CheckpointFolder
from fcl.files.path import REMEDY, TABLE_NAME, read_table, write_table
from fcl.files.same_job import JobFacts, require_same
from fcl.model.model import load_model
from fcl.path.grid import Grid
from fcl.path.result import OuterScores, PathPoint, PathResult, point_row
from fcl.plain import plain
from fcl.run.reasons import StopReason
from fcl.solve.run_state import RunState
from fcl.store import local_path
from fcl.types import Floats

#: reasons why a point ended that cut its path short
CUT = (StopReason.MAX_TIME, StopReason.INTERRUPTED)


@dataclass(frozen=True)
class SavedPath:
    """The finished points of a path, and the state from which the next one continues.

    state : None before the first point and after the last.
    """

    points: list[PathPoint]
    state: RunState | None
    values: Floats  #: of C, of the whole grid
    job: JobFacts = field(default_factory=JobFacts)  #: with all options that do not change
    checkpoint: Checkpoint | None = None  #: of points of an earlier run, to recognise the rows


class PathFolder:
    """The points of a path over one set of rows in a folder, which is made for the first point.

    about : what defines the path beside its grid: data, folds, validation rows, and options of training.
    grid : which may be wider than that of the points in the folder.
    trusted : modules that models may import.
    """

    def __init__(
        self,
        path: str | os.PathLike[str],
        about: Mapping[str, Any],
        grid: Grid,
        trusted: Collection[str] = (),
    ) -> None:
        self.path = local_path(path, "the points of a path")
        self._grid, self._about = grid, plain({**about, **grid.facts()})
        self._trusted = trusted
        self._state = CheckpointFolder(self.path / "state")
        self._n_kept = 0  # points whose models are in the folder
        #: processes begin at the weights of the last point, and need no state
        self._has_states = self._about.get("driver") != "processes"

    # -- reading -------------------------------------------------------------------------------

    def load(self) -> SavedPath | None:
        """The finished points; None if there is no table of them.

        Raises InputError: the table is damaged or belongs to another path, or a model is missing.
        """
        if not (self.path / TABLE_NAME).is_file():
            return None
        table = read_table(self.path / TABLE_NAME)
        rows, values = table["points"], np.array(table["grid"], np.float64)
        before = table["about"] or {}
        if self._grid.widens(before, values):
            before = {**before, **self._grid.facts()}
        require_same(f"{self.path}: the path", _facts(before), _facts(self._about))
        values = self._grid.extended(values)
        state = checkpoint = None
        lost = self._has_states and not self._state.numbers()
        if rows and (self._reason(rows[0]) in CUT or lost):
            # only the first point is kept if it is cut short, or precedes its state if the path is killed
            return SavedPath([], None, values)
        if self._has_states and len(rows) < len(values):
            checkpoint = self._state.load()
            # the path may have been killed between the table and the state
            rows = rows[: checkpoint.options.get("points_done", 0)]
            state = RunState.from_file(checkpoint.state, checkpoint.arrays)
        points = [self._point(number, row) for number, row in enumerate(rows)]
        self._n_kept = len(points)
        return SavedPath(points, state if points else None, values, checkpoint=checkpoint)

    def _point(self, number: int, row: Mapping[str, Any]) -> PathPoint:
        path = self.path / _model_name(number)
        try:
            model = load_model(path, self._trusted)
        except ModelFileError as error:
            raise ModelFileError(f"{error}; {REMEDY}") from error
        if not math.isclose(model.C, row["C"], rel_tol=1e-12):
            raise InputError(
                f"{path}: expected a model at C {row['C']:.6g}, as {TABLE_NAME} says, got {model.C:.6g}; "
                f"{REMEDY}"
            )
        names = ("score", "se", "empty", "auroc")
        scores = {name: math.nan if row[name] is None else row[name] for name in names}
        reason = self._reason(row)
        return PathPoint(number, model, reason, row["seconds"], row["passes"], **scores)

    def _reason(self, row: Mapping[str, Any]) -> StopReason:
        where = f"{self.path / TABLE_NAME}: reason"
        return StopReason(choice(where, row["reason"], tuple(StopReason)))

    # -- writing -------------------------------------------------------------------------------

    def save(self, saved: SavedPath) -> None:
        """Write the models of new points, the table, and the state if there is one."""
        self.path.mkdir(parents=True, exist_ok=True)
        for point in saved.points[self._n_kept :]:
            point.model.save(self.path / _model_name(point.number), overwrite=True)
        self._n_kept = len(saved.points)
        rows = [
            point_row(point) | {"reason": point.reason, "empty": point.empty}
            for point in saved.points
        ]
        table = {"about": self._about, "grid": saved.values, "points": rows}
        write_table(self.path / TABLE_NAME, table)
        if saved.state is None:
            return
        numbers, arrays = saved.state.to_file()
        job = saved.job
        assert job.fingerprint is not None and job.checksums is not None
        checkpoint = Checkpoint(
            options=plain({**job.options, "points_done": len(saved.points)}),
            family=plain(job.family),
            fingerprint=job.fingerprint,
            columns=job.columns,
            n_rows=job.n_rows,
            block_checksums=job.checksums,
            state=numbers,
            arrays=arrays,
            history=[],
            elapsed=0.0,
            driver="inline",
        )
        with self._state:
            self._state.save(checkpoint)


def _facts(about: Mapping[str, Any]) -> JobFacts:
    options = {name: value for name, value in about.items() if name != "data"}
    return JobFacts(options, about.get("data"))


@dataclass(frozen=True)
class Folder:
    """Where a path and the paths of its folds are saved; nothing is saved if ``path`` is None."""

    path: Path | None
    trusted: Collection[str]

    def store(self, name: str, about: Mapping[str, Any], grid: Grid) -> PathFolder | None:
        """The folder of one of the paths, if they are saved; arguments as of :class:`PathFolder`."""
        if self.path is None:
            return None
        return PathFolder(self.path / name, about, grid, self.trusted)

    def within(self, name: str) -> Folder:
        """A folder in this one."""
        return self if self.path is None else replace(self, path=self.path / name)


def add_result(folder: str | os.PathLike[str], result: PathResult) -> None:
    """Add the scores and the choice of a finished path to the table in its folder."""
    path = Path(folder, TABLE_NAME)
    scores = result.scores
    numbers = [None if point is None else point.number for point in (result.best, result.one_se)]
    summary = {
        "reason": result.reason,
        "metric": scores.metric,
        "higher_is_better": scores.higher_is_better,
        "score": scores.mean,
        "se": scores.se,
        "empty": result.chosen.empty,
        "auroc": [point.auroc for point in result.points],
        "auroc_se": [point.auroc_se for point in result.points],
        "error_from": scores.error_from,
        "folds": scores.folds,
        "best": numbers[0],
        "one_se": numbers[1],
        "select": result.select,
        "chosen": result.chosen.number,
        "refit": None if result.refit is None else point_row(result.refit),
        "outer": None if result.outer is None else _outer_table(result.outer),
    }
    table = read_table(path)
    if len(table["points"]) < len(result.points):
        raise CheckpointError(f"{path}: lacks the last points, which could not be written")
    write_table(path, table | {"result": summary})


def _outer_table(outer: OuterScores) -> dict[str, Any]:
    return {"metric": outer.metric, "mean": outer.mean, "se": outer.se, "folds": outer.rows()}


def _model_name(number: int) -> str:
    return f"point-{number + 1:02}.fcl"
