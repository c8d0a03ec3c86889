"""Read totals across runs for the dashboard: run states, latest unlocks, unlock matrix, policy statistics."""

from collections.abc import Mapping, Sequence
from typing import Any, Final, TypeVar
from uuid import UUID

from speciate.domain.objective import Objective
from speciate.domain.ranking import Ranking
from speciate.domain.reward import RewardSpace
from speciate.domain.run import RunState
from speciate.domain.target import ClaimState, Target
from speciate.domain.visibility import Visibility
from speciate.schema.base import Page
from speciate.schema.policies import PolicyFigures, PolicyVersion
from speciate.schema.problems import ProblemSummary, ProblemVersion
from speciate.schema.runs import RankedCandidate, RunOrder
from speciate.schema.unlocks import MatrixCell, PolicyBest, UnlockRecord
from speciate.storage.database import ScopedStore
from speciate.storage.runs.records import RunFilter, run_listing, run_record
from speciate.storage.statements import Statements
from speciate.storage.unlocks import SELECT_UNLOCKS

V = TypeVar("V", ProblemSummary, PolicyVersion)

SQL = Statements(__file__, select_unlocks=SELECT_UNLOCKS)

_BEST_RUNS: Final = 50
_BEST_ROWS: Final = 1000


class Overview(ScopedStore):
    """Reads totals across runs."""

    def runs_by_state(self) -> dict[RunState, int]:
        """Return the number of runs by state, without archived ones, as the list of runs."""
        return {RunState(row.state): row.n for row in self._rows(SQL.runs_by_state, {"project": self.project})}

    def latest_unlocks(self, limit: int) -> tuple[UnlockRecord, ...]:
        binds = {"state": ClaimState.CONFIRMED.value, "limit": limit, "project": self.project}
        return tuple(UnlockRecord.model_validate(row._asdict()) for row in self._rows(SQL.latest_unlocks, binds))

    def matrix(self, policies: Sequence[UUID] | None = None, problem: UUID | None = None) -> tuple[MatrixCell, ...]:
        """Return the unlocks by problem version and policy, alone or with a mutator; runs of ensembles are left out."""
        binds = {"policies": None if policies is None else list(policies), "problem": problem, "project": self.project}
        return tuple(MatrixCell.model_validate(row._asdict()) for row in self._rows(SQL.matrix, binds))

    def bests(self, problem: ProblemVersion) -> tuple[PolicyBest, ...]:
        """Return the best candidate of each policy, pair and ensemble on a problem version, best first.

        Of each, the 50 newest runs among those whose best candidates rank first by their targets are compared.
        """
        definition = problem.definition
        binds = {"problem": problem.id, "project": self.project, "runs": _BEST_RUNS, "limit": _BEST_ROWS}
        rows = self._rows(SQL.bests, binds)
        rows = sorted(rows, key=lambda row: definition.ranking.merit(row.best, row.best_targets), reverse=True)
        bests: dict[tuple[object, ...], PolicyBest] = {}
        for row in rows:
            best = RankedCandidate(
                id=row.id,
                number=row.best_number,
                rewards=dict(zip(definition.space.names, row.best, strict=True)),
                targets=tuple(t.name for i, t in enumerate(definition.targets) if row.best_targets >> i & 1),
                scalar=row.scalar,
            )
            record = PolicyBest.model_validate({**row._mapping, "best": best})
            bests.setdefault((row.policy_id, row.mutator_id, record.policy_label), record)
        return tuple(bests.values())

    def problem_results(self, problems: Page[ProblemSummary]) -> Page[ProblemSummary]:
        """Return a page of problems with the best result of each; of each, as many runs are compared as by bests."""
        binds = {"ids": [problem.id for problem in problems.items], "project": self.project, "runs": _BEST_RUNS}
        best: dict[UUID, tuple[tuple[Any, ...], UUID]] = {}
        for row in self._rows(SQL.candidates_for_best, binds):
            space = RewardSpace(tuple(map(Objective.model_validate, row.objectives)))
            ranking = Ranking(space, tuple(map(Target.model_validate, row.targets)), None)
            met, merit = ranking.standing(row.best_targets), ranking.merit(row.best, row.best_targets)
            rank = (met, merit if row.scalar is None else row.scalar)
            if row.problem_id not in best or rank > best[row.problem_id][0]:
                best[row.problem_id] = rank, row.run_id
        return self._with_results(problems, {problem: run for problem, (_, run) in best.items()})

    def policy_results(self, policies: Page[PolicyVersion]) -> Page[PolicyVersion]:
        """Return a page of policies with the result of the newest run of each that has one."""
        binds = {"ids": [policy.id for policy in policies.items], "project": self.project}
        return self._with_results(
            policies, {row.policy_id: row.run_id for row in self._rows(SQL.latest_with_best, binds)}
        )

    def _with_results(self, page: Page[V], runs: Mapping[UUID, UUID]) -> Page[V]:
        wanted = RunFilter(ids=[*runs.values()], visibility=Visibility.ALL)
        listing = run_listing(RunOrder.STARTED, None, reverse=False)
        results = {row.id: run_record(row).result for row in self._rows(*listing.query(wanted, len(runs)))}
        items = (each.model_copy(update={"result": results.get(runs.get(each.id))}) for each in page.items)
        return page.model_copy(update={"items": tuple(items)})

    def policy(self, policy_id: UUID) -> PolicyFigures:
        """Return statistics of a policy version, over runs without another policy."""
        of_runs, of_rollouts = (
            self._rows(query, {"id": policy_id})[0]._asdict() for query in (SQL.policy_runs, SQL.policy_rollouts)
        )
        return PolicyFigures(**of_runs, **of_rollouts)
