"""The command ``fcl`` as the harness starts it; this folder has no other modules.

Environment variables make rare events frequent: the trainer samples rows even though there are few, and
``fcl online`` saves its state often.
"""

import os
from typing import Any

from fcl.cli import umbrella

if os.environ.get("FCL_FAULTS_SAMPLED"):
    from fcl.drivers import plan

    plan.ALL_ROWS, plan.LEAST_SAMPLE = 1000, 512
if os.environ.get("FCL_FAULTS_SAVE_OFTEN"):
    from fcl.cli.online import command

    online: Any = command.callback

    def save_often(*arguments: object, **options: object) -> object:
        """Run ``fcl online``; the module is imported late because numba loads with it."""
        from fcl.drivers.online import run

        run.SAVE_EVERY = 0.05
        return online(*arguments, **options)

    command.callback = save_often
umbrella.script()
