"""Options that only commands have: which files they read and write, and what they show."""

from __future__ import annotations

from functools import partial
from typing import Any

from fcl.options.kinds import DURATION, FLAG, FROM_0, FROM_1, MODULE, NUMBER, PATH, TEXT, one_of
from fcl.options.option import (
    CERTIFY,
    CONVERT,
    INSPECT,
    NEW_FEATURES,
    ONLINE,
    PREDICT,
    REPORT,
    STAGEWISE,
    TRAIN,
    Option,
    Resume,
)

_LEARN = (TRAIN, ONLINE, STAGEWISE)
_ALL = (*_LEARN, CERTIFY, CONVERT, PREDICT, REPORT, INSPECT)
#: `fcl online` opens the rows again when it resumes.
_OPENED_AGAIN = {"resume": Resume.NOT_KEPT}

_array = partial(Option, kind=TEXT, group="data", resume=Resume.FIXED, from_file=True)
_call = partial(Option, from_file=False)
_flag = partial(_call, kind=FLAG, default=False)


def _of_arrays(help: str) -> dict[str, Any]:
    """What differs in commands that read arrays, but no tables."""
    return {ONLINE: {"help": help, **_OPENED_AGAIN}, CERTIFY: help}


#: The rows that commands read.
DATA = (
    Option("data", PATH, "", _LEARN, "data", resume=Resume.FREE, from_file=True),
    _array(
        "x",
        help="Array of the rows in DATA; or columns of a table, separated by commas (default: all but "
        "those that other options name).",
        commands=(*_LEARN, CERTIFY, REPORT),
        default="X",
        variants={
            **_of_arrays("Array of the rows in DATA."),
            REPORT: "Array of the rows in DATA; or columns of a table that the training read, too.",
        },
    ),
    _array(
        "y",
        help="Array of the target in DATA, or column of a table; for PLINK TABLE.tsv:COLUMN (default: "
        ".fam).",
        commands=(*_LEARN, CERTIFY, REPORT),
        default="y",
        variants={
            **_of_arrays("Array of the target in DATA."),
            REPORT: "Array of the target in DATA, or column of a table.",
            STAGEWISE: (
                "Array of the target in DATA, or column of a table; of several labels (0 and 1) or "
                "numbers, an array of several columns, or names of arrays separated by commas."
            ),
        },
    ),
    _array(
        "weights",
        help="Array of the sample weights in DATA, and in DATA2 if it has one; or column of a table.",
        commands=(*_LEARN, CERTIFY, REPORT),
        metavar="NAME",
        variants={
            **_of_arrays("Array of the sample weights in DATA."),
            REPORT: "Array of the sample weights in DATA, or column of a table.",
            ONLINE: {
                "help": "Array of the sample weights in DATA, and in DATA2 if it has one.",
                **_OPENED_AGAIN,
            },
        },
    ),
    _array(
        "offset",
        help="Array in DATA and DATA2 that is added to the margins.",
        commands=(*_LEARN, CERTIFY, REPORT, PREDICT),
        metavar="NAME",
        variants={
            **dict.fromkeys((CERTIFY, REPORT), "Array in DATA that is added to the margins."),
            ONLINE: _OPENED_AGAIN,
            STAGEWISE: (
                "Array in DATA and DATA2 that is added to the margins; a column for each class "
                "or number."
            ),
            PREDICT: {
                "help": "Array in DATA that is added to the margins; DATA only.",
                "group": "scores",
            },
        },
    ),
    _array(
        "covariates",
        help="Arrays in DATA and DATA2, separated by commas, whose coefficients are not penalised; "
        "categories become columns of 0 and 1; for PLINK files obs/sex, or a table by FID and IID, as "
        "plink --covar reads it.",
        commands=(TRAIN,),
        metavar="NAMES",
    ),
    Option(
        "columns",
        FROM_1,
        "Number of columns of the rows of standard input; --resume knows it.",
        (ONLINE,),
        "data",
        from_file=True,
    ),
    Option(
        "zero_based",
        FLAG,
        "The ids of standard input begin at 0, not at 1.",
        (ONLINE,),
        "data",
        default=False,
        from_file=True,
    ),
    Option(
        "valid",
        PATH,
        "Data to validate on after each pass, line of progress or block.",
        _LEARN,
        "data",
        metavar="DATA2",
        resume=Resume.FREE,
        from_file=True,
        variants={STAGEWISE: {"resume": Resume.FIXED}},
    ),
)

