"""Options and rows that compact models and scores refuse, in Python and on the command line."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from checkpoints import rewrite
from click.testing import CliRunner
from waves import Problem

import fcl
from fcl.cli.convert import command as convert
from fcl.cli.predict import command as predict
from fcl.errors import InputError, ModelFileError
from fcl.scoring.compact import compact_model
from fcl.scoring.quality import Collected
from tests.cli.scored import LENGTH, random_model

WINDOWS = np.random.default_rng(0).integers(0, 4, (40, LENGTH)).astype(np.uint8)
Y = np.arange(40) % 2

# -- calls


def compact(**options: Any) -> Any:
    return compact_model(random_model(), **options).model


def damaged(change: Callable[[bytes], bytes]) -> object:
    """A stagewise model, of which a member is changed, in the working folder."""
    path, name = Path("stagewise.fcl"), "features.q"
    compact_model(Problem().train("columns", block=3).model, bits=9).model.save(path)
    fcl.load_model(path)
    rewrite(path, lambda members: members.update({name: change(members[name])}))
    return fcl.load_model(path)


def compared(labels: Any, target: Any, weights: Any = None) -> object:
    """Of the rows 5 and 9."""
    model = random_model(labels, "squared" if labels is None else "logistic")
    target, rows = np.array(target), np.array([5, 9])[-len(target) :]
    return Collected(model, "t", 1000).add(target, np.zeros(len(target)), weights, rows)


CALLS: list[tuple[str, Callable[[], object], str]] = [
    ("neither bits nor max_loss", compact, "give either bits or max_loss"),
    ("bits and max_loss", lambda: compact(bits=3, max_loss=0.1), "give either bits or max_loss"),
    ("max_loss without data", lambda: compact(max_loss=0.1), "max_loss: expected data"),
    ("bits 60", lambda: compact(bits=60), "bits: expected at most 52"),
    ("bits 1.5", lambda: compact(bits=1.5), r"bits must be .* got 1\.5"),
    ("rounding up", lambda: compact(bits=3, rounding="up"), "rounding must be .* got 'up'"),
    ("seed -1", lambda: compact(bits=3, seed=-1), "seed must be .* got -1"),
    ("rows without a target", lambda: compact(data=fcl.open_data(WINDOWS, y=None), bits=3),
     "expected a target to measure losses"),
    ("rounded model", lambda: compact_model(compact(bits=3), bits=2),
     "model: expected a model with its full weights"),
    ("training from a rounded model", lambda: fcl.train(
        fcl.open_data(WINDOWS, y=Y), "kmers:d=3,origin=4", C=1.0, initial=compact(bits=3)),
     "initial: expected a model with its full weights"),
    ("unknown label", lambda: compared(("no", "yes"), ["maybe"]),
     "t: expected the labels of the model, 'no' and 'yes', got 'maybe' in row 9 "),
    ("unknown number of a class", lambda: compared((0, 1), [1, 7]),
     "t: expected the labels of the model, 0 and 1, got 7 in row 9 "),
    ("target inf", lambda: compared(None, [1, np.inf]), "t: row 9 is inf"),
    ("negative weight", lambda: compared((0, 1), [0, 1], np.array([1, -2])),
     r"--weights: expected sample weights >= 0, got -2\.0 in row 9"),
    *((f"damaged stagewise model {n}", lambda change=change: damaged(change),
       rf"stagewise\.fcl: features\.q is damaged \({message}") for n, (change, message) in enumerate((
        (lambda found: found[:-1], "a stream ends beyond"),
        (lambda found: found + b"\1", "there are more bytes"),
        (lambda found: b"", "expected at most 128 numbers for each")))),
]  # fmt: skip


@pytest.mark.parametrize(
    ("call", "message"), [pytest.param(*case, id=name) for name, *case in CALLS]
)
def test_calls(
    call: Callable[[], object], message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(InputError, match=message) as caught:
        call()
    assert isinstance(caught.value, ModelFileError) == ("damaged" in message)


# -- commands, in a folder with a model, its rows and a table

COMMANDS: list[tuple[str, Any, str, str]] = [
    ("convert: no size", convert, "m.fcl out.fcl",
     "give --bits M, or --max-loss SHARE with --data DATA"),
    ("convert: --max-loss without --data", convert, "m.fcl out.fcl --max-loss 1e-4",
     "--max-loss: expected --data DATA"),
    ("convert: --bits many", convert, "m.fcl out.fcl --bits many", "whole number"),
    ("convert: --bits 60", convert, "m.fcl out.fcl --bits 60", "bits: expected at most 52"),
    ("convert: --missing", convert, "m.fcl out.fcl --bits 4 --missing mean",
     "--missing is an option for inputs other than models"),
    ("convert: --bits of a table", convert, "a.csv out.zarr --bits 3",
     "--bits is an option for models"),
    ("convert: no model", convert, "none.fcl out.fcl --bits 3", "none.fcl: no such model file"),
    ("predict: --explain with --dask", predict, "m.fcl rows --out out.tsv --dask local:1 --explain 3",
     "--explain does not go with --dask"),
    ("predict: --dask-tls alone", predict, "m.fcl rows --out out.tsv --dask-tls a,b,c",
     "--dask-tls needs --dask"),
    ("predict: --dask nowhere", predict, "m.fcl rows --out out.tsv --dask nowhere",
     "expected tcp://"),
]  # fmt: skip


@pytest.mark.parametrize(
    ("command", "line", "message"), [pytest.param(*case, id=name) for name, *case in COMMANDS]
)
def test_commands(
    command: Any, line: str, message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    random_model().save("m.fcl")
    Path("a.csv").write_text("x,y\n1,2\n")
    Path("rows").mkdir()
    np.save("rows/X.npy", WINDOWS)
    found = CliRunner().invoke(command, line.split())
    assert found.exit_code == 2 and message in found.output
    assert not list(tmp_path.glob("out*"))
