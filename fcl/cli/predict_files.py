"""Score the rows of files that ``fcl convert`` reads, the sites of a genome, and variants."""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from fcl.cli.common import printable
from fcl.errors import InputError
from fcl.options.convert import FORMAT_OPTIONS
from fcl.store import absolute, local_folder, locate

if TYPE_CHECKING:
    from fcl.convert.contract import Budget
    from fcl.model.predictor import Predictor
    from fcl.scoring.lines import ScoreKind
    from fcl.scoring.sites import SiteWindows
    from fcl.scoring.stream import ScoreSummary


@dataclass(frozen=True)
class Request:
    """What the user asked for.

    model : name of the model file, for messages.
    inputs : names of files; - is standard input.
    out : name of the output; - is standard output.
    kind : the score where there is room for one.
    overwrite : whether to replace the output.
    options : the other options, by name.
    """

    model: str
    inputs: Sequence[str]
    out: str
    kind: ScoreKind
    overwrite: bool
    options: Mapping[str, Any]

    @property
    def budget(self) -> Budget:
        """What the readers may use of ``--memory``."""
        from fcl.model.text_output import STDOUT
        from fcl.scoring.stream import scoring_budget
        from fcl.units import parse_size

        scratch = None if self.out == STDOUT else local_folder(locate(absolute(self.out)))
        return scoring_budget(parse_size(self.options["memory"], "--memory"), scratch)


def predict_files(model: Predictor, request: Request) -> ScoreSummary:
    """Score the rows of files that ``fcl convert`` reads; raises InputError for wrong input."""
    from fcl.convert.reference import Reference
    from fcl.convert.run import open_inputs
    from fcl.model.outputs import table_scores
    from fcl.model.text_output import text_output
    from fcl.scoring.explained import ContributionCells, ExplainedLines, explained_model
    from fcl.scoring.lines import TableLines
    from fcl.scoring.margins import BlockScorer
    from fcl.scoring.quality import compared
    from fcl.scoring.stream import score_source

    options, budget = request.options, request.budget
    named = {name: options[name] for name in FORMAT_OPTIONS}
    command = (
        f"fcl predict {shlex.quote(request.model)} {shlex.join(request.inputs)} --like TRAIN.zarr --out "
        f"{shlex.quote(request.out)}"
    )
    columns = Reference.of_model(model, options["like"], command)
    any_length = model.family.any_width
    source = open_inputs(
        request.inputs, options["format"], named, budget, columns, any_length
    ).source
    if any_length and source.layout.width:
        model = model.resized(source.layout.width)
    scorer = BlockScorer(model)
    target = "--label" if options["label"] else "--y" if options["y"] else ""
    name = f"{request.inputs[0]}: {target}" if target else "the labels of the files"
    top = options["explain"]
    lines = TableLines(table_scores(model, request.kind))
    if top:
        explained = explained_model(model, options, request.kind)
        cells = ContributionCells(explained, top, printable)
        lines = ExplainedLines(cells, table_scores(model), scorer)
    with text_output(request.out, request.overwrite) as file:
        return score_source(
            source,
            scorer,
            lines,
            file,
            budget,
            collected=compared(model, name, budget.total, strict=bool(target)),
            keep_dropped=options["keep_dropped"],
        )


def predict_sites(model: Predictor, request: Request) -> ScoreSummary:
    """Score all sites of a genome; raises InputError for wrong input."""
    from fcl.convert.files import InputFile
    from fcl.model.outputs import scores_of
    from fcl.model.text_output import text_output
    from fcl.scoring.lines import BedLines
    from fcl.scoring.margins import BlockScorer
    from fcl.scoring.sites import SitesSource
    from fcl.scoring.stream import score_source

    options = request.options
    scorer, windows, budget = BlockScorer(model), _windows(model, options), request.budget
    edges, max_unknown = options["edges"] or "drop", options["max_unknown"]
    source = SitesSource(InputFile(options["genome"]), windows, edges, max_unknown)
    lines = BedLines(scores_of(model, request.kind), windows.pattern.text)
    with text_output(request.out, request.overwrite) as file:
        return score_source(source, scorer, lines, file, budget)


def predict_variants(model: Predictor, request: Request) -> ScoreSummary:
    """Score the variants of a VCF file; raises InputError for wrong input."""
    from fcl.convert.files import InputFile
    from fcl.model.text_output import text_output
    from fcl.scoring.margins import BlockScorer
    from fcl.scoring.variants import VariantOptions, score_variants

    options, budget = request.options, request.budget
    scorer = BlockScorer(model)
    _require_letters(model, "--vcf")
    if options["genome"] is None:
        raise InputError("--vcf needs --genome FILE, the FASTA file of the reference")
    shape = model.family.row_width if options["sites"] is None else _windows(model, options)
    variants = VariantOptions(
        shape,
        both_strands=options["both_strands"],
        edges=options["edges"] or "drop",
        rename=options["rename"],
        skip_contigs=options["skip_contigs"],
        skip_mismatches=options["skip_mismatches"],
        keep_dropped=options["keep_dropped"],
    )
    vcf, genome = InputFile(options["vcf"]), InputFile(options["genome"])
    with text_output(request.out, request.overwrite) as file:
        summary = score_variants(vcf, genome, scorer, variants, file, budget)
    if options["sites"] is None and _has_positions(model):
        summary.notes.append(
            "windows: each has its variant in the middle, and patterns of this model have positions; if "
            "it was trained on windows around sites, give their letters: --sites AG --origin N"
        )
    return summary


def _has_positions(model: Predictor) -> bool:
    """Whether a feature of a model is a pattern at a place of the window."""
    motifs = (model.family.motif(int(feature)) for feature in getattr(model, "ids", ()))
    return any(motif is not None and motif.position is not None for motif in motifs)


def _windows(model: Predictor, options: Mapping[str, Any]) -> SiteWindows:
    from fcl.scoring.sites import SiteWindows

    _require_letters(model, "--sites")
    if options["genome"] is None:
        raise InputError("--sites needs --genome FILE, the FASTA file that is searched")
    return SiteWindows.of(
        model.family, options["sites"], options["origin"], options["both_strands"]
    )


def _require_letters(model: Predictor, option: str) -> None:
    if model.n_outputs > 1:
        raise InputError(
            f"{option} writes one score for each site, this model has {model.n_outputs:,} outputs; score "
            "windows from a file, which gives a column for each output"
        )
    if model.family.row_kind != "sequences":
        raise InputError(
            f"{option} needs a model of windows of letters, this one has the features {model.family.name}"
        )
