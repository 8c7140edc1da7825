"""The options of a path, beside the options of training in :mod:`fcl.options`."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field, fields, replace
from typing import TYPE_CHECKING, Any

from fcl import checks
from fcl.errors import InputError
from fcl.options import FLAG, FROM_1, POSITIVE, TRAINING, Kind, Option, Resume, one_of, real

if TYPE_CHECKING:
    from fcl.path.rules import Rules

#: Options that compare scores of held-out rows.
OF_SCORES = ("select", "patience", "min_gain")

#: Options of training that a path sets itself.
_OWN = ("C", "alpha", "features")
_CHECKPOINTS = ("checkpoint", "checkpoint_every")


def _option(kind: Kind, help: str, default: Any = None, **more: Any) -> Any:
    fixed: dict[str, Any] = {"resume": Resume.NOT_KEPT, "planned": False, "from_file": True}
    option = Option(kind, "path", help, default, **fixed, **more)
    return field(default=default, metadata={"option": option})


@dataclass(frozen=True)
class PathOptions:
    """The options of a path."""

    points: int = _option(FROM_1, "Train at this many values of C, from C_min upwards.", 20)
    C_max: float | None = _option(POSITIVE, "Largest C of the path; default: 100 times C_min.")
    patience: int | None = _option(
        FROM_1, "Stop after this many points without a better validation score.", 3
    )
    min_gain: float = _option(
        real(checks.at_least_0),
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
        POSITIVE,
        "Weight of the ridge penalty of --refit, against the mean of the losses.",
        1e-4,
    )

    @classmethod
    def checked(cls, **given: Any) -> PathOptions:
        """Validate options given from Python; InputError names a wrong one."""
        options = cls(**given)
        found = {o.name: _checked(o, getattr(options, o.name)) for o in PATH_OPTIONS}
        return replace(options, **found)

    def check_unscored(self) -> None:
        """Raise InputError for options that compare scores; for paths without held-out rows.

        Defaults are accepted, and a ``patience`` of None, which asks for nothing.
        """
        for option in PATH_OPTIONS:
            value = getattr(self, option.name)
            if option.name in OF_SCORES and value not in (option.default, None):
                raise InputError(
                    f"{option.name}: expected held-out rows for {value!r}, got none; give valid, "
                    "valid_fraction or cv"
                )

    @property
    def rules(self) -> Rules:
        """When the path stops."""
        from fcl.path.rules import Rules  # late: it imports NumPy

        return Rules(self.patience, self.min_gain, self.max_active)


#: The options of a path, by the names of their fields.
PATH_OPTIONS = tuple(
    replace(declared.metadata["option"], name=declared.name) for declared in fields(PathOptions)
)


def _checked(option: Option, value: Any) -> Any:
    # without patience a path goes to the end of its grid
    return None if value is None and option.name == "patience" else option.check(value)


def check_training(given: Iterable[str]) -> None:
    """Raise an error for arguments of :func:`fcl.train` that a path does not take.

    Raises
    ------
    InputError
        The argument sets C.
    TypeError
        The argument is unknown.
    """
    known = {option.name for option in TRAINING} - {*_OWN, *_CHECKPOINTS}
    for name in given:
        if name in ("C", "alpha"):
            raise InputError(
                f"{name}: a path finds its own values; set the largest C with C_max, or give alphas"
            )
        if name not in known:
            raise TypeError(f"train_path() got an unexpected keyword argument {name!r}")
