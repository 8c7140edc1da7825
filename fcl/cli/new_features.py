"""``fcl new-features NAME``: a file with a family of your own and a test of it, ready to edit."""

from __future__ import annotations

import keyword
import re
from importlib.machinery import ModuleSpec
from importlib.util import find_spec
from pathlib import Path

import click

from fcl.cli.common import show
from fcl.cli.job import OutputFiles
from fcl.cli.options import TableCommand
from fcl.errors import InputError

_NUMBERS = '''"""Features of my own: pairs of columns that are both above their medians."""

import numpy as np

from fcl.features import Generator


class {name}(Generator):
    """1 where two columns of a row are above their medians."""

    rows = "numbers"  # blocks are float32 or float64 (n, columns)
    binary = True  # all values are 0 or 1

    def __init__(self, most=1000):
        self.most = most  # options are kept under their names

    def fit(self, sample):
        """Learn from some rows; names of what is learnt end in _."""
        self.medians_ = np.median(sample, axis=0)
        first, second = np.triu_indices(sample.shape[1], 1)
        self.pairs_ = np.stack([first, second], axis=1)[: self.most]
        self.n_features = len(self.pairs_)

    def columns(self, ids, block):
        """The values of some features in a block of rows, (n, len(ids))."""
        above = block > self.medians_
        first, second = self.pairs_[ids].T
        return above[:, first] & above[:, second]

    def describe(self, feature, names=None):
        """A text for people that no other feature has; names are those of the columns, if known."""
        first, second = (f"x{{j}}" if names is None else names[j] for j in self.pairs_[feature])
        return f"{{first}} and {{second}} are high"
'''

_SEQUENCES = '''"""Features of my own: pairs of equal letters at two positions of a sequence."""

import numpy as np

from fcl.features import Generator


class {name}(Generator):
    """1 where a sequence has a letter at two positions."""

    rows = "sequences"  # blocks are uint8 (n, L): 0 to 3 for A, C, G, T, 4 for unknown
    binary = True  # all values are 0 or 1

    def __init__(self, distance=10):
        self.distance = distance  # options are kept under their names

    def fit(self, sample):
        """Learn from some rows; names of what is learnt end in _."""
        first = np.arange(sample.shape[1] - 1)
        self.places_ = np.array(
            [(i, j) for i in first for j in range(i + 1, min(i + self.distance + 1, len(first) + 1))]
        )
        self.n_features = 4 * len(self.places_)

    def columns(self, ids, block):
        """The values of some features in a block of rows, (n, len(ids))."""
        first, second = self.places_[ids // 4].T
        letter = ids % 4
        return (block[:, first] == letter) & (block[:, second] == letter)

    def describe(self, feature):
        """A text for people that no other feature has."""
        first, second = self.places_[feature // 4]
        return f"{{'ACGT'[feature % 4]}} at {{first}} and {{second}}"
'''

_TEST = '''"""python -m pytest test_{module}.py"""

import numpy as np
from {module} import {name}

from fcl.testing import check_generator

{rows}


def test_contract():
    """Columns are the same in every block and process, ids have texts, the class survives a file."""
    print(check_generator({name}(), ROWS))


def test_values():
    family = {name}()
    family.fit(ROWS)
    ids = np.arange(min(family.n_features, 20))
    found = family.columns(ids, ROWS)
    assert found.shape == (len(ROWS), len(ids))
    # Write here what some features are, computed in another way.
'''
_ROWS = {
    "numbers": "ROWS = np.random.default_rng(0).normal(size=(300, 8))",
    "sequences": "ROWS = np.random.default_rng(0).integers(0, 4, (300, 30), dtype=np.uint8)",
}
_TEMPLATES = {"numbers": _NUMBERS, "sequences": _SEQUENCES}


EPILOG = """\
\b
Exit codes: 0 success, 1 the machine failed or an output was taken (the result is beside it),
2 wrong option or a name that no class can have, 129, 130 and 143 signals.
"""


@click.command("fcl new-features", cls=TableCommand, epilog=EPILOG)
@click.argument("name")
def command(name: str, rows: str, overwrite: bool) -> int:
    """Write a family of features called NAME, such as HighPairs, with a test, into this folder."""
    module = _module_of(name)
    text = _TEMPLATES[rows].format(name=name)
    test = _TEST.format(name=name, module=module, rows=_ROWS[rows])
    files = {f"{module}.py": text, f"test_{module}.py": test}
    outputs = OutputFiles(overwrite)
    for path in files:
        outputs.add(path, path, path)
    for path, content in files.items():
        outputs.write(path, content.encode(), "the file")
    show(
        [
            f"{module}.py: the class {name}; edit it",
            f"test_{module}.py: its test; run python -m pytest test_{module}.py",
            f"next: fcl train DATA --features {module}:{name} --C 0.1 --out model.fcl",
        ]
    )
    return outputs.exit_code


def _module_of(name: str) -> str:
    """The module of a class; raises InputError for a name that no class can have."""
    if not re.fullmatch("[A-Z][A-Za-z0-9]*", name):
        raise InputError(f"NAME: expected the name of a class, such as HighPairs, got {name!r}")
    module = re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", name).lower()
    found = find_spec(module)
    if keyword.iskeyword(module) or (found is not None and not _is_here(found)):
        raise InputError(
            f"NAME: {module} is a word or a module of Python already; choose another name"
        )
    return module


def _is_here(found: ModuleSpec) -> bool:
    """Whether a module is a file of this folder, which --overwrite replaces."""
    return found.origin is not None and Path(found.origin).resolve().parent == Path.cwd()
