"""``fcl inspect``: the features of a model and its certificate."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import click

from fcl.cli.common import printable, show
from fcl.cli.job import OutputFiles
from fcl.cli.options import FILE, TableCommand
from fcl.cli.process import run
from fcl.errors import InputError

if TYPE_CHECKING:
    from fcl.model import Model
    from fcl.model.predictor import Predictor

EPILOG = """\
\b
Exit codes: 0 success, 1 the machine failed or an output was taken (the result is beside it),
2 wrong option or not a model file, 129, 130 and 143 signals (nothing was written).
"""


@click.command("fcl inspect", cls=TableCommand, epilog=EPILOG)
@click.argument("model", type=FILE)
def command(
    model: str,
    tsv: str | None,
    kind: str | None,
    meme: str | None,
    top: int,
    overwrite: bool,
    imports: tuple[str, ...],
) -> int:
    """Show a summary of the file MODEL: objective, certificate, strongest features."""
    from fcl.cli.report import model_lines
    from fcl.model import Model, load_model
    from fcl.model.score_files import score_lines
    from fcl.report.meme import meme_text

    outputs = OutputFiles(overwrite, model=model)
    outputs.add("--tsv", tsv, "tsv")
    outputs.add("--meme", meme, "meme")
    if kind is not None and tsv is None:
        raise InputError("--format: the file to write is lacking; give --tsv FILE")
    trained = load_model(model, imports)
    if isinstance(trained, Model):
        summary = model_lines(trained, model, top)
        lines = _lines(trained) if kind is None else score_lines(trained, kind)
    else:
        summary, lines = _stagewise(trained, model, top)
        for option, value in (("--meme", meme), ("--format", kind)):
            if value is not None:
                raise InputError(f"{option} is not for stagewise models; leave it out")
    if meme is not None and isinstance(trained, Model):
        trained.require_one_output("--meme", "--tsv writes the weights of each output")
        outputs.write("--meme", meme_text(trained, top).encode(), "the patterns")
    if tsv is not None:
        outputs.write("--tsv", b"".join(line.encode() for line in lines), "the features")
    show(summary)
    return outputs.exit_code


def _stagewise(model: Predictor, path: str, top: int) -> tuple[list[str], Iterator[str]]:
    """The summary and the lines of ``--tsv`` of a stagewise model."""
    from fcl.cli.stagewise_report import model_lines, tsv_lines
    from fcl.stagewise.model import StagewiseModel

    assert isinstance(model, StagewiseModel)
    return model_lines(model, path, top), tsv_lines(model)


def _lines(model: Model) -> Iterator[str]:
    """The lines of ``--tsv``; features that are patterns of letters have three columns more.

    A model of several outputs has a line for each nonzero weight, with the label of its output.
    """
    from fcl.model.effects import Effect, effects_of
    from fcl.model.frames import OutputFeature

    family = model.family
    patterns = any(family.motif(int(i)) is not None for i in model.ids)
    rows = model.describe()
    effects = effects_of(rows, model.column_record)
    columns = [*model.row_type._fields[1:], *["motif", "position", "strand"] * patterns]
    columns += Effect._fields if effects else ()
    yield "\t".join(columns) + "\n"
    for number, row in enumerate(rows):
        cells = [printable(row.feature), f"{row.weight:.17g}", str(row.support)]
        if isinstance(row, OutputFeature):
            cells.insert(1, printable(str(row.output)))
        motif = family.motif(row.id)
        if motif is not None:
            position = "" if motif.position is None else str(motif.position)
            cells += [motif.pattern, position, motif.strand]
        elif patterns:
            cells += ["", "", ""]
        if effects:
            cells += effects[number].cells()
        yield "\t".join(cells) + "\n"
    for name, output, value in model.unpenalised_rows if effects else ():
        cells = [printable(name), *([] if output is None else [printable(str(output))])]
        cells.append(f"{value:.17g}")
        yield "\t".join(cells + [""] * (len(columns) - len(cells))) + "\n"


def main() -> None:
    """Entry point of the script ``fcl inspect``."""
    run(command)


if __name__ == "__main__":
    main()
