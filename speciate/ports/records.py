"""Stored things as they are read back: what REST answers, what the CLI prints and what the Python SDK returns."""

from __future__ import annotations

from datetime import datetime
from typing import Generic, TypeVar
from uuid import UUID

from pydantic import BaseModel, ConfigDict, JsonValue

from speciate.domain.campaign import Campaign, CampaignState
from speciate.domain.candidate import CandidateStatus, FailureKind
from speciate.domain.policy import Policy, PolicyRole
from speciate.domain.problem import Problem, ProblemKind
from speciate.domain.run import RunSpec, RunState
from speciate.domain.tournament import Course, Tournament, TournamentState
from speciate.domain.unlock import ClaimState
from speciate.tournaments.report import Amendment


class Record(BaseModel):
    """Base of the records: frozen; a newer server may add fields."""

    model_config = ConfigDict(frozen=True, extra="ignore")


class ProblemSummary(Record):
    """A problem version in a list."""

    id: UUID
    slug: str
    version: int
    title: str
    kind: ProblemKind
    objectives: tuple[str, ...]
    targets: tuple[str, ...]
    digest: str
    created_at: datetime


class ProblemVersion(Record):
    """A problem version as submitted. A new version never inherits unlocks."""

    id: UUID
    version: int
    digest: str
    evaluator_digest: str
    created_at: datetime
    definition: Problem


class ProblemSet(Record):
    """A named, frozen list of problem versions."""

    id: UUID
    slug: str
    title: str
    created_at: datetime
    problems: tuple[ProblemSummary, ...]


class PolicyVersion(Record):
    """A policy version as registered."""

    id: UUID
    version: int
    digest: str
    created_at: datetime
    definition: Policy


class PolicyShare(Record):
    """A policy version for a role of a run, with its weight among the others."""

    version: PolicyVersion
    weight: float = 1.0


class EnsembleMember(Record):
    """A policy of a run that has several for a role, and what it did so far.

    Attributes:
        asked: Answers booked.
        judged: Those that have been settled.
        won: Those that took a place in the archive.
        tokens: Tokens it was charged.
    """

    role: PolicyRole
    policy_id: UUID
    policy: str
    policy_version: int
    weight: float
    asked: int = 0
    judged: int = 0
    won: int = 0
    tokens: int = 0


class SpentRecord(Record):
    """What a run has spent and set aside."""

    evaluations: int
    tokens: int
    seconds: float
    reserved_evaluations: int
    reserved_tokens: int


class RunRecord(Record):
    """A run with its progress.

    Attributes:
        name: What people call it; several runs may have the same. Hostile text.
        tags: Words that it shares with other runs.
        note: What is to be known about it. Hostile text.
        policy: The policy that is asked, the first one of several.
        mutator: The policy that changes parents, if it is another one; the first one of several.
        ensembles: The policies of all roles where one of them has several; otherwise empty.
        best: Best value of every objective over all candidates that obey every constraint, by name, in the author's
            units; each may belong to another candidate.
        best_scalar: Best declared weighted sum of these; None when the problem declares no weights.
        failures: Failed candidates by kind.
        reasons: Failed candidates by reason; ``near_duplicate`` are those that the run rejects as too much like others.
        duplicates: Candidates with the result of an earlier one, whose program is the same.
        reused: Candidates with a result that another run had.
        reached: Names of the confirmed targets.
        granted: Evaluations that its campaign lets it spend by now; None for a run of no campaign.
        since_improvement: Evaluations since the archive last improved: the longer, the likelier a plateau.
        alarm: What is failing, when more than half of the latest candidates did.
        pruned_at: When its programs, prompts and completions went, but for those of the archive and of its claims.
        revision: Grows with every commit; the ETag of the run.
    """

    id: UUID
    name: str = ""
    tags: tuple[str, ...] = ()
    note: str = ""
    problem_id: UUID
    problem: str
    problem_version: int
    policy_id: UUID
    policy: str
    policy_version: int
    mutator_id: UUID | None = None
    mutator: str | None = None
    mutator_version: int | None = None
    ensembles: tuple[EnsembleMember, ...] = ()
    spec: RunSpec
    state: RunState
    reason: str | None
    created_at: datetime
    started_at: datetime | None
    finished_at: datetime | None
    spent: SpentRecord
    candidates: int
    evaluated: int
    failed: int
    duplicates: int
    reused: int = 0
    rollouts: int
    failures: dict[str, int]
    reasons: dict[str, int]
    best: dict[str, float]
    best_scalar: float | None
    reached: tuple[str, ...]
    unlocked: bool
    granted: int | None = None
    since_improvement: int = 0
    alarm: str | None
    pruned_at: datetime | None = None
    last_event: int
    revision: int

    @property
    def share_spent(self) -> float:
        """The largest share of a limit that is spent, from 0 to 1."""
        spent, budget = self.spent, self.spec.budget
        pairs = (
            (spent.evaluations, budget.evaluations),
            (spent.tokens, budget.tokens),
            (spent.seconds, budget.seconds),
        )
        return min(1.0, max(used / limit for used, limit in pairs if limit is not None))

    @property
    def seconds_to_go(self) -> float | None:
        """Seconds until a limit is met if all goes on as so far; None where that cannot be said.

        It cannot before anything is spent, where the run does not go on, and in a campaign, which gives out its budget
        in slices.
        """
        share = self.share_spent
        if self.state is not RunState.RUNNING or self.granted is not None or not share:
            return None
        return self.spent.seconds * (1 - share) / share


