"""Another process takes the name of an output while a command works: neither result is lost."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import Result

import fcl
from fcl.files import atomic, result_file
from tests.cli.conftest import ok, save

Run = Callable[..., Result]
TRAIN = ("train", "DATA", "--features", "kmers:d=2", "--C", 0.05, "--driver", "inline")
ONLINE = ("online", "DATA", "--features", "kmers:d=2", "--alpha", 0.01)
PATH = (*TRAIN[:4], "--path", 2, "--valid-fraction", 0.3, "--driver", "inline")
#: The command with OUT as its output, and the name of this output. DATA, CSV and MODEL are replaced.
IN_MEMORY: dict[str, tuple[tuple[Any, ...], str]] = {
    "train": ((*TRAIN, "--out", "OUT"), "o.fcl"),
    "report of train": ((*TRAIN, "--out", "other.fcl", "--report", "OUT"), "o.html"),
    "path": ((*PATH, "--out", "OUT"), "o.fcl"),
    "out of fold": ((*PATH[:-4], "--cv", 2, "--out", "other.fcl", "--save-oof", "OUT"), "o.npy"),
    "online": ((*ONLINE, "--out", "OUT"), "o.fcl"),
    "stagewise": (
        ("stagewise", "WAVES", "--features", "waves:Waves", "--block", 8, "--out", "OUT"),
        "o.fcl",
    ),
    "certify": (("certify", "MODEL", "DATA", "--out", "OUT"), "o.fcl"),
    "json of certify": (("certify", "MODEL", "DATA", "--json", "OUT"), "o.json"),
    "tsv of inspect": (("inspect", "MODEL", "--tsv", "OUT"), "o.tsv"),
    "meme of inspect": (("inspect", "MODEL", "--meme", "OUT"), "o.meme"),
    "report": (("report_command", "MODEL", "--out", "OUT"), "o.html"),
    "compact": (("convert", "MODEL", "OUT", "--bits", 4), "o.fcl"),
}
STREAMED: dict[str, tuple[tuple[Any, ...], str]] = {
    "scores as npy": (("predict", "MODEL", "DATA", "--out", "OUT"), "o.npy"),
    "scores as tsv": (("predict", "MODEL", "DATA", "--out", "OUT"), "o.tsv"),
    "scores as gz": (("predict", "MODEL", "DATA", "--out", "OUT"), "o.tsv.gz"),
    "scores as zarr": (("predict", "MODEL", "DATA", "--out", "OUT"), "o.zarr"),
    "explained": (("predict", "MODEL", "DATA", "--explain", 2, "--out", "OUT"), "o.tsv"),
    "convert": (("convert", "CSV", "OUT"), "o.zarr"),
    "copy": (("convert", "H5", "OUT"), "o.zarr"),
}


@pytest.fixture
def inputs(data: Path, model_file: Path, tmp_path: Path) -> dict[str, str]:
    """The inputs of the commands, by the words that stand for them."""
    import h5py
    from waves import Problem

    (tmp_path / "rows.csv").write_text("y,a\n0,1.5\n1,2.5\n0,3.5\n")
    problem = Problem()
    waves = save(tmp_path / "waves", X=problem.x, y=problem.y)
    with h5py.File(tmp_path / "rows.h5", "w") as file:
        file["X"] = np.arange(6.0).reshape(3, 2)
    names = {"DATA": data, "MODEL": model_file, "CSV": "rows.csv", "WAVES": waves, "H5": "rows.h5"}
    return {name: str(tmp_path / path) for name, path in names.items()}


def run_command(run: Run, arguments: tuple[Any, ...], inputs: dict[str, str], out: Path) -> Result:
    places = inputs | {"OUT": str(out), "other.fcl": str(out.with_name("other.fcl"))}
    return run(*(places.get(str(argument), argument) for argument in arguments))


def take(path: Path) -> None:
    """What another process does."""
    if path.suffix == ".zarr":
        path.mkdir(exist_ok=True)
        path = path / "theirs"
    path.write_bytes(b"theirs")


def at_rename(patch: pytest.MonkeyPatch, act: Callable[[], None]) -> None:
    """Another process acts in the last moment."""
    patch.setattr(atomic, "step", lambda name: act() if name == "rename" else None)


def after_checks(patch: pytest.MonkeyPatch, out: Path) -> None:
    """Another process takes the name when it has been checked."""
    check = atomic.check_output

    def checked(path: Any, overwrite: bool, folder: bool = False) -> Any:
        found = check(path, overwrite, folder)
        if str(path) == str(out):
            take(out)
        return found

    patch.setattr(atomic, "check_output", checked)


def check_kept(result: Result, out: Path, run_again: Callable[[Path], Result]) -> None:
    """The rival's file is as it was, and ours is beside it, as a run without a rival writes it."""
    kept = out.with_name(out.name.replace("o.", "o.1.", 1))
    assert result.exit_code == 1, result.output
    assert "another process has written this file in the meantime" in result.stderr
    assert f"this result is in {kept}" in result.stderr
    assert ((out / "theirs") if out.is_dir() else out).read_bytes() == b"theirs"
    assert not [path.name for path in out.parent.iterdir() if path.name.endswith(".tmp")]
    alone = out.with_name(out.name.replace("o.", "alone.", 1))
    result = ok(run_again(alone))
    if out.suffix == ".fcl":
        np.testing.assert_array_equal(weights(kept), weights(alone))
    elif out.suffix == ".zarr":
        files = [{path.relative_to(x) for path in x.rglob("*")} for x in (kept, alone)]
        assert files[0] == files[1] and files[0]
    elif out.suffix != ".json":  # which has times
        assert kept.read_bytes() == alone.read_bytes()