#: How commands that learn run, and what they write.
RUNS = (
    _call(
        "config",
        TEXT,
        "TOML file of options that say what is learnt; the command line says where to write.",
        _LEARN,
        "running",
        metavar="FILE",
    ),
    _flag(
        "plan",
        help="Print the memory plan and exit.",
        commands=_LEARN,
        group="running",
        variants={
            TRAIN: "Print the memory plan, and about how long a pass takes (measured on a few blocks), "
            "and exit."
        },
    ),
    _flag(
        "warmup",
        help="Compile all kernels now, or the kernels for --features, and exit; needs no DATA.",
        commands=(TRAIN,),
        group="running",
    ),
    Option(
        "initial",
        PATH,
        "Start from the weights of MODEL, of the same features.",
        (TRAIN, ONLINE),
        "running",
        metavar="MODEL",
        from_file=True,
        variants={
            ONLINE: {
                "help": "Start from the weights of MODEL, a model of the same features; not of method "
                "ball.",
                "resume": Resume.FIXED,
            }
        },
    ),
    _flag(
        "no_certify",
        help="Leave out the pass that certifies the model.",
        commands=(ONLINE,),
        group="running",
        from_file=True,
    ),
    _flag(
        "no_checkpoint",
        help="Save no checkpoints.",
        commands=(TRAIN, STAGEWISE),
        group="checkpoints",
        from_file=True,
    ),
    _call(
        "resume",
        TEXT,
        "Continue from the last checkpoint in DIR; with --path from the points in OUT.path, also up to a "
        "larger --C-max.",
        (TRAIN,),
        "checkpoints",
        metavar="DIR",
    ),
    _call(
        "resume",
        PATH,
        "Continue from the state in FILE, the model of an earlier run with the same data, or of a stream "
        "that continues; with the options of FILE, but --passes may be larger.",
        (ONLINE,),
        "running",
        metavar="FILE",
    ),
    _call(
        "allowed_hosts",
        TEXT,
        "With --resume: connect to HOST, although another user or machine wrote the checkpoint that "
        "names it; may be repeated.",
        (TRAIN, STAGEWISE),
        "checkpoints",
        spelling="allow_host",
        metavar="HOST",
        multiple=True,
    ),
    _call(
        "out",
        PATH,
        "Write the model to FILE.",
        (*_LEARN, CERTIFY),
        "output",
        metavar="FILE",
        resume=Resume.FREE,
        variants={CERTIFY: "Write the model, certified, to FILE."},
    ),
    _flag(
        "bare",
        help="Leave out the learner's state, which --resume needs.",
        commands=(ONLINE,),
        group="output",
        from_file=True,
    ),
    _call("log_json", TEXT, "Log each event as a line of JSON.", _LEARN, "output", metavar="FILE"),
    _call(
        "report",
        TEXT,
        "Write a report of the model, an HTML page, with the rows of DATA2 or else DATA.",
        (TRAIN,),
        "output",
        metavar="FILE",
    ),
    Option(
        "disk_wait",
        DURATION,
        "How long to retry if the disk is full at the end.",
        (TRAIN,),
        "output",
        default=60.0,
        command_default="60s",
        from_file=True,
    ),
)

#: What most commands have.
COMMON = (
    _call(
        "imports",
        MODULE,
        "Module of your own features that files may import; may be repeated.",
        _ALL,
        "model",
        spelling="import",
        metavar="MODULE",
        multiple=True,
        variants={CONVERT: {"group": "models"}},
    ),
    _flag(
        "overwrite",
        help="Replace existing outputs.",
        commands=(*_ALL, NEW_FEATURES),
        group="output",
    ),
    _flag(
        "quiet",
        help="Show only warnings and errors.",
        commands=(*_LEARN, CERTIFY, CONVERT, PREDICT, REPORT),
        group="output",
        from_file=True,
    ),
    _flag(
        "verbose",
        help="Show the effective options and more messages.",
        commands=(TRAIN,),
        group="output",
        from_file=True,
    ),
)

