"""The commands, as click declares them, and random command lines for them.

Every command of the group ``fcl`` is fuzzed, with all its options.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import cache
from typing import Any

import click

from fcl.cli.options import TableCommand
from fcl.cli.umbrella import command as group
from tools.fuzz import odd, stock
from tools.fuzz.case import Case
from tools.fuzz.stock import copy, place

#: Parameters that a command requires although click does not declare them as required.
NEEDED = {
    "train": ("data", "features", "C", "out"),
    "predict": ("model", "inputs", "out"),
    "convert": ("inputs", "out", "y", "missing"),
    "online": ("data", "features", "alpha", "out"),
    "stagewise": ("data", "features", "out"),
}
#: Options that are not drawn: compiling all kernels takes half a minute, and has its own tests.
LEFT_OUT = {"warmup"}
#: Options that name output files.
OUTPUTS = {
    "out", "tsv", "meme", "log_json", "report", "save_plots", "save_data", "save_oof", "as_json",
}  # fmt: skip
#: Options that stand in the way of what a plain command does: they end it, or contradict ``--C``.
RARE = ("_click_default_help", "version", "resume", "path", "cv", "outer", "dask", "sites", "vcf")
#: Valid values of options that the type does not tell, separated by blanks, as `stock.place` reads them.
GOOD = {
    "x": "X", "y": "y", "weights": "s", "offset": "s", "covariates": "s", "name": "g", "categorical": "m",
    "like": "t.zarr", "genome": "g.fa", "negatives": "i.bed", "vcf": "v.vcf", "keep": "keep.txt",
    "names": "names.txt", "config": "seed.toml", "window": "-4:+4", "rename": "chr=", "sites": "AG",
    "label": "4", "na": "?,-", "delimiter": ",", "cv": "2", "outer": "2", "path": "2", "theta": "inf",
    "format": "table svmlight fasta bed plink", "missing": "drop mean", "strength": "best 0.3",
    "rate": "auto 0.1", "table": "float64 float32 q q3.12", "memory": "1GiB 700MiB 2G",
    "writers": "1 2", "max_time": "20s", "storage_option": "anon=true", "imports": "fcl.features",
    "allowed_hosts": "127.0.0.1", "dask": "nowhere.json", "dask_tls": "a,b,c", "explain_output": "1",
    "namespace": "", "as_json": "OUT.json", "save_oof": "OUT.npy", "tsv": "OUT.tsv",
    "meme": "OUT.meme", "log_json": "OUT.jsonl", "report": "OUT.html", "save_plots": "OUT.plots",
    "save_data": "OUT.data", "checkpoint": "OUT.ck",
    "driver": "inline",  # processes take seconds to start: a kind of their own
}  # fmt: skip


@cache
def commands() -> dict[str, click.Command]:
    """The commands of the group ``fcl`` that read files, by name."""
    assert isinstance(group, click.Group)
    context = click.Context(group)
    without = ("list", "new-features")
    names = [name for name in group.list_commands(context) if name not in without]
    found = {name: group.get_command(context, name) for name in names}
    return {name: each for name, each in found.items() if each is not None}


def parameters(name: str) -> dict[str, click.Parameter]:
    """All parameters of a command, by name."""
    command = commands()[name]
    return {str(each.name): each for each in command.get_params(click.Context(command))}


@cache
def documented_codes(name: str) -> frozenset[int]:
    """The exit codes in the help of a command."""
    epilog = (commands()[name].epilog or "").partition("Signals:")[0]
    text = epilog.partition("xit codes:")[2]
    return frozenset(int(code) for code in re.findall(r"(?<![\w-])(\d{1,3})(?![\w.-])", text))


class Line:
    """A command line that begins valid, and may then be spoiled.

    Parameters
    ----------
    case : Case
    command : str
        One of `commands`.
    rows : {"numbers", "letters"}
        The kind of rows in the data, which determines the possible families.
    """

    def __init__(self, case: Case, command: str, rows: str) -> None:
        # the families of stagewise make columns of numbers
        rows = "numbers" if command == "stagewise" else rows
        self.case, self.command, self.rows = case, command, rows
        self.parameters = parameters(command)
        self.values: dict[str, str | None] = {}  #: by parameter; None for a flag
        self.extra: list[str] = []
        self._makers: dict[str, Callable[[], str]] = {
            **dict.fromkeys(("data", "valid"), self.data),
            **dict.fromkeys(("model", "initial", "bound_from"), self._model),
            **dict.fromkeys(("scratch", "shared_files"), self._folder),
            "inputs": lambda: copy(case, "t.csv") if command == "convert" else self.data(),
            "groups": lambda: case.rng.choice("gy" if command == "convert" else "sy"),
            "resume": lambda: copy(case, f"{self.rows}0.ck"),
            "seed": lambda: str(case.rng.randrange(2**31)),
            "features": self._features,
            "loss": self._loss,
            "out": self._out,
        }

    # -- valid values

    def data(self) -> str:
        """Store a new data set, and return its name."""
        form = self.case.rng.choice(stock.FORMATS)
        made = stock.arrays(self.case.numbers, self.rows, self.case.rng.choice((40, 60, 130)))
        return stock.store(self.case.folder, self.case.fresh(), form, made)

    def _model(self) -> str:
        place = self.case.rng.randrange(len(stock.FAMILIES[self.rows]))
        return copy(self.case, f"{self.rows}{place}.fcl")

    def _features(self) -> str:
        specs = stock.FAMILIES[self.rows]
        if self.command == "stagewise":
            specs = tuple(spec for spec in specs if "products" not in spec and " + " not in spec)
        return str(self.case.rng.choice(specs))

    def _loss(self) -> str:
        kind = self.parameters["loss"].type
        words = getattr(kind, "kind", None) and kind.kind.words  # type: ignore[attr-defined]
        return str(self.case.rng.choice(words or stock.LOSSES))

    def _out(self) -> str:
        others = {"predict": (".npy", ".tsv", ".zarr"), "convert": (".zarr",), "report": (".html",)}
        suffixes = others.get(self.command, (".fcl",))
        return self.case.output(self.case.fresh(self.case.rng.choice(suffixes)))

    def _folder(self) -> str:
        name = self.case.fresh()
        (self.case.folder / name).mkdir()
        return self.case.output(name)

    def good(self, name: str) -> str | None:
        """A valid value of an option; None for a flag."""
        parameter, rng = self.parameters[name], self.case.rng
        kind = parameter.type
        if getattr(parameter, "is_flag", False):
            return None
        if name in self._makers:
            return self._makers[name]()
        if name in GOOD:
            word = rng.choice(GOOD[name].split(" "))
            return place(self.case, word)[0][0] if word else word
        if name == "block_rows":
            return str(64 * rng.randint(1, 1024))
        if kind.name.startswith("["):
            return str(rng.choice(kind.name[1:-1].split("|")))
        if kind.name.startswith("integer"):
            return str(rng.randint(1, 50))
        if kind.name in (
            "number",
            "float",
            "share",
        ):  # the limit of --l1-ratio, --valid-fraction is 1
            most = 3.0 if name in ("C", "alpha") else 0.9
            return f"{most * 10 ** rng.uniform(-2.5, 0):.4g}"
        if kind.name == "size":
            return "1GiB"
        if kind.name == "duration":
            return rng.choice(("20s", "5m", "0.5h"))
        if kind.name == "all|auto|N":
            return rng.choice(("all", "auto", "64", "1000"))
        if "LABEL" in kind.name:
            return rng.choice(("balanced", "1=2", "-1=0.5,1=3"))
        return odd.text(self.case)

    # -- the line

    def base(self) -> Line:
        """Set all required parameters to valid values."""
        needed = [n for n, p in self.parameters.items() if p.required]
        for name in dict.fromkeys((*needed, *NEEDED.get(self.command, ()))):
            self.values[name] = self.good(name)
        if "driver" in self.parameters:
            self.values["driver"] = "inline"
        return self

    def options(self) -> list[str]:
        """The names of the parameters that may be drawn."""
        return [n for n in self.parameters if n not in LEFT_OUT]

    def add(self) -> None:
        """Give one more option a valid value."""
        name = self.case.rng.choice(self.options())
        if name in RARE and not self.case.chance(0.1):
            return
        self.values[name] = self.good(name)

    def spoil(self) -> None:
        """Make one change to the line that may be invalid."""
        case, rng = self.case, self.case.rng
        what = rng.choice(
            (
                "text", "text", "text", "mangle", "features", "drop", "typo", "stray", "twice",
                "special", "same", "missing folder", "number",
            )
        )  # fmt: skip
        name = rng.choice(self.options())
        valued = [n for n, v in self.values.items() if v is not None]
        case.note(f"{what} {name}")
        if what == "text":
            self._odd_value(name, odd.text(case))
        elif what == "number":
            self._odd_value(name, f"{rng.choice((-1, 1)) * 10 ** rng.uniform(-320, 308):.3g}")
        elif what == "mangle" and valued:
            name = rng.choice(valued)
            self._odd_value(name, odd.mangle(case, str(self.values[name])))
        elif what == "features" and "features" in self.parameters:
            self.values["features"] = rng.choice(odd.SPECS)
        elif what == "drop" and self.values:
            del self.values[rng.choice(list(self.values))]
        elif what == "typo":
            self.extra.append(f"--{odd.mangle(case, name.replace('_', '-'))}")
        elif what == "stray":
            self.extra += [odd.text(case) for _ in range(rng.choice((1, 2, 40)))]
        elif what == "twice" and valued:
            self.extra += self.spell(rng.choice(valued))
        elif what == "special":
            place = case.fresh(rng.choice(("", ".npy", ".fcl", ".zarr", ".h5")))
            if odd.make_special(case, case.folder / place):
                self._odd_value(name, place)
        elif what == "same" and len(valued) > 1:
            first, second = rng.sample(valued, 2)
            self.values[first] = value = self.values[second]
            # an existing file is an input, which must not change
            if first in OUTPUTS and not (case.folder / str(value)).exists():
                case.output(str(value))
        elif what == "missing folder" and name in OUTPUTS:
            self.values[name] = case.output("nowhere/x.npy")

    def _odd_value(self, name: str, value: str) -> None:
        if getattr(self.parameters[name], "is_flag", False):
            self.extra.append(f"--{name.replace('_', '-')}={value}")
            return
        if name in OUTPUTS or name in ("checkpoint", "resume", "scratch", "shared_files"):
            self.case.output(value)
        self.values[name] = value

    def spell(self, name: str) -> list[str]:
        """The words of a parameter on the command line."""
        parameter, value = self.parameters[name], self.values[name]
        if isinstance(parameter, click.Argument):
            return [str(value)]
        spelled = self.case.rng.choice([*parameter.opts, *parameter.secondary_opts])
        if value is None:
            return [spelled]
        if spelled.startswith("--") and self.case.chance(0.2):
            return [f"{spelled}={value}"]
        return [spelled, value]

    def arguments(self) -> list[str]:
        """The command and its arguments, options in a random order."""
        positional = [n for n, p in self.parameters.items() if isinstance(p, click.Argument)]
        parts = [self.spell(n) for n in self.values if n not in positional]
        self.case.rng.shuffle(parts)
        line = [self.command, *(str(self.values[n]) for n in positional if n in self.values)]
        for part in parts:
            line += part
        # arguments of a process cannot contain zero bytes
        return [argument.replace("\0", "") for argument in [*line, *self.extra]]


def may_be_in_file(command: str, name: str) -> bool:
    """Whether a configuration may set an option of a command."""
    declared = commands()[command]
    assert isinstance(declared, TableCommand)
    return name in declared.table and bool(declared.table[name].from_file)


def toml_of(case: Case, line: Line) -> bytes:
    """Make a configuration with valid and odd values; the file itself may be damaged."""
    rng, entries = case.rng, []
    # one option that a file may not set ends the run, so there are few of them
    names = [n for n in line.options() if may_be_in_file(line.command, n) or case.chance(0.05)]
    for name in rng.sample(names, k=min(len(names), rng.randint(0, 8))):
        key = name.replace("_", rng.choice("-_"))
        good = line.good(name)
        plain = "true" if good is None else _toml_text(good)
        if good is not None and re.fullmatch(r"-?\d+(\.\d+)?(e-?\d+)?", good):
            plain = good
        if case.chance(0.35):
            case.note(f"toml {key}: odd")
            plain = rng.choice(
                (
                    "nan", "inf", "-1", "0", "true", "false", "1e400", str(2**70), "[]", "{}", '""',
                    "[1, 2]", "{a = 1}", '{"" = -1}', "1979-05-27", "07:32:00", '"a\\u0000b"', "'x'",
                    '"""a\nb"""', f'"{"x" * 100_000}"', "[" * 999 + "]" * 999, "0x10", "1_0",
                    _toml_text(odd.text(case)),
                )
            )  # fmt: skip
        entries.append(f"{key} = {plain}")
    text = "\n".join(entries) + "\n"
    if case.chance(0.25):
        what = rng.choice(
            ("table", "twice", "bom", "latin", "zero", "deep", "empty", "cut", "crlf")
        )
        case.note(f"toml: {what}")
        text = {
            "table": f"[fcl]\n{text}",
            "twice": text * 2,
            "bom": f"\ufeff{text}",
            "latin": text,
            "zero": f"{text}\0",
            "deep": "x = " + "[" * 20_000,
            "empty": "",
            "cut": text[: len(text) // 2],
            "crlf": text.replace("\n", "\r\n"),
        }[what]
        if what == "latin":
            return text.encode() + b"# \xff\xfe\n"
    return text.encode("utf-8", "surrogatepass")


def _toml_text(value: str) -> str:
    escaped = value.replace("\\", "\\\\").replace('"', '\\"')
    return (
        '"' + "".join(c if c >= " " and c != "\x7f" else f"\\u{ord(c):04x}" for c in escaped) + '"'
    )


def parsed(arguments: list[str]) -> dict[str, Any]:
    """The effective options of a successful command line, including its TOML file and checkpoint."""
    from fcl.cli.config import effective_options

    name, *rest = arguments
    command = commands()[name]
    context = command.make_context(name, list(rest))
    options, given = dict(context.params), dict(context.meta["fcl.given"])
    if "config" in options:
        options, given = effective_options(context)
    if options.get("resume") is not None and name == "train":
        from fcl.cli.resume import resume_options
        from fcl.files.folder import CheckpointFolder

        resumed = CheckpointFolder(options["resume"]).load()
        options = resume_options(options, given, resumed, options["resume"])
    return options
