"""Problems whose seed program a worker scores before they are stored."""

from __future__ import annotations

import json
import re
import threading
import time
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest
import redis

from speciate.domain.candidate import Evaluation, Failure, FailureKind
from speciate.domain.errors import EvaluatorUnavailableError, UnavailableError
from speciate.domain.problem import Problem
from speciate.messaging.presence import announce
from speciate.messaging.seed_checks import TASK, SeedChecks
from speciate.ports.work import Queue
from speciate.problems.template import example
from speciate.schema.runs import WorkerProcess
from speciate.storage.stores import Stores
from tests.conformance.test_noisy_runs import NoisyToy
from tests.integration.service.conftest import Api, refused
from tests.support.runs import ToyEvaluator, toy_problem

pytestmark = pytest.mark.servers

SCORED = toy_problem(seed_program="x = 1\ny = 2\n")
FAILING = toy_problem(seed_program="x = 1\n")
PREFIX = "speciate:seed-check:"


class FakeWorker:
    """An evaluate worker in a thread; takes requests from Redis instead of Celery's queue."""

    def __init__(self, client: redis.Redis) -> None:
        self.evaluator: Any = ToyEvaluator()
        self.performed: list[str] = []
        self._client = client
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._work)

    def __enter__(self) -> FakeWorker:
        announce_worker(self._client)
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join()

    def _work(self) -> None:
        checks = SeedChecks(self._client, None)  # type: ignore[arg-type]
        while not self._stop.wait(0.02):
            for key in self._client.scan_iter(PREFIX + "*"):
                if not key.endswith(b":result"):
                    self.performed.append(key.decode())
                    checks.perform(key.decode(), self.evaluator)


def announce_worker(client: redis.Redis, *queues: str) -> None:
    announce(client, WorkerProcess(name="w", pid=1, version="1", queues=queues or ("evaluate",), slots=1, tier="A"))


@pytest.fixture
def worker(stores: Stores) -> Iterator[FakeWorker]:
    with FakeWorker(stores.redis) as running:
        yield running


def add(api: Api, problem: Problem) -> Any:
    return api.post("/v1/problems", {"definition": problem.model_dump(mode="json"), "check": True})


def test_a_problem_is_stored_after_its_seed_program_is_scored(api: Api, worker: FakeWorker, stores: Stores) -> None:
    first = add(api, SCORED)
    assert first.status_code == 201, first.text
    assert worker.evaluator.evaluated == [SCORED.seed_program] * 3  # two of them measure noise
    assert first.json()["note"] == ""
    assert list(stores.redis.scan_iter(PREFIX + "*")) == []
    again = add(api, SCORED)
    assert (again.status_code, len(worker.performed)) == (200, 1)  # an existing version is not scored again


def test_noise_that_is_not_declared_is_told_with_figures(api: Api, worker: FakeWorker) -> None:
    worker.evaluator = NoisyToy(0.5)
    note = add(api, SCORED).json()["note"]
    assert re.match(r"warning: x varies by \S+ \(standard deviation, .* % of its range\) and y varies by", note)
    assert "Add `stochastic = true`" in note
    assert worker.evaluator.seeds[SCORED.seed_program] == [0, 0, 1]
    assert add(api, SCORED).json()["note"] == api.get("/v1/problems/toy").json()["note"] == ""
    declared = SCORED.model_copy(update={"stochastic": True})
    assert add(api, declared).json()["note"] == ""
    worker.evaluator = ToyEvaluator()
    calm = add(api, declared.model_copy(update={"title": "Calm"})).json()["note"]
    assert calm == "note: the problem declares that x and y vary, and 3 evaluations of the seed program agree."


def test_slow_and_failing_repetitions_tell_nothing(api: Api, worker: FakeWorker) -> None:
    class Slow(ToyEvaluator):
        def evaluate(self, *args: Any, **options: Any) -> list[Evaluation]:
            return [replace(each, wall_s=2.5) for each in super().evaluate(*args, **options)]

    worker.evaluator = Slow()
    assert add(api, SCORED).status_code == 201
    assert len(worker.evaluator.evaluated) == 1
    worker.evaluator = NoisyToy(0.5, breaking=[3])
    again = add(api, SCORED.model_copy(update={"title": "At times"}))
    assert (again.status_code, again.json()["note"]) == (201, "")


