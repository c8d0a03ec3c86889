"""The types of a candidate within the service. A candidate's failure is a value; it never ends a run.

A completion gives a ``Proposal``, its program an ``Evaluation``, and both together are a ``Candidate``, which the store
writes. Strategies and prompts receive the ``Individual`` of a candidate. What the REST API shows of it is in
``speciate.schema``: ``RankedCandidate`` in a run's record, front and archive, ``CandidateRecord`` in lists,
``CandidateDetail`` with its texts, ``ProposalRecord`` and ``ShownProgram`` for proposers outside the service, and
``RolloutAnswer`` for trainers.
"""

import re
from collections.abc import Mapping
from dataclasses import astuple, dataclass, field, fields
from enum import StrEnum
from typing import Annotated, Any, Final

from pydantic import BeforeValidator, Field, PlainSerializer

from speciate.domain.policy import PolicyRole
from speciate.domain.target import TargetSet


class CandidateStatus(StrEnum):
    """State of a stored candidate; one in progress is only in the payload of its work unit."""

    EVALUATED = "evaluated"
    FAILED = "failed"


class FailureKind(StrEnum):
    """Class of failure of a candidate without rewards."""

    TIMEOUT = "timeout"
    OUT_OF_MEMORY = "out_of_memory"
    CRASHED = "crashed"
    INVALID_OUTPUT = "invalid_output"
    REJECTED = "rejected"
    """Not evaluated: no program in the completion, a diff that does not apply, a changed protected region, …"""


MAX_TEXTS, MAX_TEXT, MAX_FEEDBACK = 16, 64 << 10, 256 << 10
"""Limits of an external evaluation's feedback: number of texts, characters of each, of all together."""

UNMEASURED = "not measured"
"""Label of the artifact that lists the objectives without a measurement; their rewards are the worst ends."""

BUILD_FAILED = "build_failed"
"""Reason of failures of the compiler."""

SANDBOX_LOST = frozenset({"supervisor_killed", "evaluator_supervisor_killed"})
"""Reasons of failures in which the sandbox ended during the program: killed from outside, or out of memory."""

NOT_THE_PROGRAMS_FAULT = frozenset({"worker_lost", "batch_deadline"}) | SANDBOX_LOST
"""Reasons that do not depend on the program."""

ATTESTED = "attested"
"""Tier of evaluations outside the service: it has the word of a token's holder for them."""

EVALUATOR_PREFIX = "evaluator_"
REFUSED_REWARDS = "refused_rewards"
"""Reason of failures of an external evaluator: the service refuses its rewards."""
_EVALUATOR_FAULTS = frozenset({"invalid_rewards", "worker_lost", REFUSED_REWARDS})


_AFTER_THE_ERROR: Final = re.compile(
    r"(?!  what\(\): )\s|note: |Node\.js v|Calls: |Execution halted|Error termination|#\d|\d+ errors?\b|\}|CallStack"
    r"|error: aborting due|For more information about|in expression starting|(?i:stack ?trace)|Require stack:|- /"
    r"|[a-z./]\S*: it (?:exited with code|was killed by) \S+$"
)
"""Lines that programs of other languages print after the error."""
_GO_ROUTINES: Final = re.compile(r"\n+(?:goroutine \d+ |runtime stack:|\[signal SIG)")


@dataclass(frozen=True, slots=True)
class Failure:
    kind: FailureKind
    reason: str
    """Short machine-readable reason within the kind, such as ``no_code_block``; counted per run."""
    detail: str = ""
    """Text for people and prompts; untrusted, because it may quote the candidate."""

    @property
    def last_line(self) -> str:
        """The line of the detail that tells the error, at most 300 characters; without a detail kind and reason."""
        lines = _GO_ROUTINES.split(self.detail)[0].strip().splitlines()
        errors = [line for line in lines if line and not _AFTER_THE_ERROR.match(line)]
        return (errors or lines)[-1].strip()[:300] if lines else f"{self.kind.value} ({self.reason})"

    @property
    def lost(self) -> bool:
        """True if the evaluation was lost, which says nothing about the program."""
        return self.reason in NOT_THE_PROGRAMS_FAULT

    @property
    def by_evaluator(self) -> bool:
        """True if the evaluator failed: its script raised, died or gave wrong rewards, or its worker was lost."""
        return self.reason.startswith(EVALUATOR_PREFIX) or self.reason in _EVALUATOR_FAULTS

    @property
    def reserved(self) -> bool:
        """True if only the service may give this reason, because it does not blame the program and may pause a run."""
        return self.reason != REFUSED_REWARDS and (self.by_evaluator or self.lost)

    @property
    def repeatable(self) -> bool:
        """True if an identical program is evaluated again, because this one was not or failed without its fault."""
        return self.kind is FailureKind.REJECTED or self.by_evaluator or self.lost