_score_kind = partial(_call, kind=FLAG, commands=(PREDICT,), group="output", default=False)
_certify = partial(_call, commands=(CERTIFY,))
_report = partial(_call, commands=(REPORT,), group="output")
_inspect = partial(_call, commands=(INSPECT,), kind=PATH, metavar="FILE")
_predict = partial(_call, commands=(PREDICT,), group="scores")
#: The options of fcl certify, fcl report, fcl inspect and fcl new-features alone.
READERS = (
    _certify(
        "strength",
        TEXT,
        "Weight of the losses; best: where the model is most nearly optimal (default: the C of the "
        "model, or its alpha if the rows' weights have another sum; best for other programs).",
        spelling="C",
        metavar="C|best",
    ),
    _certify(
        "bound_from",
        PATH,
        "Take the bound of this model of fcl train, of the same data and the same problem.",
        metavar="OPTIMUM",
    ),
    _certify(
        "radius",
        NUMBER,
        "Compare with the best model in the ball ||w||_1 <= Z (default: that of method ball, or the norm "
        "of the weights).",
        metavar="Z",
    ),
    _certify("intercept", NUMBER, "Intercept, if MODEL has none.", metavar="B"),
    _certify("no_intercept", FLAG, "The problem has no intercept.", default=False),
    _certify(
        "namespace",
        TEXT,
        "Namespace of the features in a readable model of Vowpal Wabbit without names.",
        default="",
        metavar="NAME",
    ),
    _certify("top", FROM_0, "How many violators to show.", default=10),
    _certify("as_json", PATH, "Write the result to FILE.", spelling="json", metavar="FILE"),
    _report(
        "out",
        PATH,
        "Write the page, one HTML file, to FILE.",
        metavar="FILE",
        required=True,
    ),
    _report(
        "data",
        PATH,
        "Rows with a target, for scores, effects and examples.",
        metavar="DATA",
        group="input",
    ),
    _report(
        "groups",
        TEXT,
        "Array in DATA, or column of a table, with the groups of rows.",
        metavar="NAME",
        group="columns",
    ),
    _report(
        "names",
        PATH,
        "Text file with the name of a column in each line.",
        metavar="FILE",
        group="columns",
    ),
    _report(
        "title",
        TEXT,
        "Heading of the page; by default the name of MODEL.",
        default="",
    ),
    _report(
        "note",
        TEXT,
        "A paragraph below the heading, such as what the data are.",
        default="",
    ),
    _report("save_plots", PATH, "Write the pictures to DIR, as SVG.", metavar="DIR"),
    _report(
        "save_data",
        PATH,
        "Write the numbers to DIR, as CSV and JSON. Names that a spreadsheet would take for formulas get "
        "an apostrophe in the CSV.",
        metavar="DIR",
    ),
    _inspect(
        "tsv",
        help="Write the active features to FILE: feature, weight, support (rows); patterns of letters "
        "also with motif, position and strand; variants with chromosome, position, alleles and effect "
        "of an allele, after which covariates and the intercept follow. For programs: names are as they "
        "are.",
    ),
    _call(
        "kind",
        one_of("pgs", "plink"),
        "Write variants to the FILE of --tsv as a scoring file of the PGS Catalog (pgs), or for "
        "plink --score FILE 1 2 3 header (plink).",
        (INSPECT,),
        spelling="format",
    ),
    _inspect(
        "meme",
        help="Write the strongest patterns of letters, as many as --top, to FILE in MEME format.",
    ),
    _call("top", FROM_0, "How many features to show.", (INSPECT,), default=10),
    _call(
        "rows",
        one_of("numbers", "sequences"),
        "What the rows are.",
        (NEW_FEATURES,),
        default="numbers",
    ),
)

#: The options of fcl predict that fcl convert does not have.
SCORES = (
    _predict(
        "explain",
        FROM_1,
        "Write the K largest contributions of features beside each score; not for --sites, --vcf.",
        metavar="K",
    ),
    _predict(
        "explain_output",
        TEXT,
        "The class, target or label whose margins --explain divides; for models of several.",
        metavar="LABEL",
    ),
    _predict(
        "keep_dropped",
        FLAG,
        "Write a line for dropped records too, with empty cells.",
        default=False,
    ),
    _predict(
        "sites",
        TEXT,
        "Score all sites of the genome with these letters, such as AG.",
        group="genome",
        metavar="LETTERS",
    ),
    _predict(
        "origin",
        FROM_0,
        "Position of the site in the window (default: the origin of the model's features).",
        group="genome",
        metavar="N",
    ),
    _predict("vcf", PATH, "VCF file of variants to score.", group="variants", metavar="FILE"),
    _predict(
        "skip_mismatches",
        FLAG,
        "Skip and count variants whose REF differs from the genome.",
        group="variants",
        default=False,
    ),
    _score_kind("margins", help="Write margins (default).", sets=("kind", "margin", "margin")),
    _score_kind(
        "probability",
        help="Write the probability of the positive label, or of each of several classes.",
        sets=("kind", "probability", "margin"),
    ),
    _score_kind(
        "mean",
        help="Write the expected target; exp(margin) for poisson loss.",
        sets=("kind", "mean", "margin"),
    ),
    _score_kind(
        "predicted",
        help="Write the predicted label, in a .tsv; for files of rows beside the other scores.",
        sets=("kind", "predicted", "margin"),
    ),
    _predict(
        "out",
        PATH,
        "Output: .npy, .tsv, .tsv.gz or .zarr, by its suffix; - is standard output.",
        group="output",
        metavar="FILE",
        required=True,
    ),
)