def test_a_failing_seed_program_is_refused_with_the_reason(api: Api, worker: FakeWorker) -> None:
    details = refused(add(api, FAILING), 422, "seed-fails")
    assert details["detail"].startswith(
        "The definition is valid, but the seed program fails: invalid_output (not_assigned)\n'y'\n"
    )
    assert "--no-check" in details["detail"]
    refused(api.get("/v1/problems/toy"), 404, "not-found")
    assert api.post("/v1/problems", {"definition": FAILING.model_dump(mode="json")}).status_code == 201


def test_a_failing_evaluator_is_refused_with_its_output(api: Api, worker: FakeWorker) -> None:
    failure = Failure(FailureKind.INVALID_OUTPUT, "evaluator_raised", "ModuleNotFoundError: no module 'rdkit'")
    found = Evaluation(failure=failure, artifacts={"evaluator_log": "Traceback …" + "x" * 30_000})
    worker.evaluator.evaluate = lambda *_, **__: [found]
    text = refused(add(api, SCORED), 422, "seed-fails")["detail"]
    assert text.startswith("The definition is valid, but the evaluator fails on the seed program: invalid_output")
    assert "rdkit'\n--- evaluator_log\nTraceback" in text
    assert len(text) < 21_000


def test_without_an_evaluate_worker_the_refusal_names_the_remedy(api: Api, stores: Stores) -> None:
    announce_worker(stores.redis, "generate", "control")
    details = refused(add(api, SCORED), 503, "unavailable")
    assert "no worker evaluates candidates" in details["detail"]
    assert "Start an evaluate worker" in details["detail"]
    assert add(api, toy_problem(seed_program="")).status_code == 201  # nothing to score


def test_without_a_worker_for_its_language_the_refusal_names_what_is_missing(api: Api, worker: FakeWorker) -> None:
    details = refused(add(api, Problem.model_validate(SCORED.model_dump() | {"language": "rust"})), 503, "unavailable")
    assert "no evaluate worker has rustc" in details["detail"]
    assert "SPECIATE_TOOLCHAINS" in details["detail"]
    assert worker.performed == []


def test_workers_of_tier_b_lack_the_tier_and_not_the_compiler(api: Api, stores: Stores) -> None:
    announce(stores.redis, WorkerProcess(name="w", pid=1, version="1", queues=("evaluate",), slots=1, tier="B"))
    details = refused(add(api, Problem.model_validate(SCORED.model_dump() | {"language": "rust"})), 503, "unavailable")
    assert "no evaluate worker has sandbox tier A" in details["detail"]
    assert "bubblewrap" in details["detail"]
    assert "rustc" not in details["detail"]


def test_a_worker_without_an_evaluator_or_in_time_is_no_verdict(api: Api, worker: FakeWorker) -> None:
    def broken(*_: object, **__: object) -> list[Evaluation]:
        raise EvaluatorUnavailableError("no isolation.")

    worker.evaluator.evaluate = broken
    assert "no isolation" in refused(add(api, SCORED), 503, "unavailable")["detail"]
    late = Evaluation(failure=Failure(FailureKind.TIMEOUT, "batch_deadline"))
    worker.evaluator.evaluate = lambda *_, **__: [late]
    assert "within 120 s" in refused(add(api, SCORED), 503, "unavailable")["detail"]
    refused(api.get("/v1/problems/toy"), 404, "not-found")


