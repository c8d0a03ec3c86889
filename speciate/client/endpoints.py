"""Every call of the REST surface, one function each: what is asked, with which body, and what comes back."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, Final
from uuid import UUID, uuid4

from pydantic import Field, JsonValue

from speciate.client.calls import Call, Query, get, listing, patch, post, segment, walk
from speciate.client.requests import PoliciesLike
from speciate.domain.labels import Labels, Relabelling
from speciate.domain.policy import Policy
from speciate.domain.problem import Problem
from speciate.domain.run import RunSpec
from speciate.domain.target import ClaimState
from speciate.ports.records.base import Page, Record
from speciate.ports.records.candidates import (
    AdviceRecord,
    CandidateDetail,
    CandidateRecord,
    EliteRecord,
    ExportedCandidate,
    RolloutDetail,
    RolloutRecord,
)
from speciate.ports.records.policies import PolicyVersion
from speciate.ports.records.problems import ProblemSet, ProblemSummary, ProblemVersion
from speciate.ports.records.runs import RunRecord, WorkerProcess
from speciate.ports.records.unlocks import ObjectiveRecord, ProblemUnlocks, UnlockRecord


class StrategyRecord(Record):
    """A strategy that runs may use.

    Attributes:
        name: What a run's spec calls it.
        description: What it does.
        options: JSON schema of its options.
    """

    name: str
    description: str = ""
    options: dict[str, Any] = Field(default_factory=dict)


PING_TIMEOUT_S: Final = 150.0
"""Whoever looks at a policy's endpoint waits for its completion, or until an adapter is loaded."""


def add_problem(definition: Problem | Mapping[str, Any]) -> Call[ProblemVersion]:
    """Submit a problem; the same definition again is the same version."""
    values = definition.definition() if isinstance(definition, Problem) else dict(definition)
    return post("/v1/problems", ProblemVersion, {"definition": values})


def add_problem_files(toml: str, files: Mapping[str, str], file: str) -> Call[ProblemVersion]:
    """Submit a problem as the texts of ``problem.toml`` and the files beside it, so that flaws come with lines."""
    return post("/v1/problems", ProblemVersion, {"toml": toml, "files": dict(files), "file": file})


def problems(slug: str | None = None) -> Call[Page[ProblemSummary]]:
    """List problem versions, newest first; of one slug where it is given."""
    path = "/v1/problems" if slug is None else f"/v1/problems/{segment(slug, 'problem')}/versions"
    return walk(path, ProblemSummary)


def problem(name: str | UUID) -> Call[ProblemVersion]:
    """Read a problem version by id, ``slug`` (the newest) or ``slug@version``."""
    return get(f"/v1/problems/{segment(name, 'problem')}", ProblemVersion)


def create_problem_set(slug: str, names: Sequence[str | UUID], title: str) -> Call[ProblemSet]:
    """Freeze a list of problem versions under a name."""
    return post("/v1/problem-sets", ProblemSet, {"slug": slug, "title": title, "problems": [str(n) for n in names]})


def problem_sets() -> Call[Page[ProblemSet]]:
    """List problem sets, newest first."""
    return walk("/v1/problem-sets", ProblemSet)


def problem_set(name: str | UUID) -> Call[ProblemSet]:
    """Read a problem set by id or name."""
    return get(f"/v1/problem-sets/{segment(name, 'problem set')}", ProblemSet)


def add_policy(
    definition: Policy | Mapping[str, Any], api_key: str | None = None, *, check: bool = True
) -> Call[PolicyVersion]:
    """Register a policy that its endpoint serves (unless ``check`` is false); the same again is the same version."""
    values = definition.definition() if isinstance(definition, Policy) else dict(definition)
    key = {} if api_key is None else {"api_key": api_key}
    body = {"definition": values, "check": check, **key}
    return post("/v1/policies", PolicyVersion, body, timeout_s=PING_TIMEOUT_S)


def policies(slug: str | None = None) -> Call[Page[PolicyVersion]]:
    """List policy versions, newest first; of one slug where it is given."""
    return walk("/v1/policies", PolicyVersion, slug=slug)


def policy(name: str | UUID) -> Call[PolicyVersion]:
    """Read a policy version by id, ``slug`` (the newest) or ``slug@version``."""
    return get(f"/v1/policies/{segment(name, 'policy')}", PolicyVersion)


def ping_policy(name: str | UUID) -> Call[dict[str, JsonValue]]:
    """Ask a policy for one answer, to see that it can be asked."""
    path = f"/v1/policies/{segment(name, 'policy')}:ping"
    return post(path, dict[str, JsonValue], timeout_s=PING_TIMEOUT_S)


def create_run(
    problem: str | UUID,
    policy: PoliciesLike,
    mutator: PoliciesLike | None,
    spec: RunSpec,
    labels: Labels,
    key: str | None,
) -> Call[RunRecord]:
    """Start a run. The call always carries a key, so that sending it again does not start another."""
    names = {"problem": str(problem), "policy": _cast(policy), "mutator": mutator and _cast(mutator)}
    # A service of an earlier version knows no labels: without any, none are sent.
    called = labels.model_dump(mode="json", exclude_defaults=True)
    call = post("/v1/runs", RunRecord, {**names, **spec.model_dump(mode="json"), **called})
    return replace(call, idempotency_key=key or str(uuid4()))


