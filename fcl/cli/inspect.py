"""``fcl-inspect``: what a model holds and what is proved of it."""

from __future__ import annotations

import click

from fcl.cli.common import Command, refuse_same
from fcl.cli.options import import_option, overwrite_option, version_option

__all__ = ["command", "main"]

EPILOG = """\
\b
Exit codes: 0 done, 1 the machine failed, 2 a wrong option or a file that is no model.
"""


@click.command("fcl-inspect", cls=Command, epilog=EPILOG)
@click.argument("model")
@click.option(
    "--tsv", metavar="FILE", help="Write the active features: feature, weight, support (rows)."
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
    """Show the summary of the file MODEL: objective, certificate, strongest features."""
    from fcl.cli.report import model_lines
    from fcl.model import load_model
    from fcl.model.atomic import atomic_file, check_output

    if tsv is not None:
        refuse_same(tsv, "--tsv", model=model)
        check_output(tsv, overwrite)
    trained = load_model(model, imports)
    if tsv is not None:
        with atomic_file(tsv, overwrite) as file:
            file.write(b"feature\tweight\tsupport\n")
            for row in trained.iter_features():
                file.write(f"{row.feature}\t{row.weight:.17g}\t{row.support}\n".encode())
    click.echo("\n".join(model_lines(trained, model, top)))


def main() -> None:
    """Entry point of the script ``fcl-inspect``."""
    command.main()


if __name__ == "__main__":
    main()
