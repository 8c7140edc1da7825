"""``fcl online -``: svmlight lines from standard input, with and without an end."""

from __future__ import annotations

import gzip
import itertools
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
from fcl.files.online import read_state
from fcl.memory.allowance import within

pytestmark = pytest.mark.forked_commands

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
    given = [sys.executable, "-m", "fcl", "online", *map(str, options)]
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


def test_text_that_waits_keeps_to_a_share_of_the_budget() -> None:
    """The first lines, which are given together, and a line without an end; in linear time."""
    share = (16 << 20) // online_stream.BUDGET_SHARE
    with within("16MiB"):
        lines = [b"# a comment\n" * 1000] * 400
        found = list(_texts(iter(lines), 10**6))
        assert b"".join(text for _, text in found) == b"".join(lines)
        assert max(len(text) for _, text in found) <= share + len(lines[0])
        assert [number for number, _ in found] == list(
            itertools.accumulate((text.count(b"\n") for _, text in found[:-1]), initial=1)
        )
        for first in (1, 4096):
            endless = itertools.chain([b"1 1:1\n1"], itertools.repeat(b" " * 1000))
            with pytest.raises(
                fcl.InputError, match=f"line 2 has more than {share:,} bytes; raise --m"
            ):
                list(_texts(endless, first))


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
        ("1 0:1 2:1\n", "the id is 0, but ids begin at 1; give --zero-based if they begin at 0"),
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


def test_an_id_0_for_a_model_of_ids_from_1(tmp_path: Path) -> None:
    """The advice is one that the command then takes: --zero-based would be refused."""
    out, more = tmp_path / "m.fcl", tmp_path / "more.fcl"
    text = "".join(LINES[:5000])
    assert learnt(*COMMAND, "--rate", 0.25, "--out", out, text=text)[0] == 0
    given = ("-", "--resume", out, "--out", more)
    code, output = learnt(*given, text="1 0:1\n")
    assert code == 2 and f"but ids begin at 1; {out} and its weights count ids from 1" in output
    assert "--zero-based" not in output


@pytest.mark.slow
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


METHODS = (
    ("--method", "ftrl"),
    ("--method", "truncated-gradient:period=7,decay=0.5", "--table", "float32"),
    ("--method", "truncated-gradient:step=adagrad", "--class-weight", "1=3"),
    ("--method", "ball:radius=2"),
    ("--method", "ball:radius=2,step=explicit,batch=10"),
    ("--method", "ogd", "--table", "q2.13", "--seed", 5),
    ("--method", "ftrl", "--hash-bits", 4),
)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("method", "cut"),
    [*((method, 4097) for method in METHODS), (METHODS[0], 1), (METHODS[1], 5001)],
)
def test_a_resumed_stream_gives_the_same_bits(
    tmp_path: Path, method: tuple[object, ...], cut: int
) -> None:
    """The rows after the cut may begin with any number of rows of one label."""
    given = (*COMMAND, "--rate", 0.25, *method)
    first = 4096 if cut == 1 else cut  # a stream begins with both labels
    parts = "".join(LINES[:first]), "".join(LINES[first:][: 1 if cut == 1 else N])
    assert learnt(*given, "--out", tmp_path / "all.fcl", text="".join(parts))[0] == 0
    assert learnt(*given, "--out", tmp_path / "m.fcl", text=parts[0])[0] == 0
    resume = ("-", "--resume", tmp_path / "m.fcl", "--out", tmp_path / "m.fcl")
    code, output = learnt(*resume, text=parts[1])
    assert code == 0, output
    whole, found = fcl.load_model(tmp_path / "all.fcl"), fcl.load_model(tmp_path / "m.fcl")
    assert found.weights.tobytes() == whole.weights.tobytes() and found.alpha == whole.alpha
    assert found.intercept == whole.intercept and found.C == whole.C
    assert found.n_rows == whole.n_rows and list(found.ids) == list(whole.ids)
    states = [read_state(tmp_path / name) for name in ("all.fcl", "m.fcl")]
    assert states[0].table.tobytes() == states[1].table.tobytes()
    assert states[0].sums.tobytes() == states[1].sums.tobytes()


