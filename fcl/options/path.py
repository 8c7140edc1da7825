"""The options of a path, beside the options of training."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import Any

from fcl.errors import InputError
from fcl.options.kinds import AT_LEAST_0, FLAG, FROM_1, POSITIVE, TEXT, one_of
from fcl.options.option import (
    PATHS,
    TRAIN,
    Option,
    declare,
    document_options,
    options_of,
    validate_options,
)

#: Options that compare scores of held-out rows.
OF_SCORES = ("select", "patience", "min_gain")
_option = partial(declare, commands=(TRAIN,), group="path", from_file=True)


@document_options
@dataclass(frozen=True)
class PathOptions:
    """The options of a path."""

    points: int = _option(
        FROM_1,
        "Train at N values of C from C_min upwards, and choose one by the validation score. A path runs "
        "in one process unless --driver processes is given, which starts processes for each point, or "
        "--driver dask, which sends each fold as a whole job to the workers of a cluster.",
        20,
        command_default=None,
        key="path",
        metavar="N",
    )
    C_max: float | None = _option(POSITIVE, "Largest C of the path; default: 100 times C_min.")
    patience: int | None = _option(  # on the command line it is the option of training
        FROM_1,
        "Stop after this many points without a better validation score.",
        3,
        commands=(PATHS,),
    )
    min_gain: float = _option(
        AT_LEAST_0,
        "A score counts as better if it improves by more than this, in its own units.",
        0.0,
    )
    max_active: int | None = _option(
        FROM_1, "Stop at a model of at least this many features with a weight."
    )
    select: str = _option(
        one_of("best", "1se"),
        "Choose the best score, or the smallest C within one standard error of it.",
        "best",
    )
    refit: bool = _option(
        FLAG,
        "Also train the chosen features nearly without a penalty, as a second model, OUT.refit.fcl; its "
        "certificate covers these features alone.",
        False,
    )
    refit_alpha: float = _option(
        POSITIVE, "Weight of the ridge penalty of --refit, against the mean of the losses.", 1e-4
    )

    @classmethod
    def checked(cls, **given: Any) -> PathOptions:
        """Validate options given from Python; InputError names a wrong one."""
        options = cls(**given)
        # without patience a path continues to the end of its grid
        skipped = {"patience"} if options.patience is None else set()
        return validate_options(options, PATH_OPTIONS.keys() - skipped)

    def check_unscored(self) -> None:
        """Raise InputError for options that compare scores; for paths without held-out rows.

        Defaults are accepted, and a ``patience`` of None, which asks for nothing.
        """
        for name in OF_SCORES:
            value = getattr(self, name)
            if value not in (PATH_OPTIONS[name].default, None):
                raise InputError(
                    f"{name}: expected held-out rows for {value!r}, got none; give valid, valid_fraction "
                    "or cv"
                )


#: The options of a path, by name.
PATH_OPTIONS = options_of(PathOptions)
_more = partial(Option, commands=(TRAIN,), group="path")
_folds = partial(_more, kind=TEXT, metavar="K|groups:NAME|folds:NAME", from_file=True)
#: Options of ``fcl train --path`` that Python gives as arrays.
FOLD_OPTIONS = (
    _folds(
        "cv",
        help="Cross-validate the path: K folds, folds of whole groups:NAME, or folds:NAME of rows.",
    ),
    _folds(
        "outer",
        help="Nested cross-validation: choose C without each of these outer folds, and score it there.",
    ),
    _more(
        "save_oof",
        TEXT,
        "Write the margin of each row by the fold that held it out: to FILE.tsv as a table of name, "
        "label, fold and margin, or to FILE.npy.",
        metavar="FILE",
        from_file=False,
    ),
)
