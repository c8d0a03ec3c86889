"""Several policies for one role: how a run chooses which of them is asked next.

``ucb`` is UCB1-Tuned (Auer, Cesa-Bianchi and Fischer, "Finite-time analysis of the multiarmed bandit problem", Machine
Learning 47, 2002, section 4) with its index divided by what an answer costs, as where pulls share a budget
(Tran-Thanh, Chapman, Rogers and Jennings, "Knapsack based optimal policies for budget-limited multi-armed bandits",
AAAI 2012). An answer earns 1 when it takes a place in the archive and 0 otherwise, whatever the rewards' scales are.
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

Cast = Annotated[
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


class Choice(StrEnum):
    """How the next policy of an ensemble is chosen."""

    WEIGHTS = "weights"
    """At random, as often as its weight says."""
    UCB = "ucb"
    """The one that may earn most places in the archive for the budget it takes."""


@dataclass(frozen=True, slots=True)
class Arm:
    """What a policy of an ensemble has been asked for in one role, and what came of it.

    Attributes:
        asked: Answers booked.
        judged: Those that have been settled.
        won: Those that took a place in the archive.
        tokens: Tokens it was charged.
    """

    asked: int = 0
    judged: int = 0
    won: int = 0
    tokens: int = 0

    def plus(self, *, asked: int = 0, judged: int = 0, won: int = 0, tokens: int = 0) -> Arm:
        """Return the sum."""
        return Arm(self.asked + asked, self.judged + judged, self.won + won, self.tokens + tokens)

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


def best_arm(arms: Sequence[Arm], waiting: Sequence[int], budget: Budget) -> int:
    """Return the position of the policy to ask next; the first among equals.

    Args:
        arms: What is known of the policies, shape (k,).
        waiting: Answers that the present batch has already asked of each, shape (k,).
        budget: The run's budget, by which costs are measured.
    """
    pulls = [arm.asked + more for arm, more in zip(arms, waiting, strict=True)]
    if 0 in pulls:
        return pulls.index(0)
    log_total = math.log(sum(pulls))
    indexes = []
    for arm, n in zip(arms, pulls, strict=True):
        mean = arm.won / max(1, arm.judged)
        # Of a reward that is 0 or 1 the mean gives the variance.
        variance = mean * (1 - mean) + math.sqrt(2 * log_total / n)
        indexes.append((mean + math.sqrt(log_total / n * min(0.25, variance))) / arm.cost(budget))
    return indexes.index(max(indexes))
