"""Long evaluations in progress: which are listed, and what their texts may contain."""

from __future__ import annotations

import time
from contextlib import closing
from types import SimpleNamespace
from uuid import UUID, uuid4

import pytest
import redis

from evaluators.evaluator import SandboxEvaluator
from speciate.domain.problem import Problem
from speciate.messaging.active import ActiveEvaluations, active_evaluations
from speciate.policies import build_client
from speciate.ports.reporting import Progress, name_evaluations, report_evaluation, report_progress, reporting_to
from speciate.ports.work import RunContext, WorkKind
from speciate.runs.executor import LocalQueue, WorkExecutor, drain
from tests.support.memory_store import MemoryWorkStore
from tests.support.runs import scored_toy_problem, toy_policy, toy_problem, toy_spec


class Hashes:
    """The commands of Redis that the list uses; ``lost`` if it does not respond."""

    def __init__(self) -> None:
        self.found: dict[str, dict[str, bytes]] = {}
        self.lost = False

    def pipeline(self, *, transaction: bool) -> Hashes:
        assert not transaction
        return self

    def hset(self, key: str, field: str, value: str) -> None:
        self.found.setdefault(key, {})[field] = value.encode()

    def expire(self, key: str, seconds: int) -> None:
        assert seconds >= 30

    def execute(self) -> None:
        if self.lost:
            raise redis.ConnectionError

    def hdel(self, key: str, field: str) -> None:
        self.found.get(key, {}).pop(field, None)

    def hvals(self, key: str) -> list[bytes]:
        return [*self.found.get(key, {}).values()]


def lease(kind: WorkKind = WorkKind.EVALUATE, run_id: UUID | None = None) -> SimpleNamespace:
    payload = {"first": 4, "proposals": [1, 2], "number": 9}
    return SimpleNamespace(work_id=uuid4(), token=uuid4(), run_id=run_id or uuid4(), kind=kind, payload=payload)


def test_two_attempts_at_one_unit_end_each_by_itself() -> None:
    client, first = Hashes(), lease()
    second = SimpleNamespace(**{**vars(first), "token": uuid4()})
    active = ActiveEvaluations(client, expiry_s=30)  # type: ignore[arg-type]
    with active.track(second):  # type: ignore[arg-type]
        with active.track(first):  # type: ignore[arg-type]
            pass
        active.renew(second)  # type: ignore[arg-type]
        assert active_evaluations(client, first.run_id)  # type: ignore[arg-type]


def test_a_text_lists_an_evaluation_until_it_ends() -> None:
    client, held = Hashes(), lease()
    active = ActiveEvaluations(client, expiry_s=30)  # type: ignore[arg-type]
    with active.track(held):  # type: ignore[arg-type]
        assert active_evaluations(client, held.run_id) == ()  # type: ignore[arg-type]  # a short one costs nothing
        report_progress("h\x1balf\n")
        (found,) = active_evaluations(client, held.run_id)  # type: ignore[arg-type]
        assert (found.candidates, found.kind, found.text) == ((4, 5), "evaluate", "h alf")
    assert active_evaluations(client, held.run_id) == ()  # type: ignore[arg-type]
    report_progress("dropped")


