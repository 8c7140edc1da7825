"""``fcl train`` refuses options, files of options and checkpoints before the trainer begins."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from checkpoints import set_header

from tests.cli.refusals import Refuses, parametrized

FIFO = r"fifo: is a FIFO \(named pipe\)"
LONG = "x" * 256
OF = r"error: --resume \S*o\.fcl\.checkpoint: "
RESUMED = f"{OF}the checkpoint is of another job: "
ONLY = r"\. A resumed job may change only DATA"

# -- doors: each gives the words of a command, for a folder with data and a file exists.fcl


def line(given: str) -> list[Any]:
    return given.split()


def option(given: str) -> list[Any]:
    """An option is given again, so that the first value does not count."""
    return [*line("train data --features kmers:d=3 --C 1 --out o.fcl"), *given.split(" ")]


def penalty(given: str) -> list[Any]:
    return option(given)


def name(given: str) -> list[Any]:
    """The name of an output; nothing stands for the empty one."""
    return option(given)


def fifo(given: str) -> list[Any]:
    """A FIFO without a writer, which would hang the command."""
    os.mkfifo("fifo")
    return given.split()


def config(text: str | bytes) -> list[Any]:
    """A TOML file after two good lines; bytes are the whole file."""
    good = b'data = "data"\nfeatures = "kmers:d=3"\n'
    Path("run.toml").write_bytes(text if isinstance(text, bytes) else good + text.encode())
    return line("train --config run.toml --out o.fcl")


def resume(given: str) -> list[Any]:
    """A job with C = 0.1 is resumed with other options."""
    return [*line("train --resume o.fcl.checkpoint --overwrite"), *given.split()]


def checkpoint(values: dict[str, Any]) -> list[Any]:
    """The checkpoint holds other options."""
    file = Path("o.fcl.checkpoint/checkpoint-1.fcl-ckpt")
    set_header(file, "options", "command", **values)
    return line("train --resume o.fcl.checkpoint")


ROW_VIEW = "'--row-view': expected all, auto, or a whole number of rows of at least 64, got "
OPTIONS = [
    ("no data", line, "train --features kmers:d=3 --C 1 --out o.fcl", "DATA is missing"),
    ("no file", line, "train nope.fa", "nope.fa does not exist"),
    ("no options", line, "train data", "--features is missing"),
    ("no C", line, "train data --features kmers:d=3 --out o.fcl",
     "give --C or --alpha: the weight of the losses"),
    ("no out", line, "train data --features kmers:d=3 --C 1", "--out is missing"),
    ("no target", line, "train alone.npy --features kmers:d=3 --C 1 --out o.fcl",
     r'alone\.npy.*"y"'),
    ("output in the data", line, "train data/X.npy --features kmers:d=3 --C 1 --overwrite "
     "--out data/y.npy", r"--out data/y\.npy: would replace data"),
    ("long name of data", line, f"train {'x' * 100_000} --features columns --C 1 --out o.fcl",
     r"^.{50,480}cannot be read: File name too long"),
    ("d of 0", option, "--features kmers:d=0", "d must be from 1 to 12, got 0"),
    ("unknown family", option, "--features words:d=2", "unknown family 'words'"),
    ("alpha beside C", option, "--alpha 1", "give --C or --alpha, not both"),
    ("folder of out", option, "--out no/where/o.fcl", "no/where does not exist; make it first"),
    ("out exists", option, "--out exists.fcl", r"exists\.fcl: exists already; choose"),
    ("log on standard output", option, "--log-json -", "--log-json -: expected a file; only fcl predict"),
    ("log exists", option, "--log-json exists.fcl", r"exists\.fcl: exists already; choose"),
    ("log on out", option, "--log-json o.fcl", r"--log-json o\.fcl: would replace model"),
    ("report exists", option, "--report exists.fcl", r"exists\.fcl: exists already; choose"),
    ("out on data", option, "--out data --overwrite", "--out data: would replace data"),
    ("memory", option, "--memory huge", "'--memory': expected a size such as .*got 'huge'"),
    ("valid-fraction", option, "--valid-fraction 1",
     r"'--valid-fraction': expected strictly between 0 and 1, got 1\.0"),
    ("valid twice", option, "--valid-fraction 0.5 --valid data",
     "give --valid or --valid-fraction, not both"),
    ("no valid", option, "--valid missing", "missing does not exist"),
    ("share as valid", option, "--valid 0.2",
     r"--valid 0\.2: expected data .* --valid-fraction 0\.2 validates on a share"),
    ("no y", option, "--y target", 'data has no array "target"'),
    ("no x", option, "--x Z", 'data has no array "Z"'),
    ("no weights", option, "--weights w", 'data has no array "w"'),
    ("scratch", option, "--scratch missing", "--scratch missing: expected a writable folder"),
    ("row-view 0", option, "--row-view 0", f"{ROW_VIEW}0"),
    ("writers inline", option, "--driver inline:writers=2",
     "expected no options, got 'writers=2'"),
    ("checkpoint twice", option, "--checkpoint c --no-checkpoint",
     "--checkpoint or --no-checkpoint, not both"),
    ("folder of checkpoints", option, "--checkpoint no/where/c", "does not exist; make it first"),
    ("checkpoint on out", option, "--checkpoint o.fcl",
     r"--out o\.fcl: would replace checkpoint"),
    ("shared files", option, "--driver processes:shared_files=missing",
     "--shared-files missing: expected a writable folder"),
    ("unknown option", option, "--nonsense 1", "No such option.*--nonsense"),
    ("class weights of a word", penalty, "--class-weight even",
     "expected balanced or LABEL=W,LABEL=W, got 'even'"),
    ("class weight 0", penalty, "--class-weight 1=0", r"expected a finite number above 0, got 0\.0"),
    ("class weight twice", penalty, "--class-weight 1=2,1=3", "two weights for the label '1'"),
    *((f"long {of}", name, f"--{of} {LONG}", "File name too long")
      for of in ("out", "log-json", "checkpoint")),
    *((f"empty {of}", name, f"--{of} ", f"--{of}.*got an empty name")
      for of in ("out", "log-json", "checkpoint")),
    ("data", fifo, "train fifo --features kmers:d=3 --C 1 --out o.fcl", FIFO),
    ("valid", fifo, "train data --features kmers:d=3 --C 1 --out o.fcl --valid fifo",
     FIFO),
    ("config", fifo, "train data --config fifo --out o.fcl", FIFO),
    ("model of predict", fifo, "predict fifo data --out p.npy", FIFO),
    ("model of inspect", fifo, "inspect fifo", FIFO),
    ("device", line, "train /dev/zero --features kmers:d=3 --C 1 --out o.fcl",
     "/dev/zero: is a device"),
]  # fmt: skip

#: Options that take whole numbers, which TOML writes in any length.
HUGE = ("C", "memory", "max-time", "row-view", "writers", "block-rows", "max-passes")
FILES = [
    ("slip", config, "C = 1\nmax-pases = 3",
     r"run\.toml: unknown option 'max-pases'; did you mean 'max-passes'\?"),
    ("class weight of a number", config, "C = 1\nclass-weight = 3",
     'expected "balanced" or a table of weights by label, got 3'),
    ("row-view 0", config, "C = 1\nrow-view = 0",
     "row-view: expected all, auto, or a whole number of rows of at least 64, got 0"),
    ("l1-ratio", config, "C = 1\nl1-ratio = 2", "l1-ratio: expected above 0 and at most 1, got 2"),
    ("block_row", config, "C = 1\nblock_row = 64",
     r"unknown option 'block_row'; did you mean 'block-rows'\?"),
    ("case", config, "c = 1", r"unknown option 'c'; did you mean 'C'\?"),
    ("nothing alike", config, "C = 1\nqqqq = 3", "unknown option 'qqqq'; options are: C, "),
    ("plan", config, "C = 1\nplan = true", "plan is not a setting of a run"),
    ("config", config, "C = 1\nconfig = 'b'", "config is not a setting of a run"),
    ("log", config, "C = 1\noverwrite = true\nlog-json = 'exists.fcl'",
     "(overwrite|log-json) is not a setting of a run"),
    ("twice", config, "C = 1\nmax-time = '1h'\nmax_time = '2h'",
     "max_time and max-time are the same option"),
    ("negated", config, "C = 1\nintercept = true\nno-intercept = true",
     "no-intercept.* are the same option"),
    ("C much", config, "C = 'much'", r"run\.toml: C: expected a number, got 'much'"),
    ("alpha beside C", config, "C = 1\nalpha = 1", "give --C or --alpha, not both"),
    ("memory of a list", config, "C = 1\nmemory = []", r"run\.toml: memory: expected a size.*got \[\]"),
    ("loss", config, "C = 1\nloss = 'cosh'",
     r"run\.toml: loss: unknown loss 'cosh'; expected one of logistic"),
    ("unknown table", config, "C = 1\n[features2]\nd = 8",
     r"unknown option 'features2'; did you mean 'features'\?"),
    ("known table", config, "C = 1\n[initial]\nd = 8",
     r"run\.toml: initial: expected a string, got \{'d': 8\}"),
    ("writers", config, "C = 1\nwriters = 0",
     r"run\.toml: writers: expected a whole number of at least 1, got 0"),
    ("hidden option", config, "C = 1\nshare-cores = true", r"run\.toml: unknown option 'share-cores'"),
    ("no value", config, "C = ", r"run\.toml: not TOML: "),
    ("dots", config, "a" + ".a" * 20_000 + " = 1",
     r"run\.toml: expected keys that are names of options"),
    ("quoted dots", config, "[a" + '."b c"' * 5000 + "]",
     "of more than 4,096 parts with dots between them"),
    ("many dots", config, "\n".join(f"[x{i}" + ".a" * 31 + "]" for i in range(9000)),
     "parts of dotted keys need"),
    ("dots in text", config, "C = 1 # " + "a." * 40 + '\ninitial = "' + "a." * 40 + '\\u0000"',
     "initial: expected text without NUL"),
    ("long number", config, f"C = {'9' * 5000}", r"run\.toml: not TOML: "),
    ("NUL", config, 'initial = "a\\u0000"', r"run\.toml: initial: expected text without NUL"),
    ("deep list", config, b"a = " + b"[" * 1000 + b"]" * 1000, r"run\.toml.*nested too deeply"),
    ("deep table", config, b"C = " + b"{a=" * 1000 + b"1" + b"}" * 1000,
     r"run\.toml.*nested too deeply"),
    ("dotted C", config, b"C" + b".a" * 2000 + b" = 1", "C: expected a number, got"),
    *((f"huge {key}", config, f"{key} = 0x{'f' * 9000}".encode(), rf"run\.toml: {key}: ")
      for key in HUGE),
    ("C of 9000 digits", config, b"C = " + b"9" * 9000, r"run\.toml: not TOML: "),
    ("long key", config, b"a" * 160_000 + b" = 1", r"run\.toml: unknown option 'aaaa"),
    ("bytes", config, b"features = 'x\xff'", r"run\.toml: not TOML: "),
    ("size", config, b"#" * ((1 << 20) + 1), r"run\.toml.*more than 1,048,576 bytes"),
    ("no file", line, "train --config no.toml --out o.fcl",
     r"no\.toml: cannot be read: No such file"),
]  # fmt: skip

CHECKPOINTS = [
    ("C", resume, "--C 0.3", rf"{RESUMED}--C was 0\.1, is 0\.3{ONLY}"),
    ("alpha", resume, "--alpha 0.3", rf"{RESUMED}--alpha was not given, is 0\.3{ONLY}"),
    ("features", resume, "--features kmers:d=4",
     f"{RESUMED}--features was 'kmers:d=3', is 'kmers:d=4'{ONLY}"),
    ("l1-ratio", resume, "--penalty elastic",
     rf"{RESUMED}--penalty \(l1_ratio\) was 1\.0, is 0\.5{ONLY}"),
    ("class-weight", resume, "--class-weight balanced",
     f"{RESUMED}--class-weight was not given, is 'balanced'{ONLY}"),
    ("loss", resume, "--loss squared", f"{RESUMED}--loss was 'logistic', is 'squared'{ONLY}"),
    ("intercept", resume, "--no-intercept", f"{RESUMED}--intercept was True, is False{ONLY}"),
    ("standardize", resume, "--standardize", f"{RESUMED}--standardize was False, is True{ONLY}"),
    ("block-rows", resume, "--block-rows 128", f"{RESUMED}--block-rows was 65536, is 128{ONLY}"),
    ("weights", resume, "--weights s", f"{RESUMED}--weights was not given, is 's'{ONLY}"),
    ("y", resume, "--y target", f"{RESUMED}--y was 'y', is 'target'{ONLY}"),
    ("valid-fraction", resume, "--valid-fraction 0.2",
     rf"{RESUMED}--valid-fraction was not given, is 0\.2{ONLY}"),
    ("checkpoint", resume, "--checkpoint other",
     f"{OF}expected a job that keeps its folder of checkpoints, got --checkpoint"),
    ("no-checkpoint", resume, "--no-checkpoint", f"{OF}expected .*, got --no-checkpoint; leave"),
    ("file and line", resume, "--config other.toml --seed 1",  # max-passes may change
     rf"--seed was 0, is 1; other\.toml: C was 0\.1, is 0\.3{ONLY}.*--max-passes, "),
    ("data", checkpoint, {"data": {"a": 1}},
     r"data of checkpoint 1: expected a string, got \{'a': 1\}"),
    ("features", checkpoint, {"features": True},
     "features of checkpoint 1: expected a string, got True"),
    ("out", checkpoint, {"out": 5}, "out of checkpoint 1: expected a string, got 5"),
    ("x", checkpoint, {"x": "a\0b"}, "x of checkpoint 1: expected text without NUL characters"),
    ("valid", checkpoint, {"valid": "\ud800"},
     "valid of checkpoint 1: expected text without NUL characters or lone surrogates"),
    ("tol", checkpoint, {"tol": -1.0}, "tol of checkpoint 1: expected a finite number above 0"),
    ("memory", checkpoint, {"memory": "much"}, "memory of checkpoint 1: expected a size.*got 'much'"),
    ("writers", checkpoint, {"writers": 0},
     "writers of checkpoint 1: expected a whole number of at least 1, got 0"),
    ("empty folder", line, "train --resume empty", "empty: holds no checkpoint"),
]  # fmt: skip


@parametrized(OPTIONS, FILES)
def test_refused(door: Any, given: Any, message: str, driver: Any, refuses: Refuses) -> None:
    np.save("alone.npy", np.zeros((5, 12), np.uint8))
    refuses(door, given, message)
    assert driver.calls == []


@parametrized(CHECKPOINTS)
def test_refused_after_a_job(
    door: Any, given: Any, message: str, start: Callable[..., Path], driver: Any, refuses: Refuses
) -> None:
    start()
    Path("other.toml").write_text("C = 0.3\nmax-passes = 3\n")
    Path("empty").mkdir()
    calls = len(driver.calls)
    refuses(door, given, message)
    assert len(driver.calls) == calls


def test_a_checkpoint_made_from_python_is_refused(
    start: Callable[..., Path], driver: Any, refuses: Refuses
) -> None:
    start(command=None)
    refuses(line, "train --resume o.fcl.checkpoint", "was not made by fcl train")
