"""CSV files for spreadsheets: foreign names are no formulas, and numbers keep all digits."""

from __future__ import annotations

import csv
import io
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner

import fcl
from fcl.cli.certify import command as certify
from fcl.cli.inspect import command as inspect
from fcl.cli.report_command import command as report
from fcl.convert.run import convert
from fcl.report.contract import Section, Table
from fcl.report.export import data_files
from tests import by_name

DANGEROUS = (
    "=HYPERLINK(\"http://x\",\"y\")", "+1+cmd|' /C calc'!A0", "-2+3", "@SUM(1)", "\t=1", "\r=1", "\n=1",
    "=1,2", "--1", "\uff1d1", "+", "-",
)  # fmt: skip
HARMLESS = ("age", "a=b", "1-2", "'=1", "", " =1", "-1.5", "+3", "-1e-5", "é")


def rows_of(text: str) -> list[list[str]]:
    return list(csv.reader(io.StringIO(text, newline="")))


@pytest.mark.parametrize("name", [*DANGEROUS, *HARMLESS])
def test_names(name: str) -> None:
    table = Table("names", (name, "weight"), [(name, -0.1), (name, None)])
    text = data_files([Section("x", "x", blocks=[table])])["names.csv"]
    shown = f"'{name}" if name in DANGEROUS else name
    assert rows_of(text) == [[shown, "weight"], [shown, "-0.1"], [shown, ""]]


def test_a_column_named_as_a_formula(tmp_path: Path) -> None:
    """Through the command, and back from the TSV of fcl inspect, which is for programs."""
    random = np.random.default_rng(0)
    x = random.normal(size=(200, 2))
    names = ["=1+1", "@b"]
    lines = [f"{int(a > 0)},{a},{b}\n" for a, b in x]
    (tmp_path / "t.csv").write_text("".join([f"y,{','.join(names)}\n", *lines]))
    convert([tmp_path / "t.csv"], tmp_path / "t.zarr", y="y")
    data = fcl.open_data(tmp_path / "t.zarr")
    model = by_name.train(data, "columns", C=1.0, warn=False).model
    model.save(tmp_path / "m.fcl")

    def run(command: object, *arguments: object) -> None:
        done = CliRunner().invoke(command, [str(argument) for argument in arguments])  # type: ignore[arg-type]
        assert done.exit_code == 0, done.output

    folder = tmp_path / "numbers"
    run(report, tmp_path / "m.fcl", "--out", tmp_path / "r.html", "--save-data", folder)
    cells = [
        cell for path in folder.glob("*.csv") for row in rows_of(path.read_text()) for cell in row
    ]
    assert "'=1+1" in cells and not any(cell in names for cell in cells)
    run(inspect, tmp_path / "m.fcl", "--tsv", tmp_path / "m.tsv")
    assert "\n=1+1\t" in (tmp_path / "m.tsv").read_text()
    run(certify, tmp_path / "m.tsv", tmp_path / "t.zarr", "--features", "columns", "--C", 1)
