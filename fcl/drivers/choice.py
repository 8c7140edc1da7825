"""Which driver a job has, and why."""

from __future__ import annotations

from fcl.features import Family
from fcl.options import TrainOptions
from fcl.units import counted

#: The driver ``auto`` is ``processes`` for feature classes in Python, which hold the lock of the
#: interpreter, from this many rows on. With a class that only calls NumPy, both drivers took 28 s there,
#: and threads 11 s instead of 12 s at 416,000 rows. For k-mers, threads were ahead at 1 to 4 million rows
#: (6.2 and 8.7 s; 34 and 43 s), and level at 8 million with half of the memory.
MANY_ROWS = 1_000_000


def chosen_driver(options: TrainOptions, family: Family, n_rows: int) -> str:
    """The driver of a job, which depends on its options, rows and family alone."""
    if options.driver != "auto":
        return options.driver
    if options.writers:
        return "processes"
    if options.threads:
        return "inline"
    return "processes" if n_rows >= MANY_ROWS and not family.thread_safe else "inline"


def driver_in_words(options: TrainOptions, wanted: str, family: Family, n_rows: int) -> str:
    """The driver of a job with its threads or writers, and the reason if it was chosen.

    options : of the job.  wanted : the driver as the user named it, perhaps ``auto``.
    """
    why = ""
    if wanted == "auto" and family.thread_safe:
        why = "; auto has processes only for feature classes in Python"
    elif wanted == "auto":
        size = "at least" if n_rows >= MANY_ROWS else "fewer than"
        why = f": a feature class in Python, and {size} {MANY_ROWS:,} rows"
    if options.driver == "processes":
        return f"driver processes, {counted(options.writers, 'writer')}{why}"
    return f"driver {options.driver}, {counted(options.threads, 'thread')}{why}"
