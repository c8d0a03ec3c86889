"""Read the records of runs: one by id, pages by filter and order."""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final
from uuid import UUID

import sqlalchemy as sa

from speciate.domain.candidate import Failure, FailureKind
from speciate.domain.learning import LearningCounters, learned_slug
from speciate.domain.objective import Objective, ObjectiveRole
from speciate.domain.run import RunSpec, RunState
from speciate.domain.visibility import Visibility
from speciate.runs.learning import LearningState
from speciate.schema.results import ComparedReward
from speciate.schema.runs import LearningRecord, RankedCandidate, RunOrder, RunRecord, SpentRecord
from speciate.storage import cursors
from speciate.storage.cursors import where
from speciate.storage.lookup import read_stored
from speciate.storage.runs.context import members
from speciate.storage.statements import Statements
from speciate.storage.visibility import visibility_condition

OWN_RUNS: Final = "own"
ALL_RUNS: Final = "all"
MAX_COMPARED: Final = 12

SQL = Statements(__file__)
GET_RUN, WORK_IN_FLIGHT = SQL.get, SQL.work_in_flight

_STATES: Final = (*(state for state in RunState if not state.ended), *(state for state in RunState if state.ended))
_KEYS: Final[dict[RunOrder, tuple[str, type]]] = {
    RunOrder.STATE: (f"array_position(ARRAY{[state.value for state in _STATES]}, g.state)", int),
    RunOrder.PROBLEM: ("p.slug", str),
    RunOrder.POLICY: ("a.slug", str),
    RunOrder.BEST: (SQL.text("best_key"), int),
    RunOrder.DURATION: (SQL.text("duration_key"), float),
    RunOrder.EVALUATIONS: ("g.evaluations", int),
    RunOrder.TOKENS: ("g.tokens", int),
    RunOrder.COST: ("g.cost", float),
}
"""SQL and type of each sort key. ``started`` sorts by id."""


@dataclass(frozen=True, slots=True)
class RunFilter:
    """Which runs to list; None is all."""

    project: UUID | None = None
    problem_id: UUID | None = None
    policy_id: UUID | None = None
    """Policy version, alone or as a proposer of an ensemble."""
    state: RunState | None = None
    tags: Sequence[str] = ()
    name: str | None = None
    """Part of the name, ignoring case."""
    group: str = ALL_RUNS
    """``own`` for those that no tournament or campaign started, ``all``, or the name of a tournament or campaign."""
    ids: Sequence[UUID] | None = None
    visibility: Visibility = Visibility.VISIBLE
    """Visible, archived or deleted runs, or all."""

    def conditions(self) -> dict[str, Any]:
        return {
            "r.problem_id = :problem_id": self.problem_id,
            SQL.text("uses_policy"): self.policy_id,
            "g.state = :state": self.state and self.state.value,
            SQL.text("tagged"): [*self.tags] or None,
            SQL.text("named"): self.name,
            "r.project_id = :project": self.project,
            "r.own = :own": True if self.group == OWN_RUNS else None,
            SQL.text("grouped"): None if self.group in {OWN_RUNS, ALL_RUNS} else self.group,
            "r.id = ANY(:ids)": None if self.ids is None else [*self.ids],
        }


@dataclass(frozen=True, slots=True)
class RunListing:
    key: str
    """SQL expression of the sort key."""
    direction: str
    after: str
    """Condition that skips the previous pages; empty on the first page."""
    binds: dict[str, Any]
    name: str
    """Name of the order, which its cursors carry; empty for orders by id."""

    def query(self, runs: RunFilter, limit: int) -> tuple[sa.TextClause, dict[str, Any]]:
        """Return the statement of the page with its parameters."""
        clause, binds = where(runs.conditions())
        visible = visibility_condition(runs.visibility, "r.")
        conditions = " AND ".join(filter(None, (clause.removeprefix(" WHERE "), visible, self.after)))
        page = SQL.build("page", key=self.key, direction=self.direction, conditions=conditions)
        return page, {"read_at": None, **binds, **self.binds, "limit": limit}

    def cursor(self, row: sa.Row[Any]) -> Sequence[Any]:
        return [self.name, row.sort_key, str(row.id), row.read_at] if self.name else cursors.by_id(row)


