"""Benchmarks of fcl: data x call x metrics, from one table of cases.

python -m tools.bench --list
python -m tools.bench GROUP|CASE ... [--repeat 3] [--core N] [--out results.jsonl]
python -m tools.bench growth-rows --set every=40,10 C=0.03        other values of options
python -m tools.bench peers-a9a --only fcl liblinear              some of what is compared
python -m tools.bench page                                        all tables of docs/performance
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import sys
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
if str(ROOT) not in sys.path:
    sys.path.insert(0, str(ROOT))

from tools.bench import common, runner  # noqa: E402
from tools.bench.cases import CASES  # noqa: E402


def main() -> None:
    """Read the command line, and run the chosen cases."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("names", nargs="*", metavar="GROUP|CASE", help="or: page")
    parser.add_argument("--list", action="store_true", help="list groups, cases and their options")
    parser.add_argument("--repeat", type=int, default=3, help="runs of each (default 3)")
    parser.add_argument("--core", type=int, help="core to run on (default: the last one)")
    parser.add_argument("--out", type=Path, help="append the figures of each run as JSON")
    parser.add_argument(
        "--set", nargs="+", default=[], metavar="OPTION=VALUE", help="other values of options"
    )
    parser.add_argument(
        "--only", nargs="+", default=[], metavar="LABEL", help="some of what is compared"
    )
    parser.add_argument("--draw", action="store_true", help="also draw the pictures of cases")
    parser.add_argument("--child", help=argparse.SUPPRESS)
    args = parser.parse_args()
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)  # an installed fcl has its bytecode
    if args.child:
        runner.child(CASES[args.names[0]], **json.loads(args.child))
        return
    if args.list or not args.names:
        show()
        return
    chosen = [case for case in CASES.values() if wanted(case, args.names)]
    groups = {case.group for case in CASES.values()}
    if unknown := set(args.names) - set(CASES) - groups - {"page"}:
        parser.error(f"unknown cases {', '.join(sorted(unknown))}; --list shows all")
    if args.only:
        labels = [label for case in chosen for label in case.compare]
        chosen = [case for case in chosen if set(args.only) & set(case.compare)]
        if not chosen:
            parser.error(f"expected some of: {'; '.join(labels)}")
    given = dict(text.split("=", 1) for text in args.set)
    known = set().union(*(set().union(*runner.parameters(case)) for case in chosen))
    if unknown := set(given) - known:
        parser.error(f"these cases have no options {', '.join(sorted(unknown))}; --list shows all")
    # as an interrupt does, so that the child and its commands end, too
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    print(common.machine())
    pictures: dict[tuple[str, str, str, str], dict[str, Any]] = {}
    for case in chosen:
        own = runner.with_options(case, given, args.only)
        panels = runner.run(own, args.repeat, args.core, args.out)
        if args.draw and case.picture and panels:
            pictures.setdefault(case.picture, {}).update(panels)
    for (name, *axes), panels in pictures.items():
        common.draw(name, panels, *axes)


def wanted(case: runner.Case, names: list[str]) -> bool:
    """Whether some of the names choose a case."""
    return case.name in names or case.group in names or ("page" in names and case.page)


def show() -> None:
    """Print the table of cases."""
    rows = []
    for case in CASES.values():
        labels = ", ".join(label for label in case.compare if label)
        names = sorted(set().union(*runner.parameters(case)))
        rows.append([case.group, case.name, "yes" if case.page else "", case.title, labels,
                     " ".join(names)])  # fmt: skip
    print(common.table(["group", "case", "page", "what", "compares", "options"], rows))


if __name__ == "__main__":
    main()
