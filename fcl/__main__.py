"""``python -m fcl``: the command ``fcl``."""

from __future__ import annotations

from fcl.cli.umbrella import script

if __name__ == "__main__":
    script()
