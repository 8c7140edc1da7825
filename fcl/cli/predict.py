"""``fcl predict``: score rows with a model."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import click

from fcl import kernels
from fcl.cli.common import messages, printable, refuse_same
from fcl.cli.options import EXIT_CODES, FILE, TableCommand
from fcl.cli.predict_files import Request, predict_files, predict_sites, predict_variants
from fcl.cli.process import run
from fcl.errors import InputError
from fcl.options import options_of_command
from fcl.options.convert import READING
from fcl.options.option import PREDICT
from fcl.units import counted

if TYPE_CHECKING:
    from fcl.data import DataSet
    from fcl.model.predictor import Predictor
    from fcl.scoring.quality import Comparison
    from fcl.scoring.stream import ScoreSummary

EPILOG = """\
\b
Examples:
  fcl predict model.fcl test.zarr --out scores.npy
  fcl predict model.fcl test.fa.gz --out scores.tsv
  fcl predict model.fcl sites.bed --genome hg38.fa --window -70:+71 --label 5 --out scores.tsv
  fcl predict model.fcl --genome hg38.fa --sites AG --both-strands --out sites.bed.gz
  fcl predict model.fcl --vcf v.vcf.gz --genome hg38.fa --sites AG --out delta.tsv

"""


#: Options that each kind of input takes.
_NATIVE_NAMES = (
    "x", "y", "weights", "offset", "explain", "explain_output", "dask", "dask_tls", "memory", "quiet",
)  # fmt: skip
_FILE_NAMES = (*READING, "keep_dropped", "explain", "explain_output")
_SITE_NAMES = (
    "genome", "sites", "origin", "both_strands", "edges", "max_unknown", "memory", "quiet",
)  # fmt: skip
_VARIANT_NAMES = (
    "vcf", "genome", "sites", "origin", "both_strands", "edges", "rename", "skip_contigs",
    "skip_mismatches", "keep_dropped", "memory", "quiet",
)  # fmt: skip


#: Notes of readers that concern conversion and training alone.
_OF_CONVERSION = ("layout: ", "numbers: ", "y: none", "covariates: give ")


@click.command("fcl predict", cls=TableCommand, epilog=EPILOG + EXIT_CODES)
@click.argument("model", type=FILE)
@click.argument("inputs", nargs=-1, metavar="[IN...]", type=FILE)
def command(
    model: str,
    inputs: tuple[str, ...],
    out: str,
    kind: Any,
    overwrite: bool,
    imports: tuple[str, ...],
    **options: Any,
) -> None:
    """Score rows with the model in the file MODEL.

    IN is DATA (Zarr, HDF5, npy), or files that fcl convert reads: FASTA, BED with --genome, a table. With
    --sites, all sites of a genome are scored; with --vcf, variants. A margin is <w, phi(x)> + b plus the
    offset; above 0 it predicts the positive label. For regression the margin is the prediction, or its
    logarithm (poisson loss). A model of several classes or numbers gives a column for each. Rows are
    streamed in the order of the input. If the input has a target, scores are compared with it. The output
    appears when it is complete.
    """
    from fcl.model import load_model
    from fcl.model.outputs import scores_of

    request = Request(model, inputs, out, kind, overwrite, options)
    mode = _mode(request)
    _check_outputs(model, request, mode)
    named = [options[name] for name in ("genome", "vcf") if options[name] is not None]
    messages.note(f"reading {', '.join([model, *inputs, *named])}")
    trained = load_model(model, imports)
    scores_of(trained, kind)  # raises for a loss that does not give these scores
    if options["explain"] is None and options["explain_output"] is not None:
        raise InputError("--explain-output needs --explain K; give both, or neither")
    if options["explain"] is not None:
        from fcl.scoring.explained import explained_model

        explained_model(trained, options, kind)
    predict = mode.prepare(trained, request)
    # late: importing numba takes a while, and wrong input is rejected without it
    with _timed() as elapsed:
        summary = predict()
    _note_summary(summary, elapsed(), out)


@dataclass(frozen=True)
class _Mode:
    """A kind of input.

    words : for messages.
    takes : names of the options.
    prepare : reads what is cheap to check, and returns a function that scores.
    """

    words: str
    takes: Sequence[str]
    prepare: Callable[[Predictor, Request], Callable[[], ScoreSummary]]
    is_native: bool = False


def _mode(request: Request) -> _Mode:
    """How to read the input; raises InputError for options that do not fit it."""
    from fcl.data.open import is_native

    options, inputs = request.options, request.inputs
    if options["vcf"] is not None or options["sites"] is not None:
        if inputs:
            option = "--vcf" if options["vcf"] is not None else "--sites"
            advice = "give a genome by --genome, or leave one of them out"
            raise InputError(f"{option} takes no other input, got {inputs[0]}; {advice}")
        mode = _VARIANTS if options["vcf"] is not None else _SITES
    elif not inputs:
        raise InputError(
            "expected an input: DATA, files such as test.fa, --sites LETTERS or --vcf FILE"
        )
    elif len(inputs) == 1 and inputs[0] != "-" and is_native(inputs[0]):
        mode = _NATIVE
    else:
        mode = _FILES
    if mode is _FILES and inputs[0].removesuffix(".gz").endswith((".vcf", ".bcf")):
        raise InputError(f"{inputs[0]}: give --vcf {inputs[0]} --genome FILE to score variants")
    for name, value in options.items():
        if name not in mode.takes and value is not None and value is not False:
            spelled = options_of_command(PREDICT)[name].spelled
            raise InputError(f"{spelled} is not an option for {mode.words}; leave it out")
    if request.kind != "margin" and mode is _VARIANTS:
        raise InputError(f"--{request.kind} is not an option for --vcf, which compares margins")
    if request.kind == "predicted" and (mode is _SITES or options["explain"] is not None):
        raise InputError("--predicted gives labels, --sites and --explain numbers; leave it out")
    return mode


def _check_outputs(model: str, request: Request, mode: _Mode) -> None:
    from fcl.model.scores import check_scores
    from fcl.model.text_output import STDOUT, check_text_output, text_suffix

    out, options = request.out, request.options
    if out != STDOUT:
        named = {name: options[name] for name in ("genome", "negatives", "vcf", "names", "keep")}
        files = [path for path in request.inputs if path != "-"]
        inputs = {f"input {number}": path for number, path in enumerate(files, 1)}
        if mode.is_native:
            inputs = {"data": request.inputs[0]}
        refuse_same(out, "--out", model=model, **inputs, **named)
    if mode.is_native:
        check_scores(out, request.overwrite)
    else:
        check_text_output(out, request.overwrite)
    if mode.is_native and options["explain"] is not None and text_suffix(out) != ".tsv":
        raise InputError(
            f"{out}: --explain writes text and numbers; expected a name that ends in .tsv"
        )


@contextmanager
def _timed() -> Iterator[Callable[[], float]]:
    """Announces compilation; gives a function that returns the seconds without compilation."""
    from fcl.cli.progress import say
    from fcl.drivers.kinds import JOB_SECONDS
    from fcl.run.events import Compiled, Compiling

    since = time.perf_counter()
    seconds = 0.0
    with kernels.compilation.Compilation(lambda: say(Compiling(JOB_SECONDS))) as compilation:
        yield lambda: seconds
    seconds = time.perf_counter() - since
    if compiling := compilation.take():
        seconds -= compiling
        say(Compiled(compiling))


def _note_summary(summary: ScoreSummary, seconds: float, out: str) -> None:
    rate = summary.rows / max(seconds, 1e-9)
    messages.note(f"{counted(summary.rows, 'row')} in {seconds:.2f} s, {rate:,.0f} rows/s; {out}")
    for reason, count in summary.dropped.most_common():
        messages.note(f"without a score: {count:,} of {summary.rows_in:,}, {reason}")
    for note in filter(None, [*summary.notes, summary.quality]):
        if not note.startswith(_OF_CONVERSION):
            messages.note(note)


def _prepare_native(model: Predictor, request: Request) -> Callable[[], ScoreSummary]:
    options = request.options
    if options["dask"] is None and options["dask_tls"] is not None:
        raise InputError("--dask-tls needs --dask ADDRESS; give both, or neither")
    if options["dask"] is not None and options["explain"] is not None:
        raise InputError("--explain does not go with --dask; leave one of them out")
    data = _open_data(model, request.inputs[0], options)
    model = model.fitted(data)
    # the target is compared with the margins of all outputs, not with those of one
    alone = options["explain_output"] is not None
    collected = None if alone else _comparison(model, data, options)

    def score() -> ScoreSummary:
        from collections import Counter

        import numpy as np

        from fcl.model.scores import write_scores
        from fcl.model.text_output import text_suffix
        from fcl.scoring.cluster import write_score_chunks
        from fcl.scoring.explained import (
            ContributionCells,
            explained_model,
            write_explanations,
        )
        from fcl.scoring.known import KnownColumns, write_known_scores
        from fcl.scoring.stream import ScoreSummary

        def keep(start: int, stop: int, margins: Any) -> None:
            weights = None if data.weights is None else data.weights[start:stop]
            if collected is not None and data.target is not None:
                rows = np.arange(start, stop)
                collected.add(data.target[start:stop], margins, weights, rows)

        out, kind, top = request.out, request.kind, options["explain"]
        known = KnownColumns.of(data) if text_suffix(out) == ".tsv" else KnownColumns()
        if top is None:
            with _predictor(model, data, options) as predictor:
                if known.readers:
                    args = (data, known, out, request.overwrite, keep, kind)
                    n_rows = write_known_scores(predictor, *args)
                else:
                    by_chunks = predictor is not model and text_suffix(out) == ".zarr"
                    write = write_score_chunks if by_chunks else write_scores
                    wanted = None if collected is None else keep
                    n_rows = write(predictor, data, out, kind, request.overwrite, on_margins=wanted)
        else:
            explained = explained_model(model, options, kind)
            # as for files of rows, unless the user asked for one score
            name = model.mean_name if known.readers and not alone and kind == "margin" else kind
            score = None if name in ("", "margin") else (name, model.mean)
            cells = ContributionCells(explained, top, printable, data)
            n_rows = write_explanations(cells, data, out, score, request.overwrite, keep, known)
        line = None if collected is None else collected.line()
        return ScoreSummary(n_rows, n_rows, Counter(), line)

    return score


@contextmanager
def _predictor(model: Predictor, data: DataSet, options: Any) -> Iterator[Any]:
    """The model, or on a cluster a model that scores there."""
    if options["dask"] is None:
        yield model
        return
    from fcl.drivers.cluster.connect import connected
    from fcl.memory.ledger import INTERPRETER
    from fcl.scoring.cluster import ClusterPredictor, score_bytes

    with connected(options["dask"], options["dask_tls"]) as cluster:
        size = INTERPRETER + score_bytes(model, data)
        workers = cluster.wait_for_workers(size, size)
        messages.note(f"scoring on {counted(len(workers), 'worker')}")
        yield ClusterPredictor(model, data, cluster)


def _open_data(model: Predictor, path: str, options: Any) -> DataSet:
    """DATA with the model's covariates, and its target if it has one or ``--y`` names one."""
    from fcl.cli.opening import open_rows
    from fcl.data import open_data

    x = options["x"] or "X"
    arrays = {name: options[name] for name in ("weights", "offset")}
    arrays["covariates"] = model.covariate_names or None
    if options["y"] is not None:
        return open_rows(path, options["y"], x=x, **arrays)
    data = open_data(path, x=x, y=None, **arrays)
    try:
        return open_data(path, x=x, y="y", **arrays)
    except InputError:  # scores do not need a target
        return data


def _comparison(model: Predictor, data: DataSet, options: Any) -> Comparison | None:
    from fcl.model.labels import encoded_target
    from fcl.scoring.quality import compared
    from fcl.units import parse_size

    if data.target is None:
        return None
    strict = options["y"] is not None
    if strict:  # before anything is written
        encoded_target(model, data.target, data.target_name)
    memory = parse_size(options["memory"], "--memory")
    return compared(model, data.target_name, memory, strict=strict)


_NATIVE = _Mode("DATA in Zarr, HDF5 or npy", _NATIVE_NAMES, _prepare_native, is_native=True)
_FILES = _Mode(
    "inputs other than Zarr, HDF5 and npy (fcl convert makes Zarr of them)",
    _FILE_NAMES,
    lambda model, request: lambda: predict_files(model, request),
)
_SITES = _Mode("--sites", _SITE_NAMES, lambda model, request: lambda: predict_sites(model, request))
_VARIANTS = _Mode(
    "--vcf", _VARIANT_NAMES, lambda model, request: lambda: predict_variants(model, request)
)


def main() -> None:
    """Entry point of the script ``fcl-predict``."""
    run(command)


if __name__ == "__main__":
    main()
