"""Several policies for one role: how a run chooses which of them is asked next.

``ucb`` is UCB1-Tuned (Auer, Cesa-Bianchi and Fischer, "Finite-time analysis of the multiarmed bandit problem", Machine
Learning 47, 2002, section 4) with its index divided by what an answer costs, as where pulls share a budget
(Tran-Thanh, Chapman, Rogers and Jennings, "Knapsack based optimal policies for budget-limited multi-armed bandits",
AAAI 2012). An answer earns 1 when it takes a place in the archive and 0 otherwise, whatever the rewards' scales are.

With a discount γ < 1 answers count the less the older they are: γ to the number of batches since (Garivier and
Moulines, "On upper-confidence bound policies for non-stationary bandit problems", arXiv 0805.3415, section 2.1), since
what finds improvements early need not find them later.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Annotated, Final

from pydantic import BeforeValidator, Field, StringConstraints, WithJsonSchema

from speciate.domain.budget import Budget

MOST_POLICIES: Final = 16
"""Most policies of one role."""

PolicyWeights = Annotated[
    dict[Annotated[str, StringConstraints(min_length=1, max_length=200)], Annotated[float, Field(gt=0, le=1e6)]],
    BeforeValidator(lambda given: {given: 1.0} if isinstance(given, str) else given),
    Field(min_length=1, max_length=MOST_POLICIES),
    WithJsonSchema(
        {
            "anyOf": [
                {"type": "string", "minLength": 1, "maxLength": 200},
                {
                    "type": "object",
                    "additionalProperties": {"type": "number", "exclusiveMinimum": 0, "maximum": 1e6},
                    "minProperties": 1,
                    "maxProperties": MOST_POLICIES,
                },
            ]
        }
    ),
]
"""The policies of a role: a name, or names with positive weights, of which only the ratio matters."""


class PolicyChoice(StrEnum):
    """How the next policy of an ensemble is chosen."""

    WEIGHTS = "weights"
    """At random, as often as its weight says."""
    UCB = "ucb"
    """The one that may earn most places in the archive for the budget it takes."""


@dataclass(frozen=True, slots=True)
class DecayedCounts:
    """Counts of answers that fade, as they are at a batch; in whatever order answers are added, the sums are the same.

    Attributes:
        at: Number of the batch.
        asked: Answers booked.
        judged: Those that have been settled.
        won: Those that took a place in the archive.
    """

    at: int = 0
    asked: float = 0.0
    judged: float = 0.0
    won: float = 0.0

    def plus(self, discount: float, at: int, *, asked: int = 0, judged: int = 0, won: int = 0) -> DecayedCounts:
        """Return the counts with answers of batch ``at``, which may be an older one."""
        now = self.seen(discount, at)
        more = discount ** (now.at - at)
        return DecayedCounts(now.at, now.asked + more * asked, now.judged + more * judged, now.won + more * won)

    def seen(self, discount: float, at: int) -> DecayedCounts:
        """Return what is left of the counts at a batch; at an earlier one than theirs they are as they are."""
        if at <= self.at:
            return self
        left = discount ** (at - self.at)
        return DecayedCounts(at, left * self.asked, left * self.judged, left * self.won)


@dataclass(frozen=True, slots=True)
class BanditArm:
    """What a policy of an ensemble has been asked for in one role, and what came of it.

    Attributes:
        asked: Answers booked.
        judged: Those that have been settled.
        won: Those that took a place in the archive.
        tokens: Tokens it was charged.
        decayed: The same with a discount; None where there is none.
    """

    asked: int = 0
    judged: int = 0
    won: int = 0
    tokens: int = 0
    decayed: DecayedCounts | None = None

    def plus(self, *, asked: int = 0, judged: int = 0, won: int = 0, tokens: int = 0) -> BanditArm:
        """Return the sum."""
        return BanditArm(self.asked + asked, self.judged + judged, self.won + won, self.tokens + tokens, self.decayed)

    def cost(self, budget: Budget) -> float:
        """Return the share of the budget that an answer takes: of evaluations or of tokens, whichever is larger.

        Without either limit an answer costs 1. A policy that spends no tokens is taken to spend one, so that it is no
        better than its answers.
        """
        shares = []
        if budget.evaluations is not None:
            shares.append(1 / budget.evaluations)
        if budget.tokens is not None:
            shares.append(max(1.0, self.tokens / max(1, self.asked)) / budget.tokens)
        return max(shares, default=1.0)


def best_arm(arms: Sequence[BanditArm], waiting: Sequence[int], budget: Budget, discount: float = 1.0) -> int:
    """Return the position of the policy to ask next; the first among equals.

    Args:
        arms: What is known of the policies, shape (k,).
        waiting: Answers that the present batch has already asked of each, shape (k,).
        budget: The run's budget, by which costs are measured.
        discount: What a batch leaves of the weight of older answers, in (0, 1]; 1 leaves all of it.
    """
    counts = _counts(arms, discount)
    pulls = [count.asked + more for count, more in zip(counts, waiting, strict=True)]
    if 0 in pulls:
        return pulls.index(0)
    # Where nearly all has decayed, a total below 1 says no more than 1.
    log_total = math.log(max(1.0, sum(pulls)))
    indexes = []
    for arm, count, n in zip(arms, counts, pulls, strict=True):
        mean = count.won / count.judged if count.judged else 0.0
        # Of a reward that is 0 or 1 the mean gives the variance.
        variance = mean * (1 - mean) + math.sqrt(2 * log_total / n)
        indexes.append((mean + math.sqrt(log_total / n * min(0.25, variance))) / arm.cost(budget))
    return indexes.index(max(indexes))


def _counts(arms: Sequence[BanditArm], discount: float) -> Sequence[BanditArm | DecayedCounts]:
    if discount == 1.0:
        return arms
    decayed = [arm.decayed or DecayedCounts() for arm in arms]
    latest = max(each.at for each in decayed)
    return [each.seen(discount, latest) for each in decayed]
