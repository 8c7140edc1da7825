"""The commands, one module each; ``fcl --help`` needs only the table below."""

from __future__ import annotations

__all__ = ["COMMANDS"]

#: name -> (module, summary in one line)
COMMANDS = {
    "train": ("fcl.cli.train", "train a sparse model on data of any size, with a certificate"),
    "predict": ("fcl.cli.predict", "score data, sequences, a genome or variants with a model"),
    "inspect": ("fcl.cli.inspect", "show the features of a model and its certificate"),
    "certify": ("fcl.cli.certify", "say how far any linear model is from the optimum"),
    "stagewise": (
        "fcl.cli.stagewise",
        "train a ridge model of several classes over blocks of features",
    ),
    "online": ("fcl.cli.online", "learn a sparse model row by row, in one pass or a few"),
    "convert": ("fcl.cli.convert", "make a data set from FASTA, BED and other files"),
    "list": ("fcl.cli.list_names", "list families, losses, penalties, drivers and the like"),
    "new-features": ("fcl.cli.new_features", "write a family of your own, with a test, to edit"),
    "report": (
        "fcl.cli.report_command",
        "write a page about a model: certificate, scores, effects",
    ),
}