def runs(**query: Query) -> Call[Page[RunRecord]]:
    """List runs, newest first."""
    return walk("/v1/runs", RunRecord, **query)


def run(run_id: str | UUID) -> Call[RunRecord]:
    """Read a run."""
    return get(_run(run_id), RunRecord)


def steer(run_id: UUID, action: str, reason: str | None = None) -> Call[RunRecord]:
    """Pause, resume or cancel a run."""
    return post(f"{_run(run_id)}:{action}", RunRecord, None if reason is None else {"reason": reason})


def label(run_id: UUID, change: Relabelling) -> Call[RunRecord]:
    """Change what people call a run."""
    return patch(_run(run_id), RunRecord, change.model_dump(mode="json", exclude_defaults=True))


def candidates(run_id: UUID, **query: str | int | bool | UUID | None) -> Call[Page[CandidateRecord]]:
    """List the candidates of a run."""
    return walk(f"{_run(run_id)}/candidates", CandidateRecord, **query)


def candidate_of(run_id: UUID, number: int) -> Call[CandidateDetail]:
    """Read the candidate of a run that has a number."""
    return get(f"{_run(run_id)}/candidates/{number}", CandidateDetail)


def candidate(candidate_id: str | UUID) -> Call[CandidateDetail]:
    """Read a candidate with its texts."""
    return get(f"/v1/candidates/{segment(candidate_id, 'candidate')}", CandidateDetail)


def diff(candidate_id: str | UUID) -> Call[dict[str, JsonValue]]:
    """Read what a candidate changed in its first parent."""
    return get(f"/v1/candidates/{segment(candidate_id, 'candidate')}/diff", dict[str, JsonValue])


def lineage(candidate_id: str | UUID) -> Call[tuple[CandidateRecord, ...]]:
    """Read a candidate's ancestors."""
    return listing(f"/v1/candidates/{segment(candidate_id, 'candidate')}/lineage", CandidateRecord)


def front(run_id: UUID) -> Call[tuple[EliteRecord, ...]]:
    """Read the elites that no other dominates, best first by the first objective."""
    return listing(f"{_run(run_id)}/front", EliteRecord)


def archive(run_id: UUID) -> Call[tuple[EliteRecord, ...]]:
    """Read the holder of every cell."""
    return listing(f"{_run(run_id)}/archive", EliteRecord)


def rollouts(run_id: UUID) -> Call[Page[RolloutRecord]]:
    """List the completions of a run, newest first."""
    return walk(f"{_run(run_id)}/rollouts", RolloutRecord)


def guidance(run_id: UUID) -> Call[Page[AdviceRecord]]:
    """List the advice that a run wrote for its own prompts, newest first."""
    return walk(f"{_run(run_id)}/guidance", AdviceRecord)


def rollout(rollout_id: str | UUID) -> Call[RolloutDetail]:
    """Read a rollout with its prompt and its completion."""
    return get(f"/v1/rollouts/{segment(rollout_id, 'rollout')}", RolloutDetail)


def run_unlocks(run_id: UUID) -> Call[Page[UnlockRecord]]:
    """List the targets that a run reached."""
    return walk(f"{_run(run_id)}/unlocks", UnlockRecord)


def export(run_id: UUID) -> Call[ExportedCandidate]:
    """Stream every candidate of a run with its texts, in order of number."""
    return get(f"{_run(run_id)}/export", ExportedCandidate)


def unlocks(
    *,
    run: str | UUID | None,
    problem: str | UUID | None,
    policy: str | UUID | None,
    strategy: str | None,
    first: bool,
    unlocks_only: bool,
    state: ClaimState | str | None,
) -> Call[Page[UnlockRecord]]:
    """List reached targets, newest run first."""
    query = {"run": run, "problem": problem, "policy": policy, "strategy": strategy, "state": state}
    flags = {"first": first or None, "unlocks_only": unlocks_only or None}
    return walk("/v1/unlocks", UnlockRecord, **query, **flags)


def problem_unlocks(name: str | UUID) -> Call[ProblemUnlocks]:
    """Read who unlocked a problem version first, alone, or never."""
    return get(f"/v1/problems/{segment(name, 'problem')}/unlocks", ProblemUnlocks)


def problem_records(name: str | UUID) -> Call[tuple[ObjectiveRecord, ...]]:
    """Read the history of records of a problem version."""
    return listing(f"/v1/problems/{segment(name, 'problem')}/records", ObjectiveRecord)


def strategies() -> Call[tuple[StrategyRecord, ...]]:
    """Read the strategies and the schemas of their options."""
    return listing("/v1/strategies", StrategyRecord)


def workers() -> Call[tuple[WorkerProcess, ...]]:
    """List the worker processes that are there."""
    return listing("/v1/workers", WorkerProcess)


def ready() -> Call[dict[str, JsonValue]]:
    """Ask whether the service and the servers behind it can work."""
    return get("/readyz", dict[str, JsonValue])


def _run(run_id: str | UUID) -> str:
    return f"/v1/runs/{segment(run_id, 'run')}"


def _cast(policies: PoliciesLike) -> str | dict[str, float]:
    return dict(policies) if isinstance(policies, Mapping) else str(policies)
