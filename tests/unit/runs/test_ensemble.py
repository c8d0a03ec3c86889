"""Ensembles: choice of policies by weight and by bandit, events and replays."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Collection
from dataclasses import asdict
from typing import Any
from uuid import uuid4

import numpy as np
import pytest

from speciate.domain.budget import Budget
from speciate.domain.charge import Charge
from speciate.domain.diagnosis import FAILURES, OUTAGE, alarm_name
from speciate.domain.ensemble import BanditArm, DecayedCounts, PolicyChoice, best_arm
from speciate.domain.event import Event, EventKind
from speciate.domain.policy import Policy, PolicyRole
from speciate.domain.run import RunState
from speciate.policies import build_client
from speciate.ports.interruption import interruptible
from speciate.ports.policy import PolicyClient
from speciate.ports.work import RunContext, WeightedPolicy
from speciate.runs.ensemble import PolicyChooser, arm_key, count_arm, read_arms
from speciate.runs.executor import LocalQueue, WorkExecutor, drain
from speciate.runs.progress import RunChange, RunProgress
from speciate.runs.replay import RecordedCompletion, replay
from speciate.runs.stopping import judge_alarm, judge_outages
from tests.support.memory_store import MemoryWorkStore
from tests.support.runs import ToyEvaluator, ticking_clock, toy_problem, toy_spec
from tests.unit.runs.test_executor import Recorder

EVALUATIONS = Budget(evaluations=1000)


def _policy(slug: str, template: str) -> Policy:
    return Policy.model_validate({"slug": slug, "kind": "scripted", "options": {"template": template}})


GOOD = _policy("good", "```python\nx = 0.{number}\ny = 0.{number}\n```")
POOR = _policy("poor", "I would rather not. {number}")
THIRD = _policy("third", "```python\nx = 0.{number}\ny = 5\n```")


def _context(
    weights: dict[str, float], mutators: tuple[Policy, ...] = (), evaluations: int = 40, **spec: object
) -> RunContext:
    by_slug = {policy.slug: policy for policy in (GOOD, POOR, THIRD)}
    shares = tuple(WeightedPolicy(by_slug[slug], uuid4(), weight) for slug, weight in weights.items())
    ensembles = {PolicyRole.PROPOSE: shares}
    if mutators:
        ensembles[PolicyRole.MUTATE] = tuple(WeightedPolicy(policy, uuid4()) for policy in mutators)
    first = ensembles.get(PolicyRole.MUTATE, (None,))[0]
    return RunContext(
        uuid4(), toy_problem(), shares[0].policy, shares[0].policy_id, toy_spec(evaluations, **spec),
        mutator=first and first.policy, mutator_id=first and first.policy_id, ensembles=ensembles,
    )  # fmt: skip


class Lab:
    """An in-memory run that distinguishes its policies."""

    def __init__(self, context: RunContext) -> None:
        self.context, self.store, self.signals = context, MemoryWorkStore(ticking_clock()), LocalQueue()
        self.clients: dict[str, Recorder] = {}
        self.store.add(context)
        self.signals.committed(self.store.start(context.run_id))
        drain(WorkExecutor(self.store, self.signals, ToyEvaluator(), self.client), self.signals)

    def client(self, policy: Policy) -> PolicyClient:
        return self.clients.setdefault(policy.digest, Recorder(build_client(policy)))

    @property
    def recorded(self) -> list[RecordedCompletion]:
        return [item for client in self.clients.values() for item in client.recorded]

    @property
    def events(self) -> list[Event]:
        return list(self.store.events(self.context.run_id))

    def asked(self, role: PolicyRole = PolicyRole.MUTATE) -> Counter[int]:
        candidates = self.store.runs[self.context.run_id].candidates.values()
        return Counter(c.proposal.policy for c in candidates if c.proposal.role is role)


def test_weights_determine_the_shares_of_prompts() -> None:
    context = _context({"good": 3, "poor": 1})
    chooser, rng = PolicyChooser(context, MemoryWorkStore(ticking_clock())), np.random.default_rng(0)
    counts = Counter(chooser.pick(PolicyRole.PROPOSE, 4, rng) for _ in range(4000))
    assert counts[0] == pytest.approx(3000, abs=5 * np.sqrt(4000 * 0.75 * 0.25))
    assert set(counts) == {0, 1}


def test_one_policy_for_a_role_draws_no_random_number() -> None:
    context = RunContext(uuid4(), toy_problem(), GOOD, uuid4(), toy_spec())
    rng = np.random.default_rng(0)
    assert PolicyChooser(context, MemoryWorkStore(ticking_clock())).pick(PolicyRole.MUTATE, 4, rng) == 0
    assert rng.random() == np.random.default_rng(0).random()


@pytest.mark.parametrize(
    ("arms", "budget", "best"),
    [
        ([BanditArm(8, 8, 4), BanditArm()], EVALUATIONS, 1),  # never chosen
        ([BanditArm(), BanditArm()], EVALUATIONS, 0),
        ([BanditArm(100, 100, 10), BanditArm(100, 100, 40)], EVALUATIONS, 1),  # the better one
        ([BanditArm(1000, 1000, 300), BanditArm(10, 10, 3)], EVALUATIONS, 1),  # equal means: the less explored one
        # Four times the tokens for twice the wins: worse per token, better per answer.
        ([BanditArm(1000, 1000, 100, 10_000), BanditArm(1000, 1000, 200, 40_000)], Budget(tokens=100_000), 0),
        ([BanditArm(1000, 1000, 100, 10_000), BanditArm(1000, 1000, 200, 40_000)], EVALUATIONS, 1),
        # The scarcer budget counts: 40 of a million tokens matter less than one of a thousand evaluations.
        (
            [BanditArm(1000, 1000, 100, 10_000), BanditArm(1000, 1000, 200, 40_000)],
            Budget(evaluations=1000, tokens=1_000_000),
            1,
        ),
        (
            [BanditArm(100, 100, 30, 0), BanditArm(100, 100, 30, 500)],
            Budget(tokens=1000),
            0,
        ),  # free of charge, but of finite value
        ([BanditArm(100, 100, 20), BanditArm(100, 100, 30)], Budget(seconds=9), 1),
    ],
)
def test_the_bandit_chooses(arms: list[BanditArm], budget: Budget, best: int) -> None:
    assert best_arm(arms, [0] * len(arms), budget) == best


def test_the_index_is_ucb1_tuned() -> None:
    # By hand: t = 30, ln t = 3.4012; arm 0: n = 10, mean 0.3, V = 0.21 + sqrt(6.8024 / 10) = 1.0348 → 1/4,
    # 0.3 + sqrt(0.34012 / 4) = 0.5916; arm 1: n = 20, mean 0.4, 0.4 + sqrt(0.17006 / 4) = 0.6062. One place less
    # in arm 1 (0.35 → 0.5562) and arm 0 is chosen.
    assert best_arm([BanditArm(10, 10, 3), BanditArm(20, 20, 8)], [0, 0], EVALUATIONS) == 1
    assert best_arm([BanditArm(10, 10, 3), BanditArm(20, 20, 7)], [0, 0], EVALUATIONS) == 0


def test_pending_answers_reduce_the_exploration_bonus() -> None:
    arms = [BanditArm(10, 10, 3), BanditArm(10, 10, 3)]
    assert best_arm(arms, [0, 0], EVALUATIONS) == 0
    assert best_arm(arms, [4, 0], EVALUATIONS) == 1


def test_the_bandit_finds_the_better_policy() -> None:
    lab = Lab(_context({"poor": 1, "good": 1}, evaluations=300, policy_choice="ucb", strategy="best_of_n"))
    asked = lab.asked(PolicyRole.PROPOSE)
    assert asked[1] > 1.5 * asked[0] > 0
    progress = lab.store.runs[lab.context.run_id].progress
    assert sum(arm["asked"] for arm in progress.arms.values()) == 299
    assert all(arm["asked"] == arm["judged"] for arm in progress.arms.values())
    assert progress.arms["propose:0"]["won"] == 0 < progress.arms["propose:1"]["won"]


def test_cells_that_rank_by_time_count_no_wins() -> None:
    # All programs differ and none improves on the seed. Each is the newest of its chain for a while.
    level = [_policy(f"level-{z}", f"```python\nx = 1\ny = 9\nz = {{number}}.{z}\n```") for z in (1, 2)]
    shares = tuple(WeightedPolicy(policy, uuid4()) for policy in level)
    spec = toy_spec(60, policy_choice="ucb", strategy="sequential_revision",
                    strategy_options={"chains": 1, "accept": "always"})  # fmt: skip
    context = RunContext(
        uuid4(), toy_problem(), level[0], shares[0].policy_id, spec, ensembles={PolicyRole.PROPOSE: shares}
    )
    lab = Lab(context)
    placed = [cell for e in lab.events if e.kind is EventKind.BATCH_EVALUATED for _, cell, _ in e.data["archive"]]  # type: ignore[misc,union-attr]
    assert placed.count("@last") > 5
    assert {arm["won"] for arm in lab.store.runs[context.run_id].progress.arms.values()} == {0}


def test_mutators_are_an_ensemble_of_their_own() -> None:
    lab = Lab(_context({"good": 1}, (POOR, THIRD), evaluations=60))
    assert set(lab.asked()) == {0, 1}
    assert set(lab.asked(PolicyRole.PROPOSE)) <= {0}
    programs = {
        c.proposal.policy: c.evaluation.failure
        for c in lab.store.runs[lab.context.run_id].candidates.values()
        if c.proposal.role is PolicyRole.MUTATE
    }
    assert programs[0] is not None
    assert programs[1] is None


def test_the_policies_are_in_the_events() -> None:
    lab = Lab(_context({"good": 2, "poor": 1}, evaluations=40))
    created = lab.events[0]
    assert created.kind is EventKind.RUN_CREATED
    assert created.data["choice"] == "weights"
    assert created.data["ensembles"] == {"propose": [[GOOD.digest, 2], [POOR.digest, 1]]}
    told = [c["policy"] for e in lab.events if e.kind is EventKind.BATCH_EVALUATED for c in e.data["candidates"]]  # type: ignore[index,union-attr,call-overload]
    assert set(told[1:]) == {0, 1}


def test_events_of_a_run_with_one_policy_do_not_mention_ensembles() -> None:
    lab = Lab(RunContext(uuid4(), toy_problem(), GOOD, uuid4(), toy_spec(20)))
    text = repr(lab.events)
    assert "'ensembles'" not in text
    assert text.count("'policy'") == 1  # in run.created
    assert lab.store.runs[lab.context.run_id].progress.arms == {}


@pytest.mark.parametrize("choice", list(PolicyChoice))
@pytest.mark.parametrize("strategy", ["best_of_n", "islands_map_elites"])
def test_a_replay_chooses_the_same_policies(choice: PolicyChoice, strategy: str) -> None:
    lab = Lab(_context({"good": 1, "third": 1}, (THIRD, GOOD), 60, policy_choice=choice, strategy=strategy))
    report = replay(
        lab.context, lab.recorded, lab.events,
        store=MemoryWorkStore(ticking_clock()), evaluator=ToyEvaluator(), client_for=build_client,
    )  # fmt: skip
    assert report.identical, report.describe()


class Outage:
    """A run with two priced policies whose endpoints can fail."""

    def __init__(self, fail: Collection[str], **spec: Any) -> None:
        options = {"template": "```python\nx = 0.{number}\ny = 5\n```", "tokens_per_completion": 3, "prompt_tokens": 7}
        price = {"input": 5e5, "output": 1e6}
        policies = [
            Policy.model_validate({"slug": slug, "kind": "scripted", "options": options, "price": price})
            for slug in ("first", "second")
        ]
        shares = tuple(WeightedPolicy(policy, uuid4()) for policy in policies)
        spec = toy_spec(40, **{"batch": 8, "samples_per_prompt": 1, "seed": 1} | spec)
        self.context = RunContext(
            uuid4(), toy_problem(), policies[0], shares[0].policy_id, spec, ensembles={PolicyRole.PROPOSE: shares}
        )
        self.store, self.signals = MemoryWorkStore(ticking_clock()), LocalQueue()
        self.clients = {
            each.slug: Recorder(build_client(each), fail=each.slug in fail, lost=Charge(5, 0.25)) for each in policies
        }
        self.executor = WorkExecutor(self.store, self.signals, ToyEvaluator(), lambda policy: self.clients[policy.slug])
        self.store.add(self.context)
        self.signals.committed(self.store.start(self.context.run_id))

    @property
    def progress(self) -> RunProgress:
        return self.store.runs[self.context.run_id].progress

    @property
    def events(self) -> list[Event]:
        return list(self.store.events(self.context.run_id))


@pytest.mark.parametrize("choice", list(PolicyChoice))
def test_another_policy_answers_for_an_unavailable_one(choice: PolicyChoice) -> None:
    outage = Outage(["second"], policy_choice=choice)
    drain(outage.executor, outage.signals)
    progress, failures = outage.progress, outage.clients["second"].failures
    assert progress.state is RunState.COMPLETED
    assert progress.evaluations == 40
    assert failures > 1
    assert progress.tokens == 10 * len(outage.clients["first"].recorded) + 5 * failures
    assert progress.cost == pytest.approx(6.5 * len(outage.clients["first"].recorded) + 0.25 * failures)
    assert progress.alarm == "policy 'second' is unavailable, and others answer for it: the endpoint is down"
    assert [event.data["name"] for event in outage.events if event.kind is EventKind.ALARM_RAISED] == ["outage"]


def test_the_alarm_ends_when_the_policy_answers_again() -> None:
    outage = Outage(["second"])
    drain(outage.executor, outage.signals, most_units=4)
    assert outage.progress.alarm
    outage.clients["second"].fail = False
    drain(outage.executor, outage.signals)
    assert outage.progress.alarm is None
    assert {EventKind.ALARM_RAISED, EventKind.ALARM_CLEARED} < {event.kind for event in outage.events}
    assert outage.clients["second"].recorded


def test_a_run_pauses_when_all_its_policies_are_unavailable() -> None:
    outage = Outage(["second"])
    drain(outage.executor, outage.signals, most_units=4)
    answers = len(outage.clients["first"].recorded)
    outage.clients["first"].fail = True
    drain(outage.executor, outage.signals)
    assert outage.progress.state is RunState.PAUSED
    assert outage.progress.reason == "the endpoint is down the endpoint is down"  # the reasons of both
    failures = sum(client.failures for client in outage.clients.values())
    assert outage.progress.tokens == 10 * answers + 5 * failures


@pytest.mark.parametrize("tokens", [150, 200, 205, 210, 215])
def test_a_token_budget_ends_a_run_although_a_policy_is_unavailable(tokens: int) -> None:
    outage = Outage(["second"], budget=Budget(tokens=tokens))
    outage.clients["second"].lost = Charge()
    drain(outage.executor, outage.signals)
    assert outage.progress.state is RunState.COMPLETED, outage.progress.reason
    assert 0 < outage.progress.tokens <= tokens


def test_versions_of_a_policy_raise_one_alarm() -> None:
    options = {"template": "```python\nx = 0.{number}\ny = 5\n```"}
    policies = [
        Policy.model_validate(
            {"slug": "base", "kind": "scripted", "options": options | {"tokens_per_completion": version}}
        )
        for version in (1, 2)
    ]
    shares = tuple(WeightedPolicy(policy, uuid4()) for policy in policies)
    spec = toy_spec(80, batch=8, samples_per_prompt=1, seed=1, strategy="best_of_n")
    context = RunContext(
        uuid4(), toy_problem(), policies[0], shares[0].policy_id, spec, ensembles={PolicyRole.PROPOSE: shares}
    )
    clients = {each.digest: Recorder(build_client(each), fail=each is policies[1]) for each in policies}
    store, signals = MemoryWorkStore(ticking_clock()), LocalQueue()
    store.add(context)
    signals.committed(store.start(context.run_id))
    drain(WorkExecutor(store, signals, ToyEvaluator(), lambda policy: clients[policy.digest]), signals)
    alarms = [event.kind for event in store.events(context.run_id) if event.kind.value.startswith("alarm")]
    assert alarms == [EventKind.ALARM_RAISED]


def test_an_interrupted_request_is_not_replaced() -> None:
    outage, lost = Outage(["first", "second"]), threading.Event()
    drain(outage.executor, outage.signals, most_units=1)
    lost.set()
    with interruptible(lost):
        drain(outage.executor, outage.signals, most_units=1)
    assert sum(client.failures for client in outage.clients.values()) == 1
    assert outage.progress.alarm is None


def test_an_alarm_about_failed_candidates_replaces_one_about_a_policy() -> None:
    change = RunChange(RunProgress(recent={"crashed": 16}))
    judge_outages(change, {GOOD.digest: "policy 'good' is unavailable"}, [])
    judge_alarm(change)
    assert alarm_name(change.progress.alarm) == FAILURES
    assert [event.data.get("name") for event in change.events] == [OUTAGE, None]


def test_a_replay_leaves_out_the_unavailable_policy() -> None:
    outage = Outage(["second"])
    drain(outage.executor, outage.signals)
    recorded = [
        RecordedCompletion(each.prompt.digest, each.seed, each.completion, each.prompt_tokens, each.cost)
        for rollouts in outage.store.runs[outage.context.run_id].rollouts.values()
        for each in rollouts
    ]
    report = replay(
        outage.context, recorded, outage.events,
        store=MemoryWorkStore(ticking_clock()), evaluator=ToyEvaluator(), client_for=build_client,
    )  # fmt: skip
    assert report.identical, report.describe()


def test_decayed_counts_do_not_depend_on_the_order_of_answers() -> None:
    answers = [(batch, batch % 3, batch % 2) for batch in range(1, 30)]
    rng = np.random.default_rng(3)

    def counted(order: list[int]) -> DecayedCounts:
        found = DecayedCounts()
        for i in order:
            at, judged, won = answers[i]
            found = found.plus(0.9, at, asked=4).plus(0.9, at, judged=judged, won=won)
        return found

    straight = counted(list(range(29)))
    assert straight.at == 29
    assert straight.asked == pytest.approx(4 * (1 - 0.9**29) / (1 - 0.9), rel=1e-12)
    for _ in range(5):
        assert asdict(counted(rng.permutation(29).tolist())) == pytest.approx(asdict(straight), rel=1e-12)
    assert straight.seen(0.9, 31).won == pytest.approx(0.81 * straight.won)
    assert straight.seen(0.9, 3) is straight


@pytest.mark.parametrize(("discount", "follows"), [(1.0, False), (0.95, True)])
def test_a_discount_follows_a_change_of_the_best_policy(discount: float, follows: bool) -> None:
    # Policy 0 wins half of its answers for 100 batches and then none; policy 1 a fifth of them all the time.
    progress, rng = RunProgress(), np.random.default_rng(5)
    context = _context({"good": 1, "third": 1}, policy_choice="ucb", policy_discount=discount)
    asked = []
    for batch in range(1, 201):
        arms = read_arms(progress.arms)
        known = [arms.get(arm_key(PolicyRole.PROPOSE, i), BanditArm()) for i in (0, 1)]
        chosen = best_arm(known, [0, 0], EVALUATIONS, discount)
        asked.append(chosen)
        for _ in range(8):
            won = rng.random() < (0.2, 0.5 if batch <= 100 else 0.0)[chosen == 0]
            count_arm(progress, context, PolicyRole.PROPOSE, chosen, batch, asked=1, judged=1, won=won)
    assert asked[20:100].count(0) > 60
    # Right after the change, and to the end.
    assert (asked[120:150].count(1) > 20, asked[150:].count(1) > 40) == (follows, follows)
    assert sum(arm["asked"] for arm in progress.arms.values()) == 1600
    assert ("decayed" in progress.arms["propose:0"]) == (discount < 1)


def test_a_replay_with_a_discount_is_identical() -> None:
    lab = Lab(_context({"good": 1, "third": 1}, (), 120, policy_choice="ucb", policy_discount=0.8, batch=4))
    assert lab.events[0].data["discount"] == 0.8
    assert set(lab.asked(PolicyRole.PROPOSE) + lab.asked()) == {0, 1}
    report = replay(
        lab.context, lab.recorded, lab.events,
        store=MemoryWorkStore(ticking_clock()), evaluator=ToyEvaluator(), client_for=build_client,
    )  # fmt: skip
    assert report.identical, report.describe()


def test_the_index_is_finite_when_counts_have_decayed_to_nothing() -> None:
    old, new = DecayedCounts(1, 8.0, 8.0, 8.0), DecayedCounts(10**6, 8.0, 8.0, 0.0)
    # A fully decayed arm counts as never chosen.
    assert best_arm([BanditArm(8, 8, 0, decayed=new), BanditArm(8, 8, 8, decayed=old)], [0, 0], EVALUATIONS, 0.5) == 1
    assert best_arm([BanditArm(8, 8, 0, decayed=new)], [0], EVALUATIONS, 0.5) == 0
