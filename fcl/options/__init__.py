"""All options, each declared once, and what is made from their declarations.

A declaration (:class:`Option`) says which values an option takes, its default and its help, which
commands take it, whether a resumed job may change it, and whether a configuration file may set it. From
it come the options of the commands, the keys of TOML files, the checks of Python arguments and
estimators, what models and checkpoints store, and the page of all options
(:mod:`fcl.options.reference`).

The options of a learner are the fields of a dataclass, which the learner gets whole:
:class:`TrainOptions`, :class:`PathOptions`, :class:`OnlineOptions`, :class:`OnlineRunOptions` and
:class:`StagewiseOptions`. Options that only commands have are in :mod:`fcl.options.commands` and
:mod:`fcl.options.convert`.
"""

from fcl.options.kinds import Kind
from fcl.options.online import OnlineOptions, OnlineRunOptions
from fcl.options.option import Option, Resume
from fcl.options.path import PathOptions
from fcl.options.stagewise import StagewiseOptions
from fcl.options.table import GROUPS, OPTIONS, choices_of_command, options_of_command
from fcl.options.training import FIXED, JOB_DEFAULTS, PROBLEM, TRAINING, TrainOptions

__all__ = [
    "FIXED",
    "GROUPS",
    "JOB_DEFAULTS",
    "OPTIONS",
    "PROBLEM",
    "TRAINING",
    "Kind",
    "OnlineOptions",
    "OnlineRunOptions",
    "Option",
    "PathOptions",
    "Resume",
    "StagewiseOptions",
    "TrainOptions",
    "choices_of_command",
    "options_of_command",
]
