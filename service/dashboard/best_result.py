"""The best result of a run, at the top of its page: the candidate, its rewards against the targets, its program."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Final

from service.dashboard.objectives import by_importance
from service.diffs import unified_diff
from speciate.domain.objective import Objective
from speciate.domain.problem import Problem
from speciate.domain.rule import Shortfall
from speciate.domain.target import ClaimState
from speciate.schema.candidates import CandidateDetail, CandidateRecord
from speciate.schema.runs import RankedCandidate
from speciate.schema.unlocks import UnlockRecord

MAX_REWARDS: Final = 12
"""Objectives shown, the most important first."""

MAX_CHARACTERS: Final = 20_000
"""Characters of a program and of its diff shown; the download has all."""

_STATES: Final = (ClaimState.REFUTED, ClaimState.PENDING, ClaimState.CONFIRMED)
"""The claim to show has the last of these states."""


@dataclass(frozen=True)
class BestResult:
    """The best candidate of a run; without a feasible one the candidate nearest to the unlock target."""

    problem: Problem
    candidate: RankedCandidate | None  # None before the first rewards
    feasible: bool  # satisfies all constraints, and so is the best
    claims: Sequence[UnlockRecord]
    seed: Mapping[str, float]  # rewards of the seed program; empty without one
    candidate_of: Callable[[int], CandidateRecord]

    @property
    def number(self) -> int | None:
        return None if self.candidate is None else self.candidate.number

    @property
    def rewards(self) -> dict[str, float]:
        return self.candidate.rewards if self.candidate else {}

    @cached_property
    def violations(self) -> tuple[Shortfall, ...]:
        return tuple(each for each in self.problem.ranking.violations(self._vector) if each.name in self._measured)

    @cached_property
    def values(self) -> list[tuple[Objective, float | None, float | None, str]]:
        """For the most important objectives: the reward, the seed's, and whether it is better or worse than that."""
        objectives = by_importance(self.problem)[:MAX_REWARDS] if self.rewards else []
        known = {name: value for name, value in self.rewards.items() if name in self._measured}
        rows = [(o, known.get(o.name), self.seed.get(o.name)) for o in objectives]
        return [(o, v, seed, "" if v is None or seed is None else o.verdict(v, seed)) for o, v, seed in rows]

    @cached_property
    def targets(self) -> list[dict[str, Any]]:
        """For every target: what the best candidate lacks, and the claim of the run with what refuted it."""
        rows = []
        for i, target in enumerate(self.problem.targets):
            met = self.candidate is not None and target.name in self.candidate.targets
            missing = () if met or not self.rewards else self.problem.ranking.missing(i, self._vector)
            claims = [claim for claim in self.claims if claim.target == target.name]
            claim = max(claims, key=lambda each: (_STATES.index(each.state), each.number), default=None)
            refuted = claim is not None and claim.state is ClaimState.REFUTED
            reason = self.candidate_of(claim.number).refuted.get(target.name, "") if claim and refuted else ""
            rows.append({"target": target, "met": met, "missing": missing, "claim": claim, "refuted": reason})
        return rows

    @cached_property
    def stopped_at(self) -> str | None:
        return None if self.number is None else self.candidate_of(self.number).stopped_at

    @cached_property
    def _measured(self) -> frozenset[str]:
        missing = self.candidate_of(self.number).unmeasured if self.number else ()
        return self.problem.measured_names(self.stopped_at) - {*missing}

    @property
    def _vector(self) -> tuple[float, ...]:
        return tuple(self.rewards[name] for name in self.problem.space.names)


def program_values(
    problem: Problem, candidate: CandidateDetail, parent: CandidateDetail | None = None
) -> dict[str, Any]:
    """Return the template values of a program with its changes to a parent, or else to the problem's seed program."""
    old, program, diff = parent.program if parent else problem.seed_program, candidate.program, None
    if old and program:
        before = f"candidate {parent.number}" if parent else "seed program"
        diff = unified_diff(old, program, before=before, after=f"candidate {candidate.number}")
    return {
        "problem": problem,
        "candidate": candidate,
        "most": MAX_CHARACTERS,
        "href": f"/runs/{candidate.run_id}/candidates/{candidate.number}/program.txt",
        "title": f"Changes to parent {parent.number}" if parent else "Changes to the seed program",
        "diff": diff,
        "diff_first": diff is not None and parent is not None,
    }
