"""A stranger's checkpoint, or other state to resume, does not make fcl ask the hosts that it names."""

from __future__ import annotations

import functools
import http.server
import json
import shutil
import threading
from collections.abc import Callable, Iterator
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from checkpoints import rewrite, set_header
from click.testing import CliRunner, Result

import fcl
from fcl.cli import COMMANDS

Run = Callable[..., Result]


class Site:
    """The files of a folder, at http://, and the requests for them."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.seen: list[str] = []
        self.url = self.host = ""


@pytest.fixture
def site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Site]:
    monkeypatch.setenv("no_proxy", "*")
    found = Site(tmp_path / "site")
    found.folder.mkdir()

    class Handler(http.server.SimpleHTTPRequestHandler):
        def log_message(self, *args: Any) -> None:
            pass

        def do_GET(self) -> None:
            found.seen.append(self.path)
            super().do_GET()

        def do_HEAD(self) -> None:
            found.seen.append(self.path)
            super().do_HEAD()

    handler = functools.partial(Handler, directory=str(found.folder))
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        found.host = f"127.0.0.1:{server.server_port}"
        found.url = f"http://{found.host}"
        yield found
        server.shutdown()
        thread.join()


@pytest.fixture
def data(site: Site) -> str:
    """The URL of numbers and labels."""
    import zarr

    rng = np.random.default_rng(2)
    x = rng.normal(size=(400, 12))
    group = zarr.open_group(site.folder / "d.zarr", mode="w")
    group.create_array("X", data=x)
    group.create_array("y", data=(x[:, 0] + rng.normal(size=400) > 0).astype(np.int64))
    return f"{site.url}/d.zarr"


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Run:
    """Run a command in an empty folder, as a user with a state folder."""
    (tmp_path / "here").mkdir()
    monkeypatch.chdir(tmp_path / "here")
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "mine"))

    def do(name: str, *arguments: str, code: int = 0) -> Result:
        command = import_module(COMMANDS[name][0]).command
        result = CliRunner().invoke(command, list(arguments))
        assert result.exit_code == code, result.output
        return result

    return do


JOBS = {
    "train": ("--features", "columns", "--C", "0.5", "--driver", "inline", "--max-passes", "1"),
    "stagewise": ("--features", "columns", "--block", "4", "--max-time", "0.000001s"),
}
MORE = {"train": ("--max-passes", "20"), "stagewise": ("--overwrite",)}


@pytest.mark.parametrize("name", JOBS)
def test_whose_checkpoint_it_is(
    name: str, run: Run, site: Site, data: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run(
        name,
        data,
        *JOBS[name],
        "--valid",
        data,
        "--out",
        "m.fcl",
    )
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
    local = str(site.folder / "d.zarr")
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
    run("train", str(site.folder / "d.zarr"), "--resume", "m.fcl.checkpoint", *MORE["train"])
    assert site.seen == []


def test_other_states_name_no_locations(run: Run, site: Site, data: str) -> None:
    """The user always gives the data of an online run and of a path; what their files say is not used."""
    local = str(site.folder / "d.zarr")
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
