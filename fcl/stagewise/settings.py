"""The options of a stagewise training."""

from __future__ import annotations

from dataclasses import asdict, dataclass, replace
from typing import Any

from fcl.checks import at_least_0, choice, is_whole, share_or_0, shown, whole
from fcl.errors import InputError
from fcl.stagewise.links import Link, find_link
from fcl.units import parse_size

#: Updates, with the loss that each of them lowers by default.
UPDATES = {"ls": "squared", "gls": "softmax", "cls": "squared"}
#: Calibrations of cls, with the highest power of the predictions to which the targets are fitted.
CALIBRATIONS = {"linear": 1, "quadratic": 2, "cubic": 3}
#: Orders of the features, of which blocks are parts.
ORDERS = ("ids", "random", "gradient")
#: Default numbers of visits: more visits are the cheapest gain for ls.
VISITS = {"ls": 3, "gls": 1, "cls": 1}
#: Default number of rounds of cls, most of which patience saves, and default patience.
ROUNDS = 20
PATIENCE = {"ls": 10, "gls": 10, "cls": 3}


@dataclass(frozen=True)
class Settings:
    """The options of a stagewise training, in the notation of docs/explanation/stagewise.md.

    Attributes
    ----------
    update : {"ls", "gls", "cls"}
        Least squares, generalised least squares for the softmax loss, or calibrated least squares.
    loss : str or None
        The loss of a link (:data:`fcl.stagewise.links.LINKS`): squared for ls and cls; softmax, logistic,
        probit or ``power:p=2`` for gls. None: squared, or softmax for gls (logistic for several labels).
    block : int
        Number of features of a block.
    order : {"ids", "random", "gradient"}
        The order of the features, of which blocks are parts: by id; drawn without replacement; or by the
        size of their gradients, computed again before each visit.
    visits : int or None
        How often each block is visited, in each round of cls; None: 3 for ls, else 1.
    rounds : int or None
        Rounds of cls, each of which fits the residuals and calibrates the predictions; None: 20 for cls,
        to which alone it applies.
    inner : int
        Steps of a visit of gls.
    alpha : float
        Weight of the ridge penalty alpha / 2 |W|^2, at least 0.
    calibration : {"linear", "quadratic", "cubic"}
        Up to which power of the predictions cls fits the targets.
    class_weight : "balanced", or weights by class, or None
        Multiply the sample weights of the training rows; a mapping, or pairs of label and weight.
    valid_fraction : float
        Share of the rows to validate on; 0 for none.
    patience : int or None
        Blocks, or rounds of cls, without a lower validation loss after which the training stops; None: 10
        blocks or 3 rounds.
    seed : int
        Seeds the choice of the validation rows, and the random order.
    memory : int
        Budget in bytes.
    """

    update: str = "ls"
    loss: str | None = None
    block: int = 1024
    order: str = "ids"
    visits: int | None = None
    rounds: int | None = None
    inner: int = 5
    alpha: float = 1.0
    calibration: str = "cubic"
    class_weight: Any = None
    valid_fraction: float = 0.05
    patience: int | None = None
    seed: int = 0
    memory: int | str = "4GiB"

    @property
    def link(self) -> Link:
        """The link of the loss."""
        return find_link(UPDATES[self.update] if self.loss is None else self.loss)

    @property
    def n_visits(self) -> int:
        """Number of visits of each block."""
        return VISITS[self.update] if self.visits is None else self.visits

    @property
    def steps(self) -> int:
        """Number of steps of a visit."""
        return self.inner if self.update == "gls" else 1

    @property
    def calibrates(self) -> bool:
        """Whether rounds end with a calibration."""
        return self.update == "cls"

    @property
    def ends(self) -> tuple[str, ...]:
        """The options that only say when the training ends, which a resumed job may change."""
        return ("rounds" if self.calibrates else "visits", "patience")

    @property
    def visits_of_round(self) -> int:
        """Visits of each block in a round of cls; 0 for other updates."""
        return self.n_visits if self.calibrates else 0

    @property
    def n_rounds(self) -> int:
        """Number of rounds, 1 unless they calibrate."""
        return (self.rounds or ROUNDS) if self.calibrates else 1

    @property
    def degree(self) -> int:
        """The highest power in a calibration."""
        return CALIBRATIONS[self.calibration]

    @property
    def most_waits(self) -> int:
        """The patience, in blocks or rounds."""
        return PATIENCE[self.update] if self.patience is None else self.patience

    @property
    def memory_bytes(self) -> int:
        """The budget in bytes."""
        return parse_size(self.memory, "memory")

    def checked(self) -> Settings:
        """Validate the options and fill in defaults, except for the loss, which depends on the targets.

        Raises InputError that names the first wrong option.
        """
        update = choice("update", self.update, tuple(UPDATES))
        if self.link.is_quadratic == (update == "gls"):
            other = "ls" if update == "gls" else "gls"
            raise InputError(
                f"loss: the update {update} has no {self.loss} loss; set update to {other}, or leave "
                "loss out"
            )
        for name in ("block", "inner"):
            whole(name, getattr(self, name), 1)
        for name in ("visits", "rounds", "patience"):
            if getattr(self, name) is not None:
                whole(name, getattr(self, name), 1)
        if not is_whole(self.seed) or not 0 <= self.seed < 1 << 32:
            raise InputError(
                f"seed must be a whole number from 0 to 2^32 - 1, got {shown(self.seed)}"
            )
        alpha = at_least_0("alpha", self.alpha)
        fraction = share_or_0("valid_fraction", self.valid_fraction)
        choice("order", self.order, ORDERS)
        choice("calibration", self.calibration, tuple(CALIBRATIONS))
        if not self.calibrates and (self.rounds is not None or self.calibration != "cubic"):
            what = "calibration" if self.rounds is None else "rounds"
            raise InputError(f"{what}: applies only to the update cls, got update {update}")
        made = replace(self, alpha=alpha, valid_fraction=fraction)
        return replace(
            made,
            memory=self.memory_bytes,
            visits=self.n_visits,
            rounds=self.n_rounds if self.calibrates else None,
            patience=self.most_waits,
        )

    def fixed(self) -> dict[str, Any]:
        """The options that determine the model, for models and checkpoints."""
        left_out = {"memory"} if self.calibrates else {"memory", "rounds", "calibration"}
        return {name: value for name, value in asdict(self).items() if name not in left_out}
