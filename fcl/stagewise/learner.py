"""Visits of the blocks, one after the other, with validation after each block."""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from typing import Any, Protocol

import numpy as np

from fcl.features.base import value_type
from fcl.features.generator.family import GeneratedFamily
from fcl.run.reasons import StopReason
from fcl.stagewise.blocks import FeatureBlock, Part
from fcl.stagewise.calibration import calibrate, fit_calibration
from fcl.stagewise.search import ObjectiveLine, best_factor
from fcl.stagewise.settings import Settings
from fcl.stagewise.steps import BlockStep, Factor, factorise, step
from fcl.stagewise.sums import Sums, Sweeper, Update
from fcl.stagewise.targets import hashed
from fcl.types import Floats, Ids


def block_count(n_features: int, width: int) -> int:
    """Number of blocks; the last may be narrower."""
    return -(-n_features // width)


def first_order(n_features: int, settings: Settings) -> Ids:
    """The order of the features in the first visit: by id, or drawn without replacement."""
    if settings.order == "random":
        return np.argsort(hashed(n_features, settings.seed), kind="stable")
    return np.arange(n_features)


def rounds_of(number: int, n_blocks: int, settings: Settings) -> int:
    """Number of rounds that have begun after a number of visits of blocks."""
    return -(-number // (n_blocks * settings.n_visits)) if settings.calibrates else min(1, number)


@dataclass
class RoundWeights:
    """The weights of a model of R rounds, 1 except for cls.

    features : float64 (D, R K), of each round, side by side.
    intercepts : float64 (blocks + 1, R K), the constant that a round starts from, and what each block
        adds to it.
    calibration : float64 (R, 1 + degree K, K), of each finished round
        (:func:`fcl.stagewise.calibration.calibrated`); none except for cls.
    """

    features: Floats
    intercepts: Floats
    calibration: Floats

    def copy(self) -> RoundWeights:
        """A copy that later steps do not change."""
        return RoundWeights(self.features.copy(), self.intercepts.copy(), self.calibration.copy())


@dataclass(frozen=True)
class BlockDone:
    """What is known after a block.

    number : blocks done so far, over all visits.
    loss, valid_loss : mean loss of the training and of the validation rows.
    error, valid_error : share of rows whose largest margin is of another class, or of wrong labels; None
        for numbers.
    seconds : time of this block.
    """

    number: int
    loss: float
    error: float | None
    valid_loss: float | None
    valid_error: float | None
    seconds: float


@dataclass
class State:
    """All that a resumed training needs besides the data.

    weights, best : of the last block, and of the block with the lowest validation loss.
    best_number : number of blocks done at ``best``.
    margins : list of float64 (n, K), of the training rows, and of the validation rows if there are any.
    order : int64 (D,), the features in the order of the current visit, of which blocks are parts.
    """

    weights: RoundWeights
    best: RoundWeights
    best_number: int
    margins: list[Floats]
    order: Ids
    history: list[BlockDone] = field(default_factory=list)

    def end(self, settings: Settings) -> StopReason | None:
        """Why no block is left to visit, DONE or PATIENCE; None if the training continues."""
        done, n_blocks = len(self.history), len(self.weights.intercepts) - 1
        of_round = n_blocks * settings.n_visits
        if done >= of_round * settings.n_rounds:
            return StopReason.DONE
        most = settings.most_waits * (of_round if settings.calibrates else 1)
        waits = len(self.margins) > 1 and done - self.best_number >= most
        return StopReason.PATIENCE if waits else None


class Kept(Protocol):
    """What a memory plan keeps besides what is needed."""

    @property
    def kept_tiles(self) -> int:
        """Tiles of the block that is visited."""

    @property
    def kept_factors(self) -> int:
        """Cholesky factors for later visits."""


class StagewiseLearner:
    """Trains on prepared rows.

    settings : validated.
    parts : the training rows, and the validation rows if there are any; margins are set.
    kept : how many tiles of a block, and Cholesky factors, fit in memory.
    """

    def __init__(
        self,
        family: GeneratedFamily,
        settings: Settings,
        parts: list[Part],
        sweeper: Sweeper,
        kept: Kept,
        state: State | None = None,
    ) -> None:
        self.family, self.settings, self.sweeper = family, settings, sweeper
        self.parts, self.kept = parts, kept
        train = parts[0]
        self.n_blocks = block_count(family.n_features, settings.block)
        self.weight = float(train.s.sum())
        self.dtype: Any = value_type(train.n)
        self._factors: dict[int, tuple[Factor, Floats]] = {}
        self.state = self._begin() if state is None else state
        for part, margins in zip(self.parts, self.state.margins, strict=True):
            part.margins = margins

    def _begin(self) -> State:
        train, K = self.parts[0], self.parts[0].targets.width
        link, total = self.settings.link, np.zeros(K)
        for _, rows in train.prepared.blocks():
            targets = train.targets.rows(rows)
            if train.offset is not None and link.is_quadratic:
                targets = targets - train.offset[rows]
            total += train.s[rows] @ targets
        # with offsets, this is not the best constant of softmax; the first block moves the intercepts
        start = link.start(total / self.weight)
        intercepts = np.zeros((self.n_blocks + 1, K))
        intercepts[0] = start
        none = np.zeros((0, 1 + self.settings.degree * K, K))
        weights = RoundWeights(np.zeros((self.family.n_features, K)), intercepts, none)
        margins = [part.constant(start) for part in self.parts]
        order = first_order(self.family.n_features, self.settings)
        return State(weights, weights.copy(), 0, margins, order)

    @property
    def n_steps(self) -> int:
        """Number of blocks of all visits."""
        return self._of_round * self.settings.n_rounds

    @property
    def _of_round(self) -> int:
        """Number of visits of blocks in a round."""
        return self.n_blocks * self.settings.n_visits

    def run(self) -> Iterator[BlockDone]:
        """Visit the blocks that are left; yields after each of them, when the state is complete."""
        while self.state.end(self.settings) is None:
            since = time.perf_counter()
            number = len(self.state.history)
            if number and number % self._of_round == 0:
                self._begin_round()
            if number % self.n_blocks == 0 and self.settings.order == "gradient":
                self.state.order = self._by_gradient()
            self.visit(number % self.n_blocks)
            if self.settings.calibrates and (number + 1) % self._of_round == 0:
                self._calibrate()
            done = replace(self.measure(number + 1), seconds=time.perf_counter() - since)
            self.state.history.append(done)
            self._keep_best(done)
            yield done

    def _keep_best(self, done: BlockDone) -> None:
        """Keep the weights of the lowest validation loss; without validation those of the last block."""
        state = self.state
        if len(self.parts) == 1:
            state.best, state.best_number = state.weights, done.number
            return
        best = state.history[state.best_number - 1].valid_loss if state.best_number else None
        assert done.valid_loss is not None
        if best is None or done.valid_loss < best:
            state.best, state.best_number = state.weights.copy(), done.number

    def _begin_round(self) -> None:
        """Add weights of 0 for the next round."""
        weights, K = self.state.weights, self.parts[0].targets.width
        for name in ("features", "intercepts"):
            before = getattr(weights, name)
            setattr(weights, name, np.hstack([before, np.zeros((len(before), K))]))

    def _by_gradient(self) -> Ids:
        """The features by the size of their gradients over all margins, from the largest on."""
        D, width = self.family.n_features, self.settings.block
        sizes = np.empty(D)
        for first in range(0, D, width):
            block = FeatureBlock(self.family, np.arange(first, min(first + width, D)), self.dtype)
            sums = self.sweeper.sums(block, self.parts[0], gram=False)
            mean = sums.features / self.weight
            centred = sums.gradient - np.outer(mean, sums.residuals)
            sizes[block.ids] = np.linalg.norm(centred, axis=1)
        return np.argsort(-sizes, kind="stable")

    def _calibrate(self) -> None:
        """End a round: fit the targets to functions of the predictions, which then replace these."""
        weights, team = self.state.weights, self.sweeper.team
        found = fit_calibration(self.parts[0], self.settings.degree, team)
        weights.calibration = np.concatenate([weights.calibration, found[None]])
        for part in self.parts:
            calibrate(part, found, team)

    def block(self, number: int) -> FeatureBlock:
        """The features of a block, with its origin."""
        width = self.settings.block
        ids = np.sort(self.state.order[number * width : (number + 1) * width])
        block = FeatureBlock(self.family, ids, self.dtype, self.kept.kept_tiles)
        if number in self._factors:
            block.origin = self._factors[number][1]
        else:
            block.centre(self.parts[0])
        return block

    def visit(self, number: int) -> None:
        """All steps of a visit of a block."""
        block, train = self.block(number), self.parts[0]
        factor = self._factors[number][0] if number in self._factors else None
        updates: list[Update] = []
        for _ in range(self.settings.steps):
            sums = self.sweeper.sums(block, train, factor is None)
            if factor is None:
                factor = self._factor(number, block, sums)
            own = self._of_last_round(self.state.weights.features)[block.ids]
            found = step(factor, sums, own, self.settings.alpha)
            update = Update(found.weights.astype(self.dtype), found.intercept)
            if self.sweeper.link.is_quadratic:
                self.sweeper.update(block, train, update)
            else:
                update = self._searched(block, update, found, sums, own)
            self._add(number, block, update)
            updates.append(update)
        for part in self.parts[1:]:
            self.sweeper.update(block, part, Update.total(updates))

    def _searched(
        self, block: FeatureBlock, update: Update, found: BlockStep, sums: Sums, own: Floats
    ) -> Update:
        """Change the margins by the best multiple of a step, and return this multiple."""
        train, sweeper, alpha = self.parts[0], self.sweeper, self.settings.alpha
        direction = sweeper.direction(block, train, update)
        change = update.weights.astype(np.float64)
        slope, curvature = (alpha * float(np.vdot(of, change)) for of in (own, change))
        line = ObjectiveLine(train, direction, slope, curvature, sweeper.link, sweeper.team)
        at_0 = slope + float(np.vdot(sums.gradient, change) + sums.residuals @ found.intercept)
        factor = best_factor(line.slope, at_0) if at_0 < 0.0 else 1.0
        line.move(factor)
        return replace(update, weights=factor * change, intercept=factor * update.intercept)

    def _factor(self, number: int, block: FeatureBlock, sums: Sums) -> Factor:
        lipschitz, alpha = self.sweeper.link.lipschitz, self.settings.alpha
        text = f"block {number + 1} of {self.n_blocks}, {block.text}"
        factor = factorise(sums, self.weight, lipschitz, alpha, self.dtype, text)
        if len(self._factors) < self.kept.kept_factors and self.n_steps > self.n_blocks:
            self._factors[number] = factor, block.origin
        return factor

    def _of_last_round(self, weights: Floats) -> Floats:
        """The columns of the last round, a view (..., K)."""
        return weights[:, -self.parts[0].targets.width :]

    def _add(self, number: int, block: FeatureBlock, update: Update) -> None:
        """Add an update of the margins to the weights."""
        features, intercepts = map(
            self._of_last_round, (self.state.weights.features, self.state.weights.intercepts)
        )
        features[block.ids] += update.weights
        intercepts[number + 1] += update.intercept - block.origin @ update.weights

    def measure(self, number: int) -> BlockDone:
        """The losses at the present margins, as those after a number of blocks."""
        loss, error = self._scores(self.parts[0])
        valid_loss, valid_error = None, None
        if len(self.parts) > 1:
            valid_loss, valid_error = self._scores(self.parts[1])
        return BlockDone(number, loss, error, valid_loss, valid_error, 0.0)

    def _scores(self, part: Part) -> tuple[float, float | None]:
        """Weighted means of the loss, and of the errors of classes, over the rows of a part."""
        loss = wrong = 0.0
        for _, rows in part.prepared.blocks():
            margins, s, targets = part.margins[rows], part.s[rows], part.targets.rows(rows)
            loss += float(s @ self.sweeper.link.losses(margins, targets))
            if part.targets.noun == "class":
                wrong += float(s @ (margins.argmax(axis=1) != part.targets.y[rows]))
            elif part.targets.noun == "label":
                chosen = self.sweeper.link.chances(margins) > 0.5
                wrong += float(s @ (chosen != targets).mean(axis=1))
        total = float(part.s.sum())
        return loss / total, None if part.targets.noun == "target" else wrong / total