class CandidateRecord(Record):
    """A candidate without its texts.

    Attributes:
        rewards: Rewards by objective in the author's units; None when it failed.
        targets: Names of the targets its rewards meet, confirmed or not.
        duplicate_of: Number of the earlier candidate whose program is the same; where it is rejected as a
            ``near_duplicate``, of the one that it is too much like.
        reused_from: ``run/number`` of the candidate of another run whose result it has.
        advice: Number of the advice that its prompt carried; None where the run writes none.
        tier: Containment under which it was evaluated.
        stopped_at: Stage of the cascade that gave no rewards any more; None when all was measured.
    """

    id: UUID
    run_id: UUID
    number: int
    status: CandidateStatus
    role: PolicyRole
    policy_id: UUID | None
    rollout_id: UUID | None
    island: int
    parents: tuple[int, ...]
    inspirations: tuple[int, ...]
    rewards: dict[str, float] | None
    scalar: float | None
    targets: tuple[str, ...]
    failure: FailureKind | None
    failure_reason: str | None
    duplicate_of: int | None
    program_hash: str
    tier: str
    wall_s: float
    cpu_s: float
    memory_bytes: int
    stopped_at: str | None
    reused_from: str | None = None
    advice: int | None = None
    created_at: datetime


class CandidateDetail(CandidateRecord):
    """A candidate with its texts. All of them come from models or programs: never trust them where they are shown."""

    program: str
    failure_detail: str | None
    artifacts: dict[str, str]


class ExportedCandidate(CandidateDetail):
    """A line of an export, which says by itself what its run is called; a note of 4,000 characters is not repeated.

    Attributes:
        run_name: What people call the run, as the export began. Hostile text.
        run_tags: Words that it shares with other runs.
    """

    run_name: str = ""
    run_tags: tuple[str, ...] = ()


class RolloutRecord(Record):
    """A completion with what was asked for it.

    Attributes:
        advice: Number of the advice that the prompt carried, or, in role ``advise``, was to improve on; None where the
            run writes none.
    """

    id: UUID
    run_id: UUID
    policy_id: UUID
    batch: int
    role: PolicyRole
    prompt_digest: str
    seed: int
    prompt_tokens: int
    completion_tokens: int
    latency_s: float
    finish_reason: str
    mean_logprob: float | None
    answers: int
    reason: str | None
    advice: int | None = None
    created_at: datetime


class RolloutDetail(RolloutRecord):
    """A rollout with its texts."""

    system: str
    user: str
    completion: str


class AdviceRecord(Record):
    """A piece of advice that a run wrote for its own prompts. Its text comes from a model: never trust it where shown.

    Attributes:
        number: Ordinal of the batch that wrote it; 0 is no advice, which is always tried as well.
        parent: Number of the piece that it was to improve on; 0 for a new idea.
        rollout_id: The rollout that wrote it; None for no advice.
        text: What it says, at most 1,000 characters.
        judged: Answers to prompts that carried it.
        won: Those that took a place in the archive.
        lives: Whether prompts may still carry it.
    """

    number: int
    parent: int = 0
    rollout_id: UUID | None = None
    text: str = ""
    judged: int
    won: int
    lives: bool
    created_at: datetime | None = None


class EliteRecord(Record):
    """The holder of a cell."""

    island: int
    cell: str
    number: int
    candidate_id: UUID
    fitness: float
    rewards: dict[str, float]


class EventRecord(Record):
    """An event of a run; ``seq`` counts from 1 without gaps and is the id of the server-sent event."""

    run_id: UUID
    seq: int
    kind: str
    data: dict[str, JsonValue]
    at: datetime


