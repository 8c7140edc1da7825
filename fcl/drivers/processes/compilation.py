"""Compile the kernels of a job in a short-lived child, since compilers retain memory."""

from __future__ import annotations

import time

from fcl.drivers.kinds import KIND_SECONDS, KINDS_VARIABLE, kinds_of, missing
from fcl.drivers.processes.children import Child
from fcl.drivers.processes.logic.protocol import CompileStarted
from fcl.drivers.session import Session

#: Seconds between two polls of the child.
TICK = 0.05


def compile_kernels(session: Session) -> None:
    """Compile the kernels that the job needs and the cache lacks, once for all children."""
    job = session.job
    kinds = missing(kinds_of(job.family, job.n_outputs))
    if not kinds:
        return
    session.compile_seconds = sum(KIND_SECONDS[kind] for kind in kinds)
    environment = {KINDS_VARIABLE: ",".join(kinds)}
    child = Child("fcl.drivers.warmup:Compiler", 0, 0, 0, {}, environment)
    compiling = False
    try:
        while child.alive():
            session.poll()
            if not compiling and CompileStarted() in child.channel.receive():
                compiling = True
                session.compilation.begin()
            time.sleep(TICK)
    finally:
        child.close()
    if compiling:
        session.compilation.end()
    if not missing(kinds):  # else each child compiles for itself
        session.compiled()