def test_the_candidate_under_evaluation_is_named_and_printed_lines_list_long_evaluations_only(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    client, held = Hashes(), lease()
    active = ActiveEvaluations(client, expiry_s=30)  # type: ignore[arg-type]
    now = time.monotonic()
    with active.track(held):  # type: ignore[arg-type]
        name_evaluations({("x = 1", 70): 4, ("x = 2", 70): 5})
        report_evaluation("x = 1", 70)
        report_progress("of the first")
        report_evaluation("x = 2", 70)
        active.renew(held)  # type: ignore[arg-type]
        (found,) = active_evaluations(client, held.run_id)  # type: ignore[arg-type]
        assert (found.candidate, found.text) == (5, "")
    with active.track(held):  # type: ignore[arg-type]
        report_progress("printed", asked=False)
        assert active_evaluations(client, held.run_id) == ()  # type: ignore[arg-type]
        monkeypatch.setattr("speciate.messaging.active.time.monotonic", lambda: now + 60)
        report_progress("printed later", asked=False)
        (found,) = active_evaluations(client, held.run_id)  # type: ignore[arg-type]
        assert (found.candidate, found.text) == (None, "printed later")


def test_a_renewal_lists_a_silent_one_and_nothing_else() -> None:
    client, held, other = Hashes(), lease(WorkKind.CONFIRM), lease(WorkKind.GENERATE)
    active = ActiveEvaluations(client, expiry_s=30)  # type: ignore[arg-type]
    with active.track(held), active.track(other):  # type: ignore[arg-type]
        active.renew(held)  # type: ignore[arg-type]
        active.renew(other)  # type: ignore[arg-type]
        (found,) = active_evaluations(client, held.run_id)  # type: ignore[arg-type]
        assert (found.candidates, found.text) == ((9, 9), "")
        assert active_evaluations(client, other.run_id) == ()  # type: ignore[arg-type]


def test_one_of_a_dead_worker_is_not_listed(monkeypatch: pytest.MonkeyPatch) -> None:
    client, held = Hashes(), lease()
    active = ActiveEvaluations(client, expiry_s=30)  # type: ignore[arg-type]
    with active.track(held):  # type: ignore[arg-type]
        report_progress("half")
        now = time.time()
        monkeypatch.setattr("speciate.messaging.active.time.time", lambda: now + 31)
        assert active_evaluations(client, held.run_id) == ()  # type: ignore[arg-type]


def test_an_evaluation_goes_on_without_redis() -> None:
    client, held = Hashes(), lease()
    client.lost = True
    with ActiveEvaluations(client, expiry_s=30).track(held):  # type: ignore[arg-type]
        report_progress("half")


SCRIPT = """
def evaluate(candidate, context):
    context.progress("first")
    context.progress("<script>\\x1b[31m" + 1000 * "x")
    return {"found": 1.0}
"""


PRINTING = """
import sys, time

def evaluate(program_path):
    for step in range(3):
        print("epoch", step)
        sys.stderr.write("\\r 10%\\r 50% of \\x1b[31mall")
        sys.stderr.flush()
        time.sleep(0.2)
    return {"found": 1.0}
"""


def scripted(kind: str, script: str) -> Problem:
    return Problem.model_validate(
        toy_problem().model_dump(mode="json")
        | {
            "kind": kind,
            "cases": [],
            "evaluator": script,
            "objectives": [{"name": "found"}],
            "targets": [{"name": "t", "rule": "found >= 1", "unlock": True}],
            "weights": None,
        }
    )


def progress_of(problem: Problem, seeds: list[int]) -> list[Progress]:
    sandbox, reported = SandboxEvaluator("unsafe"), list[Progress]()
    try:
        with reporting_to(reported.append):
            name_evaluations({("x = 1", seed): 10 + seed for seed in seeds})
            results = sandbox.evaluate(problem, ["x = 1"] * len(seeds), seeds=seeds)
    finally:
        sandbox.close()
    assert [found.rewards for found in results] == [(1.0,)] * len(seeds)
    return reported


def test_a_script_reports_texts_which_are_cut() -> None:
    first, *texts = progress_of(scripted("evaluator", SCRIPT), [1])
    assert first == Progress(11)
    assert texts[0] == Progress(11, "first", asked=True)
    assert (len(texts), len(texts[1].text)) == (2, 200)


def test_what_a_script_of_kind_in_process_prints_is_its_progress() -> None:
    reported = progress_of(scripted("in_process", PRINTING), [1, 2])
    for candidate in (11, 12):
        texts = [found.text for found in reported if found.candidate == candidate]
        assert texts[0] == ""
        assert "epoch 2" in texts
        assert "50% of \x1b[31mall" in texts
    assert not any(found.asked for found in reported)


def test_candidates_of_a_noisy_problem_are_named_though_their_trials_share_a_seed() -> None:
    problem = scored_toy_problem().model_copy(update={"stochastic": True})
    answers = [f"```python\nx = {x}\ny = 5\n```" for x in range(9)]
    spec = toy_spec(9, samples_per_prompt=4, final_evaluations=0)
    context = RunContext(uuid4(), problem, toy_policy(options={"completions": answers}), uuid4(), spec)
    store, queue, sandbox, begun = MemoryWorkStore(), LocalQueue(), SandboxEvaluator("unsafe"), list[int | None]()
    store.add(context)
    queue.committed(store.start(context.run_id))
    with closing(sandbox), reporting_to(lambda progress: begun.append(progress.candidate)):
        drain(WorkExecutor(store, queue, sandbox, build_client), queue)
    assert set(begun) == set(store.runs[context.run_id].candidates)
