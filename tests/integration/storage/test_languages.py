"""Runs in another language: only workers with its programs evaluate them, and runs without such a worker say so."""

from __future__ import annotations

from typing import Any
from uuid import UUID

import pytest
import sqlalchemy as sa

from speciate.domain.capabilities import waiting_reason
from speciate.domain.event import EventKind
from speciate.domain.problem import Problem
from speciate.ports.runs import NewRun
from speciate.ports.work import WorkKind
from speciate.schema.policies import RunPolicies
from speciate.storage.stores import Stores
from speciate.storage.work import waiting_runs
from speciate.storage.work.fairness import FairQueue
from speciate.storage.work.waiting_runs import needed_capabilities, report_waiting
from tests.support.runs import toy_policy, toy_problem, toy_spec

pytestmark = pytest.mark.servers

OWN = {"name": "Zig", "file": "a.zig", "build": ["zig", "build-exe", "a.zig"], "run": ["env", "A=1", "qemu", "a"]}


def begin(stores: Stores, language: object = None, image: str | None = None) -> tuple[UUID, UUID]:
    """Start a run; return it and its first evaluation, which is ready."""
    problem = toy_problem()
    if language is not None:
        changes = {"slug": "toy-in-another-language", "language": language, "image": image}
        problem = Problem.model_validate(problem.model_dump() | changes)
    stored, _ = stores.catalog.add_problem(problem)
    policy, _ = stores.catalog.add_policy(toy_policy())
    run_id, _ = stores.runs.create(NewRun(stored, RunPolicies(policy), toy_spec()))
    (ref,) = (ref for ref in stores.runs.start(run_id).dispatch if ref.kind is WorkKind.EVALUATE)
    return run_id, ref.id


def age(stores: Stores, seconds: float) -> None:
    with stores.engine.begin() as connection:
        connection.execute(
            sa.text("UPDATE run_progress SET running_since = clock_timestamp() - make_interval(secs => :s)"),
            {"s": seconds},
        )


def test_a_worker_chooses_only_what_it_can_evaluate(stores: Stores) -> None:
    foreign, its_unit = begin(stores, "rust")
    queue = FairQueue(stores.engine, slots=lambda: 8, can=lambda run_id: run_id != foreign)
    assert queue.choose(its_unit) is None
    assert queue.unsupported_run(its_unit) == foreign
    _, own = begin(stores)
    assert queue.choose(its_unit) == own
    assert queue.unsupported_run(own) is None
    assert FairQueue(stores.engine, slots=lambda: 8).choose(its_unit) == its_unit


def test_running_problems_name_the_programs_that_they_need(stores: Stores) -> None:
    assert needed_capabilities(stores.engine) == set()
    run_id, _ = begin(stores, OWN)
    begin(stores)
    assert needed_capabilities(stores.engine) == {"zig", "qemu"}
    stores.runs.pause(run_id)
    assert needed_capabilities(stores.engine) == set()


def test_a_run_waits_for_a_worker_and_says_so(stores: Stores) -> None:
    run_id, unit = begin(stores, OWN)
    begin(stores)
    assert report_waiting(stores.engine, [set()]) == []  # it may just have started
    age(stores, 60)
    before = stores.runs.get(run_id)
    (commit,) = report_waiting(stores.engine, [{"rustc"}, {"zig"}])
    assert commit.run_id == run_id
    found = stores.runs.get(run_id)
    assert found.state.value == "running"
    assert found.reason is not None
    assert found.reason.startswith("waits for a worker that runs Zig: no evaluate worker has qemu.")
    (event,) = stores.queries.events(run_id, after=before.last_event, limit=10)
    assert (event.kind, event.data["message"]) == (EventKind.RUN_STALLED, found.reason)
    assert report_waiting(stores.engine, [{"rustc"}, {"zig"}]) == []  # said once
    (commit,) = report_waiting(stores.engine, [{"rustc"}, {"zig", "qemu", "g++"}])
    assert [ref.id for ref in commit.dispatch] == [unit]  # at once, not with the next repetition
    assert stores.runs.get(run_id).reason is None
    assert report_waiting(stores.engine, [{"zig", "qemu"}]) == []


def test_workers_of_tier_b_lack_the_tier_and_not_the_compiler(stores: Stores) -> None:
    run_id, _ = begin(stores, OWN)
    age(stores, 60)
    report_waiting(stores.engine, [set()], {"B"})
    reason = stores.runs.get(run_id).reason or ""
    assert reason.startswith("waits for a worker that runs Zig: no evaluate worker has sandbox tier A")
    assert "bubblewrap" in reason
    assert "restart `speciate up`" in reason
    assert "qemu" not in reason


def test_without_any_worker_all_programs_are_missing(stores: Stores) -> None:
    run_id, _ = begin(stores, OWN)
    age(stores, 60)
    report_waiting(stores.engine, [])
    assert "has qemu and zig." in (stores.runs.get(run_id).reason or "")


def test_a_run_waits_for_a_worker_that_runs_images(stores: Stores) -> None:
    run_id, _ = begin(stores, OWN, image="localhost/zig@sha256:" + 64 * "a")
    age(stores, 60)
    report_waiting(stores.engine, [{"zig", "qemu"}])
    assert stores.runs.get(run_id).reason == (
        "waits for a worker that runs its image: no evaluate worker has container images. Install podman or docker on a"
        " worker; `speciate doctor` lists what each worker has"
    )
    assert needed_capabilities(stores.engine) == {"container images"}
    report_waiting(stores.engine, [{"container images"}])
    assert stores.runs.get(run_id).reason is None


@pytest.mark.parametrize("resumes", [False, True])
def test_a_run_that_pauses_or_commits_meanwhile_does_not_wait(
    stores: Stores, monkeypatch: pytest.MonkeyPatch, *, resumes: bool
) -> None:
    run_id, _ = begin(stores, OWN)
    age(stores, 60)

    def reason_after_a_commit(*of: Any) -> str | None:
        stores.runs.pause(run_id)
        if resumes:
            stores.runs.resume(run_id)
        return waiting_reason(*of)

    monkeypatch.setattr(waiting_runs, "waiting_reason", reason_after_a_commit)
    assert report_waiting(stores.engine, []) == []
    assert stores.runs.get(run_id).reason is None


def test_the_runs_that_one_call_leaves_wait_for_the_next(stores: Stores, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(waiting_runs, "_MOST_CHANGES", 2)
    late, *runs = (begin(stores, OWN)[0] for _ in range(4))
    age(stores, 60)
    with stores.engine.begin() as connection:
        later = "UPDATE run_progress SET running_since = running_since + interval '1 s' WHERE run_id = :id"
        connection.execute(sa.text(later), {"id": late})
    reported = [{commit.run_id for commit in report_waiting(stores.engine, [])} for _ in range(3)]
    assert [len(each) for each in reported] == [2, 2, 0]
    assert late in reported[1]
    assert reported[0] | reported[1] == {late, *runs}


def test_a_paused_run_keeps_its_own_reason(stores: Stores) -> None:
    run_id, _ = begin(stores, OWN)
    age(stores, 60)
    stores.runs.pause(run_id, "by hand")
    assert report_waiting(stores.engine, []) == []
    assert stores.runs.get(run_id).reason == "by hand"
