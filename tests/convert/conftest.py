"""Files that cannot be converted, in Python and by the command."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from converted import converted, refusal

from fcl.cli.umbrella import main
from fcl.convert.run import Summary

Refuse = Callable[..., None]


@pytest.fixture
def refuse(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Refuse:
    """Convert files in the working folder; the command says the same, in its last line."""
    monkeypatch.chdir(tmp_path)

    def check(inputs: str, options: dict[str, Any], message: str) -> None:
        found = refusal(*inputs.split(), **options)
        assert re.search(message, found), found
        line = ["convert", *inputs.split(), "no.zarr", *words({"memory": "4GiB"} | options)]
        before = sorted(Path().iterdir())
        with pytest.raises(SystemExit) as ended:
            main(line)
        assert ended.value.code == 2
        assert capsys.readouterr().err.splitlines()[-1] == f"fcl convert: error: {found}"
        assert sorted(Path().iterdir()) == before

    return check


def words(options: dict[str, Any]) -> list[str]:
    """Options of Python as options of the command."""
    return [
        f"--{name.replace('_', '-')}" + ("" if value is True else f"={value}")
        for name, value in options.items()
        if value is not None
    ]


def rows_of(*paths: Path | str, **options: Any) -> tuple[list[list[int]], Any, Summary]:
    """Rows, Zarr group and summary of a conversion."""
    found = converted(*paths, **options)
    return found.x.tolist(), found.group, found.summary


def write_parquet(path: Any, columns: Any, **options: Any) -> Any:
    """Write a table, or columns by name, to a path or a file; returns it."""
    from pyarrow import Table, parquet, table

    whole = columns if isinstance(columns, Table) else table(columns)
    parquet.write_table(whole, path, **options)
    return path
