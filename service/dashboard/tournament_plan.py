"""What a tournament will take, and what it can show, before it starts."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from service.dashboard.charts import thinned
from speciate.domain.tournament import Tournament
from speciate.policies import asks_singly
from speciate.runs.declarations import entrant_policies
from speciate.runs.estimate import estimate_run
from speciate.runs.start import prepare_run
from speciate.schema.estimates import Range
from speciate.storage.stores import Stores
from speciate.tournaments.report.comparisons import problems_power
from speciate.tournaments.report.methods import methods_doubt, methods_power

_SAMPLED: Final = 4
"""Problems of which runs are estimated; the others are taken to be like them."""


@dataclass(frozen=True)
class TournamentPlan:
    """A tournament to confirm."""

    declared: Tournament
    amounts: dict[str, Range]
    """Tokens and US dollars of all runs; without those that no policy spends."""
    doubt: str
    """Why nothing can be decided; empty if something can."""
    power: tuple[str, ...]
    """What it can detect, in sentences."""

    @property
    def runs(self) -> int:
        return len(self.declared.problems) * len(self.declared.entrants) * len(self.declared.seeds)


def plan_tournament(stores: Stores, declared: Tournament) -> TournamentPlan:
    """Return the plan of a tournament whose names are pinned; raises as ``estimate_run`` does."""
    problems = [declared.problems[i] for i in thinned(len(declared.problems), _SAMPLED)]
    scale = len(declared.problems) / len(problems) * len(declared.seeds)
    totals: dict[str, list[float]] = {"tokens": [0, 0, 0], "dollars": [0, 0, 0]}
    for problem in map(stores.catalog.problem, problems):
        for entrant in declared.entrants:
            policies, spec = entrant_policies(entrant, stores.catalog), declared.spec(entrant, declared.seeds[0])
            new = prepare_run(stores.runs, problem=problem, policies=policies, spec=spec)
            estimate = estimate_run(stores.runs, new, asks_singly)
            for name, total in totals.items():
                if (amount := getattr(estimate, name)) is not None:
                    total[:] = (each + scale * more for each, more in zip(total, dict(amount).values(), strict=True))
    ends = ("low", "expected", "high")
    amounts = {name: Range(**dict(zip(ends, total, strict=True))) for name, total in totals.items() if total[2]}
    power = methods_power(declared) if declared.method_groups else problems_power(declared)
    return TournamentPlan(declared, amounts, declared.doubt or methods_doubt(declared), power)
