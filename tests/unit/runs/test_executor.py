"""Complete runs in one process: the use cases of the workers on the in-memory store, and replays."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from itertools import cycle
from uuid import uuid4

import pytest

from speciate.domain.budget import Budget
from speciate.domain.candidate import Evaluation, Failure, FailureKind
from speciate.domain.charge import Charge
from speciate.domain.diagnosis import Diagnosis, Fault
from speciate.domain.errors import EvaluatorUnavailableError, PolicyUnavailableError, ReplayError
from speciate.domain.event import Event, EventKind
from speciate.domain.objective import ObjectiveRole
from speciate.domain.policy import Policy
from speciate.domain.problem import Problem
from speciate.domain.rollout import Completion
from speciate.domain.run import RunSpec, RunState
from speciate.domain.seeds import SeedProgram
from speciate.domain.target import ClaimState, Target
from speciate.domain.values import storable
from speciate.policies import build_client
from speciate.ports.policy import PolicyClient, SampleRequest, SampleResult
from speciate.ports.work import POLISHER, ProposedBatch, RunContext, WorkKind
from speciate.prompts.mutation import individual_text
from speciate.runs import ledger, stopping
from speciate.runs.executor import LocalQueue, WorkExecutor, drain
from speciate.runs.external_proposals import plan_asks
from speciate.runs.payloads import confirm_payload, read_confirmations
from speciate.runs.progress import RunChange, RunProgress
from speciate.runs.replay import RecordedCompletion, replay
from speciate.runs.stored_population import StoredPopulation
from speciate.search.strategies import STRATEGIES
from tests.support.memory_store import MemoryWorkStore
from tests.support.runs import ToyEvaluator, ticking_clock, toy_problem, toy_proposals, toy_rollout, toy_spec

SCRIPT = "```python\nx = 0.{number}\ny = 5\n```"


@dataclass
class Recorder:
    """Forwards requests and records the completions."""

    inner: PolicyClient
    recorded: list[RecordedCompletion] = field(default_factory=list)
    fail: bool = False
    lost: Charge = field(default_factory=Charge)  # what a failure costs
    dollars: float | None = None  # reported for each answer
    failures: int = 0

    def token_ceiling(self, request: SampleRequest) -> int:
        return self.inner.token_ceiling(request)

    def sample(self, requests: list[SampleRequest]) -> list[SampleResult]:
        if self.fail:
            self.failures += 1
            error = PolicyUnavailableError("the endpoint is down")
            error.spent = self.lost
            raise error
        results = self.inner.sample(requests)
        if self.dollars is not None:
            results = [replace(each, cost=self.dollars * len(each.completions)) for each in results]
        for request, result in zip(requests, results, strict=True):
            for i, completion in enumerate(result.completions):
                tokens = result.prompt_tokens if i == 0 else 0
                self.recorded.append(
                    RecordedCompletion(request.prompt.digest, request.seed, completion, tokens, self.dollars)
                )
        return results

    def ping(self) -> str:
        return self.inner.ping()


@dataclass
class Session:
    """An in-memory run."""

    context: RunContext
    store: MemoryWorkStore
    policy: Recorder
    evaluator: ToyEvaluator
    signals: LocalQueue = field(default_factory=LocalQueue)

    def executor(self) -> WorkExecutor:
        clients = {POLISHER.policy.digest: build_client(POLISHER.policy)}
        return WorkExecutor(
            self.store, self.signals, self.evaluator, lambda policy: clients.get(policy.digest, self.policy)
        )

    def go(self) -> int:
        return drain(self.executor(), self.signals)

    @property
    def events(self) -> list[Event]:
        return list(self.store.events(self.context.run_id))


def session(spec: RunSpec, problem: Problem | None = None, *, granted: int | None = None, **options: object) -> Session:
    policy = Policy.model_validate({"slug": "s", "kind": "scripted", "options": options or {"template": SCRIPT}})
    context = RunContext(uuid4(), problem or toy_problem(), policy, uuid4(), spec)
    store = MemoryWorkStore(ticking_clock())
    store.add(context, granted)
    made = Session(context, store, Recorder(build_client(policy)), ToyEvaluator())
    made.signals.committed(store.start(context.run_id))
    return made


@pytest.mark.parametrize("strategy", STRATEGIES)
@pytest.mark.parametrize("lanes", [1, 3])
def test_a_run_spends_its_budget_and_ends(strategy: str, lanes: int) -> None:
    s = session(toy_spec(50, strategy=strategy, lanes=lanes))
    s.go()
    run = s.store.runs[s.context.run_id]
    assert (run.progress.state, run.progress.evaluations) == (RunState.COMPLETED, 50)
    assert sorted(run.candidates) == list(range(1, 51))


def test_a_run_selects_parents_by_puct_one_of_each_lineage_in_a_batch() -> None:
    options = {"selection": "puct", "islands": 1, "exploration": 0, "crossover": 0, "toward_targets": 0}
    s = session(toy_spec(60, strategy_options=options, batch=6, seed=1))
    s.go()
    run = s.store.runs[s.context.run_id]
    family = {number: parent for number, parent, _ in s.store.lineage_rows(s.context.run_id)}
    assert sorted(family) == list(range(1, 61))
    batches = [event.data for event in run.events if event.kind is EventKind.BATCH_PROPOSED]
    several = 0
    for batch in batches:
        parents = {family[n] for n in range(batch["first"], batch["first"] + batch["proposals"])}
        several += len(parents) > 1
    assert several > len(batches) / 2


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_a_plateau_is_detected_despite_cells_that_rank_by_time(strategy: str) -> None:
    options = {"mind_evolution": {"reset_interval": 0}, "adaptive_evolution": {"polish": False}}.get(strategy, {})
    spec = toy_spec(600, strategy=strategy, strategy_options=options, batch=8, stop_on_plateau=100)
    s = session(spec, template="```python\nx = 1\ny = 5\nz = {number}\n```")
    s.go()
    progress = s.store.runs[s.context.run_id].progress
    assert (progress.state, progress.duplicates) == (RunState.COMPLETED, 0)
    assert progress.since_improvement() >= 100


def test_a_duplicate_costs_but_is_not_evaluated_again() -> None:
    s = session(toy_spec(20), completions=["```python\nx = 3\ny = 3\n```"])
    s.go()
    run = s.store.runs[s.context.run_id]
    assert run.progress.evaluations == 20
    assert s.evaluator.evaluated.count("x = 3\ny = 3") + s.evaluator.evaluated.count("x = 3\ny = 3\n") == 1
    assert run.progress.duplicates == 18
    assert {c.duplicate_of for n, c in run.candidates.items() if n > 2} == {2}


def endpoint_session(
    answers: Iterable[str], budget: int, problem: Problem | None = None, *, seed: int = 0, **more: object
) -> Session:
    """Return a run whose policy is registered with an endpoint, and answers from a list."""
    spec = toy_spec(budget, batch=16, samples_per_prompt=4, seed=seed)
    s = session(spec, problem, completions=[*answers], **more)
    s.context = replace(s.context, proposer=s.context.proposer.model_copy(update={"base_url": "http://127.0.0.1:1/v1"}))
    s.store.add(s.context, None)
    s.signals = LocalQueue()
    s.signals.committed(s.store.start(s.context.run_id))
    return s


@pytest.mark.parametrize(("different", "most"), [(1, 33), (2, 49), (4, 129)])
def test_a_policy_that_repeats_a_few_answers_pauses_the_run(different: int, most: int) -> None:
    s = endpoint_session([f"```python\nx = {i}\ny = 3\n```" for i in range(2, 2 + different)], 400)
    s.go()
    progress = s.store.runs[s.context.run_id].progress
    diagnosis = Diagnosis.model_validate(progress.diagnosis)
    assert (progress.state, diagnosis.fault, diagnosis.reason) == (RunState.PAUSED, Fault.POLICY, "repeated_answers")
    assert progress.evaluations <= most
    assert str(progress.reason).startswith("the policy repeats its answers (")
    assert "temperature" in diagnosis.remedy
    spent = progress.evaluations
    s.signals.committed(s.store.move(s.context.run_id, lambda change: ledger.resume(change, s.context)))
    s.go()
    assert (progress.state, progress.evaluations > spent) == (RunState.PAUSED, True)


@pytest.mark.parametrize("favourites", [2, 5, 10])
def test_a_policy_that_sometimes_finds_something_new_raises_the_alarm_and_goes_on(favourites: int) -> None:
    """Every sixth answer is new, on average."""
    texts = [f"```python\nx = {i % favourites if i % 6 else 10 + i}\ny = 3\n```" for i in range(6000)]
    s = endpoint_session(texts, 600, order="seed", seed=6)
    s.go()
    assert s.store.runs[s.context.run_id].progress.state is RunState.COMPLETED
    messages = [event.data["message"] for event in s.events if event.kind is EventKind.ALARM_RAISED]
    assert messages
    assert all("repeat earlier programs: set a temperature above 0" in message for message in messages)


def test_what_reading_undid_is_feedback_of_the_candidate() -> None:
    seed = "# EVOLVE-BLOCK-START\nx = 1\n# EVOLVE-BLOCK-END\ny = 9\n"
    answer = "```python\n# EVOLVE-BLOCK-START\nx = 3\n# EVOLVE-BLOCK-END\ny = 2\n```"
    s = session(toy_spec(6), toy_problem(seed_program=seed), completions=[answer])
    s.go()
    child = s.store.members(s.context.run_id, [2])[2]
    assert child.rewards == (3.0, 9.0)
    assert child.artifacts["answer"] == "Changes outside of the EVOLVE-BLOCKs do not stay there: undone: y = 2"


def test_answers_that_change_only_protected_text_raise_an_alarm_in_its_words() -> None:
    seed = "# EVOLVE-BLOCK-START\nx = 1\n# EVOLVE-BLOCK-END\ny = 9\n"
    problem = toy_problem().model_copy(update={"seed_program": seed})
    s = endpoint_session([f"```python\n{seed.replace('9', '8')}```"], 30, problem)
    s.go()
    progress = s.store.runs[s.context.run_id].progress
    assert progress.alarm is not None
    assert progress.alarm.startswith("94% of the last 17 candidates failed, most often because")
    assert "(protected_region_changed)" in progress.alarm
    paused = endpoint_session([f"```python\n{seed.replace('9', '8')}```"], 200, problem)
    paused.go()
    reason = str(paused.store.runs[paused.context.run_id].progress.reason)
    assert reason.startswith(
        "every answer of the policy changes protected text (48 in a row): protected_region_changed"
    )


def test_unreadable_answers_are_counted_by_reason_and_raise_the_alarm() -> None:
    answers = ["I would rather not."] * 19 + ["```python\nx = 3\ny = 3\n```"]
    s = session(toy_spec(80, batch=16), completions=answers)
    s.go()
    progress = s.store.runs[s.context.run_id].progress
    assert (progress.evaluations, progress.reasons) == (80, {"no_code_block": 76})
    assert progress.alarm is not None
    assert progress.alarm.endswith("their answers were refused before the evaluation (no_code_block)")
    assert EventKind.ALARM_RAISED in [event.kind for event in s.events]


def test_the_alarm_names_the_most_frequent_cause() -> None:
    change = RunChange(RunProgress(recent={"crashed": 40, "timeout": 8, "ok": 16}))
    stopping.judge_alarm(change)
    assert str(change.progress.alarm).endswith("most often because they crashed")


def test_empty_answers_pause_a_run_after_a_few() -> None:
    s = session(toy_spec(80, batch=2), completions=["", " \n"])
    s.go()
    progress = s.store.runs[s.context.run_id].progress
    diagnosis = Diagnosis.model_validate(progress.diagnosis)
    assert (diagnosis.reason, diagnosis.failures, progress.evaluations) == ("no_text", 6, 7)
    assert "no answer of the policy came as text (6 in a row): the endpoint sent an empty text." in diagnosis.summary


@pytest.mark.parametrize("lanes", [1, 4])
def test_a_run_without_a_readable_answer_pauses(lanes: int) -> None:
    s = session(toy_spec(2000, batch=16, lanes=lanes), completions=["I would rather not."])
    s.go()
    progress = s.store.runs[s.context.run_id].progress
    diagnosis = Diagnosis.model_validate(progress.diagnosis)
    assert (progress.state, progress.reason) == (RunState.PAUSED, diagnosis.summary)
    assert (diagnosis.fault, diagnosis.reason, diagnosis.failures) == (Fault.POLICY, "no_code_block", 48)
    assert progress.evaluations == 49
    (paused,) = [event for event in s.events if event.kind is EventKind.RUN_PAUSED]
    assert (paused.data["fault"], paused.data["diagnosis"]) == (True, progress.diagnosis)


class BrokenEvaluator(ToyEvaluator):
    """Raises for programs that ``broken`` selects."""

    def __init__(self, broken: Callable[[str], bool]) -> None:
        super().__init__()
        self.broken = broken

    def _one(self, program: str) -> Evaluation:
        if self.broken(program):
            detail = "Traceback …\nModuleNotFoundError: No module named 'scipy'"
            return Evaluation(failure=Failure(FailureKind.INVALID_OUTPUT, "evaluator_raised", detail))
        return super()._one(program)


@pytest.mark.parametrize("hinted", [False, True])
def test_an_evaluator_that_cannot_score_the_seed_pauses_at_once_and_scores_it_after_the_resume(*, hinted: bool) -> None:
    s = session(toy_spec(40))
    s.evaluator = BrokenEvaluator(lambda _: True)
    s.go()
    run = s.store.runs[s.context.run_id]
    assert (run.progress.state, run.progress.evaluations, run.progress.live) == (RunState.PAUSED, 1, 0)
    assert run.progress.diagnosis["candidate"] == 1
    assert "No module named 'scipy'" in str(run.progress.reason)
    if hinted:
        s.store.move(s.context.run_id, lambda change: ledger.apply_advice(change, s.context, "Raise x.", "user"))
    s.evaluator = ToyEvaluator()
    s.signals.committed(s.store.move(s.context.run_id, lambda change: ledger.resume(change, s.context)))
    s.go()
    assert (run.progress.state, run.progress.evaluations, run.progress.diagnosis) == (RunState.COMPLETED, 40, {})
    seeds = [(n, c.duplicate_of) for n, c in run.candidates.items() if c.proposal.role == "seed"]
    assert seeds == [(1, None), (2, None)]
    assert run.candidates[2].evaluation.rewards == (1.0, 9.0)


def test_a_lane_opens_once_though_others_propose_while_the_seed_is_confirmed() -> None:
    s = session(toy_spec(100, lanes=4, strategy="adaptive_evolution"), toy_problem(seed_program="x = 6\ny = 9\n"))
    run, executor = s.store.runs[s.context.run_id], s.executor()
    executor.execute(s.signals.waiting.popleft())
    confirmation = s.signals.waiting.popleft()
    batch = ProposedBatch((toy_rollout(),), toy_proposals(*(f"x = 1\ny = {i}\n" for i in range(40))))
    sent = s.store.move(s.context.run_id, lambda change: ledger.record_external_batch(change, s.context, batch))
    for work_id in (sent.dispatch[-1].id, confirmation):
        assert executor.execute(work_id)
    lanes = [unit.new.lane for unit in run.units.values() if unit.new.kind is WorkKind.GENERATE]
    assert sorted(lanes) == [0, 1]


def test_prompts_show_the_seed_program_that_was_scored() -> None:
    s = session(toy_spec(2))
    s.evaluator = BrokenEvaluator(lambda _: True)
    s.go()
    s.evaluator = ToyEvaluator()
    s.signals.committed(s.store.move(s.context.run_id, lambda change: ledger.resume(change, s.context)))
    s.go()
    external = Policy(slug="external", kind="external")
    (ask,) = plan_asks(s.context, s.store, external, [uuid4()], batch=1, hinted=False)
    assert "Seed: program 2" in ask.shown.prompt.user
    assert "#2 " not in ask.shown.prompt.user  # it is no attempt
    assert StoredPopulation(s.store, s.context, 1).seed_rewards == (1.0, 9.0)


@pytest.mark.parametrize(("seeds", "budget", "reserved"), [(1, 11, 1), (1, 12, 3), (11, 12, 12), (12, 12, 12)])
def test_further_evaluations_of_a_noisy_seed_stay_within_the_budget(seeds: int, budget: int, reserved: int) -> None:
    noisy = toy_problem().model_copy(update={"stochastic": True})
    programs = tuple(SeedProgram(f"x = {x}\ny = 9\n") for x in range(seeds))
    context = replace(session(toy_spec(budget), noisy).context, seeds=programs)
    change = RunChange(RunProgress())
    ledger.start(change, context)
    (unit,) = change.works
    assert (unit.reserved_evaluations, change.progress.reserved_evaluations) == (reserved, reserved)


def test_an_evaluator_that_scores_nothing_but_the_seed_pauses_the_run_and_it_replays() -> None:
    s = session(toy_spec(2000, batch=8))
    s.evaluator = BrokenEvaluator(lambda program: "0." in program)
    s.go()
    run = s.store.runs[s.context.run_id]
    assert (run.progress.state, run.progress.evaluations) == (RunState.PAUSED, 1 + 3 * 8)
    s.signals.committed(s.store.move(s.context.run_id, lambda change: ledger.resume(change, s.context)))
    s.go()
    assert (run.progress.state, run.progress.evaluations) == (RunState.PAUSED, 1 + 6 * 8)
    report = replay(
        s.context,
        s.policy.recorded,
        s.events,
        store=MemoryWorkStore(ticking_clock()),
        evaluator=s.evaluator,
        client_for=lambda _: s.policy,
    )
    assert report.identical, report.describe()


def test_a_run_whose_evaluator_fails_on_the_seed_program_replays_it_once() -> None:
    s = session(toy_spec(budget=Budget(tokens=10**6)))
    s.evaluator = BrokenEvaluator(lambda _: True)
    s.go()
    s.store.move(s.context.run_id, stopping.cancel)
    store = MemoryWorkStore(ticking_clock())
    report = replay(s.context, [], s.events, store=store, evaluator=s.evaluator, client_for=build_client)
    assert report.identical
    assert store.runs[s.context.run_id].progress.evaluations == 1


def test_an_evaluator_that_raises_for_some_programs_does_not_pause_the_run() -> None:
    s = session(toy_spec(400, batch=8))
    raises = cycle([False, True, True])
    s.evaluator = BrokenEvaluator(lambda _: next(raises))
    s.go()
    progress = s.store.runs[s.context.run_id].progress
    assert (progress.state, progress.evaluations) == (RunState.COMPLETED, 400)
    assert progress.reasons["evaluator_raised"] > 100


@pytest.mark.parametrize(("raising", "state"), [(3, RunState.COMPLETED), (4, RunState.PAUSED)])
def test_an_evaluator_that_raises_for_half_of_each_batch_and_scores_none_pauses_the_run(
    raising: int, state: RunState
) -> None:
    s = session(toy_spec(200, batch=8), template="```python\nx = 0.{number}\n```")  # without y it fails by itself
    raises = cycle([True] * raising + [False] * (8 - raising))
    s.evaluator = BrokenEvaluator(lambda program: "y" not in program and next(raises))
    s.go()
    assert s.store.runs[s.context.run_id].progress.state is state


def test_rewards_out_of_scale_fail_only_their_candidate() -> None:
    answers = ["```python\nx = 1e300\ny = 1\n```", "```python\nx = 2\ny = 2\n```"]
    s = session(toy_spec(20), completions=answers)
    s.go()
    progress = s.store.runs[s.context.run_id].progress
    assert (progress.state, progress.evaluations) == (RunState.COMPLETED, 20)
    assert set(progress.reasons) == {"rewards_out_of_scale"}
    assert progress.best == [2.0, 2.0]


def test_infeasible_candidates_never_count_as_best() -> None:
    free = toy_problem()
    bound = free.objectives[1].model_copy(update={"role": ObjectiveRole.CONSTRAINT, "limit": 5.0})
    given = {"objectives": (free.objectives[0], bound), "weights": {"x": 1.0}}
    problem = Problem.model_validate(free.model_dump() | given)
    s = session(toy_spec(20), problem, completions=["```python\nx = 9\ny = 7\n```", "```python\nx = 2\ny = 4\n```"])
    s.go()
    progress = s.store.runs[s.context.run_id].progress
    assert progress.best == [2.0, 4.0]


def test_an_unlock_is_confirmed_and_can_end_the_run() -> None:
    s = session(toy_spec(50, stop_on_unlock=True), completions=["```python\nx = 9\ny = 1\n```"])
    s.go()
    run = s.store.runs[s.context.run_id]
    assert run.progress.state is RunState.COMPLETED
    assert run.progress.evaluations < 50
    assert {c.state for c in run.claims.values()} == {ClaimState.CONFIRMED}
    # Once for the batch and once for both of its targets, with another seed.
    assert sum("x = 9" in program for program in s.evaluator.evaluated) == 2


def test_one_evaluation_of_all_repeats_decides_every_target_and_prompts_show_what_it_measured() -> None:
    problem = toy_problem(confirmations=2)
    s = session(toy_spec(6), problem, completions=["```python\nx = 9\ny = 1\n```"])
    measured: list[list[int]] = []

    class Noisy(ToyEvaluator):
        def evaluate(
            self, problem: Problem, programs: Sequence[str], *, seeds: Sequence[int], timeout_s: float | None = None
        ) -> list[Evaluation]:
            results = super().evaluate(problem, programs, seeds=seeds)
            if any("x = 9" in program for program in programs):
                measured.append(list(seeds))
                results = [Evaluation(rewards=(9.0, 1.0 + 2.5 * (i + len(measured) > 2))) for i, _ in enumerate(seeds)]
            return results

    s.evaluator = Noisy()
    s.go()
    first, repeats = measured
    assert len({*first, *repeats}) == len(first) + 2
    run = s.store.runs[s.context.run_id]
    states = {(claim.target, claim.state) for claim in run.claims.values()}
    assert states == {("half", ClaimState.CONFIRMED), ("both", ClaimState.REFUTED)}
    told = "first evaluation 1, repeats 1; 3.5: not confirmed"
    (refuted,) = [event for event in s.events if event.kind is EventKind.TARGET_REFUTED]
    assert refuted.data["detail"] == told
    text = individual_text(problem, s.store.members(s.context.run_id, [refuted.data["candidate"]]).popitem()[1])
    assert f"Does not meet both reliably: {told}." in text
    assert "Meets: half." in text
    assert "Unmet" not in text


@pytest.mark.parametrize("holds", [True, False])
def test_a_successor_of_two_refuted_claims_is_evaluated_again_once(*, holds: bool) -> None:
    large, small, both = "x = 6\ny = 8\n", "x = 1\ny = 1\n", "x = 6\ny = 1\n"

    class Unlucky(ToyEvaluator):
        def evaluate(
            self, problem: Problem, programs: Sequence[str], *, seeds: Sequence[int], timeout_s: float | None = None
        ) -> list[Evaluation]:
            again = self.evaluated[:]
            results = super().evaluate(problem, programs, seeds=seeds)
            repeats = {large: (1.0, 8.0), small: (1.0, 8.0), both: (6.0, 1.0 if holds else 8.0)}
            return [
                Evaluation(rewards=repeats[program]) if program in again else result
                for program, result in zip(programs, results, strict=True)
            ]

    targets = (Target(name="large", rule="x >= 5"), Target(name="small", rule="y <= 2", unlock=True))
    completions = [f"```python\n{program}```" for program in (small, both, large)]  # begins with the last
    spec = toy_spec(4, batch=3, samples_per_prompt=3)
    s = session(spec, toy_problem().model_copy(update={"targets": targets}), completions=completions)
    s.evaluator = Unlucky()
    s.go()
    assert {(c.target, c.number, c.state) for c in s.store.runs[s.context.run_id].claims.values()} == {
        ("large", 2, ClaimState.REFUTED),
        ("large", 4, ClaimState.CONFIRMED),
        ("small", 3, ClaimState.REFUTED),
        ("small", 4, ClaimState.CONFIRMED if holds else ClaimState.REFUTED),
    }
    assert s.evaluator.evaluated.count(both) == 2


def test_confirmations_of_one_candidate_are_joined() -> None:
    due = [(3, (0,)), (4, (1,)), (3, (2,))]
    assert read_confirmations(confirm_payload(due, opens=0, ends=False)) == [(3, (0, 2)), (4, (1,))]


def test_the_token_budget_is_never_exceeded() -> None:
    s = session(toy_spec(budget=Budget(tokens=333)), template=SCRIPT, tokens_per_completion=10, prompt_tokens=7)
    s.go()
    progress = s.store.runs[s.context.run_id].progress
    assert progress.state is RunState.COMPLETED
    assert 333 - 17 < progress.tokens <= 333
    assert progress.reserved_tokens == 0


def test_an_unavailable_endpoint_pauses_the_run() -> None:
    s = session(toy_spec(12))
    s.policy.fail = True
    s.go()
    progress = s.store.runs[s.context.run_id].progress
    assert (progress.state, progress.reason) == (RunState.PAUSED, "the endpoint is down")
    s.policy.fail = False
    s.signals.committed(s.store.move(s.context.run_id, lambda change: ledger.resume(change, s.context)))
    s.go()
    assert (progress.state, progress.evaluations) == (RunState.COMPLETED, 12)


def test_an_evaluator_that_cannot_run_pauses_the_run(monkeypatch: pytest.MonkeyPatch) -> None:
    s = session(toy_spec(12))

    def evaluate(*_: object, **__: object) -> list[Evaluation]:
        raise EvaluatorUnavailableError("rustc is missing.", remedy="Install it.")

    monkeypatch.setattr(s.evaluator, "evaluate", evaluate)
    s.go()
    progress = s.store.runs[s.context.run_id].progress
    assert (progress.state, progress.reason) == (RunState.PAUSED, "rustc is missing. Install it.")
    monkeypatch.undo()
    s.signals.committed(s.store.move(s.context.run_id, lambda change: ledger.resume(change, s.context)))
    s.go()
    assert (progress.state, progress.evaluations) == (RunState.COMPLETED, 12)


def test_an_unexpected_exception_pauses_the_run_with_the_reason(monkeypatch: pytest.MonkeyPatch) -> None:
    s = session(toy_spec(12))
    monkeypatch.setattr(s.evaluator, "evaluate", lambda *_, **__: [{}["SELECT secret"]])
    (work_id,) = s.signals.waiting
    s.go()
    progress = s.store.runs[s.context.run_id].progress
    assert progress.state is RunState.PAUSED
    assert progress.reason is not None
    assert f"unexpected KeyError in evaluate work {work_id}" in progress.reason
    assert "SELECT" not in progress.reason
    monkeypatch.undo()
    s.signals.committed(s.store.move(s.context.run_id, lambda change: ledger.resume(change, s.context)))
    s.go()
    assert (progress.state, progress.evaluations) == (RunState.COMPLETED, 12)


def test_the_same_seed_gives_the_same_events() -> None:
    logs = []
    for _ in range(2):
        s = session(toy_spec(60, seed=7))
        s.go()
        logs.append([(event.kind, dict(event.data)) for event in s.events])
    assert logs[0] == logs[1]
    other = session(toy_spec(60, seed=8))
    other.go()
    assert [dict(event.data) for event in other.events] != [data for _, data in logs[0]]


def _replayed(s: Session, change: Callable[[list[RecordedCompletion]], None] = lambda _: None) -> tuple[bool, str]:
    recorded = list(s.policy.recorded)
    change(recorded)
    report = replay(
        s.context,
        recorded,
        s.events,
        store=MemoryWorkStore(ticking_clock()),
        evaluator=ToyEvaluator(),
        client_for=build_client,
    )
    return report.identical, "" if report.difference is None else str(report.difference)


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_a_replay_is_identical(strategy: str) -> None:
    s = session(toy_spec(60, seed=3, strategy=strategy))
    s.go()
    assert _replayed(s) == (True, "")


def test_a_run_with_a_token_budget_can_be_replayed() -> None:
    spec = toy_spec(budget=Budget(tokens=333))
    s = session(spec, template=SCRIPT, tokens_per_completion=10, prompt_tokens=7)
    s.go()
    assert _replayed(s) == (True, "")


@pytest.mark.parametrize("budget", [Budget(evaluations=60), Budget(tokens=1500), Budget(dollars=2.0)])
def test_a_replay_charges_what_lost_attempts_cost(budget: Budget) -> None:
    answers = [f"```python\nx = {x}\ny = {9 - x}\n```" for x in range(1, 10)]
    s = session(toy_spec(budget=budget, seed=7), completions=answers, tokens_per_completion=10, prompt_tokens=7)
    s.policy.lost, s.policy.dollars = Charge(40, 0.3), 0.0625
    drain(s.executor(), s.signals, most_units=3)
    s.policy.fail = True
    s.go()
    s.policy.fail = False
    s.signals.committed(s.store.move(s.context.run_id, lambda change: ledger.resume(change, s.context)))
    s.go()
    progress = s.store.runs[s.context.run_id].progress
    assert progress.state is RunState.COMPLETED
    assert progress.confirmed
    assert _replayed(s) == (True, "")


def test_a_replay_finds_a_changed_completion() -> None:
    s = session(toy_spec(60, seed=3))
    s.go()

    def tamper(recorded: list[RecordedCompletion]) -> None:
        last = recorded[-1]
        changed = type(last.completion)("```python\nx = 9\ny = 9\n```")
        recorded[-1] = RecordedCompletion(last.prompt_digest, last.seed, changed, last.prompt_tokens)

    identical, difference = _replayed(s, tamper)
    assert not identical
    assert "batch" in difference


def test_a_replay_parses_the_stored_text() -> None:
    s = session(toy_spec(12), completions=["```python\nx = 3\ny = 3  # \x00\n```", "```python\nx = 4\ny = 3\n```"])
    s.go()

    def store(recorded: list[RecordedCompletion]) -> None:
        recorded[:] = [replace(r, completion=replace(r.completion, text=storable(r.completion.text))) for r in recorded]

    assert _replayed(s, store) == (True, "")


def test_a_replay_ignores_a_pause() -> None:
    s = session(toy_spec(40))
    drain(s.executor(), s.signals, most_units=5)
    s.store.move(s.context.run_id, stopping.pause)
    s.signals.committed(s.store.move(s.context.run_id, lambda change: ledger.resume(change, s.context)))
    s.go()
    assert _replayed(s) == (True, "")


@pytest.mark.parametrize("units", [4, 5, 6])
@pytest.mark.parametrize("cancels", [False, True])
def test_an_unfinished_run_is_replayed_up_to_its_last_event(units: int, cancels: bool) -> None:
    s = session(toy_spec(40))
    drain(s.executor(), s.signals, most_units=units)
    if cancels:
        s.store.move(s.context.run_id, stopping.cancel)
    assert _replayed(s) == (True, "")
    s.policy.recorded[0] = replace(s.policy.recorded[0], completion=Completion("```python\nx = 9\ny = 9\n```"))
    assert not _replayed(s)[0]


def test_a_campaign_run_is_replayed_grant_by_grant() -> None:
    s = session(toy_spec(1000, seed=3), granted=7)
    for granted in (None, 20, 21, 40):
        if granted is not None:
            s.signals.committed(s.store.grant(s.context.run_id, granted))
        s.go()
    s.store.close(s.context.run_id, "the campaign has ended")
    assert s.store.runs[s.context.run_id].progress.evaluations == 40
    assert _replayed(s) == (True, "")


@pytest.mark.parametrize(
    ("spec", "expected"),
    [(toy_spec(40, lanes=2), "lanes = 1"), (toy_spec(budget=Budget(seconds=9.0)), "budget of evaluations")],
)
def test_a_run_that_cannot_be_replayed_is_refused_with_the_reason(spec: RunSpec, expected: str) -> None:
    s = session(spec)
    with pytest.raises(ReplayError, match=expected):
        replay(
            s.context, [], [], store=MemoryWorkStore(ticking_clock()), evaluator=ToyEvaluator(), client_for=build_client
        )
