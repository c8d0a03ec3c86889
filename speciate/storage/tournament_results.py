"""What a tournament's report is made of: runs and confirmed claims in arrays, problems and policies with digests."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import sqlalchemy as sa

from speciate.domain.objective import Objective
from speciate.domain.reward import RewardSpace
from speciate.domain.tournament import Course
from speciate.ports.records import TournamentRecord
from speciate.storage.database import patient
from speciate.storage.tournaments import Tournaments
from speciate.tournaments.report import Matrix, PolicyFacts, ProblemFacts, Report, Standings
from speciate.tournaments.reporting import make_matrix, make_report, make_standings
from speciate.tournaments.results import ENDED, MISSING, PENDING, Results

_RUNS = """
SELECT r.problem, r.seed, r.entrant, p.state, p.reason, p.evaluations, p.tokens, p.evaluated, p.failed, p.duplicates,
  p.best_scalar, p.best, c.evaluations AS hit, c.tokens AS hit_tokens
FROM tournament_runs r JOIN run_progress p ON p.run_id = r.run_id
  LEFT JOIN claims c ON c.run_id = r.run_id AND c.state = 'confirmed' AND {target}
WHERE r.tournament_id = :id
"""
_PROBLEMS = sa.text(
    "SELECT slug || '@' || version AS name, digest, evaluator_digest,"
    " definition ->> 'kind' = 'in_process' AS forgeable, definition -> 'targets' AS targets,"
    " definition -> 'objectives' AS objectives FROM problems"
    " WHERE slug || '@' || version = ANY(:names) AND slug = ANY(:slugs)"
)
_POLICIES = sa.text(
    "SELECT slug || '@' || version AS name, digest, definition ->> 'checkpoint_digest' AS checkpoint_digest,"
    " definition ->> 'training_method' AS training_method FROM policies"
    " WHERE slug || '@' || version = ANY(:names) AND slug = ANY(:slugs)"
)
_STATES = {"completed": ENDED, "failed": MISSING, "cancelled": MISSING}


class TournamentResults(Tournaments):
    """Reads what the report says; nothing is kept between two calls."""

    def standings(self, record: TournamentRecord) -> Standings:
        """Return who stands where."""
        course = record.course
        return make_standings(course, record.amendments, self.results(record, course))

    def matrix(self, record: TournamentRecord) -> Matrix:
        """Return successes by problem and entrant."""
        course = record.course
        return make_matrix(course, self.results(record, course))

    def report(self, record: TournamentRecord) -> Report:
        """Return everything."""
        course = record.course
        problems = {name: facts for name, (facts, _) in self._problems(course).items()}
        return make_report(course, record.amendments, self.results(record, course), problems, self._policies(course))

    @patient
    def results(self, record: TournamentRecord, course: Course) -> Results:
        """Return what is known of every planned run, in the order of the course."""
        target = course.declared.target
        query = sa.text(_RUNS.format(target="c.unlock" if target is None else "c.target = :target"))
        spaces = {name: space for name, (_, space) in self._problems(course).items()}
        with self._engine.connect() as connection:
            binds = {"id": record.id, **({} if target is None else {"target": target})}
            rows = connection.execute(query, binds).all()
        return _filled(course, rows, spaces)

    @patient
    def _problems(self, course: Course) -> dict[str, tuple[ProblemFacts, RewardSpace]]:
        with self._engine.connect() as connection:
            rows = connection.execute(_PROBLEMS, _named(course.problems)).all()
        return {row.name: (_problem_facts(row, course.declared.target), _space(row)) for row in rows}

    @patient
    def _policies(self, course: Course) -> dict[str, PolicyFacts]:
        names = [name for e in course.declared.entrants for name in (e.policy, e.mutator) if name is not None]
        with self._engine.connect() as connection:
            rows = connection.execute(_POLICIES, _named(names)).all()
        return {row.name: PolicyFacts.model_validate(row._asdict()) for row in rows}


def _named(names: Any) -> dict[str, list[str]]:
    return {"names": list(names), "slugs": sorted({name.partition("@")[0] for name in names})}


def _problem_facts(row: sa.Row[Any], target: str | None) -> ProblemFacts:
    unlock = next(each["name"] for each in row.targets if each["unlock"])
    return ProblemFacts(
        name=row.name,
        digest=row.digest,
        evaluator_digest=row.evaluator_digest,
        target=target or unlock,
        forgeable=row.forgeable,
    )


def _space(row: sa.Row[Any]) -> RewardSpace:
    return RewardSpace(tuple(Objective.model_validate(objective) for objective in row.objectives))


def _filled(course: Course, rows: Any, spaces: Mapping[str, RewardSpace]) -> Results:
    problems = {name: i for i, name in enumerate(course.problems)}
    seeds = {seed: i for i, seed in enumerate(course.seeds)}
    entrants = {entrant.name: i for i, entrant in enumerate(course.declared.entrants)}
    places = [(problems[row.problem], seeds[row.seed], entrants[row.entrant]) for row in rows]
    results = Results.empty(len(problems), len(seeds), len(entrants))
    if not rows:
        return results
    at = tuple(np.array(axis) for axis in zip(*places, strict=True))
    results.state[at] = [_STATES.get(row.state, PENDING) for row in rows]
    results.reached[at] = [row.hit is not None for row in rows]
    results.evaluations[at] = [row.evaluations if row.hit is None else row.hit for row in rows]
    results.tokens[at] = [row.tokens if row.hit is None else row.hit_tokens for row in rows]
    results.score[at] = [_score(row, spaces[row.problem]) for row in rows]
    for name, array in (
        ("evaluations", results.spent_evaluations),
        ("tokens", results.spent_tokens),
        ("evaluated", results.evaluated),
        ("failed", results.failed),
        ("duplicates", results.duplicates),
    ):
        array[at] = [getattr(row, name) for row in rows]
    for place, row in zip(places, rows, strict=True):
        if _STATES.get(row.state) == MISSING:
            results.reasons[place] = f"{row.state}: {row.reason or 'no reason is kept'}"  # type: ignore[index]
    return results


def _score(row: sa.Row[Any], space: RewardSpace) -> float:
    """Return the best weighted sum, or of the first objective the best value within its range; 0 with no candidate."""
    if row.best_scalar is not None:
        return float(row.best_scalar)
    if not row.best:
        return 0.0
    first = space.selected[0]
    low, high = first.range
    share = (row.best[space.objectives.index(first)] - low) / (high - low)
    return float(share if first.direction == "maximize" else 1.0 - share)