def test_a_busy_service_answers_in_time_and_leaves_nothing_behind(stores: Stores) -> None:
    announce_worker(stores.redis)
    checks = SeedChecks(stores.redis, stores.celery, limit_s=3.0)
    messages: list[str] = []

    def wait() -> None:
        with pytest.raises(UnavailableError) as refusal:
            checks.require(SCORED)
        messages.append(str(refusal.value))

    threads = [threading.Thread(target=wait) for _ in range(4)]
    started = time.monotonic()
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert time.monotonic() - started < 8
    assert sum("already waits for 3 seed programs" in message for message in messages) == 1
    assert sum("no worker scored the seed program within 3 s" in message for message in messages) == 3
    assert list(stores.redis.scan_iter(PREFIX + "*")) == []
    # The messages remain in the queue. A worker that receives one has nothing to do. They end with their key in Redis,
    # and not by the clock of the worker, which may be ahead.
    messages_left = [json.loads(message) for message in stores.redis.lrange(Queue.EVALUATE.value, 0, -1)]
    assert [message["headers"]["expires"] for message in messages_left] == [None] * 3
    evaluator = ToyEvaluator()
    checks.perform(PREFIX + "expired", evaluator)
    assert evaluator.evaluated == []


def test_the_form_checks_unless_the_box_is_ticked(api: Api, stores: Stores) -> None:
    announce_worker(stores.redis, "control")
    files = example()
    form = {"toml": files.pop("problem.toml"), **{f"file:{name}": text for name, text in files.items()}}
    headers = {"Origin": str(api.http.base_url)}
    page = api.http.post("/problems", data=form, headers=headers)
    assert page.status_code == 422
    assert "No worker evaluates candidates" in page.text
    accepted = api.http.post("/problems", data=form | {"unchecked": "on"}, headers=headers)
    assert accepted.headers["location"] == "/problems/spread-points@1"


class Resent:
    """Celery that notes the messages."""

    def __init__(self) -> None:
        self.sent: list[str] = []

    def send_task(self, name: str, args: list[str], **_: Any) -> None:
        assert name == TASK
        self.sent += args


def test_a_request_passes_every_worker_until_one_has_the_language(stores: Stores) -> None:
    problem = make_problem_in("cobol")
    for name in ("a", "b"):
        announce(stores.redis, worker_named(name))
    celery, key = Resent(), PREFIX + "x"
    checks = SeedChecks(stores.redis, celery)  # type: ignore[arg-type]
    stores.redis.set(key, json.dumps(problem.model_dump(mode="json")), px=60_000)
    evaluator = ToyEvaluator()
    checks.perform(key, evaluator, worker="a", can=lambda _: False)
    assert celery.sent == [key]
    checks.perform(key, evaluator, worker="b", can=lambda found: found.worker_capabilities == {"cobol"})
    assert evaluator.evaluated == [problem.seed_program] * 3
    stores.redis.set(key, json.dumps(problem.model_dump(mode="json")), px=60_000)
    stores.redis.delete(f"{key}:result")
    for name in ("a", "b", "a"):
        checks.perform(key, evaluator, worker=name, can=lambda _: False)
    answers = stores.redis.lrange(f"{key}:result", 0, -1)
    assert json.loads(answers[0]) == {"unavailable": "no evaluate worker (a, b) has cobol."}  # type: ignore[index]
    assert len(answers) == 1  # type: ignore[arg-type]


def worker_named(name: str) -> WorkerProcess:
    return WorkerProcess(name=name, pid=1, version="1", queues=("evaluate",), slots=1, tier="A")


def make_problem_in(command: str) -> Problem:
    language = {"name": "Own", "file": "main.x", "run": [command, "main.x"]}
    return Problem.model_validate(
        toy_problem(seed_program="x = 1\ny = 2\n").model_dump(mode="json") | {"language": language}
    )


def test_a_late_answer_says_that_packages_are_installed(stores: Stores) -> None:
    announce(stores.redis, worker_named("a"))
    checks = SeedChecks(stores.redis, Resent(), limit_s=0.2)  # type: ignore[arg-type]
    with pytest.raises(UnavailableError, match="may still install its packages"):
        checks.require(SCORED.model_copy(update={"requirements": ("networkx==3.4",)}))
