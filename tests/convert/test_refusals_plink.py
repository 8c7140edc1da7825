"""What is wrong with PLINK files, and with the tables beside them: one message each."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from converted import saved

from tests.convert.conftest import Refuse

pytest.importorskip("bed_reader")
from tests.convert.test_plink import M, N, write

BED = Path("geno.bed")


def edited(part: str, change: Callable[[list[bytes]], list[bytes]]) -> Callable[[], object]:
    """Change the lines of a part."""
    path = BED.with_suffix(part)
    return lambda: path.write_bytes(b"".join(change(path.read_bytes().splitlines(keepends=True))))


def table(text: str, name: str = "p.tsv") -> Callable[[], object]:
    return lambda: Path(name).write_text(text)


def written(**properties: Any) -> Callable[[], object]:
    return lambda: write(Path(), **properties)


def damaged(change: Callable[[bytes], bytes]) -> Callable[[], object]:
    return lambda: BED.write_bytes(change(BED.read_bytes()))


PHENOTYPES = {
    "cases as 0 and 1": ("IID\ttrait\ns1\t0\ns2\t1\n",
        "PLINK reads 1 as control, 2 as case and 0 as unknown"),
    **{f"phenotype {value}": (f"IID\ttrait\ns1\t1.5\ns2\t{value}\n",
        "p.tsv: line 3: expected a finite number as phenotype") for value in ("x", "inf", "1_0")},
    "commas": ("IID,trait\ns1,1.5\n", "write tabs in place of ','"),
    "semicolons": ("IID;trait\ns1;1.5\n", "write tabs in place of ';'"),
    "no column": ("IID\tother\ns1\t1.5\n", "has no column 'trait'; its first line has 'IID', 'other'"),
    "other samples": ("IID\ttrait\nq1\t1.5\n", "no sample of p.tsv, such as .q1., is in the .fam file"),
    "sample twice": ("IID\ttrait\ns1\t1.5\ns1\t2\n", "is in the lines 2 and 3"),
    "short line": ("IID\ttrait\ns1\t1.5\ns1\n", "p.tsv: line 3: expected 2 columns, got 1"),
    "no phenotype": ("IID\ttrait\ns1\tNA\n", "no sample has a value"),
    "column twice": ("IID\ttrait\ttrait\ns1\t1\t2\n", "2 columns of"),
    "empty table": ("", "p.tsv: expected a table with a line for each sample, got an empty"),
}  # fmt: skip
#: What is done to the files, options, and the message.
CASES: dict[str, tuple[Callable[[], object], dict[str, Any], str]] = {
    **{name: (table(text), {"y": "p.tsv:trait"}, message)
        for name, (text, message) in PHENOTYPES.items()},
    **{f"{part}, {name}": (edited(part, change), {}, message) for part in (".bim", ".fam")
        for name, change, message in (("cut off", lambda lines: lines[:-4], "expected .* cut off"),
            ("three words", lambda lines: [*lines[:2], b"only three words\n", *lines[3:]],
                rf"^geno\{part}: line 3: expected 6 columns, got 3"),
            ("empty", lambda lines: [], rf"geno\{part}.* got an empty file"))},
    **{f"{part}, missing": (BED.with_suffix(part).unlink, {}, rf"^geno\{part}: does not exist")
        for part in (".bim", ".fam")},
    "bed, cut off": (damaged(lambda content: content[:-1]), {},
        f"expected {3 + 4 * M} bytes for 13 samples"),
    "bed, by samples": (damaged(lambda content: content[:2] + b"\0" + content[3:]), {}, "got 6c 1b 00"),
    "variant twice": (written(bp_position=[100, 100, 101, *range(102, 99 + M)]), {},
        "geno.bim: the variants 1 and 2 have the same name, place and alleles"),
    # the size of the .bed file tells how many names the .bim file holds
    "many variants": (lambda: os.truncate(BED, 3 + 4 * 3_000_000), {"memory": "512MiB"},
        "the names of 13 samples and 3,000,000 variants need 458 MiB of memory"),
    "sample of the family twice": (written(iid=["s"] * N, fid=["a"] * N), {},
        "is in the lines 1 and 2; expected each sample once"),
    "keep nobody": (table("nobody\n", "keep.txt"), {"keep": "keep.txt"}, "none of the names"),
    "remove nobody": (table("nobody\n", "r.txt"), {"remove": "r.txt"}, "^--remove: none of the names"),
    "covariate twice": (table("IID\ta\ta\ns1\t1\t2\n"), {"covariates": "p.tsv"}, "got 'a'; rename it"),
    "covariate named name": (table("IID\tname\ns1\t1\n"), {"covariates": "p.tsv"}, "got 'name'; rename"),
    "no covariate": (table("FID\tIID\nf0\ts1\n"), {"covariates": "p.tsv"}, "no column beside the names"),
    "covariates of others": (table("IID\ta\nq1\t1\n"), {"covariates": "p.tsv"}, "covariates: no sample"),
    "covariate of two kinds": (table("IID\ta\ns1\t1\ns2\tx\n"), {"covariates": "p.tsv"},
        "^--covariates: p.tsv: expected finite numbers with a point .* 'a', or NA, got 'x'"),
    "covariate of commas": (table("IID\ta\ns1\t1,5\ns2\t2,5\n"), {"covariates": "p.tsv"}, "got '1,5'"),
    "y without a table": (dict, {"y": "trait"}, "expected TABLE.tsv:COLUMN"),
    "y in no table": (dict, {"y": "no.tsv:trait"}, "no.tsv.* does not exist"),
    "like nothing": (dict, {"like": "absent.zarr"}, "absent.zarr.* does not exist"),
    "missing genotypes": (dict, {"missing": "error"},
        "has no genotype of the variant.*--missing mean or drop"),
}  # fmt: skip


@pytest.fixture(autouse=True)
def genotypes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    write(tmp_path)


@pytest.mark.parametrize("case", CASES)
def test_refusals(case: str, refuse: Refuse) -> None:
    change, options, message = CASES[case]
    change()
    refuse("geno.bed", options, message)


def test_two_files(refuse: Refuse, tmp_path: Path) -> None:
    saved(tmp_path, "copy.bed", BED.read_bytes())
    refuse("geno.bed copy.bed", {}, "expected one .bed file, got 2")
