"""One fuzz case: what to run, and what is known about it beforehand."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np


@dataclass
class Trial:
    """A command line or a Python call, and how it must end."""

    arguments: list[str] = field(default_factory=list)  #: the command, then its arguments
    #: for a Python call: makes the call, and returns what is wrong with the result
    call: Callable[[], list[str]] | None = None
    must_succeed: bool = False
    refuse: str = ""  #: what makes the input invalid, if only a refusal is right
    stdin: str = ""  #: name of the file that is standard input
    #: if not None, runs in a process with these standard streams, one of `run.STREAMS`
    streams: str | None = None
    #: whether a Python call may write nothing, and leave nothing in this process
    is_watched: bool = True


class Case:
    """A random case, determined by a seed and a number, in a folder of its own.

    Parameters
    ----------
    seed, number : int
        They determine all random choices.
    kind : str
        One of `kinds.KINDS`.
    folder : Path
        An empty folder: the working folder of the command.
    stock : Path
        Folder of valid data, models and checkpoints, made by `stock.make_stock`.
    within : str
        Only cases whose name contains this text, if cases of the kind have names.
    """

    def __init__(
        self, seed: int, number: int, kind: str, folder: Path, stock: Path, within: str = ""
    ) -> None:
        self.seed, self.number, self.kind, self.within = seed, number, kind, within
        self.folder, self.stock = folder, stock
        self.rng = random.Random(f"fuzz-{seed}-{number}")
        self.numbers = np.random.default_rng([seed, number])
        self.notes: list[str] = []  #: what was done, for the report
        self.outputs: list[str] = []  #: names that the command may write to
        self.misspelt = ""  #: a text that replaced a number, and that no format reads as a number
        self.group = kind  #: the row of the summary table
        self.outcome = ""  #: of a Python call, if it is not "success" or "refused"
        self.figures: dict[str, Any] = {}  #: measurements, for the report
        self.said = ""  #: what a command said that the call has started
        self.named = 0

    def note(self, words: str) -> None:
        """Record what was done to the input."""
        self.notes.append(words)

    def chance(self, share: float) -> bool:
        """Return True with the given probability."""
        return self.rng.random() < share

    def fresh(self, suffix: str = "") -> str:
        """An unused file name in the folder."""
        self.named += 1
        return f"f{self.named}{suffix}"

    def output(self, name: str) -> str:
        """Allow the command to write to a name, and to the checkpoints and points beside it."""
        refit = f"{name.removesuffix('.fcl')}.refit.fcl"
        self.outputs += [name, f"{name}.checkpoint", f"{name}.path", refit]
        return name
