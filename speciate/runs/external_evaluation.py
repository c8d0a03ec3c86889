"""Evaluate candidates outside the service: request the missing results, and check those that are submitted (ADR 38)."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final

from pydantic import TypeAdapter

from speciate.domain.candidate import ATTESTED, UNMEASURED, Evaluation, Failure
from speciate.domain.capabilities import CALLABLE
from speciate.domain.objective import Objective, ObjectiveRole
from speciate.domain.problem import Problem
from speciate.domain.reward import InvalidRewardsError, RewardSpace
from speciate.domain.values import text_digest
from speciate.ports.evaluator import EvaluatorClient
from speciate.ports.work import EvaluationRequest, Lease, WorkKind, WorkStore
from speciate.runs.payloads import read_proposals

MAX_EXTERNAL_ATTEMPTS: Final = 10
"""Leases of one request that may lapse before its candidate fails with ``worker_lost``."""

_EVALUATION: Final = TypeAdapter(Evaluation)


class EvaluationPending(Exception):  # noqa: N818 - not an error: the unit is parked until the results arrive
    """Results of an external evaluator are missing: the ``requests``."""

    def __init__(self, requests: Sequence[EvaluationRequest]) -> None:
        super().__init__(f"{len(requests)} external evaluations")
        self.requests = requests


@dataclass(frozen=True, slots=True)
class ExternalEvaluator:
    """Evaluates the candidates of a work unit: early stages in the sandbox, the last one outside the service."""

    lease: Lease
    work: WorkStore  # store of the requests and their results
    sandbox: EvaluatorClient  # evaluates the early stages

    @property
    def tier(self) -> str:
        return ATTESTED

    def evaluate(
        self, problem: Problem, programs: Sequence[str], *, seeds: Sequence[int], timeout_s: float | None = None
    ) -> list[Evaluation]:
        """Return the results of external evaluators, as ``EvaluatorClient`` does; may raise ``EvaluationPending``."""
        if not programs:
            return []
        keys = [(text_digest(program), seed) for program, seed in zip(programs, seeds, strict=True)]
        results = self.work.external_results(self.lease.work_id)
        missing = [i for i, key in enumerate(keys) if key not in results]
        requests = self._requests(problem, [programs[i] for i in missing], [seeds[i] for i in missing], timeout_s)
        if any(request.result is None for request in requests):
            raise EvaluationPending(requests)
        results |= {(r.program_hash, r.seed): r.result for r in requests if r.result is not None}
        return [results[key] for key in keys]

    def _requests(
        self, problem: Problem, programs: Sequence[str], seeds: Sequence[int], timeout_s: float | None
    ) -> list[EvaluationRequest]:
        numbers, confirmed = _numbers(self.lease), int(self.lease.payload.get("number", 0))
        digests = [text_digest(program) for program in programs]
        requests = [
            EvaluationRequest(numbers.get(digest, confirmed), program, digest, seed)
            for program, digest, seed in zip(programs, digests, seeds, strict=True)
        ]
        if len(problem.cascade) == 1 or not requests:
            return requests
        measured = self.sandbox.evaluate(problem, programs, seeds=seeds, timeout_s=timeout_s)
        return [
            replace(request, result=result)
            if result.failure is not None or result.stopped_at is not None
            else replace(request, measured=result)
            for request, result in zip(requests, measured, strict=True)
        ]


def _numbers(lease: Lease) -> dict[str, int]:
    """Return the candidate numbers of an ``evaluate`` unit by program hash."""
    if lease.kind is WorkKind.CONFIRM:
        return {}
    proposals, first = read_proposals(lease.payload), int(lease.payload["first"])
    return {p.program_hash: first + i for i, p in reversed(list(enumerate(proposals)))}


@dataclass(frozen=True, slots=True)
class ExternalResult:
    """Report of an external evaluator about a candidate: either ``rewards`` or ``failure``."""

    # Rewards of the external stage by objective, in the author's units; None for a record without one.
    rewards: Mapping[str, float | None] | None
    failure: Failure | None = None  # why there are none
    feedback: Mapping[str, str] = field(default_factory=dict)  # named texts for later prompts
    wall_s: float = 0.0  # wall-clock seconds


def attest(problem: Problem, measured: Evaluation | None, result: ExternalResult, by: str) -> Evaluation:
    """Return the evaluation that a submitted result makes.

    Raises:
        InvalidRewardsError: A reward is missing, unknown, not finite, or better than the better end of its range.
    """
    stage = problem.external_stage
    if stage is None:
        raise InvalidRewardsError("the problem has no external evaluation")
    early = measured or Evaluation(rewards=problem.padded({}))
    whole = replace(
        early,
        tier=ATTESTED,
        attested_by=by,
        wall_s=early.wall_s + result.wall_s,
        artifacts={**early.artifacts, **result.feedback},
    )
    if result.failure is None:
        vector, unmeasured = RewardSpace(stage.objectives).measured(result.rewards or {})
        if unmeasured:
            whole = replace(whole, artifacts={**whole.artifacts, UNMEASURED: ", ".join(unmeasured)})
        rewards = list(early.rewards or ())
        # Ranges of such problems are estimated from the seed program.
        own = any(each.startswith(CALLABLE) for each in problem.capabilities)
        for objective, reward in zip(stage.objectives, vector, strict=True):
            if not own:
                _check_range(objective, reward)
            rewards[problem.space.names.index(objective.name)] = reward
        return replace(whole, rewards=tuple(rewards))
    if measured is None or result.failure.lost:
        return replace(whole, rewards=None, failure=result.failure)
    why = f"stage {stage.name!r}: {result.failure.kind}: {result.failure.detail or result.failure.reason}"
    return replace(whole, stopped_at=stage.name, artifacts={**whole.artifacts, "stopped": why})


def measured_rewards(problem: Problem, measured: Evaluation) -> dict[str, float]:
    """Return the rewards of the sandboxed stages by objective."""
    early = {objective.name for step in problem.cascade if not step.external for objective in step.objectives}
    vector = dict(zip(problem.space.names, measured.rewards or (), strict=True))
    return {name: value for name, value in vector.items() if name in early}


def _check_range(objective: Objective, reward: float) -> None:
    if objective.role is ObjectiveRole.OBJECTIVE and objective.beats(reward, objective.best):
        end = f"at {'most' if objective.maximized else 'least'} {objective.best:g}"
        raise InvalidRewardsError(f"reward {objective.name!r} is {reward:g}: its declared range allows {end}")


def evaluation_json(evaluation: Evaluation) -> Any:
    return _EVALUATION.dump_python(evaluation, mode="json")


def read_evaluation(stored: object) -> Evaluation:
    return _EVALUATION.validate_python(stored)
