"""The cases of jobs that meet a fault, and of the long job."""

from __future__ import annotations

from tools.fuzz.case import Case
from tools.fuzz.faulted import Run
from tools.fuzz.faults import choose
from tools.fuzz.outputs import OutputRun
from tools.fuzz.training import LongTraining, Training


def run_case(case: Case) -> list[str]:
    """Run the case of a fault; return what is wrong."""
    fault = choose(case)
    case.note(fault.name)
    run: Run = Training(case, fault) if fault.command == "train" else OutputRun(case, fault)
    return run.go()


def run_long(case: Case) -> list[str]:
    """Run the case of a long job; return what is wrong."""
    return LongTraining(case).go()