def test_stored_rows_and_streams_do_not_resume_each_other(tmp_path: Path) -> None:
    data = fcl.open_data(csr_array(X), y=Y)
    result = train_online(data, "columns", alpha=0.001, rate=0.25, certify=False)
    result.save(tmp_path / "m.fcl")
    resume = ("-", "--resume", tmp_path / "m.fcl", "--out", tmp_path / "n.fcl")
    code, output = learnt(*resume, text="".join(LINES))
    assert code == 2 and "expected the model of a stream, got one that learnt stored rows" in output
    code, output = learnt(*resume, "--alpha", 1, text="".join(LINES))
    assert code == 2 and "--alpha: a resumed run keeps the options of its file" in output


def test_class_weights_and_validation(tmp_path: Path) -> None:
    """Class weights as for stored rows, up to the problem that the model says it is of."""
    (tmp_path / "valid").mkdir()
    np.save(tmp_path / "valid" / "X.npy", X[:500])
    np.save(tmp_path / "valid" / "y.npy", Y[:500])
    given = (*COMMAND, "--rate", 0.25, "--class-weight", "1=3", "--out", tmp_path / "m.fcl")
    code, output = learnt(*given, "--valid", tmp_path / "valid", text="".join(LINES))
    assert code == 0 and "held out" in output, output
    model = fcl.load_model(tmp_path / "m.fcl")
    s = np.where(Y > 0, 3.0, 1.0)
    first = s[:4096].sum() / 4096
    np.testing.assert_allclose(model.C, first / (0.001 * s.sum()))
    np.testing.assert_allclose(model.C * model.alpha, 1.0 / N)
    gravity = 0.001 / first
    weighted = fcl.open_data(csr_array(X), y=Y, weights=s)
    options = {"rate": 0.25, "shuffle": False, "certify": False, "block_rows": 4096}
    other = train_online(weighted, "columns", alpha=gravity, **options).model
    np.testing.assert_allclose(model.weights, other.weights, rtol=1e-9)


@pytest.mark.parametrize("size", [1, 700, 1 << 20])
def test_gzip(tmp_path: Path, size: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Text in two members of the format, however it is cut; a cut file, and one with other bytes."""
    monkeypatch.setattr(online_stream, "PIECE", size)
    text = "".join(LINES[:300]).encode()
    packed = gzip.compress(text[:5000]) + gzip.compress(text[5000:])
    (tmp_path / "rows.gz").write_bytes(packed)
    with open(tmp_path / "rows.gz", "rb") as file:
        assert b"".join(_pieces(file, lambda: False)) == text + b"\n"
    for wrong, message in (
        (packed[:-9], "the gzip data end early"),
        (packed + b"no gzip", "other bytes"),
    ):
        (tmp_path / "rows.gz").write_bytes(wrong)
        with open(tmp_path / "rows.gz", "rb") as file, pytest.raises(fcl.InputError, match=message):
            list(_pieces(file, lambda: False))


@pytest.mark.slow
def test_the_command_reads_gzip(tmp_path: Path) -> None:
    packed = gzip.compress("".join(LINES).encode())
    given = [sys.executable, "-m", "fcl", "online", *COMMAND, "--rate", "0.25", "--quiet"]
    subprocess.run([*given, "--out", str(tmp_path / "m.fcl")], input=packed, check=True)
    assert fcl.load_model(tmp_path / "m.fcl").n_rows == N


def test_an_empty_input(tmp_path: Path) -> None:
    code, output = learnt(*COMMAND, "--out", tmp_path / "m.fcl", text="\n# none\n")
    assert code == 2 and "standard input: expected rows, found none" in output