def weights(path: Path) -> Any:
    model: Any = fcl.load_model(path, ("waves",))
    return model.weights if hasattr(model, "C") else model.weights.features


@pytest.mark.thin(4)
@pytest.mark.parametrize("case", IN_MEMORY | STREAMED)
def test_a_name_taken_in_the_last_moment(
    run: Run, inputs: dict[str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, case: str
) -> None:
    arguments, name = (IN_MEMORY | STREAMED)[case]
    out = tmp_path / name
    at_rename(monkeypatch, lambda: take(out))
    result = run_command(run, arguments, inputs, out)
    monkeypatch.undo()
    if case == "report of train":  # the model is what the command is about
        assert result.exit_code == 0 and "this result is in" in result.stderr
        assert (tmp_path / "o.1.html").is_file()
        return
    again = (*arguments, "--overwrite")
    check_kept(result, out, lambda path: run_command(run, again, inputs, path))


@pytest.mark.thin(2)
@pytest.mark.parametrize("case", [name for name in IN_MEMORY if name != "report of train"])
def test_a_name_taken_after_the_checks(
    run: Run, inputs: dict[str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, case: str
) -> None:
    arguments, name = IN_MEMORY[case]
    out = tmp_path / name
    after_checks(monkeypatch, out)
    result = run_command(run, arguments, inputs, out)
    monkeypatch.undo()
    again = (*arguments, "--overwrite")
    check_kept(result, out, lambda path: run_command(run, again, inputs, path))


@pytest.mark.parametrize("case", ["train", "online", "scores as zarr", "convert"])
def test_overwrite_replaces_what_another_process_wrote(
    run: Run, inputs: dict[str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, case: str
) -> None:
    arguments, name = (IN_MEMORY | STREAMED)[case]
    out = tmp_path / name

    def take_store() -> None:
        take(out)
        if out.is_dir():
            (out / "zarr.json").write_text("{}")

    at_rename(monkeypatch, take_store)
    ok(run_command(run, (*arguments, "--overwrite"), inputs, out))
    assert not (out / "theirs").exists() and (out.is_dir() or out.read_bytes() != b"theirs")
    assert not list(tmp_path.glob("o.1.*")) and not list(tmp_path.glob("*.tmp"))


def test_a_log_does_not_replace_the_log_of_another_process(
    run: Run, inputs: dict[str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = tmp_path / "log.jsonl"
    after_checks(monkeypatch, log)
    arguments = (*TRAIN, "--out", "OUT", "--log-json", log)
    result = run_command(run, arguments, inputs, tmp_path / "o.fcl")
    assert result.exit_code == 0 and f"this result is in {tmp_path}/log.1.jsonl" in result.stderr
    assert log.read_bytes() == b"theirs"
    lines = (tmp_path / "log.1.jsonl").read_text().splitlines()
    assert json.loads(lines[0])["event"] == "Options"


def test_a_log_through_a_link_to_a_free_name(
    run: Run, inputs: dict[str, str], tmp_path: Path
) -> None:
    log = tmp_path / "log.jsonl"
    log.symlink_to("elsewhere.jsonl")
    result = run_command(
        run, (*TRAIN, "--out", "OUT", "--log-json", log), inputs, tmp_path / "o.fcl"
    )
    assert result.exit_code == 0 and "another process" not in result.stderr, result.output
    lines = (tmp_path / "elsewhere.jsonl").read_text().splitlines()
    assert json.loads(lines[0])["event"] == "Options" and log.is_symlink()
    assert not (tmp_path / "log.1.jsonl").exists()


def test_folders_of_a_report(
    run: Run, inputs: dict[str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "plots"

    def step(name: str) -> None:
        folder.mkdir(exist_ok=True)
        (folder / "theirs").write_bytes(b"theirs")

    monkeypatch.setattr(atomic, "step", step)
    arguments = ("report_command", "MODEL", "--out", "OUT", "--save-plots", folder)
    result = run_command(run, arguments, inputs, tmp_path / "o.html")
    assert result.exit_code == 1 and f"this result is in {folder}.1" in result.stderr
    assert [path.name for path in folder.iterdir()] == ["theirs"]
    assert any(path.suffix == ".svg" for path in (tmp_path / "plots.1").iterdir())
    assert (tmp_path / "o.html").is_file()


def test_two_paths_with_one_output(run: Run, inputs: dict[str, str], tmp_path: Path) -> None:
    """The second job would mix its points with those of the first one."""
    from fcl.files.folder import CheckpointFolder

    out = tmp_path / "o.fcl"
    with CheckpointFolder(f"{out}.path"):
        for more in ((), ("--overwrite",)):
            (tmp_path / "o.fcl.path" / "path.json").write_text("{}")
            result = run_command(run, (*PATH, "--out", "OUT", *more), inputs, out)
            assert result.exit_code == 2 and "o.fcl.path: in use by process" in result.stderr
            assert (tmp_path / "o.fcl.path" / "path.json").is_file()


def test_an_online_job_replaces_only_its_own_model(tmp_path: Path) -> None:
    output = result_file.Output(tmp_path / "o.fcl")
    for number in (b"1", b"2"):
        output.write(result_file.saved_bytes(number))
    (tmp_path / "o.fcl").write_bytes(b"their model")
    with pytest.raises(fcl.InputError, match=r"this result is in .*o\.1\.fcl"):
        output.write(result_file.saved_bytes(b"3"))
    output.write(result_file.saved_bytes(b"4"))
    assert (tmp_path / "o.fcl").read_bytes() == b"their model"
    assert (tmp_path / "o.1.fcl").read_bytes() == b"4" and output.path == str(tmp_path / "o.1.fcl")
