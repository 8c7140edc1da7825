"""``fcl-predict``: score the rows of a data set."""

from __future__ import annotations

import time

import click

from fcl.cli.common import Command, messages, refuse_same
from fcl.cli.options import import_option, overwrite_option, version_option, x_option
from fcl.cli.process import run
from fcl.cli.signals import stop_on_signals

__all__ = ["command", "main"]

EPILOG = """\
\b
Exit codes: 0 success, 1 the machine failed, 2 wrong option or input (nothing was written),
129, 130 and 143 signals (nothing was written).
"""


@click.command("fcl-predict", cls=Command, epilog=EPILOG)
@click.argument("model")
@click.argument("data")
@click.option(
    "--out", required=True, metavar="FILE", help="Output: .npy, .tsv or .zarr, by its suffix."
)
@click.option(
    "--margins", "kind", flag_value="margin", default="margin", help="Write margins (default)."
)
@click.option(
    "--probability",
    "kind",
    flag_value="probability",
    default="margin",
    help="Write the probability of the positive label; logistic loss only.",
)
@click.option(
    "--mean",
    "kind",
    flag_value="mean",
    default="margin",
    help="Write the expected target; exp(margin) for poisson loss.",
)
@click.option(
    "--explain",
    type=click.IntRange(min=1),
    metavar="K",
    help="Write the K largest contributions of features beside each score; to .tsv only.",
)
@x_option()
@click.option("--offset", metavar="NAME", help="Array in DATA that is added to the margins.")
@overwrite_option()
@import_option()
@version_option()
def command(
    model: str,
    data: str,
    out: str,
    kind: str,
    explain: int | None,
    x: str,
    offset: str | None,
    overwrite: bool,
    imports: tuple[str, ...],
) -> None:
    """Score the rows of DATA with the model in the file MODEL.

    A margin is <w, phi(x)> + b plus the offset. A margin above 0 predicts the positive label; for
    regression the margin is the prediction, or its logarithm (poisson loss). Rows are streamed, and a
    target in DATA is not read. The output appears when it is complete.
    """
    from fcl.cli.explained import check_explained, write_explanations
    from fcl.model.scores import check_scores, write_scores

    refuse_same(out, "--out", model=model, data=data)
    check_scores(out, overwrite)
    if explain is not None:
        check_explained(out)
    messages.say(f"reading {model} and {data}")
    from fcl.data import open_data
    from fcl.model import load_model

    with stop_on_signals():  # so that SIGTERM removes partial files too
        trained = load_model(model, imports)
        if kind == "probability":
            trained.require_probability()
        rows = open_data(data, x=x, y=None, offset=offset)
        # late: importing numba takes a while, and wrong input is rejected without it
        from fcl.cli.progress import say
        from fcl.drivers.events import Compiled, Compiling
        from fcl.drivers.kinds import JOB_SECONDS
        from fcl.kernels import Compilation

        since = time.perf_counter()
        with Compilation(lambda: say(Compiling(JOB_SECONDS))) as compilation:
            if explain is None:
                n_rows = write_scores(trained, rows, out, kind=kind, overwrite=overwrite)
            else:
                n_rows = write_explanations(trained, rows, out, kind, explain, overwrite)
        seconds = time.perf_counter() - since
    if compiling := compilation.take():
        seconds -= compiling
        say(Compiled(compiling))
    messages.say(f"{n_rows:,} rows in {seconds:.2f} s, {n_rows / seconds:,.0f} rows/s; {out}")


def main() -> None:
    """Entry point of the script ``fcl-predict``."""
    run(command)


if __name__ == "__main__":
    main()
