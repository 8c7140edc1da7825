"""Points by the driver ``processes``, whose children are started anew for each point.

A point begins at the weights of the point before. The children read the rows again;
``docs/explanation/paths.md`` says what this costs.
"""

from __future__ import annotations

import math
from dataclasses import replace

from fcl.drivers.job import Job
from fcl.drivers.processes.supervisor import Supervisor
from fcl.drivers.result import TrainResult
from fcl.drivers.train import start_point
from fcl.model.model import Model
from fcl.path.running import PathContext
from fcl.run.reasons import StopReason

#: A time limit in seconds that is over after the first pass.
SOON = 1e-9


def least_C(job: Job, running: PathContext) -> float:
    """C_min, from the pass of the null model; training ends after it.

    Raises KeyboardInterrupt if it was interrupted.
    """
    at_once = replace(job, options=replace(job.options, max_time=SOON))
    result = train_by_processes(at_once, running)
    if result.reason is StopReason.INTERRUPTED:
        raise KeyboardInterrupt
    found = result.model.options["C_min"]
    return math.inf if found is None else float(found)


def train_by_processes(job: Job, running: PathContext, before: Model | None = None) -> TrainResult:
    """Train at the C of the job, from the weights of another model."""
    session = running.session(job, None if before is None else start_point(job, before))
    del job  # the session has it, and moves its arrays to shared memory
    with session.compilation:
        return Supervisor(session).run()


def last_score(result: TrainResult, metric: str) -> float:
    """The score of a model on the validation rows, which the driver measures; NaN if undefined."""
    found = result.history[-1]["validation"][metric]
    return math.nan if found is None else float(found)
