"""One fuzz input: what is run, and what of it is known beforehand."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np


@dataclass
class Trial:
    """A command line or a Python call, and what may come of it."""

    arguments: list[str] = field(default_factory=list)  #: the command, then its arguments
    #: of a Python call: does it, and returns what is wrong with the result
    call: Callable[[], list[str]] | None = None
    must_succeed: bool = False
    #: in a process of its own; with the state of its standard streams, one of `execute.STREAMS`
    streams: str | None = None


class Case:
    """What a seed and a number determine, in a folder of its own.

    Parameters
    ----------
    seed, number : int
        All random choices follow from them.
    folder : Path
        Empty; the working folder of the command.
    stock : Path
        Data, models and checkpoints that are in order, made by `stock.make_stock`.
    """

    def __init__(self, seed: int, number: int, kind: str, folder: Path, stock: Path) -> None:
        self.seed, self.number, self.kind = seed, number, kind
        self.folder, self.stock = folder, stock
        self.rng = random.Random(f"fuzz-{seed}-{number}")
        self.numbers = np.random.default_rng([seed, number])
        self.notes: list[str] = []  #: what was done, for the report
        self.outputs: list[str] = []  #: names that the command may write to
        self.named = 0

    def note(self, words: str) -> None:
        """Remember what was done to the input."""
        self.notes.append(words)

    def chance(self, share: float) -> bool:
        """Whether to do something that is done in this share of the cases."""
        return self.rng.random() < share

    def fresh(self, suffix: str = "") -> str:
        """A name in the folder that is not taken."""
        self.named += 1
        return f"f{self.named}{suffix}"

    def output(self, name: str) -> str:
        """Allow the command to write to a name, and to the checkpoints beside it."""
        self.outputs += [name, f"{name}.checkpoint"]
        return name
