"""From a model file to the report."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from tempfile import TemporaryDirectory

import numpy as np

from fcl.checks import shortened
from fcl.data import DataSet, open_data
from fcl.errors import InputError
from fcl.files.atomic import atomic_file
from fcl.model import Model, load_model
from fcl.model.predictor import Predictor
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
    """A report: one HTML page, and what it shows.

    Attributes
    ----------
    html : str
        The page, which opens without a network.
    sections : sequence
        The sections of the page.
    plots, data : dict of str
        File name -> SVG of each picture; file name -> CSV or JSON with the numbers.

    Examples
    --------
    >>> X, y = np.eye(3), np.array([0, 1, 1])
    >>> report = fcl.make_report(fcl.train(fcl.open_data(X, y=y), "columns", C=1.0).model)
    >>> report.html[:15], sorted(report.data)[:2]
    ('<!doctype html>', ['convergence.csv', 'gap.csv'])
    """

    html: str
    sections: Sequence[Section]

    def save(self, path: str | os.PathLike[str], overwrite: bool = False) -> None:
        """Write the page, completely or not at all."""
        with atomic_file(path, overwrite) as file:
            file.write(self.html.encode())

    @property
    def plots(self) -> dict[str, str]:
        """File name -> SVG of each picture."""
        return plot_files(self.sections)

    @property
    def data(self) -> dict[str, str]:
        """File name -> CSV or JSON with the numbers of the report."""
        return data_files(self.sections)


def make_report(
    model: str | os.PathLike[str] | Predictor,
    data: DataSet | str | os.PathLike[str] | None = None,
    *,
    groups: np.ndarray | None = None,
    names: Sequence[str] | None = None,
    title: str = "",
    note: str = "",
    trusted: Collection[str] = (),
) -> Report:
    """Report on a model: certificate, convergence, scores, features and effects, as ``fcl report`` does.

    The same model file and data give the same bytes. The extra ``report`` must be installed.

    Parameters
    ----------
    model : path, Model or stagewise model
        The report on a file also uses its path and its checkpoints, if they lie beside the file.
    data : DataSet or path, optional
        Rows with a target, for scores, effects and single rows.
    groups : array (n,), optional
        The group of each row, such as its chromosome.
    names : sequence of str, optional
        Names of the columns of the rows.
    title : str
        Heading of the page; by default the name of the file.
    note : str
        A paragraph below the heading, such as what the data are and who asks.
    trusted : collection of str
        Modules that the file may import, as for :func:`fcl.load_model`.

    Returns
    -------
    Report
        The page; its method ``save`` writes it.

    Raises
    ------
    InputError
        A package is missing; the file is not a model; the rows do not fit the model; or there are fewer
        names than columns.

    Examples
    --------
    >>> X = np.random.default_rng(0).normal(size=(40, 3))
    >>> data = fcl.open_data(X, y=X[:, 0] > 0)
    >>> model = fcl.train(data, "columns", C=1.0).model
    >>> fcl.make_report(model, data, title="The first column").save("report.html")
    """
    check_packages()
    if not isinstance(model, str | os.PathLike):
        with TemporaryDirectory() as folder:
            model.save(file := os.path.join(folder, "model.fcl"))
            title = title or "A model of fcl"
            return make_report(file, data, groups=groups, names=names, title=title, note=note)
    path, model = model, load_model(model, trusted)
    if isinstance(data, str | os.PathLike):
        data = open_data(data, covariates=model.covariate_names or None)
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
