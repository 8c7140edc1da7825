"""``fcl train``: from a data set to a certified model."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

import click

from fcl.cli.common import messages, show
from fcl.cli.job import learn
from fcl.cli.options import KEPT, MAY_CHANGE, TrainCommand
from fcl.cli.process import run
from fcl.store import local_neighbour

if TYPE_CHECKING:
    from fcl.cli.training import TrainSteps

EPILOG = f"""\
\b
Examples:
  fcl train train.zarr --features kmers:d=8 --C 0.1 --out model.fcl
  fcl train table.csv --y churn --C 0.1 --out model.fcl
  fcl train table.csv --y churn --path 20 --cv groups:customer --out model.fcl
  fcl train positive.fa negative.fa --features kmers:d=6 --C 0.1 --out model.fcl

\b
Exit codes:
  0    success; also if --max-time, --max-passes (a warning names the gap reached) or --patience ended
       the run
  1    the machine failed: full disk, out of memory; or another process took the name of an output, and
       a message names the file beside it
  2    wrong option or input: nothing but converted rows was written, unless a message names the
       checkpoint of the passes before, as after a feature class returned wrong values during the run
  3    the gap is above --tol and none of your limits ended the run: the model is written, a message
       gives the reason
  5    a process of the training died repeatedly; there is a checkpoint, but no model
  6    the last checkpoint could not be written; the model was, unless a message says otherwise
  130  SIGINT, 143 SIGTERM, 129 SIGHUP: a checkpoint and the best model so far were written; a
       second SIGINT or SIGTERM quits immediately

\b
Signals: SIGINT, SIGTERM and SIGHUP (not under nohup) as above; SIGUSR1 saves a checkpoint, and the
run continues.

Sizes: 768MiB, 4GiB, 2G. Times: 90s, 5m, 2h. Keys in the TOML file of --config are the long names of
the options that say what is learnt; outputs, URLs and the like are given on the command line, since a
file may come from a stranger. The command line overrides the TOML, and both override the checkpoint
of --resume.

--resume DIR continues from the last checkpoint in DIR. DATA is needed only if it has moved. The resumed
job may change only {MAY_CHANGE}.
"""


@click.command("fcl train", cls=TrainCommand, epilog=EPILOG)
@click.pass_context
def command(ctx: click.Context, /, **params: Any) -> int:
    """Train a sparse linear model on DATA, with a proven bound on its distance from the optimum.

    DATA is a Zarr folder or zip, an HDF5 file (file.h5::/group), a folder of .npy files or one
    X.npy; or the URL of a Zarr folder, such as s3://bucket/train.zarr. Or it is a file that fcl convert
    reads, with its options: a table (--y COLUMN; the features are its columns by default), svmlight, one
    FASTA file for each of two classes, BED (--genome FILE), PLINK. Its rows are converted to
    OUT.data.zarr, and used again while the file and the options are the same. Minimises
    sum (rho |w_j| + (1 - rho) w_j^2 / 2) + C sum s_i loss(y_i, m_i) over all features of the family and
    stops when (objective - lower bound) <= tol * objective.
    """
    return _warm_up(params["features"]) if params["warmup"] else learn(_learner(ctx))


def _learner(ctx: click.Context) -> TrainSteps:
    """The job with its effective options."""
    from fcl.cli.config import effective_options
    from fcl.cli.training import TrainSteps

    options, given = effective_options(ctx)
    if options["path"] is not None:
        from fcl.cli.path import PathSteps

        return PathSteps(options, given, ctx.obj)
    folder, resumed = options["resume"], None
    if folder is not None:
        from fcl.cli.resume import check_command, resume_options
        from fcl.files.folder import CheckpointFolder

        resumed = CheckpointFolder(folder).load()
        check_command(resumed.options.get("command") or {}, KEPT, resumed.number, folder)
        options = resume_options(options, given, resumed, folder)
    elif options["checkpoint"] is None and not options["no_checkpoint"] and options["out"]:
        options = options | {"checkpoint": local_neighbour(options["out"], ".checkpoint")}
    return TrainSteps(options, given, ctx.obj, resumed)


def _warm_up(features: str | None) -> int:
    messages.note("compiling the kernels, once")
    since = time.perf_counter()
    from fcl.drivers.kinds import OUTPUTS, kinds_named
    from fcl.drivers.warmup import warmup

    warmup(None if features is None else {*kinds_named(features), OUTPUTS})
    show([f"kernels are ready after {time.perf_counter() - since:.1f} s"])
    return 0


def main() -> None:
    """Entry point of the script ``fcl-train``."""
    run(command)


if __name__ == "__main__":
    main()
