"""The trained model, which predicts from raw rows, and its file."""

from __future__ import annotations

import os
import struct
import zipfile
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from fcl.checks import file_kind, shortened, shown
from fcl.data import open_data
from fcl.data.dataset import DataSet
from fcl.errors import InputError, ModelFileError
from fcl.features.generator.family import GeneratedFamily
from fcl.model import schema
from fcl.model.archive import (
    add_array,
    add_member,
    installed_version,
    now,
    open_archive,
    read_array,
    read_json,
    read_member,
    write_json,
)
from fcl.model.atomic import atomic_file
from fcl.model.columns import matched
from fcl.stagewise.blocks import TILE_ROWS, powers_of
from fcl.stagewise.learner import Weights, block_count
from fcl.stagewise.links import LINKS, project
from fcl.stagewise.settings import CALIBRATIONS, UPDATES, Settings

if TYPE_CHECKING:
    pass

__all__ = ["StagewiseModel", "is_stagewise", "load_stagewise"]

FORMAT, VERSION = "fcl-stagewise", 1
_HEADER = "header.json"
_KIND = "a stagewise model"
_ARRAYS = ("features", "intercepts", "calibration")

Floats = npt.NDArray[np.float64]


@dataclass(frozen=True)
class StagewiseModel:
    """A model over blocks of generated features.

    Attributes
    ----------
    family : GeneratedFamily
        Fitted to the training rows.
    weights : Weights
        Of the blocks of the best step.
    settings : Settings
    labels : tuple or None
        Classes in the order of the margins; None for numbers.
    history : list of dict
        A row for each block of each visit: number, loss, error, valid_loss, valid_error, seconds.
    best_number : int
        The block, over all visits, after which the weights were taken.
    n_rows : int
        Training rows.
    fingerprint : str
        Of the training data.
    column_names : dict of int to str, or None
        Names of the columns of the rows, by position.
    certificate : dict or None
        objective, bound, gap and n_features of the joint ridge problem, if it was requested.
    """

    family: GeneratedFamily
    weights: Weights
    settings: Settings
    labels: tuple[Any, ...] | None
    history: list[dict[str, Any]]
    best_number: int
    n_rows: int
    fingerprint: str
    column_names: dict[int, str] | None = None
    certificate: dict[str, Any] | None = None

    @property
    def n_margins(self) -> int:
        """Number of margins of a row: classes, or numbers to predict."""
        return self.weights.features.shape[1]

    @property
    def n_blocks(self) -> int:
        """Number of blocks that predictions use."""
        all_blocks = block_count(self.family.n_features, self.settings.block)
        return min(self.best_number, all_blocks)

    def margins(self, data: DataSet | Any) -> Floats:
        """The margins of all rows, float64 (n, K).

        data : a data set, or a source for :func:`fcl.open_data`; needs no target.  Raises InputError for
        rows that do not fit the family.
        """
        opened = self.opened(data)
        out = np.empty((opened.n_rows, self.n_margins))
        for start, stop, margins in self.iter_margins(opened):
            out[start:stop] = margins
        return out

    def opened(self, data: DataSet | Any) -> DataSet:
        """Open rows and match their columns by name."""
        found = data if isinstance(data, DataSet) else open_data(data, y=None)
        return matched(found, self.column_names, self.family.row_width)

    def iter_margins(self, data: DataSet) -> Iterator[tuple[int, int, Floats]]:
        """Yield (first row, last row + 1, margins) for blocks of rows, in their order."""
        self.family.check_rows(data.rows)
        height = min(TILE_ROWS, self.family.most_block_rows())
        for start, stop, raw in self.family.read_rows(data.rows, height):
            yield start, stop, self._margins(raw, start // height, stop - start)

    def _margins(self, raw: Any, number: int, n: int) -> Floats:
        block = self.family.block_of(raw)
        weights, width = self.weights, self.settings.block
        margins = np.tile(weights.intercepts[0], (n, 1))
        for k in range(self.n_blocks):
            own = weights.features[k * width : (k + 1) * width]
            ids = np.arange(k * width, k * width + len(own))
            columns = self.family.columns(ids, block, number, n)
            added = columns @ own.astype(np.result_type(columns.dtype, np.float32), copy=False)
            if self.settings.powers:
                added = added + powers_of(margins, self.settings.powers) @ weights.calibration[k]
            margins += added + weights.intercepts[k + 1]
            if self.settings.clip:
                margins = project(margins)
        return margins

    def probabilities(self, margins: Floats) -> Floats:
        """Probabilities of the classes from margins, float64 (n, K); raises InputError for numbers."""
        if self.labels is None:
            raise InputError("probabilities: expected a model of classes, got a model of numbers")
        return LINKS[str(self.settings.loss)].probabilities(margins)

    # -- the file

    def save(self, path: str | os.PathLike[str], overwrite: bool = False) -> None:
        """Write the model, completely or not at all.

        Raises InputError if the path exists and ``overwrite`` is false, or cannot be written to.
        """
        header = {
            "format": FORMAT,
            "version": VERSION,
            "family": self.family.to_config(),
            "settings": self.settings.fixed(),
            "labels": None if self.labels is None else list(self.labels),
            "n_margins": self.n_margins,
            "best_number": self.best_number,
            "n_rows": self.n_rows,
            "fingerprint": self.fingerprint,
            "column_names": None if self.column_names is None else list(self.column_names.items()),
            "certificate": self.certificate,
            "history": self.history,
            "created": now(),
            "fcl_version": installed_version(),
        }
        content = write_json(header)
        with atomic_file(path, overwrite) as file, zipfile.ZipFile(file, "w") as archive:
            add_member(archive, _HEADER, content)
            for name in _ARRAYS:
                values = np.ascontiguousarray(getattr(self.weights, name)).ravel()
                add_array(archive, f"{name}.npy", values.astype("<f8"))


def _label(where: str, value: Any) -> Any:
    if not isinstance(value, bool | int | float | str):
        raise schema.Mismatch(f"{where}: expected a number or a string, got {shown(value)}")
    return value


def _column_name(where: str, value: Any) -> tuple[int, str]:
    column, name = schema.listing(schema.anything, 2)(where, value)
    return schema.whole()(f"{where}[0]", column), schema.text(f"{where}[1]", name)


#: What a header says of the settings; shared with checkpoints.
SETTINGS_TABLE = schema.record(
    update=schema.one_of(*UPDATES),
    loss=schema.one_of(*LINKS),
    block=schema.whole(1),
    visits=schema.whole(1),
    inner=schema.whole(1),
    alpha=schema.number(0.0),
    calibration=schema.one_of(*CALIBRATIONS),
    clip=schema.flag,
    valid_fraction=schema.number(0.0, 1.0),
    patience=schema.whole(1),
    seed=schema.whole(),
)
#: A row of the history.
DONE_TABLE = schema.record(
    number=schema.whole(1),
    loss=schema.number(),
    error=schema.nullable(schema.number(0.0, 1.0)),
    valid_loss=schema.nullable(schema.number()),
    valid_error=schema.nullable(schema.number(0.0, 1.0)),
    seconds=schema.number(0.0),
)
_HEADER_TABLE = schema.record(
    family=schema.table,
    settings=SETTINGS_TABLE,
    labels=schema.nullable(schema.listing(_label)),
    n_margins=schema.whole(1),
    best_number=schema.whole(0),
    n_rows=schema.whole(1),
    fingerprint=schema.text,
    column_names=schema.nullable(schema.listing(_column_name)),
    certificate=schema.nullable(
        schema.record(
            objective=schema.number(),
            bound=schema.number(),
            gap=schema.number(0.0),
            n_features=schema.whole(1),
        )
    ),
    history=schema.listing(DONE_TABLE),
)


def is_stagewise(path: str | os.PathLike[str]) -> bool:
    """Whether a file is a stagewise model, damaged or not beyond its first header."""
    try:
        if file_kind(path) != "file":
            return False
        with open_archive(path) as archive:
            return bool(read_json(read_member(archive, _HEADER, _KIND)).get("format") == FORMAT)
    except Exception:  # the reader of other models says what is wrong
        return False


def load_stagewise(path: str | os.PathLike[str], trusted: Collection[str] = ()) -> StagewiseModel:
    """Read a model file; nothing in it is executed.

    Parameters
    ----------
    path : path
    trusted : collection of str
        Modules of feature classes that the file may import; as for :func:`fcl.load_model`.

    Raises
    ------
    ModelFileError
        The file is missing, damaged, or of another kind, or its family is not trusted.
    """
    shown_path = os.fspath(path)
    file_kind(path)
    try:
        with open_archive(path) as archive:
            header = read_json(read_member(archive, _HEADER, _KIND))
            arrays = {name: read_array(archive, f"{name}.npy", "<f8", _KIND) for name in _ARRAYS}
        if header.get("format") != FORMAT or header.get("version") != VERSION:
            raise ValueError(
                f"expected format {FORMAT} of version {VERSION}, got {shown(header.get('format'))} of "
                f"version {shown(header.get('version'))}"
            )
        return _model(_HEADER_TABLE("", header), arrays, trusted)
    except InputError as error:
        raise ModelFileError(f"{shown_path}: {error}") from error
    except (zipfile.BadZipFile, EOFError, RuntimeError, OSError, ValueError, LookupError) as error:
        raise ModelFileError(f"{shown_path}: {shortened(str(error), 400)}") from error
    except struct.error as error:
        raise ModelFileError(f"{shown_path}: damaged ({error})") from error


def _model(
    header: Mapping[str, Any], arrays: Mapping[str, Floats], trusted: Collection[str]
) -> StagewiseModel:
    from fcl.features import family_from_config

    family = family_from_config(header["family"], trusted)
    if not isinstance(family, GeneratedFamily):
        raise ValueError(f"expected a family of generated columns, got {family.name}")
    settings, labels, names = (
        Settings(**header["settings"]),
        header["labels"],
        header["column_names"],
    )
    K = header["n_margins"]
    if labels is not None and len(labels) != K:
        raise ValueError(f"labels: expected {K}, got {len(labels)}")
    return StagewiseModel(
        family=family,
        weights=shaped(arrays, family.n_features, K, settings),
        settings=settings,
        labels=None if labels is None else tuple(labels),
        column_names=None if names is None else dict(names),
        **{
            name: header[name]
            for name in ("history", "best_number", "n_rows", "fingerprint", "certificate")
        },
    )


def shaped(arrays: Mapping[str, Floats], D: int, K: int, settings: Settings) -> Weights:
    """The weights from vectors of a file; raises ValueError for other lengths or infinite values."""
    blocks, powers = block_count(D, settings.block), len(settings.powers) * K
    shapes = {
        "features": (D, K),
        "intercepts": (blocks + 1, K),
        "calibration": (blocks if powers else 0, powers, K),
    }
    found = {}
    for name, shape in shapes.items():
        values = arrays[name]
        if len(values) != int(np.prod(shape, dtype=object)) or not np.isfinite(values).all():
            raise ValueError(f"{name}.npy: expected finite values of shape {shape}")
        found[name] = values.reshape(shape)
    return Weights(**found)
