"""PLINK files: rows are samples, columns are variants, values are counts of the allele A1."""

from __future__ import annotations

import os
import tempfile
import weakref
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from fcl.checks import shown
from fcl.convert.contract import Budget, Column, ConvertedRows, ConvertSource, OutputLayout
from fcl.convert.files import InputFile
from fcl.convert.labels import Categories
from fcl.convert.letters import select
from fcl.convert.plink.like import PlinkColumns, training_variants
from fcl.convert.plink.samples import named_samples, read_covariates, read_phenotype
from fcl.convert.plink.trio import Trio
from fcl.convert.reference import Reference
from fcl.data.columns import DIPLOID
from fcl.errors import InputError
from fcl.extras import import_extra
from fcl.units import counted

#: The part of the budget that a tile or a band may take.
_PART = 4
#: Samples or variants that a tile or band must have, as shorter requests to the scratch file are slow.
_SHORTEST = 16


class Transposed:
    """A matrix (samples, variants) of int8 that is written by columns and read by rows.

    The scratch file holds one byte for each genotype, in tiles: some variants of all samples. A band,
    which is some samples of all variants, is read from all tiles. Tiles and bands are as large as the
    budget allows, because each pair of a tile and a band takes one request to the file: with 512 MiB, 0.2
    million requests of about 130 KB for 50,000 samples of 500,000 variants. The file has no name, so that
    nothing is left of it.

    tiles : ranges of variants, in the order in which they must be appended.
    bands : ranges of samples.
    """

    def __init__(self, n_samples: int, n_variants: int, budget: Budget) -> None:
        size = budget.total // _PART
        budget.check(
            f"{_SHORTEST} samples of {counted(n_variants, 'variant')}, or {_SHORTEST} variants of "
            f"{counted(n_samples, 'sample')},",
            _SHORTEST * max(n_samples, n_variants),
            _PART,
        )
        self.tiles = _ranges(n_variants, size // max(1, n_samples))
        self.bands = _ranges(n_samples, size // n_variants)
        self._n_samples = n_samples
        self._file = tempfile.TemporaryFile(dir=budget.scratch)  # noqa: SIM115
        weakref.finalize(self, self._file.close)

    def append(self, columns: np.ndarray) -> None:
        """Append the next tile: int8 (samples, variants of the tile)."""
        self._file.write(np.ascontiguousarray(columns).data)

    def rows(self) -> Iterator[np.ndarray]:
        """Iterate over the bands: int8 (samples of the band, variants); the next one overwrites it."""
        self._file.flush()
        memory = np.empty((self.bands[0].stop, self.tiles[-1].stop) if self.bands else 0, np.int8)
        for band in self.bands:
            n_rows = band.stop - band.start
            rows = memory[:n_rows]
            for tile in self.tiles:
                width = tile.stop - tile.start
                at = self._n_samples * tile.start + band.start * width
                piece = os.pread(self._file.fileno(), n_rows * width, at)
                rows[:, tile] = np.frombuffer(piece, np.int8).reshape(n_rows, width)
            yield rows


def _ranges(stop: int, step: int) -> list[slice]:
    return [slice(start, min(stop, start + step)) for start in range(0, stop, step)]


#: A mean that stands for missing genotypes differs by this from 1, so that it differs from a
#: genotype, and replaced by the mean of the training data.
_APART = 2.0**-22
#: The code of a missing genotype in int8.
_MISSING = -127


@dataclass(frozen=True)
class Options:
    """The options of ``fcl convert`` that PLINK files take."""

    y: str | None = None
    covariates: str | None = None
    keep: str | None = None
    remove: str | None = None
    missing: str = "mean"
    like: str | Reference | None = None


def open_source(inputs: list[InputFile], options: Options, budget: Budget) -> ConvertSource:
    """Open a .bed file with .bim and .fam beside it."""
    _import_bed_reader()
    if len(inputs) > 1:
        raise InputError(
            f"expected one .bed file, got {len(inputs)}; merge them: plink --merge-list"
        )
    return _PlinkSource(inputs, options, budget)


class _PlinkSource(ConvertSource):
    def __init__(self, inputs: list[InputFile], options: Options, budget: Budget) -> None:
        super().__init__(inputs)
        self._options = options
        self._trio = trio = Trio.open(inputs[0], budget)
        self.inputs += [trio.bim, trio.fam]
        self._phenotype = read_phenotype(options.y, trio.samples, trio.fam.name)
        self._covariates: dict[str, Column] = {}
        self._kept = self._find_kept()
        self._columns = self._find_columns(budget)
        self._means = np.zeros(len(self._columns.order), np.float32)
        self._missing = np.zeros(len(self._columns.order), np.int32)
        self._n_missing = 0
        self._genotypes = self._transpose(budget)
        imputes = self._n_missing > 0 and options.missing == "mean"
        self._dtype = np.dtype(np.float32 if imputes else np.uint8)
        self._obs: dict[str, Column] = {
            "name": np.array(trio.samples.names, np.dtypes.StringDType()),
            "family": Categories().encode(trio.samples.family),
            "sex": trio.samples.sex,
            **self._covariates,
        }
        self.notes.append("genotypes: copies of the allele A1 (column 5 of the .bim file)")
        if imputes:
            self.notes.append(
                f"missing: {counted(self._n_missing, 'genotype')}, replaced by the mean of the variant"
                f"{' in the training data' if options.like else ' in these files'} (--missing)"
            )

    @property
    def layout(self) -> OutputLayout:
        found = self._columns
        var = found.var(self._means, self._missing)
        return OutputLayout("dense", self._dtype, len(found), found.variants.names, var)

    def attributes(self) -> dict[str, Any]:
        known = {"covariates": list(self._covariates)} if self._covariates else {}
        return {"scale": DIPLOID, **known}

    def blocks(self, budget: Budget) -> Iterator[ConvertedRows]:
        step = budget.block_rows((2 + 4 + 4) * len(self._means))
        bands = zip(self._genotypes.bands, self._genotypes.rows(), strict=True)
        for band, codes in bands:
            samples = self._kept[band]
            for start in range(0, len(codes), step):
                part = slice(start, start + step)
                yield self._rows(codes[part], samples[part])

    def _find_columns(self, budget: Budget) -> PlinkColumns:
        """Choose the variants that become columns: all in the file, or the training variants."""
        trio = self._trio
        training = training_variants(self._options.like, trio.bed.name)
        if training is None:
            return PlinkColumns.of(trio.variants)
        found = PlinkColumns.like(training, trio.variants, trio.bim.name, budget)
        note = f"like: uses {len(found.order):,} of {counted(len(trio.variants), 'variant')}"
        if n_turned := int(found.swapped.sum()):
            note += (
                f"; {n_turned:,} have A1 and A2 in the other order, and their genotypes are turned"
            )
        self.notes.append(note)
        return found

    def _find_kept(self) -> np.ndarray:
        """The samples that are kept and have a phenotype, in the order of the file."""
        samples = self._trio.samples
        keep = np.ones(len(samples), bool)
        self.rows_in = len(samples)
        lists = {"keep": self._options.keep, "remove": self._options.remove}
        for option, path in lists.items():
            if path is None:
                continue
            file = InputFile(path)
            self.inputs.append(file)
            named, n_unknown = named_samples(f"--{option}", file, samples)
            dropped = keep & (named if option == "remove" else ~named)
            self.drop("in --remove" if option == "remove" else "not in --keep", dropped)
            keep &= ~dropped
            if n_unknown:
                self.notes.append(f"{option}: {counted(n_unknown, 'name')} not in the .fam file")
        if self._options.covariates is not None:
            file = InputFile(self._options.covariates)
            self.inputs.append(file)
            self._covariates, known = read_covariates(file, samples)
            self.drop("without a covariate", keep & ~known)
            keep &= known
            names = ",".join(f"obs/{name}" for name in self._covariates)
            self.notes.append(f"covariates: {names} (--covariates)")
        if self._phenotype is None:
            self.notes.append(
                "y: none, as the .fam file has no phenotypes; give --y TABLE.tsv:COLUMN"
            )
        else:
            self.notes.append(self._phenotype.note)
            if self._phenotype.file is not None:
                self.inputs.append(self._phenotype.file)
            known = ~np.isnan(self._phenotype.values)
            self.drop("without a phenotype", np.asarray(keep & ~known))
            keep &= known
        return np.flatnonzero(keep)

    def _transpose(self, budget: Budget) -> Transposed:
        """Read all variants, in tiles; count missing genotypes, and average the others."""
        n_samples, order = len(self._kept), self._columns.order
        transposed = Transposed(n_samples, len(order), budget)
        if not n_samples:
            return transposed
        step = budget.block_rows(2 * n_samples)
        with _import_bed_reader()(
            self._trio.bed.path,
            iid_count=len(self._trio.samples),
            sid_count=len(self._trio.variants),
            num_threads=1,
        ) as bed:
            for tile in transposed.tiles:
                codes = bed.read(index=(self._kept, order[tile]), dtype="int8", order="C")
                for first in range(0, codes.shape[1], step):
                    self._measure(codes[:, first : first + step], tile.start + first)
                transposed.append(codes)
        if self._columns.means is not None:
            self._means = self._columns.means
        return transposed

    def _measure(self, codes: np.ndarray, first: int) -> None:
        """Count A1 as the columns from ``first`` on do, and average: int8 (samples, columns)."""
        missing = codes == _MISSING
        columns = slice(first, first + codes.shape[1])
        swapped = self._columns.swapped[columns]
        if swapped.any():
            codes[:, swapped] = np.where(missing, codes, 2 - codes)[:, swapped]
        count = missing.sum(0)
        if count.any() and self._options.missing == "error":
            row, column = np.argwhere(missing)[0]
            raise InputError(
                f"{self._trio.bed.name}: the sample "
                f"{shown(self._trio.samples.names[self._kept[row]])} has no genotype of the "
                f"variant {shown(self._columns.variants.names[first + column])}; give --missing "
                "mean or drop"
            )
        self._n_missing += int(count.sum())
        total = codes.sum(0, dtype=np.int64) - _MISSING * count
        means = total / np.maximum(1, len(codes) - count)
        # a column of one genotype stays constant
        is_mixed = np.where(missing, -1, codes).max(0) > np.where(missing, 3, codes).min(0)
        means += _APART * (is_mixed & (count > 0) & (means % 1 == 0))
        self._means[columns] = means
        self._missing[columns] = count

    def _rows(self, codes: np.ndarray, samples: np.ndarray) -> ConvertedRows:
        x: np.ndarray = codes
        missing: np.ndarray = codes == _MISSING if self._n_missing else np.zeros((1, 1), bool)
        if missing.any() and self._options.missing == "drop":
            keep = ~missing.any(1)
            self.drop("with missing genotypes", np.asarray(~keep))
            x, samples = codes[keep], samples[keep]
        elif missing.any():
            x = np.where(missing, self._means, codes)
        obs = {name: select(column, samples) for name, column in self._obs.items()}
        return ConvertedRows(x.astype(self._dtype), samples, self._target(samples), None, obs)

    def _target(self, samples: np.ndarray) -> np.ndarray | None:
        if self._phenotype is None:
            return None
        values = self._phenotype.values[samples]
        return values.astype(np.int8) if self._phenotype.is_case_control else values


def _import_bed_reader() -> Any:
    return import_extra("PLINK files need", "'fcl[plink]'", "bed_reader").open_bed