class UnlockRecord(Record):
    """A reached target of a run with what had been spent.

    Attributes:
        policy: The policy that was asked, the first one of several.
        ensemble: Every policy that was asked, as ``slug@version``, where a role of the run has several: what an
            ensemble reached is nobody's own.
        unlock: Whether the target is the one that unlocks the problem.
        forgeable: Whether candidates of this problem share a process with what scores them. Evaluating one again is
            no remedy for that, so the mark stays on what was confirmed.
        evaluations: Evaluations spent up to and including the candidate.
        tokens: Tokens spent when it was committed.
        seconds: Running seconds spent when it was committed.
    """

    run_id: UUID
    problem_id: UUID
    problem: str
    problem_version: int
    policy_id: UUID
    policy: str
    policy_version: int
    mutator: str | None = None
    mutator_version: int | None = None
    ensemble: tuple[str, ...] = ()
    strategy: str
    seed: int
    target: str
    unlock: bool
    forgeable: bool
    state: ClaimState
    number: int
    candidate_id: UUID
    evaluations: int
    tokens: int
    seconds: float
    at: datetime


class Attempt(Record):
    """Who tried a target of a problem version, how much of it, and with what success.

    Attributes:
        policy: ``slug@version``; of an ensemble all its policies, joined by ``+``.
        mutator: Who changes parents, if it is another one.
        runs: Runs that tried, and what they spent together.
        reached: Those that reached the target.
        unlocked_first: Whether the first of all confirmed candidates is among theirs.
        first: Their first confirmed candidate; None where they never reached the target.
    """

    policy: str
    mutator: str | None
    strategy: str
    runs: int
    evaluations: int
    tokens: int
    seconds: float
    reached: int
    unlocked_first: bool
    first: UnlockRecord | None


class TargetUnlocks(Record):
    """Who reached a target of a problem version.

    Attributes:
        unlock: Whether it is the one that unlocks the problem.
        first: The first confirmed candidate of all.
        only: The policy that alone has reached it, where others have tried; else None.
        never: Policies that have tried and never reached it.
        attempts: Everybody who tried.
    """

    target: str
    unlock: bool
    first: UnlockRecord | None
    only: str | None
    never: tuple[str, ...]
    attempts: tuple[Attempt, ...]


class ProblemUnlocks(Record):
    """Who unlocked a problem version, who alone, and who never. Another version has a record of its own."""

    problem: str
    version: int
    evaluator_digest: str
    forgeable: bool
    targets: tuple[TargetUnlocks, ...]


class ObjectiveRecord(Record):
    """A candidate that was better in one objective than every earlier one of any run, and met all constraints.

    Attributes:
        value: In the author's units.
        forgeable: Whether the candidate shared a process with what scored it.
        evaluations: Evaluations that its run had spent.
    """

    objective: str
    value: float
    forgeable: bool = False
    run_id: UUID
    number: int
    candidate_id: UUID
    policy: str | None
    strategy: str
    seed: int
    evaluations: int
    at: datetime


class MatrixCell(Record):
    """What a policy version did on a problem version.

    Attributes:
        unlocked: Runs that unlocked it.
        fewest: Evaluations of the cheapest of these; None without any.
    """

    problem_id: UUID
    policy_id: UUID
    runs: int
    ended: int
    unlocked: int
    fewest: int | None


class PolicyFigures(Record):
    """How a policy version answers, over all of its runs.

    Attributes:
        surprisal: Mean negative log-probability of its tokens, an estimate of its entropy in nats; None where the
            endpoint gives no log-probabilities.
        tokens_a_rollout: Mean completion tokens.
        cut: Rollouts that ended at the longest length.
        unlocked: Runs that unlocked their problem.
    """

    runs: int
    evaluated: int
    failed: int
    duplicates: int
    tokens: int
    unlocked: int
    rollouts: int
    surprisal: float | None
    tokens_a_rollout: float | None
    latency_s: float | None
    cut: int


class TournamentAmendment(Amendment):
    """An extension as it was made, and when."""

    created_at: datetime


class TournamentRecord(Record):
    """A tournament with its progress.

    Attributes:
        declaration: What was declared; it never changes.
        digest: SHA-256 of the declaration.
        reason: Why it is paused, cancelled or was completed early.
        amendments: Extensions, oldest first.
        planned: Runs of the plan.
        started: Those that were started.
        ended: Those that completed, failed or were cancelled.
        revision: Grows whenever runs are found to have ended.
    """

    id: UUID
    slug: str
    declaration: Tournament
    digest: str
    state: TournamentState
    reason: str | None
    created_at: datetime
    finished_at: datetime | None
    amendments: tuple[TournamentAmendment, ...]
    planned: int
    started: int
    ended: int
    revision: int = 0

    @property
    def course(self) -> Course:
        """What is run in the end."""
        return Course.of(self.declaration, [amendment.extension for amendment in self.amendments])


