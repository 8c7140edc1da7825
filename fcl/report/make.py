"""From a model file to the report."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Collection, Sequence
from dataclasses import dataclass

import numpy as np

from fcl.checks import shortened
from fcl.data import DataSet
from fcl.errors import InputError
from fcl.model import Model, load_model
from fcl.report.contract import Context, Section
from fcl.report.export import data_files, plot_files
from fcl.report.figures import check_packages
from fcl.report.measured import measure
from fcl.report.page import render
from fcl.report.sections import sections
from fcl.store import locate, open_file

#: Characters of a heading and of a note.
LONGEST_TITLE, LONGEST_NOTE = 200, 4_000


@dataclass(frozen=True)
class Report:
    """A report: its page, and the sections that the page shows."""

    html: str
    sections: Sequence[Section]

    @property
    def plots(self) -> dict[str, str]:
        """File name -> SVG of each picture."""
        return plot_files(self.sections)

    @property
    def data(self) -> dict[str, str]:
        """File name -> CSV or JSON with the numbers of the report."""
        return data_files(self.sections)


def make_report(
    path: str | os.PathLike[str],
    data: DataSet | None = None,
    *,
    groups: np.ndarray | None = None,
    names: Sequence[str] | None = None,
    title: str = "",
    note: str = "",
    trusted: Collection[str] = (),
) -> Report:
    """Report on a model file. The same file and data give the same bytes.

    data : rows with a target, for scores, effects and single rows.
    groups : (n,), optional, the group of each row, such as its chromosome.
    names : names of the columns of the rows.
    title : heading of the page; by default the name of the file.
    note : a paragraph below the heading, such as what the data are and who asks.
    trusted : modules that the file may import, as for :func:`fcl.load_model`.

    Raises InputError: matplotlib or jinja2 is missing; the file is not a model; the rows do not fit the
        model; or there are fewer names than columns.
    """
    check_packages()
    model = load_model(path, trusted)
    checksum = _checksum(path)
    if names is not None and data is not None and len(names) != _width(data):
        raise InputError(
            f"names: expected {_width(data):,} names, one for each column of {data.name}, got "
            f"{len(names):,}"
        )
    if not isinstance(model, Model) and (groups is not None or names is not None):
        raise InputError("groups and names are for models of fcl train; leave them out")
    measured = None if data is None else measure(model, data, groups)
    made = sections(Context(model, locate(path), checksum, names, measured))
    heading = shortened(title or locate(path).name, LONGEST_TITLE)
    return Report(render(heading, made, note[:LONGEST_NOTE]), made)


def _checksum(path: str | os.PathLike[str]) -> str:
    """The SHA-256 of a file."""
    with open_file(path) as file:
        return hashlib.sha256(file.read()).hexdigest()


def _width(data: DataSet) -> int:
    return data.rows.shape[1] if len(data.rows.shape) > 1 else 1
