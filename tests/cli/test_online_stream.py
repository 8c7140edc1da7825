"""``fcl online -``: svmlight lines from standard input, with and without an end."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner
from scipy.sparse import csr_array

import fcl
from fcl.cli import online_stream
from fcl.cli.online import command
from fcl.cli.online_stream import _pieces, _texts
from fcl.drivers.online.train import train_online

N, P = 6000, 20
RANDOM = np.random.default_rng(0)
X = np.where(RANDOM.random((N, P)) < 0.3, RANDOM.normal(size=(N, P)), 0.0)
Y = np.where(RANDOM.random(N) < 1 / (1 + np.exp(-X @ RANDOM.normal(size=P))), 1, -1)
LINES = [
    " ".join([str(y), *(f"{j + 1}:{float(row[j])!r}" for j in np.flatnonzero(row))]) + "\n"
    for row, y in zip(X, Y, strict=True)
]
COMMAND = ("-", "--columns", str(P), "--features", "columns", "--alpha", "0.001")


def learnt(*options: object, text: str) -> tuple[int, str]:
    """Run the command with a text as its whole input: its exit code, and all that it writes."""
    result = CliRunner().invoke(command, [str(option) for option in options], input=text)
    return result.exit_code, result.output


@contextmanager
def started(*options: object) -> Iterator[subprocess.Popen[str]]:
    """The command as a process, whose input stays open."""
    given = [sys.executable, "-m", "fcl.cli.online", *map(str, options)]
    pipe = subprocess.PIPE
    with subprocess.Popen(given, stdin=pipe, stdout=pipe, stderr=pipe, text=True) as process:
        try:
            yield process
        finally:
            process.kill()


def test_a_stream_gives_the_model_of_the_same_rows_in_memory(tmp_path: Path) -> None:
    out = tmp_path / "m.fcl"
    text = "".join([*LINES[:5000], "# a comment\n\n", *LINES[5000:]]).removesuffix("\n")
    code, output = learnt(*COMMAND, "--rate", 0.25, "--out", out, text=text)
    assert code == 0, output
    assert "the input ended after 6,000 rows" in output
    assert "no certificate, since standard input cannot be read again" in output
    model = fcl.load_model(out)
    assert model.n_rows == model.options["rows_learnt"] == N and model.labels == (-1, 1)
    np.testing.assert_allclose(model.C, 1 / (0.001 * N))
    data = fcl.open_data(csr_array(X), y=Y)
    # the first 4,096 rows decide where the intercept starts
    given = {"alpha": 0.001, "rate": 0.25, "shuffle": False, "certify": False}
    other = train_online(data, "columns", block_rows=4096, **given).model
    np.testing.assert_array_equal(model.ids, other.ids)
    np.testing.assert_allclose(model.weights, other.weights, rtol=1e-10)
    np.testing.assert_allclose(model.intercept, other.intercept, rtol=1e-10)
    margins = X[:, model.ids] @ model.weights + model.intercept
    assert np.logaddexp(0, -Y * margins).mean() < 0.9 * np.log(2)


def pieces(text: bytes, sizes: Iterator[int]) -> Iterator[bytes]:
    at = 0
    while at < len(text):
        size = next(sizes)
        yield text[at : at + size]
        at += size


@pytest.mark.parametrize("first", [1, 5, 1000])
def test_lines_are_complete_however_the_text_is_cut(
    first: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(online_stream, "PIECE", 1500)
    text = "".join(LINES[:40]).encode()
    random = np.random.default_rng(first)
    sizes = iter(lambda: int(random.choice([0, 1, 7, 300, 2000])), -1)
    found = list(_texts(pieces(text, sizes), first))
    assert b"".join(piece for _, piece in found) == text
    assert found[0][1].count(b"\n") == min(first, 40)
    line = 1
    for number, piece in found:
        assert number == line and piece.endswith(b"\n")
        line += piece.count(b"\n")


def test_pieces_end_with_the_file_or_a_stop() -> None:
    read, write = os.pipe()
    with os.fdopen(read, "rb") as file, os.fdopen(write, "wb") as other:
        other.write(b"1 1:1")
        other.flush()
        calls = iter([False, False, False, True])
        assert b"".join(_pieces(file, lambda: next(calls))) == b"1 1:1"
        other.close()
        assert b"".join(_pieces(file, lambda: False)) == b"\n"


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("1 3:1 2:1\n", "line 5001: the id 2 comes after 3"),
        (f"1 {P + 1}:1\n", f"line 5001: the id {P + 1} is beyond --columns {P}"),
        ("2 1:1\n", "line 5001: expected one of the labels of the first rows, -1 and 1, got 2"),
        ("1 1:1e300\n", "line 5001: the margin is not finite"),
    ],
)
def test_bad_lines_are_named_and_the_rows_before_are_not_lost(
    tmp_path: Path, line: str, message: str
) -> None:
    out = tmp_path / "m.fcl"
    text = "".join([*LINES[:5000], line, *LINES[5000:]])
    code, output = learnt(*COMMAND, "--rate", 0.25, "--out", out, text=text)
    assert code == 2 and message in output, output
    assert output.count("error") == 1 and str(out) in output
    assert 4096 <= fcl.load_model(out).options["rows_learnt"] <= 5000


def test_a_signal_ends_a_stream_without_an_end(tmp_path: Path) -> None:
    out = tmp_path / "m.fcl"
    with started(*COMMAND, "--rate", 0.25, "--out", out) as process:
        assert process.stdin is not None and process.stderr is not None
        process.stdin.write("".join(LINES))
        process.stdin.write("1 1:")  # a line that is not complete
        process.stdin.flush()
        while "4,000" not in process.stderr.readline():
            assert process.poll() is None
        process.send_signal(signal.SIGTERM)
        assert process.wait(timeout=60) == 143
    assert 4000 <= fcl.load_model(out).options["rows_learnt"] <= N


def test_a_signal_before_the_first_row_writes_nothing(tmp_path: Path) -> None:
    with started(*COMMAND, "--out", tmp_path / "m.fcl") as process:
        assert process.stderr is not None
        process.stderr.readline()
        process.send_signal(signal.SIGTERM)
        assert process.wait(timeout=60) == 143
    assert not (tmp_path / "m.fcl").exists()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (("-", "--features", "columns", "--alpha", 1), "--columns is missing"),
        ((*COMMAND, "--passes", 2), "--passes: standard input is read once"),
        (("-", "--columns", 3, "--features", "columns", "--C", 1), "give --alpha"),
        (("data", *COMMAND[1:]), "--columns: expected DATA - "),
    ],
)
def test_options_that_do_not_fit(tmp_path: Path, options: tuple[object, ...], message: str) -> None:
    code, output = learnt(*options, "--out", tmp_path / "m.fcl", text="")
    assert code == 2 and message in output


def test_an_empty_input(tmp_path: Path) -> None:
    code, output = learnt(*COMMAND, "--out", tmp_path / "m.fcl", text="\n# none\n")
    assert code == 2 and "standard input: expected rows, found none" in output
