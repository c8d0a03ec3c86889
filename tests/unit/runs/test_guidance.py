"""Guidance: advice requests, prompts with advice, statistics and replays."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from uuid import uuid4

import numpy as np
import pytest
from pydantic import ValidationError

from speciate.domain.budget import Budget
from speciate.domain.errors import InvalidInputError
from speciate.domain.event import Event, EventKind
from speciate.domain.guidance import NO_ADVICE, Advice, Gain, draw
from speciate.domain.policy import Policy, PolicyRole
from speciate.domain.rollout import Completion, TemplateName
from speciate.domain.run import RunSpec, RunState
from speciate.ports.policy import SampleRequest, SampleResult
from speciate.ports.work import RunContext, WeightedPolicy
from speciate.runs import ledger
from speciate.runs.checks import check_run
from speciate.runs.executor import LocalQueue, WorkExecutor, drain
from speciate.runs.guidance import adopt, count_gain, read_gains, with_gains
from speciate.runs.progress import RunChange, RunProgress
from speciate.runs.replay import RecordedCompletion, replay
from speciate.schema.policies import PolicyVersion, RunPolicies, WeightedPolicyVersion
from speciate.schema.problems import ProblemVersion
from tests.support.memory_run import MemoryRun
from tests.support.memory_store import MemoryWorkStore
from tests.support.runs import ToyEvaluator, ticking_clock, toy_policy, toy_problem, toy_spec
from tests.unit.runs.test_executor import session

GOOD, POOR = "Climb", "Rest"


@dataclass
class Writer:
    """Alternates good and poor advice, and improves programs only if the prompt has the good one."""

    tokens: int = 0
    advice: str | None = None
    asked: list[SampleRequest] = field(default_factory=list)
    recorded: list[RecordedCompletion] = field(default_factory=list)

    def token_ceiling(self, request: SampleRequest) -> int:
        return (request.n + 1) * self.tokens

    def sample(self, requests: Sequence[SampleRequest]) -> list[SampleResult]:
        results = [self._answer(request) for request in requests]
        self.asked.extend(requests)
        for request, result in zip(requests, results, strict=True):
            for i, completion in enumerate(result.completions):
                tokens = result.prompt_tokens if i == 0 else 0
                self.recorded.append(RecordedCompletion(request.prompt.digest, request.seed, completion, tokens))
        return results

    def ping(self) -> str:
        return "here"

    def _answer(self, request: SampleRequest) -> SampleResult:
        texts = [self._text(request, i) for i in range(request.n)]
        return SampleResult(tuple(Completion(text, self.tokens) for text in texts), self.tokens)

    def _text(self, request: SampleRequest, i: int) -> str:
        if request.role is PolicyRole.ADVISE:
            written = self.advice or f"{GOOD if len(self.asked) % 2 else POOR} {request.seed}."
            return f"<think>hm</think>I would say: <advice>{written}</advice>"
        climbs = f"{GOOD} " in request.prompt.user.partition("## Advice")[2]
        x = float(request.parents[0].program.split()[2]) if request.parents else 0.0
        return f"```python\nx = {x + 0.001 * (i + 1) if climbs else 0.0}\ny = 5\n```"


class Lab:
    """An in-memory run with a policy that writes advice."""

    def __init__(self, spec: RunSpec, writer: Writer | None = None, **context: object) -> None:
        self.writer = writer or Writer()
        policy, seeded = toy_policy(), toy_problem(seed_program="x = 0.0\ny = 5\n")
        self.context = RunContext(uuid4(), seeded, policy, uuid4(), spec, **context)  # type: ignore[arg-type]
        self.store, self.signals = MemoryWorkStore(ticking_clock()), LocalQueue()
        self.store.add(self.context)
        self.signals.committed(self.store.start(self.context.run_id))

    def go(self, most_units: int = 10**6) -> Lab:
        executor = WorkExecutor(self.store, self.signals, ToyEvaluator(), lambda _: self.writer)
        drain(executor, self.signals, most_units=most_units)
        return self

    @property
    def run(self) -> MemoryRun:
        return self.store.runs[self.context.run_id]

    @property
    def events(self) -> list[Event]:
        return list(self.store.events(self.context.run_id))

    @property
    def written(self) -> list[Event]:
        return [event for event in self.events if event.kind is EventKind.ADVICE_WRITTEN]

    def carried(self) -> Counter[int | None]:
        return Counter(c.proposal.advice for c in self.run.candidates.values())


def guided(evaluations: int | None = 120, every: int = 3, most: int = 4, **changes: object) -> RunSpec:
    return toy_spec(evaluations, guidance={"every": every, "most": most}, **changes)


def test_successful_advice_is_drawn_more_often() -> None:
    lab = Lab(guided(600, every=16)).go()
    counts = Counter[str]()
    for number, times in lab.carried().items():
        if number:
            counts[lab.run.advice[number].text.split()[0]] += times
    assert counts[GOOD] > 2 * counts[POOR] > 0
    assert counts[GOOD] > 2 * lab.carried()[NO_ADVICE] > 0
    assert {len(lab.run.progress.advice), len(lab.store.advice(lab.context.run_id))} == {5}
    best = max(lab.store.advice(lab.context.run_id), key=lambda piece: piece.gain.mean)
    assert best.text.startswith(GOOD)


def test_every_nth_batch_requests_advice_at_no_evaluation() -> None:
    lab = Lab(guided(61, seed=5)).go()
    assert (lab.run.progress.state, lab.run.progress.evaluations) == (RunState.COMPLETED, 61)
    assert [event.data["advice"] for event in lab.written] == [3, 6, 9, 12, 15]
    assert sorted(lab.run.candidates) == list(range(1, 62))
    asked = [request for request in lab.writer.asked if request.role is PolicyRole.ADVISE]
    assert [(request.n, request.parents) for request in asked] == [(1, ())] * 5
    first, last = asked[0].prompt.user, asked[-1].prompt.user
    assert "### No advice" in first
    assert "(the one to improve on)" not in first
    assert "### Advice 12" in last
    assert "## Latest programs among the best\n\n### Program" in last


def test_rollouts_and_candidates_record_their_advice() -> None:
    lab = Lab(guided(120)).go()
    assert lab.carried()[None] == 1  # the seed program
    for request in lab.writer.asked:
        texts = [piece.text for piece in lab.run.advice.values() if piece.text in request.prompt.user]
        if request.role is PolicyRole.MUTATE:
            assert ("## Advice" in request.prompt.user) == bool(texts)
    judged = {number: Gain(**counts).judged for number, counts in lab.run.progress.advice.items()}
    assert all(lab.carried()[int(number)] == count for number, count in judged.items())


@pytest.mark.parametrize("strategy", ["islands_map_elites", "vector_evolution", "mind_evolution"])
def test_a_replay_is_identical(strategy: str) -> None:
    lab = Lab(guided(100, strategy=strategy, seed=4)).go()
    assert lab.written
    report = replay(
        lab.context, lab.writer.recorded, lab.events,
        store=MemoryWorkStore(ticking_clock()), evaluator=ToyEvaluator(), client_for=lambda _: Writer(),
    )  # fmt: skip
    assert report.identical, report.describe()


def test_a_replay_finds_changed_advice() -> None:
    lab = Lab(guided(100, seed=3)).go()
    recorded = [
        RecordedCompletion(
            r.prompt_digest, r.seed, Completion(r.completion.text.replace(f"{GOOD} ", "Jump ")), r.prompt_tokens
        )
        for r in lab.writer.recorded
    ]
    report = replay(
        lab.context, recorded, lab.events,
        store=MemoryWorkStore(ticking_clock()), evaluator=ToyEvaluator(), client_for=lambda _: Writer(),
    )  # fmt: skip
    assert "advice.written" in str(report.describe())


def test_a_restarted_worker_continues_identically() -> None:
    whole, parts = Lab(guided(100, seed=2)).go(), Lab(guided(100, seed=2))
    while parts.run.progress.state is RunState.RUNNING:
        parts.run.progress = RunProgress.model_validate_json(parts.run.progress.model_dump_json())  # as it is stored
        parts.run.progress.state = RunState(parts.run.progress.state)
        parts.go(most_units=1)
    assert [dict(e.data) for e in parts.events] == [dict(e.data) for e in whole.events]


@pytest.mark.parametrize("lanes", [1, 3])
def test_a_tight_token_budget_drops_advice_first(lanes: int) -> None:
    lab = Lab(guided(None, budget=Budget(tokens=1000), lanes=lanes), Writer(tokens=10)).go()
    progress = lab.run.progress
    assert lab.written
    assert (progress.state, progress.reserved_tokens) == (RunState.COMPLETED, 0)
    assert progress.tokens == sum(r.prompt_tokens + r.completion.tokens for r in lab.writer.recorded) <= 1000
    assert progress.tokens > 1000 - 10 * 2 * lanes
    # A batch needs 60 tokens and advice 20. After the seed and one batch, the rest does not allow advice.
    short = Lab(guided(None, every=1, budget=Budget(tokens=70)), Writer(tokens=10)).go()
    assert (short.written, short.run.progress.tokens) == ([], 60)


def test_guidance_that_is_never_due_changes_nothing() -> None:
    plain, never = session(toy_spec(60, seed=3)), session(guided(60, every=10**6, seed=3))
    plain.go()
    never.go()
    assert [(e.kind, dict(e.data)) for e in plain.events] == [(e.kind, dict(e.data)) for e in never.events]
    assert plain.policy.recorded == never.policy.recorded


def test_a_run_without_guidance_does_not_mention_advice() -> None:
    lab = Lab(toy_spec(60)).go()
    assert "advice" not in repr(lab.events)
    payloads = [unit.new.payload for unit in lab.run.units.values()]
    assert all(set(payload) <= {"answers", "samples", "first", "proposals"} for payload in payloads)
    assert not any(proposal["advice"] for payload in payloads for proposal in payload.get("proposals", ()))
    assert (lab.run.progress.advice, lab.run.advice) == ({}, {})
    assert not any(request.role is PolicyRole.ADVISE for request in lab.writer.asked)


def test_a_run_without_mutation_requests_no_advice() -> None:
    lab = Lab(guided(60, strategy="best_of_n")).go()
    assert (lab.run.progress.evaluations, lab.written) == (60, [])
    assert set(lab.carried()) == {None}


def test_an_answer_without_advice_adds_no_piece() -> None:
    lab = Lab(guided(40), Writer(advice=" \n ")).go()
    assert (lab.run.progress.state, lab.written) == (RunState.COMPLETED, [])
    assert any(request.role is PolicyRole.ADVISE for request in lab.writer.asked)


def test_repeated_advice_is_not_added() -> None:
    lab = Lab(guided(80), Writer(advice="Always the same.")).go()
    assert [event.data["advice"] for event in lab.written] == [3]


def test_several_policies_write_advice_without_affecting_their_arms() -> None:
    policies = tuple(WeightedPolicy(toy_policy(slug=slug), uuid4()) for slug in ("a", "b"))
    lab = Lab(guided(80, policy_choice="ucb"), Writer(tokens=1), ensembles={PolicyRole.PROPOSE: policies}).go()
    assert lab.written
    assert set(lab.run.progress.arms) <= {"propose:0", "propose:1", "mutate:0", "mutate:1"}


def _adopted(progress: RunProgress, number: int, most: int = 2) -> RunChange:
    change = RunChange(progress)
    adopt(change, most, Advice(number, f"piece {number}"))
    return change


def test_the_least_successful_piece_is_dropped_and_old_results_count_half() -> None:
    progress = RunProgress()
    assert [_adopted(progress, number).retired for number in (8, 16)] == [{}, {}]
    progress.advice["8"] = asdict(Gain(10, 1, 10, 1))
    progress.advice["16"] = asdict(Gain(10, 5, 10, 5))
    progress.advice["0"] = asdict(Gain(100, 0, 100, 0))
    change = _adopted(progress, 24)
    assert change.retired == {8: Gain(10, 1, 5, 0.5)}
    assert change.events[0].data["dropped"] == 8
    assert {n: Gain(**c) for n, c in progress.advice.items()} == {
        "0": Gain(100, 0, 50, 0),
        "16": Gain(10, 5, 5, 2.5),
        "24": Gain(),
    }


def test_a_single_piece_is_replaced_by_the_next() -> None:
    progress = RunProgress()
    assert [list(_adopted(progress, n, most=1).retired) for n in (1, 2, 3)] == [[], [1], [2]]


def test_late_answers_count_for_a_dropped_piece() -> None:
    progress = RunProgress(advice={"8": asdict(Gain(1, 1, 1, 1))})
    change = RunChange(progress)
    for advice, won in ((8, False), (4, True), (4, False), (0, True), (None, True)):
        count_gain(change, advice, won=won)
    assert read_gains(progress.advice) == {0: Gain(1, 1, 1, 1), 8: Gain(2, 1, 2, 1)}
    assert change.retired == {4: Gain(2, 1, 2, 1)}


def test_draws_follow_the_posterior() -> None:
    rng = np.random.default_rng(0)
    pieces = [Advice(0, gain=Gain(20, 2, 20, 2)), Advice(8, "a", gain=Gain(20, 10, 20, 10)), Advice(16, "b")]
    counts = Counter(draw(pieces, rng).number for _ in range(3000))
    # P(argmax) of Beta(3, 19), Beta(11, 11), Beta(1, 1), integrated numerically.
    for number, share in {0: 0.001, 8: 0.499, 16: 0.500}.items():
        assert counts[number] == pytest.approx(3000 * share, abs=5 * np.sqrt(3000 * max(share, 0.02)))


def test_a_single_piece_needs_no_random_number() -> None:
    rng = np.random.default_rng(0)
    assert draw([Advice()], rng) == Advice()
    assert rng.random() == np.random.default_rng(0).random()


AT = datetime(2026, 1, 2, tzinfo=UTC)
CHATS = toy_policy()
MUTATOR = toy_policy(slug="edits", kind="program_mutator")
COMPLETES = toy_policy(slug="completes", prompt_format="completion")
CODEC = toy_policy(slug="tiny", prompt_format="completion", codec="programs")
OWN = "$problem\n\n$parent\n\n$request\n"


def _version(policy: Policy) -> PolicyVersion:
    return PolicyVersion(id=uuid4(), version=1, digest="", created_at=AT, definition=policy)


def _refusal(
    policy: Policy, mutator: Policy | None = None, more: tuple[Policy, ...] = (), **prompts: str
) -> str | None:
    """Return the reason why a guided run is refused, or None."""
    made = toy_problem().model_copy(update={"prompts": {TemplateName(name): text for name, text in prompts.items()}})
    problem = ProblemVersion(id=uuid4(), version=1, digest="", evaluator_digest="", created_at=AT, definition=made)
    several = [WeightedPolicyVersion(version=_version(one)) for one in (policy, *more)]
    ensembles = {PolicyRole.PROPOSE: several} if more else {}
    try:
        policies = RunPolicies(several[0].version, mutator and _version(mutator), ensembles)
        check_run(problem, policies, guided())
    except InvalidInputError as error:
        return str(error)
    return None


@pytest.mark.parametrize("other", [MUTATOR, COMPLETES, CODEC])
def test_policies_without_free_text_cannot_write_advice(other: Policy) -> None:
    said = f"policy {other.slug}@1 cannot write advice"
    assert said in (_refusal(other) or "")
    assert said in (_refusal(CHATS, other) or "")
    assert said in (_refusal(CHATS, more=(other,)) or "")


def test_a_policy_that_only_proposes_needs_no_free_text() -> None:
    assert [_refusal(CHATS), _refusal(MUTATOR, CHATS), _refusal(COMPLETES, CHATS)] == [None] * 3


def test_a_template_without_advice_is_refused() -> None:
    assert "change.txt of problem toy does not show $advice" in (_refusal(CHATS, change=OWN) or "")
    assert _refusal(CHATS, change=f"{OWN}\n$advice\n") is None
    assert _refusal(CHATS, system="$form\n$caution") is None


@pytest.mark.parametrize(
    ("given", "told"),
    [
        ({"every": 0}, "greater than or equal to 1"),
        ({"every": 1_000_001}, "less than or equal to 1000000"),
        ({"every": 2.5}, "integer"),
        ({"every": True}, "integer"),
        ({"most": 0}, "greater than or equal to 1"),
        ({"most": 17}, "less than or equal to 16"),
        ({"most": "4"}, "integer"),
        ({"often": 3}, "often"),
        (8, "dictionary"),
    ],
)
def test_options_out_of_range_name_the_range(given: object, told: str) -> None:
    with pytest.raises(ValidationError, match=told):
        toy_spec(guidance=given)


def test_the_first_hint_of_a_run_without_a_batch_is_not_the_piece_without_advice() -> None:
    change = RunChange(RunProgress(state=RunState.RUNNING))
    context = RunContext(uuid4(), toy_problem(seed_program=""), toy_policy(), uuid4(), toy_spec())
    hints = [ledger.apply_advice(change, context, text, "alice") for text in ("Climb", "Rest")]
    pieces = with_gains({hint.number: hint for hint in hints}, change.progress.advice)
    assert [piece.text for piece in pieces] == ["", "Climb", "Rest"]