def run_listing(order: RunOrder, cursor: str | None, *, reverse: bool) -> RunListing:
    """Return the query for the page that starts at a cursor. Runs with equal keys are listed newest first."""
    ascending = order.ascending is not reverse
    direction, beyond = ("ASC", ">") if ascending else ("DESC", "<")
    if order is RunOrder.STARTED:
        binds: dict[str, Any] = {} if cursor is None else {"after": cursors.decode_id(cursor)}
        return RunListing("r.id", direction, f"r.id {beyond} :after" if binds else "", binds, "")
    name = f"-{order.value}" if reverse else order.value
    key, kind = _KEYS[order]
    if cursor is None:
        return RunListing(key, direction, "", {}, name)
    cursor_name, last, run, read_at = cursors.decode(cursor, [str, kind, UUID, float])
    if cursor_name != name:
        raise cursors.refusal()
    after = f"({key} {beyond} :last OR {key} = :last AND r.id < :after)"
    return RunListing(key, direction, after, {"last": last, "after": run, "read_at": read_at}, name)


def run_record(row: sa.Row[Any]) -> RunRecord:
    document: dict[str, Any] = row.document
    targets, spec = document["targets"], read_stored(RunSpec, document["spec"])
    confirmed = [target for i, target in enumerate(targets) if document["confirmed"] >> i & 1]
    spent = {name: document[name] for name in SpentRecord.model_fields if name != "seconds"}
    # Every other field is a column of the same name.
    return RunRecord.model_validate(
        document
        | {
            "ensembles": members(document["shares"] or [], document["arms"]),
            "spec": spec,
            "learning": _learning(document) if spec.learning is not None else None,
            "spent": SpentRecord(seconds=document["seconds_now"], **spent),
            "candidates": document["evaluated"] + document["failed"],
            "best": _best(document),
            "best_rewards": tuple(_compared(document)),
            "no_result": _no_result(document),
            "reached": tuple(target["name"] for target in confirmed),
            "unlocked": any(target["unlock"] for target in confirmed),
            "since_improvement": document["evaluations"] - document["improved_at"],
            "diagnosis": document["diagnosis"] or None,
            "last_event": document["events"],
        }
    )


def _no_result(document: Mapping[str, Any]) -> str | None:
    """Return why a completed run has no result; None for other runs."""
    seed = document["seed_failure"]
    without = document["state"] == RunState.COMPLETED and document["best_number"] is None and document["failed"]
    if not without or (document["evaluated"] and seed is None):
        return None
    head = "no candidate is feasible" if document["evaluated"] else "no candidate has rewards"
    if seed is not None:
        failure = Failure(FailureKind(seed[0]), seed[1] or "", seed[2] or "")
        fails = "the evaluator fails on the seed program" if failure.by_evaluator else "the seed program fails"
        return f"{head}: {fails}: {failure.last_line}"
    reasons: dict[str, int] = document["reasons"]
    most = max(reasons, key=reasons.__getitem__)
    return f"{head}: {reasons[most]:,} of {document['failed']:,} failed by {most}"


def _learning(document: Mapping[str, Any]) -> LearningRecord:
    state = LearningState.model_validate(document["learning"])
    slug = state.slug or learned_slug(document["policy"], UUID(document["id"]).hex)
    version = f"{slug}@{state.step}" if state.step else None
    counts = state.model_dump(include={*LearningCounters.model_fields})
    counts["busy"] &= not RunState(document["state"]).ended
    return LearningRecord(**counts, version=version, waiting=len(state.waiting))


def _compared(document: Mapping[str, Any]) -> Iterator[ComparedReward]:
    if document["best_id"] is None:
        return
    rule = next((target["rule"] for target in document["targets"] if target["unlock"]), "")
    seed = document["seed_rewards"] or [None] * len(document["best"])  # of its first evaluation
    margins = document["final"].get("margin") or [None] * len(document["best"])
    rows = zip(document["objectives"], document["best"], seed, margins, strict=True)
    named = re.findall(r"\w+", rule)
    for objective, value, seed_value, margin in sorted(rows, key=lambda row: row[0]["name"] not in named)[
        :MAX_COMPARED
    ]:
        if objective["role"] == ObjectiveRole.RECORD:
            continue
        verdict = "" if seed_value is None else Objective.model_validate(objective).verdict(value, seed_value)
        yield ComparedReward(objective=objective["name"], value=value, seed=seed_value, margin=margin, verdict=verdict)


def _best(document: Mapping[str, Any]) -> RankedCandidate | None:
    if document["best_id"] is None:
        return None
    names = [objective["name"] for objective in document["objectives"]]
    met = document["best_targets"]
    return RankedCandidate(
        id=document["best_id"],
        number=document["best_number"],
        rewards=dict(zip(names, document["best"], strict=True)),
        targets=tuple(target["name"] for i, target in enumerate(document["targets"]) if met >> i & 1),
        scalar=document["best_scalar"],
        evaluations=document["final"].get("evaluations") or document["best_evaluations"] or 1,
        margin=dict(zip(names, document["final"].get("margin", ()), strict=False)),
        failed_after_end=document["final"].get("failed", 0),
    )