class CampaignProblem(Record):
    """How a problem of a campaign stands.

    Attributes:
        problem: Its version.
        run_id: Its run; None before its first slice.
        state: State of the run.
        reason: Why it is in that state, when somebody should know.
        granted: Evaluations that it was given so far.
        spent: Those that it has spent.
        slices: How often it was given some.
        reached: Names of its confirmed targets.
        unlocked: Whether the unlock is among them; it takes no more evaluations then.
        gap: Evaluations since its last new target.
        chance: Posterior probability that its next evaluation reaches a new target; 0 when it takes no more.
    """

    problem: str
    run_id: UUID | None
    state: RunState | None
    reason: str | None
    granted: int
    spent: int
    slices: int
    reached: tuple[str, ...]
    unlocked: bool
    gap: int
    chance: float


class CampaignRecord(Record):
    """A campaign with its progress.

    Attributes:
        declaration: What was declared; it never changes.
        digest: SHA-256 of the declaration.
        reason: Why it is paused, cancelled or completed.
        spent: Evaluations spent on all problems together.
        slices: Slices handed out.
        unlocked: Problems whose unlock is confirmed.
        problems: How each of them stands, in declared order; empty in lists.
    """

    id: UUID
    slug: str
    declaration: Campaign
    digest: str
    state: CampaignState
    reason: str | None
    created_at: datetime
    finished_at: datetime | None
    spent: int
    slices: int
    unlocked: int
    problems: tuple[CampaignProblem, ...] = ()


class SliceRecord(Record):
    """A decision of a campaign: who was given evaluations, what was known then, and what came of it.

    Attributes:
        ord: Its place among the decisions, from 1.
        problem: Who got them.
        evaluations: How many.
        gap: Evaluations since the problem's last new target, as known to the decision.
        chance: Posterior probability of a new target with the next evaluation, as known to the decision.
        spent: Evaluations that were spent; None while the slice is under way.
        reached: Targets that were reached with them and confirmed.
        closed: Why the problem takes no more after it, if so.
    """

    ord: int
    problem: str
    evaluations: int
    gap: int
    chance: float
    created_at: datetime
    spent: int | None
    reached: tuple[str, ...]
    closed: str | None


class TournamentRun(Record):
    """A planned run with what it says; None where it has not ended.

    Attributes:
        number: Its place in the plan, from 1.
        policy: Who proposes; several with their weights where it is an ensemble.
        mutator: Who changes parents, if it is another one; alike.
        state: ``planned``, ``under way``, ``completed``, ``failed`` or ``cancelled``.
        reached: Whether it reached the target, confirmed.
        evaluations: Evaluations until it did, or until it ended.
        tokens: The same in tokens.
        score: Best score of the run.
        evaluated: Candidates that were scored.
        failed: Candidates that were not.
        duplicates: Answers that repeated a program of the run.
        diversity: Mean L1 distance between two scored candidates; ``diversity_all`` with failed ones at 0.
        hypervolume: Share of the box that the final front dominates.
    """

    tournament: str
    number: int
    problem: str
    seed: int
    entrant: str
    policy: str
    mutator: str | None
    strategy: str
    run_id: UUID | None
    state: str
    reason: str | None
    reached: bool | None = None
    evaluations: int | None = None
    tokens: int | None = None
    score: float | None = None
    spent_evaluations: int | None = None
    spent_tokens: int | None = None
    evaluated: int | None = None
    failed: int | None = None
    duplicates: int | None = None
    diversity: float | None = None
    diversity_all: float | None = None
    hypervolume: float | None = None


class WorkRecord(Record):
    """A unit of work that somebody holds, or that waits."""

    work_id: UUID
    run_id: UUID
    kind: str
    state: str
    attempt: int
    lane: int
    lease_seconds_left: float | None


class WorkerProcess(Record):
    """A worker process that is there.

    Attributes:
        slots: Units of work it does at once.
        tier: Containment under which it evaluates candidates; empty when it evaluates none.
    """

    name: str
    pid: int
    version: str
    queues: tuple[str, ...]
    slots: int
    tier: str


T = TypeVar("T")


class Page(Record, Generic[T]):
    """One page of a list; ``next_cursor`` is None on the last one."""

    items: tuple[T, ...]
    next_cursor: str | None = None
