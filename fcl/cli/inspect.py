"""``fcl-inspect``: the features of a model and its certificate."""

from __future__ import annotations

import click

from fcl.cli.common import Command, printable, refuse_same, show
from fcl.cli.options import import_option, overwrite_option, version_option
from fcl.cli.process import run
from fcl.cli.signals import stop_on_signals

__all__ = ["command", "main"]

EPILOG = """\
\b
Exit codes: 0 success, 1 the machine failed, 2 wrong option or not a model file, 129, 130 and 143
signals (nothing was written).
"""


@click.command("fcl-inspect", cls=Command, epilog=EPILOG)
@click.argument("model")
@click.option(
    "--tsv",
    metavar="FILE",
    help="Write the active features to FILE: feature, weight, support (rows).",
)
@click.option(
    "--top",
    type=click.IntRange(min=0),
    default=10,
    show_default=True,
    help="How many features to show.",
)
@overwrite_option()
@import_option()
@version_option()
def command(
    model: str, tsv: str | None, top: int, overwrite: bool, imports: tuple[str, ...]
) -> None:
    """Show a summary of the file MODEL: objective, certificate, strongest features."""
    from fcl.cli.report import model_lines
    from fcl.model import load_model
    from fcl.model.atomic import atomic_file, check_output

    if tsv is not None:
        refuse_same(tsv, "--tsv", model=model)
        check_output(tsv, overwrite)
    with stop_on_signals():  # so that every signal removes partial files
        trained = load_model(model, imports)
        if tsv is not None:
            with atomic_file(tsv, overwrite) as file:
                file.write(b"feature\tweight\tsupport\n")
                for row in trained.iter_features():
                    name = printable(row.feature)
                    file.write(f"{name}\t{row.weight:.17g}\t{row.support}\n".encode())
        show(model_lines(trained, model, top))


def main() -> None:
    """Entry point of the script ``fcl-inspect``."""
    run(command)


if __name__ == "__main__":
    main()
