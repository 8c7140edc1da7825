"""The options of ``fcl predict``, most of which ``fcl convert`` has too."""

from __future__ import annotations

from dataclasses import replace
from functools import partial

from fcl.convert.options import GROUPS as CONVERT_GROUPS
from fcl.convert.options import TABLE as CONVERT_TABLE
from fcl.options import FLAG, FROM_0, FROM_1, PATH, TEXT, Option

#: The groups of options in ``--help``, in order.
GROUPS = ("scores", *CONVERT_GROUPS[:-2], "variants", "model", *CONVERT_GROUPS[-2:])


_score = partial(Option, group="scores")
_flag = partial(Option, FLAG, default=False)
_OWN = {
    "explain": _score(
        FROM_1,
        help="Write the K largest contributions of features beside each score; not for --sites, --vcf.",
        metavar="K",
    ),
    "explain_output": _score(
        TEXT,
        help="The class, target or label whose margins --explain divides; for models of several.",
        metavar="LABEL",
    ),
    "offset": _score(
        TEXT, help="Array in DATA that is added to the margins; DATA only.", metavar="NAME"
    ),
    "dask": _score(
        TEXT,
        help="Score on a Dask cluster: tcp://HOST:8786, a scheduler file, or local:N workers; DATA only.",
        metavar="ADDRESS",
    ),
    "dask_tls": _score(
        TEXT,
        help="Encrypt the connection to the cluster, with these files.",
        metavar="CA,CERT,KEY",
    ),
    "keep_dropped": _flag(
        group="scores", help="Write a line for dropped records too, with empty cells."
    ),
    "sites": Option(
        TEXT,
        "genome",
        "Score all sites of the genome with these letters, such as AG.",
        metavar="LETTERS",
    ),
    "origin": Option(
        FROM_0,
        "genome",
        "Position of the site in the window (default: the origin of the model's features).",
        metavar="N",
    ),
    "vcf": Option(PATH, "variants", "VCF file of variants to score.", metavar="FILE"),
    "skip_mismatches": _flag(
        group="variants", help="Skip and count variants whose REF differs from the genome."
    ),
}
_HELP = {
    "x": "Array of the rows in DATA (default: X); or columns of a table, as in fcl convert.",
    "y": "Target to compare the scores with: array in DATA (default: y, if present), or column.",
    "weights": "Sample weights for the comparison: array in DATA, or column of a table.",
    "both_strands": "Also score the reverse complement of each row, or sites of both strands.",
}
_CONVERT = {
    name: replace(option, help=_HELP.get(name, option.help))
    for name, option in CONVERT_TABLE.items()
    if name != "overwrite"
}

#: The options of ``fcl predict`` by name, without the options of its output.
TABLE = _CONVERT | {name: replace(option, name=name) for name, option in _OWN.items()}
#: Options that the readers of ``fcl convert`` take.
CONVERT_NAMES = tuple(name for name in _CONVERT if name not in ("format", "memory", "quiet"))
#: Options that each kind of input takes.
NATIVE_NAMES = (
    "x", "y", "weights", "offset", "explain", "explain_output", "dask", "dask_tls", "memory", "quiet",
)  # fmt: skip
FILE_NAMES = (*_CONVERT, "keep_dropped", "explain", "explain_output")
SITE_NAMES = (
    "genome", "sites", "origin", "both_strands", "edges", "max_unknown", "memory", "quiet",
)  # fmt: skip
VARIANT_NAMES = (
    "vcf", "genome", "sites", "origin", "both_strands", "edges", "rename", "skip_contigs",
    "skip_mismatches", "keep_dropped", "memory", "quiet",
)  # fmt: skip
