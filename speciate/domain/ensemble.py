"""Ensembles: several policies in one role, with the bandit that chooses the next one.

``ucb`` is UCB1-Tuned (Auer, Cesa-Bianchi and Fischer, "Finite-time analysis of the multiarmed bandit problem", Machine
Learning 47, 2002, section 4) with its index divided by the cost of an answer, because the arms share a budget
(Tran-Thanh, Chapman, Rogers and Jennings, "Knapsack based optimal policies for budget-limited multi-armed bandits",
AAAI 2012). An answer earns 1 if it enters the archive and 0 otherwise, regardless of the scale of the rewards.

With a discount γ < 1 an answer's weight decays by γ per batch (Garivier and Moulines, "On upper-confidence bound
policies for non-stationary bandit problems", arXiv 0805.3415, section 2.1): the best policy early in a run need not be
the best later.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Annotated, Final

from pydantic import BeforeValidator, Field, StringConstraints, WithJsonSchema

from speciate.domain.budget import Budget

MAX_POLICIES: Final = 16
"""Most policies in one role."""

PolicyWeights = Annotated[
    dict[Annotated[str, StringConstraints(min_length=1, max_length=200)], Annotated[float, Field(gt=0, le=1e6)]],
    BeforeValidator(lambda policies: {policies: 1.0} if isinstance(policies, str) else policies),
    Field(min_length=1, max_length=MAX_POLICIES),
    WithJsonSchema(
        {
            "anyOf": [
                {"type": "string", "minLength": 1, "maxLength": 200},
                {
                    "type": "object",
                    "additionalProperties": {"type": "number", "exclusiveMinimum": 0, "maximum": 1e6},
                    "minProperties": 1,
                    "maxProperties": MAX_POLICIES,
                },
            ]
        }
    ),
]
"""Policies of a role: a name, or names with positive weights, of which only the ratio matters."""


class PolicyChoice(StrEnum):
    WEIGHTS = "weights"
    """Draw at random in proportion to the weights."""
    UCB = "ucb"
    """Choose the policy with the largest upper bound on archive entries per unit of budget."""


@dataclass(frozen=True, slots=True)
class DecayedCounts:
    """Discounted counts of answers at a batch. The order in which answers are added does not matter."""

    at: int = 0
    asked: float = 0.0
    judged: float = 0.0
    won: float = 0.0

    def plus(self, discount: float, at: int, *, asked: int = 0, judged: int = 0, won: int = 0) -> "DecayedCounts":
        """Return the counts with answers of batch ``at``, which may be an older one."""
        now = self.seen(discount, at)
        more = discount ** (now.at - at)
        return DecayedCounts(now.at, now.asked + more * asked, now.judged + more * judged, now.won + more * won)

    def seen(self, discount: float, at: int) -> "DecayedCounts":
        """Return the counts discounted to a later batch; unchanged for an earlier one."""
        if at <= self.at:
            return self
        left = discount ** (at - self.at)
        return DecayedCounts(at, left * self.asked, left * self.judged, left * self.won)


@dataclass(frozen=True, slots=True)
class BanditArm:
    """Counts of a policy in one role of an ensemble."""

    asked: int = 0
    """Answers booked."""
    judged: int = 0
    """Answers settled."""
    won: int = 0
    """Answers that entered the archive."""
    tokens: int = 0
    """Tokens charged."""
    decayed: DecayedCounts | None = None
    """Discounted counts; None without a discount."""

    def plus(self, *, asked: int = 0, judged: int = 0, won: int = 0, tokens: int = 0) -> "BanditArm":
        return BanditArm(self.asked + asked, self.judged + judged, self.won + won, self.tokens + tokens, self.decayed)

    def cost(self, budget: Budget) -> float:
        """Return an answer's share of the budget: of evaluations or of tokens, whichever is larger.

        Without either limit an answer costs 1. A policy without tokens counts as spending one token per answer, so that
        its index stays finite.
        """
        shares = []
        if budget.evaluations is not None:
            shares.append(1 / budget.evaluations)
        if budget.tokens is not None:
            shares.append(max(1.0, self.tokens / max(1, self.asked)) / budget.tokens)
        return max(shares, default=1.0)


def best_arm(arms: Sequence[BanditArm], waiting: Sequence[int], budget: Budget, discount: float = 1.0) -> int:
    """Return the position of the next policy; the first among equals.

    Args:
        arms: Counts of the policies, shape (k,).
        waiting: Answers already requested of each policy in this batch, shape (k,).
        budget: The run's budget, in which costs are measured.
        discount: Weight left to older answers per batch, in (0, 1]; 1 is no decay.
    """
    counts = _counts(arms, discount)
    pulls = [count.asked + more for count, more in zip(counts, waiting, strict=True)]
    if 0 in pulls:
        return pulls.index(0)
    # Decay can push the total below 1, where the logarithm would be negative.
    log_total = math.log(max(1.0, sum(pulls)))
    indexes = []
    for arm, count, n in zip(arms, counts, pulls, strict=True):
        mean = count.won / count.judged if count.judged else 0.0
        # The variance of a 0/1 reward follows from its mean.
        variance = mean * (1 - mean) + math.sqrt(2 * log_total / n)
        indexes.append((mean + math.sqrt(log_total / n * min(0.25, variance))) / arm.cost(budget))
    return indexes.index(max(indexes))


def _counts(arms: Sequence[BanditArm], discount: float) -> Sequence[BanditArm | DecayedCounts]:
    if discount == 1.0:
        return arms
    decayed = [arm.decayed or DecayedCounts() for arm in arms]
    latest = max(each.at for each in decayed)
    return [each.seen(discount, latest) for each in decayed]
