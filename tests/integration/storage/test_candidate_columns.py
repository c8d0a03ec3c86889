"""Every field of a candidate is stored and read: one that is forgotten fails here."""

from __future__ import annotations

import re
from dataclasses import fields, replace
from typing import Any
from uuid import UUID

import pytest
import sqlalchemy as sa

from speciate.domain.candidate import UNMEASURED, Candidate, Evaluation, Failure, FailureKind, Individual, Proposal
from speciate.domain.policy import PolicyRole
from speciate.ports.runs import NewRun
from speciate.ports.work import EvaluatedBatch
from speciate.runs.payloads import read_proposals
from speciate.schema.candidates import CandidateDetail
from speciate.schema.policies import RunPolicies
from speciate.storage.stores import Stores
from speciate.storage.tables.candidates import candidates
from tests.support.runs import toy_policy, toy_problem, toy_spec

pytestmark = pytest.mark.servers

_VALUES: dict[str, Any] = {
    "str": "text",
    "str | None": "text",
    "int": 3,
    "int | None": 3,
    "TargetSet": 1,
    "float": 0.5,
    "tuple[int, ...]": (3, 4),
    "Mapping[str, str]": {"note": "text"},
}
_NOT_COLUMNS = {
    # Held by rollout_id, policy_id and artifacts.
    Proposal: {"rollout", "answer", "policy", "version", "advice", "proposed_by", "note"},
    Evaluation: set[str](),
    Candidate: {"proposal", "evaluation"},
}
_INTERNAL = {"work_id", "ord", "shape", "spent_evaluations", "spent_tokens", "spent_seconds"}
"""Columns that only statements use."""


_LATER: dict[str, Any] = {"repeats": (), "first": None, "error": (), "evaluations": 1}
"""Fields that later evaluations fill."""


def _filled(kind: type[Any], **given: Any) -> dict[str, Any]:
    """Return a value other than the default for every field."""
    types = {f.name: re.sub(r"<class '|'>|[\w.]+\.(?=\w)", "", str(f.type)) for f in fields(kind)}
    return {name: _VALUES[text] for name, text in types.items() if name not in given} | given


def _record(stores: Stores, evaluation: Evaluation) -> tuple[UUID, Candidate]:
    stored, _ = stores.catalog.add_problem(toy_problem())
    policy, _ = stores.catalog.add_policy(toy_policy())
    run_id, _ = stores.runs.create(NewRun(stored, RunPolicies(policy), toy_spec()))
    lease = stores.work.claim(stores.runs.start(run_id).dispatch[0].id)
    assert lease is not None
    (seed,) = read_proposals(lease.payload)
    as_read = {
        "program": seed.program,
        "program_hash": "text",
        "role": PolicyRole.PROPOSE,
        "failure": None,
        "policy": 0,
        "version": None,
    }
    proposal = Proposal(**_filled(Proposal, **as_read, proposed_by=None))
    candidate = Candidate(
        **_filled(Candidate, number=1, refuted=0, proposal=proposal, evaluation=evaluation, targets=1, **_LATER)
    )
    assert stores.work.commit_evaluations(lease, EvaluatedBatch((candidate,))) is not None
    return run_id, candidate


def test_every_field_is_a_column_that_is_written_and_read(stores: Stores) -> None:
    for kind, others in _NOT_COLUMNS.items():
        assert {f.name for f in fields(kind)} - {*candidates.c.keys()} == others
    readable = {*CandidateDetail.model_fields} | {f.name for f in fields(Individual)}
    assert {*candidates.c.keys()} - readable == _INTERNAL

    scored, candidate = _record(stores, Evaluation(**_filled(Evaluation, rewards=(1.0, 9.0), failure=None)))
    failure = Failure(FailureKind.CRASHED, "raised", "detail")
    failed, _ = _record(stores, replace(candidate.evaluation, rewards=None, failure=failure))
    with stores.engine.begin() as connection:
        rows = connection.execute(sa.select(candidates).where(candidates.c.run_id.in_([scored, failed]))).mappings()
        written = {name for row in rows for name, value in row.items() if value is not None}
    assert {*candidates.c.keys()} - written == {"rollout_id", *_LATER}

    detail = stores.queries.candidate_of(scored, 1)
    (member,) = stores.work.members(scored, [1]).values()
    for part in (candidate.proposal, candidate.evaluation, candidate):
        for field in fields(part):
            for read in (detail, member):
                if hasattr(read, field.name) and field.name not in {
                    "rewards",
                    "targets",
                    "refuted",
                    "failure",
                    "advice",
                    "error",
                }:
                    assert getattr(read, field.name) == getattr(part, field.name), field.name
    assert tuple((detail.rewards or {}).values()) == member.rewards == (1.0, 9.0)
    assert (len(detail.targets), member.targets) == (1, 1)
    detail = stores.queries.candidate_of(failed, 1)
    (member,) = stores.work.members(failed, [1]).values()
    assert (detail.failure, detail.failure_reason, detail.failure_detail) == (failure.kind, "raised", "detail")
    assert member.failure == failure


def test_objectives_without_a_measurement_are_named(stores: Stores) -> None:
    names = toy_problem().space.names
    evaluation = Evaluation(rewards=(1.0, 9.0), artifacts={UNMEASURED: names[1]})
    run_id, _ = _record(stores, evaluation)
    (listed,) = stores.queries.candidates(run_id).items
    for read in (listed, stores.queries.candidate_of(run_id, 1)):
        assert read.measured == {names[0]: 1.0, names[1]: None}