@dataclass(frozen=True, slots=True)
class Evaluation:
    """Outcome of one evaluation of one program: either ``rewards`` or ``failure``."""

    rewards: tuple[float, ...] | None = None
    """Raw rewards, shape (d,), declared order; None on failure."""
    failure: Failure | None = None
    tier: str = "none"
    """Isolation tier of the sandbox, such as ``A``."""
    wall_s: float = 0.0
    """Wall-clock seconds, measured by the supervisor."""
    cpu_s: float = 0.0
    """CPU seconds, measured by the supervisor."""
    memory_bytes: int = 0
    """Peak resident memory, measured by the supervisor."""
    artifacts: Mapping[str, str] = field(default_factory=dict)
    """Named feedback texts (``stderr``, evaluator notes), without anything from hidden cases."""
    stopped_at: str | None = None
    """First stage of the cascade without measurements, because an earlier stage's rule stopped the candidate or it
    failed there. Rewards of this and later stages are the worst ends of their ranges. None if all was measured.
    """
    attested_by: str = ""
    """Name of the token whose holder submitted the rewards; empty if the service measured them."""
    environment: str = ""
    """SHA-256 of the installed packages of the problem; empty if it requires none."""
    carried_from: int | None = None
    """Number of the candidate whose output it received (``carry`` of the problem), or None."""

    def __post_init__(self) -> None:
        if (self.rewards is None) == (self.failure is None):
            raise ValueError("an evaluation has either rewards or a failure")


COSTS: Final = tuple(each.name for each in fields(Evaluation) if each.type in {float, int})
"""Fields of an evaluation that say what it cost, all its numbers: a repeated or reused result cost nothing."""


def _by_field(failure: Any) -> Any:
    return dict(zip(("kind", "reason", "detail"), failure, strict=True)) if isinstance(failure, list) else failure


FailureValues = Annotated[Failure, PlainSerializer(astuple), BeforeValidator(_by_field)]
"""A failure that is the list of its fields in JSON."""

Repeat = tuple[float, ...] | str
"""What a repeated evaluation measured: raw rewards of shape (d,), or why it has none."""


@dataclass(frozen=True, slots=True)
class Proposal:
    """A child read from a completion, before evaluation."""

    program: str
    """Program text; empty if the completion held none."""
    program_hash: Annotated[str, Field(alias="hash")]
    """SHA-256 of the text."""
    role: PolicyRole
    island: int = 0
    """Island of the parents."""
    parents: tuple[int, ...] = ()
    """Numbers of the parents in the run, the changed one first."""
    inspirations: tuple[int, ...] = ()
    """Numbers of further programs in the prompt."""
    rollout: int | None = None
    """Position of its rollout within the batch; None for seed programs and polished ones."""
    answer: int = 0
    """Position among the answers of that rollout, from 0."""
    failure: FailureValues | None = None
    """Rejection on reading, or None."""
    policy: int = 0
    """Position of the policy among those of its role."""
    version: str | None = None
    """ID of the learned policy version that wrote it; None for the policy that the run began with."""
    advice: int | None = None
    """Number of the advice in the prompt; None if the run has no guidance."""
    origin: str | None = None
    """Where a seed program given to the run was taken from; see ``SeedProgram``."""
    proposed_by: str | None = None
    """ID of the policy of kind ``external`` that proposed it, which need not be among the run's; or None."""
    shape: str | None = None
    """Digest of its syntax tree, if it was computed on reading; otherwise its evaluation computes it."""
    note: str = ""
    """What reading changed in the answer, which its result tells; empty if nothing."""
    trial: int = 0
    """Position among the evaluations of its program: of problems with noise, all programs share the seed of each."""

    @property
    def by_policy(self) -> bool:
        """True if a policy of the run wrote it; False for seeds, the run's own operators and proposals from outside."""
        return self.role.asks_policy and self.proposed_by is None


