"""A stranger's checkpoint, or other state to resume, does not make fcl ask the hosts that it names."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import zarr
from checkpoints import rewrite, set_header
from click.testing import Result

import fcl
from tests.store.conftest import Site, invoke

Run = Callable[..., Result]


@pytest.fixture
def data(site: Site, tmp_path: Path) -> str:
    """The URL of numbers and labels."""
    rng = np.random.default_rng(2)
    x = rng.normal(size=(400, 12))
    group = zarr.open_group(tmp_path / "d.zarr", mode="w")
    group.create_array("X", data=x)
    group.create_array("y", data=(x[:, 0] + rng.normal(size=400) > 0).astype(np.int64))
    return f"{site.url}/d.zarr"


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Run:
    """Run a command in an empty folder, as a user with a state folder."""
    (tmp_path / "here").mkdir()
    monkeypatch.chdir(tmp_path / "here")
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "mine"))

    return invoke


JOBS = {
    "train": ("--features", "columns", "--C", "0.5", "--driver", "inline", "--max-passes", "1"),
    "stagewise": ("--features", "columns", "--block", "4", "--max-time", "0.000001s"),
}
MORE = {"train": ("--max-passes", "20"), "stagewise": ("--overwrite",)}


@pytest.mark.slow
@pytest.mark.parametrize("name", JOBS)
def test_whose_checkpoint_it_is(
    name: str, run: Run, site: Site, data: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run(name, data, *JOBS[name], "--valid", data, "--out", "m.fcl")
    resume = ("--resume", "m.fcl.checkpoint", *MORE[name])
    for copy in ("foreign", "edited"):
        shutil.copytree("m.fcl.checkpoint", f"{copy}.checkpoint")
    site.seen.clear()

    def refused(*arguments: str) -> None:
        result = run(name, *arguments, code=2)
        assert f"would connect to {site.host}" in result.stderr and site.seen == []
        assert f"--allow-host {site.host}" in result.stderr

    # the user's own, with a host that a stranger has put in
    (newest,) = Path("edited.checkpoint").glob("*.fcl-ckpt")
    other = f"http://localhost:{site.host.rpartition(':')[2]}/d.zarr"
    if name == "train":
        set_header(newest, "options", "command", data=other)
    else:
        set_header(newest, "command", data=other)
    result = run(name, "--resume", "edited.checkpoint", *MORE[name], code=2)
    assert "would connect to 127.0.0.1" in result.stderr and "localhost" in result.stderr
    assert site.seen == []
    # another user's, or another machine's
    foreign = ("--resume", "foreign.checkpoint", *MORE[name], "--out", str(Path("new.fcl")))
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "yours"))
    refused(*foreign)
    refused(*foreign, "--allow-host", "127.0.0.2")
    local = str(tmp_path / "d.zarr")
    refused(local, *foreign)  # it names the validation data, too
    run(name, *foreign, "--allow-host", "127.0.0.1")
    assert site.seen
    # the user's own
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "mine"))
    site.seen.clear()
    run(name, *resume)
    assert site.seen
    before, after = fcl.load_model("new.fcl"), fcl.load_model("m.fcl")
    np.testing.assert_array_equal(before.margins(local), after.margins(local))


def test_data_given_anew(
    run: Run, site: Site, data: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run("train", data, *JOBS["train"], "--out", "m.fcl")
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "yours"))
    site.seen.clear()
    run("train", str(tmp_path / "d.zarr"), "--resume", "m.fcl.checkpoint", *MORE["train"])
    assert site.seen == []


def test_other_states_name_no_locations(run: Run, site: Site, data: str, tmp_path: Path) -> None:
    """The user always gives the data of an online run and of a path; what their files say is not used."""
    local = str(tmp_path / "d.zarr")
    run("online", local, "--features", "columns", "--C", "0.5", "--out", "o.fcl")

    def add_locations(members: dict[str, bytes]) -> None:
        run_state = json.loads(members["online.json"]) | {"data": data, "source": data}
        members["online.json"] = json.dumps(run_state).encode()

    rewrite(Path("o.fcl"), add_locations)
    run("online", local, "--resume", "o.fcl", "--passes", "2", "--out", "p.fcl")
    path = ("--features", "columns", "--path", "3", "--driver", "inline", "--valid-fraction", "0.2")
    run("train", local, *path, "--out", "m.fcl")
    table = Path("m.fcl.path/path.json")
    table.write_text(json.dumps(json.loads(table.read_text()) | {"data": data, "source": data}))
    for state in Path("m.fcl.path/state").glob("*.fcl-ckpt"):
        set_header(state, "options", command={"data": data, "valid": data, "out": data})
    Path("m.fcl").unlink()
    run("train", local, *path, "--out", "m.fcl")
    assert site.seen == []
