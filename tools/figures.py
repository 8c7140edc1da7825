#!/usr/bin/env python3
"""Draw the picture of README.md: the gap against time, in a run on the example data.

    python tools/figures.py                   train, then draw
    python tools/figures.py --log run.jsonl   draw the run of such a log (fcl train --log-json)

Trains on the k-mers of examples/celegans to a relative gap of 1e-6, with kernels compiled beforehand, and
writes one SVG for light pages and one for dark pages. Needs the extra "figures".
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
PICTURES = ROOT / "examples" / "celegans"
CONFIG = PICTURES / "demo.toml"
TOLERANCE = 1e-6
#: Colours of the text and axes, of the gap, and of the default tolerance.
COLOURS = {"light": ("#1f2328", "#0969da", "#cf222e"), "dark": ("#e6edf3", "#4493f8", "#ff7b72")}


def train(log: Path) -> None:
    """Run the example with a log, after its kernels are compiled."""
    command = [sys.executable, "-m", "fcl.cli.train"]
    subprocess.run([*command, "--warmup", "--features", "kmers"], check=True)
    with tempfile.TemporaryDirectory(prefix="fcl-figures-") as folder:
        options = ["--tol", f"{TOLERANCE:g}", "--log-json", str(log), "--overwrite"]
        output = ["--out", str(Path(folder, "model.fcl")), "--no-checkpoint"]
        subprocess.run([*command, "--config", str(CONFIG), *options, *output], check=True, cwd=ROOT)


def passes(log: Path) -> list[dict[str, Any]]:
    """The passes of a run, in the order of time, from its log."""
    events = [json.loads(line) for line in log.read_text(encoding="utf-8").splitlines()]
    return [event for event in events if event["event"] == "PassDone"]


def draw(done: list[dict[str, Any]], mode: str, target: Path) -> None:
    """Write one picture.

    Parameters
    ----------
    done : list of dict
        The passes, with ``seconds`` from the start of the run and ``gap``.
    mode : {"light", "dark"}
        The pages that the picture is for.
    target : Path
        The SVG file.
    """
    import matplotlib as mpl

    mpl.use("svg")
    from matplotlib import pyplot as plt

    ink, line, mark = COLOURS[mode]
    style: Any = {
        "svg.fonttype": "none",
        "svg.hashsalt": "fcl",  # the same run gives the same file, byte for byte
        "font.family": "sans-serif",
        "font.size": 11,
        **dict.fromkeys(("text.color", "axes.labelcolor", "axes.edgecolor"), ink),
        **dict.fromkeys(("xtick.color", "ytick.color"), ink),
    }
    with mpl.rc_context(style):
        figure, axes = plt.subplots(figsize=(7.2, 3.4), layout="constrained")
        seconds = [event["seconds"] for event in done]
        axes.semilogy(seconds, [event["gap"] for event in done], "o-", color=line, markersize=4)
        axes.axhline(1e-3, color=mark, linewidth=1, linestyle="--")
        axes.text(0.02 * seconds[-1], 1.25e-3, "default tolerance", color=mark)
        axes.set_xlim(0.0, 1.03 * seconds[-1])
        axes.set_xlabel(
            "seconds from the start of the run; each point is a pass over all rows and features"
        )
        axes.set_ylabel("relative duality gap")
        features = f"{done[-1]['priced']:,} features"
        axes.set_title(f"Certified distance from the optimum over {features}", fontsize=11)
        axes.minorticks_off()
        axes.spines[["top", "right"]].set_visible(False)
        figure.savefig(target, transparent=True, metadata={"Date": None})
        plt.close(figure)


def main() -> None:
    """Train if no log is given, and write both pictures."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    parser.add_argument("--log", type=Path, help="log of a run (default: make a run)")
    parser.add_argument("--out", type=Path, default=PICTURES, help="folder (default %(default)s)")
    args = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="fcl-figures-") as folder:
        log = args.log or Path(folder, "run.jsonl")
        if args.log is None:
            train(log)
        done = passes(log)
    if not done:
        sys.exit(f"{log}: expected a log of fcl train with at least one pass, found none")
    for mode in COLOURS:
        draw(done, mode, args.out / f"gap-{mode}.svg")
    print(f"gap-light.svg and gap-dark.svg are in {args.out}")


if __name__ == "__main__":
    main()