@dataclass(frozen=True, slots=True)
class Individual:
    """A candidate as strategies and prompts see it."""

    number: int
    """Number in the run, from 1 in order of proposal."""
    program: str
    rewards: tuple[float, ...] | None
    """Raw rewards, shape (d,), or None after a failure."""
    failure: Failure | None = None
    artifacts: Mapping[str, str] = field(default_factory=dict)
    island: int = 0
    parents: tuple[int, ...] = ()
    role: PolicyRole = PolicyRole.MUTATE
    stopped_at: str | None = None
    """First stage of the cascade without measurements; None if all was measured."""
    targets: TargetSet = 0
    """Targets that its rewards meet, without refuted ones."""
    refuted: TargetSet = 0
    """Targets that its rewards meet and a repeated evaluation missed."""
    repeats: tuple[Repeat, ...] = ()
    """What the repeated evaluations measured; empty if no target was due for confirmation."""
    error: tuple[float, ...] = ()
    """Standard errors of its rewards, shape (d,), if they are means of several noisy evaluations."""
    evaluations: int = 1
    """Evaluations of which its rewards are the mean."""
    cpu_s: float = 0.0
    """CPU seconds of its evaluation."""
    duplicate_of: int | None = None
    """Number of the earlier candidate with the same program."""

    @property
    def vector(self) -> tuple[float, ...]:
        """Its raw rewards; raises ``ValueError`` if it failed."""
        if self.rewards is None:
            raise ValueError(f"candidate {self.number} has no rewards")
        return self.rewards

    @property
    def unmeasured(self) -> frozenset[str]:
        """Objectives without a measurement."""
        return frozenset(self.artifacts.get(UNMEASURED, "").split(", "))


@dataclass(frozen=True, slots=True)
class Candidate:
    """A proposal with its result and its place in the run: what the table ``candidates`` holds.

    ``individual`` is the part that the search needs.
    """

    number: int
    """Number in the run, from 1 in order of proposal."""
    proposal: Proposal
    evaluation: Evaluation
    """Its result. A duplicate has that of the earlier candidate."""
    duplicate_of: int | None = None
    """Number of the earlier candidate with the same program, or with the similar one that caused the rejection; None
    for a new program."""
    targets: TargetSet = 0
    """Targets that its rewards meet, refuted ones included."""
    shape: str | None = None
    """Digest of its syntax tree, if the run compares trees and the program is new."""
    reused_from: str | None = None
    """``run/number`` of the candidate of another run whose result it reuses."""
    refuted: TargetSet = 0
    """Targets that its rewards meet and a repeated evaluation missed."""
    repeats: tuple[Repeat, ...] = ()
    """What the repeated evaluations measured; empty if no target was due for confirmation."""
    first: tuple[float, ...] | None = None
    """Raw rewards of its own evaluation, if ``rewards`` are the mean of several; see ``search.noise``."""
    error: tuple[float, ...] = ()
    """Standard errors of that mean, shape (d,)."""
    evaluations: int = 1
    """Evaluations of which its rewards are the mean."""
    spent_evaluations: int = 0
    """Evaluations that the run had spent with it, which increases from candidate to candidate."""
    spent_tokens: int = 0
    spent_seconds: float = 0.0

    @property
    def is_repetition(self) -> bool:
        """True if a policy wrote the program of an earlier candidate again."""
        failure = self.evaluation.failure
        if self.proposal.role is PolicyRole.REPEAT:
            return False
        return self.duplicate_of is not None and (failure is None or failure.kind is not FailureKind.REJECTED)

    @property
    def is_reusable(self) -> bool:
        """True if other runs may reuse its result: it is complete, and this run measured it."""
        whole = self.evaluation.rewards is not None and self.evaluation.stopped_at is None
        return whole and self.duplicate_of is None and self.reused_from is None and not self.proposal.note

    @property
    def individual(self) -> Individual:
        """The candidate as strategies and prompts see it."""
        return Individual(
            self.number,
            self.proposal.program,
            self.evaluation.rewards,
            self.evaluation.failure,
            self.evaluation.artifacts,
            self.proposal.island,
            self.proposal.parents,
            self.proposal.role,
            self.evaluation.stopped_at,
            self.targets & ~self.refuted,
            self.refuted,
            self.repeats,
            self.error,
            self.evaluations,
            self.evaluation.cpu_s,
            self.duplicate_of,
        )


def mark_of(*, attested: bool, forgeable: bool) -> str:
    """Return what to say beside rewards that need not be true; empty if Speciate measured them."""
    if attested:
        return "ATTESTED: external evaluators submit the rewards"
    return "FORGEABLE: candidates share a process with their scorer" if forgeable else ""
