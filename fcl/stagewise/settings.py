"""The options of a stagewise training."""

from __future__ import annotations

from dataclasses import asdict, dataclass, replace
from typing import Any

from fcl.checks import at_least_0, choice, flag, is_whole, share_or_0, shown, whole
from fcl.errors import InputError
from fcl.units import parse_size

__all__ = ["CALIBRATIONS", "ENDS", "UPDATES", "Settings"]

#: Updates, with the loss that each of them lowers.
UPDATES = {"ls": "squared", "gls": "softmax", "cls": "squared"}
#: Calibrations, with the powers of the predictions that they add to a block.
CALIBRATIONS = {"linear": (1,), "cubic": (1, 2, 3)}
#: Options that only say when the training ends, which a resumed job may change.
ENDS = ("visits", "patience")
#: Default numbers of visits: more visits are the cheapest gain for ls, and cls is not defined for them.
VISITS = {"ls": 3, "gls": 1, "cls": 1}


@dataclass(frozen=True)
class Settings:
    """The options of a stagewise training, in the notation of the room's README.

    Attributes
    ----------
    update : {"ls", "gls", "cls"}
        Least squares, generalised least squares for the softmax loss, or calibrated least squares.
    loss : {"squared", "softmax"} or None
        None: the loss of the update.
    block : int
        Number of features of a block.
    visits : int or None
        How often each block is visited; None: 3 for ls, else 1.
    inner : int
        Steps of a visit of gls.
    alpha : float
        Weight of the ridge penalty alpha / 2 |W|^2, at least 0.
    calibration : {"linear", "cubic"}
        Powers of the predictions that cls adds to each block.
    clip : bool
        Whether cls projects the predictions onto the simplex.
    class_weight : "balanced", or weights by class, or None
        Multiply the sample weights of the training rows; a mapping, or pairs of label and weight.
    valid_fraction : float
        Share of the rows to validate on; 0 for none.
    patience : int
        Blocks without a lower validation loss after which the training stops.
    seed : int
        Seeds the choice of the validation rows.
    memory : int
        Budget in bytes.
    """

    update: str = "ls"
    loss: str | None = None
    block: int = 1024
    visits: int | None = None
    inner: int = 5
    alpha: float = 1.0
    calibration: str = "linear"
    clip: bool = False
    class_weight: Any = None
    valid_fraction: float = 0.05
    patience: int = 10
    seed: int = 0
    memory: int | str = "4GiB"

    @property
    def n_visits(self) -> int:
        """Number of visits of each block."""
        return VISITS[self.update] if self.visits is None else self.visits

    @property
    def steps(self) -> int:
        """Number of steps of a visit."""
        return self.inner if self.update == "gls" else 1

    @property
    def powers(self) -> tuple[int, ...]:
        """Powers of the predictions that a block contains."""
        return CALIBRATIONS[self.calibration] if self.update == "cls" else ()

    @property
    def memory_bytes(self) -> int:
        """The budget in bytes."""
        return parse_size(self.memory, "memory")

    def checked(self) -> Settings:
        """Validate the options; raises InputError that names the first wrong one."""
        update = choice("update", self.update, tuple(UPDATES))
        if self.loss is not None:
            choice("loss", self.loss, ("squared", "softmax"))
        if self.loss not in (None, UPDATES[update]):
            other = next(name for name, loss in UPDATES.items() if loss == self.loss)
            raise InputError(
                f"loss: expected {UPDATES[update]} for the update {update}, got {self.loss}; set update "
                f"to {other}"
            )
        for name in ("block", "inner", "patience"):
            whole(name, getattr(self, name), 1)
        if self.visits is not None:
            whole("visits", self.visits, 1)
        if not is_whole(self.seed) or not 0 <= self.seed < 1 << 32:
            raise InputError(
                f"seed must be a whole number from 0 to 2^32 - 1, got {shown(self.seed)}"
            )
        alpha = at_least_0("alpha", self.alpha)
        fraction = share_or_0("valid_fraction", self.valid_fraction)
        choice("calibration", self.calibration, tuple(CALIBRATIONS))
        clip = flag("clip", self.clip)
        if update != "cls" and (clip or self.calibration != "linear"):
            what = "clip" if clip else "calibration"
            raise InputError(f"{what}: applies only to the update cls, got update {update}")
        if update == "cls":
            self._check_calibrated(alpha)
        made = replace(self, alpha=alpha, valid_fraction=fraction, clip=clip, loss=UPDATES[update])
        return replace(made, memory=self.memory_bytes, visits=self.n_visits)

    def _check_calibrated(self, alpha: float) -> None:
        if self.n_visits != 1:
            raise InputError(
                f"visits: the update cls visits each block once, got {self.n_visits}; set update to ls "
                "for several visits"
            )
        if not alpha:
            raise InputError(
                "alpha: the update cls needs alpha above 0, because the predictions of the classes sum "
                "to 1, which makes the Gram matrix singular"
            )

    def fixed(self) -> dict[str, Any]:
        """The options that determine the model, for models and checkpoints."""
        return {name: value for name, value in asdict(self).items() if name != "memory"}
