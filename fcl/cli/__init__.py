"""The commands, one module each. This list is all that ``python -m fcl`` needs to know of them."""

from __future__ import annotations

__all__ = ["COMMANDS"]

#: name -> (module, what it does in one line)
COMMANDS = {
    "train": ("fcl.cli.train", "train a sparse model on data of any size, to a certificate"),
    "predict": ("fcl.cli.predict", "score the rows of a data set with a model"),
    "inspect": ("fcl.cli.inspect", "show what a model holds and what is proved of it"),
}
