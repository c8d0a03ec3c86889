"""Conformance suite of work stores: a test class inherits ``WorkStoreConformance`` and provides a harness."""

from __future__ import annotations

from dataclasses import replace
from typing import Protocol
from uuid import UUID

import pytest

from speciate.domain.budget import Budget
from speciate.domain.campaign import WAITS_FOR_GRANT
from speciate.domain.candidate import COSTS, Candidate, Evaluation, Failure, FailureKind
from speciate.domain.charge import Charge
from speciate.domain.event import Event, EventKind
from speciate.domain.guidance import Advice, Gain
from speciate.domain.policy import PolicyRole
from speciate.domain.problem import OUTPUT, Problem
from speciate.domain.run import RunSpec, RunState
from speciate.domain.seeds import SeedProgram
from speciate.domain.target import Claim, ClaimState
from speciate.domain.values import text_digest
from speciate.ports.work import (
    CarriedOutput,
    Commit,
    Confirmation,
    EvaluatedBatch,
    Lease,
    ProposedBatch,
    Standing,
    WorkKind,
    WorkRef,
    WorkStore,
)
from speciate.runs.payloads import read_confirmations, read_proposals
from speciate.runs.progress import RunProgress
from speciate.search.strategy import Placement
from speciate.search.targets import target_placements
from tests.support.population import evaluated
from tests.support.runs import ToyEvaluator, toy_problem, toy_proposals, toy_rollout, toy_spec

NO_CODE = Failure(FailureKind.REJECTED, "no_code_block", "expected a fenced block")
CRASHED = Failure(FailureKind.CRASHED, "raised", "ValueError")
RAISED = Failure(FailureKind.INVALID_OUTPUT, "evaluator_raised", "Traceback\nImportError: no 'x\x00'")


class StoreHarness(Protocol):
    """A work store with further methods for tests."""

    work: WorkStore

    def begin(
        self, problem: Problem, spec: RunSpec, granted: int | None = None, seeds: tuple[SeedProgram, ...] = ()
    ) -> Commit:
        """Create and start a run with the toy policy, the first grant of a campaign and seed programs."""
        ...

    def pause(self, run_id: UUID) -> Commit:
        """Pause a run."""
        ...

    def resume(self, run_id: UUID) -> Commit:
        """Resume a run."""
        ...

    def cancel(self, run_id: UUID) -> Commit:
        """Cancel a run."""
        ...

    def grant(self, run_id: UUID, granted: int) -> Commit:
        """Raise the limit of a campaign's run to ``granted`` evaluations."""
        ...

    def close(self, run_id: UUID, reason: str) -> Commit:
        """Complete a run that waits for a grant."""
        ...

    def progress(self, run_id: UUID) -> RunProgress:
        """Return the counters of a run."""
        ...

    def events(self, run_id: UUID) -> list[Event]:
        """Return the events of a run."""
        ...

    def claims(self, run_id: UUID) -> list[Claim]:
        """Return the claims of a run, by target and number."""
        ...

    def candidates(self, run_id: UUID) -> list[tuple[int, str, int | None]]:
        """Return ``(number, program, duplicate_of)`` of every candidate, by number."""
        ...

    def pass_time(self, seconds: float) -> None:
        """Advance the clock of leases and budgets."""
        ...


class WorkStoreConformance:
    """The suite. Every test has a new ``harness``."""

    def make_harness(self) -> StoreHarness:
        """Return a harness over an empty store."""
        raise AssertionError("a subclass says which store is tested")

    def setup_method(self) -> None:
        """Create the harness unless a fixture of the subclass did."""
        self._made: StoreHarness | None = None

    @property
    def harness(self) -> StoreHarness:
        """The harness of this test."""
        if self._made is None:
            self._made = self.make_harness()
        return self._made

    # Steps of the tests.

    def _claim(self, ref: WorkRef) -> Lease:
        lease = self.harness.work.claim(ref.id)
        assert lease is not None, "the work should be there to lease"
        return lease

    def _generate(self, ref: WorkRef, *programs: str, tokens: int = 0) -> Commit:
        lease = self._claim(ref)
        assert lease.kind is WorkKind.GENERATE
        batch = ProposedBatch((toy_rollout(tokens),), toy_proposals(*programs))
        commit = self.harness.work.commit_proposals(lease, batch)
        assert commit is not None
        return commit

    def _evaluate(self, ref: WorkRef, placements: tuple[Placement, ...] = ()) -> Commit:
        lease = self._claim(ref)
        assert lease.kind is WorkKind.EVALUATE
        commit = self.harness.work.commit_evaluations(lease, self._scored(lease, placements))
        assert commit is not None
        return commit

    def _scored(self, lease: Lease, placements: tuple[Placement, ...] = ()) -> EvaluatedBatch:
        problem = self.harness.work.context(lease.run_id).problem
        proposals = read_proposals(lease.payload)
        results = ToyEvaluator().evaluate(problem, [p.program for p in proposals], seeds=[0] * len(proposals))
        candidates = [
            Candidate(
                number,
                p,
                replace(r, **dict.fromkeys(COSTS, 3)),
                targets=problem.targets_met(r.rewards) if r.rewards else 0,
            )
            for number, (p, r) in enumerate(zip(proposals, results, strict=True), start=lease.payload["first"])
        ]
        return EvaluatedBatch(tuple(candidates), placements)

    def _confirm(self, ref: WorkRef, *, holds: bool) -> Commit:
        lease = self._claim(ref)
        assert lease.kind is WorkKind.CONFIRM
        number, targets = read_confirmations(lease.payload)[0]
        refuted = {} if holds else dict.fromkeys(targets, "missed")
        confirmation = Confirmation(number, targets if holds else (), refuted, ((0.0, 0.0),))
        commit = self.harness.work.commit_confirmation(lease, confirmation)
        assert commit is not None
        return commit

    def _only(self, commit: Commit) -> WorkRef:
        assert len(commit.dispatch) == 1, commit.dispatch
        return commit.dispatch[0]

    def _begin(self, spec: RunSpec | None = None, problem: Problem | None = None) -> Commit:
        return self.harness.begin(problem or toy_problem(), spec or toy_spec())

    # The tests.

    def test_a_run_spends_its_budget_exactly(self) -> None:
        commit = self._begin(toy_spec(10))
        ref, n = self._only(commit), 0
        commit = self._evaluate(ref)
        while commit.dispatch:
            n += 1
            commit = self._generate(self._only(commit), *(f"x = {n}{i}\ny = 9\n" for i in range(4)))
            progress = self.harness.progress(commit.run_id)
            assert progress.evaluations + progress.reserved_evaluations <= 10
            commit = self._evaluate(self._only(commit))
            while commit.dispatch and self._kind(commit) is WorkKind.CONFIRM:
                commit = self._confirm(self._only(commit), holds=True)
        progress = self.harness.progress(commit.run_id)
        assert (progress.evaluations, progress.reserved_evaluations, progress.live) == (10, 0, 0)
        assert progress.state is RunState.COMPLETED
        assert [number for number, _, _ in self.harness.candidates(commit.run_id)] == list(range(1, 11))

    def _kind(self, commit: Commit) -> WorkKind:
        return self._only(commit).kind

    def test_lanes_open_after_the_seed_and_share_the_budget(self) -> None:
        commit = self._begin(toy_spec(10, lanes=3))
        assert self._kind(commit) is WorkKind.EVALUATE
        commit = self._evaluate(self._only(commit))
        assert [ref.kind for ref in commit.dispatch] == [WorkKind.GENERATE] * 3
        asked = [int(self._claim(ref).payload["answers"]) for ref in commit.dispatch]
        assert asked == [4, 4, 1]

    def test_without_a_seed_program_the_lanes_open_at_once(self) -> None:
        commit = self._begin(toy_spec(8, lanes=2), toy_problem(seed_program=""))
        assert [ref.kind for ref in commit.dispatch] == [WorkKind.GENERATE] * 2

    def test_given_seed_programs_are_one_batch_spread_over_the_islands(self) -> None:
        seeds = tuple(SeedProgram(f"x = {x}\ny = 9\n", f"{x}.py") for x in range(5))
        spec = toy_spec(10, lanes=2, strategy_options={"islands": 2})
        commit = self.harness.begin(toy_problem(seed_program="x = 1\ny = 1\n"), spec, seeds=seeds)
        lease = self._claim(self._only(commit))
        proposals = read_proposals(lease.payload)
        assert [(p.program, p.origin, p.island) for p in proposals] == [
            (seed.program, seed.origin, i % 2) for i, seed in enumerate(seeds)
        ]
        assert {p.role for p in proposals} == {PolicyRole.SEED}
        assert self.harness.progress(lease.run_id).reserved_evaluations == 5
        after = self.harness.work.commit_evaluations(lease, self._scored(lease))
        assert after is not None
        assert [ref.kind for ref in after.dispatch] == [WorkKind.GENERATE] * 2
        assert [int(self._claim(ref).payload["answers"]) for ref in after.dispatch] == [4, 1]
        assert [program for _, program, _ in self.harness.candidates(lease.run_id)] == [s.program for s in seeds]

    def test_work_is_leased_once(self) -> None:
        ref = self._only(self._begin())
        assert self.harness.work.claim(ref.id) is not None
        assert self.harness.work.claim(ref.id) is None

    def test_a_result_counts_once(self) -> None:
        lease = self._claim(self._only(self._begin()))
        batch = self._scored(lease)
        assert self.harness.work.commit_evaluations(lease, batch) is not None
        before = self.harness.progress(lease.run_id)
        assert self.harness.work.commit_evaluations(lease, batch) is None
        assert self.harness.progress(lease.run_id).evaluations == before.evaluations == 1
        assert not self.harness.work.extend(lease)

    def test_missing_answers_go_back_to_the_budget(self) -> None:
        commit = self._evaluate(self._only(self._begin(toy_spec(8))))
        commit = self._generate(self._only(commit), "x = 2\ny = 9\n")
        progress = self.harness.progress(commit.run_id)
        assert (progress.evaluations, progress.reserved_evaluations) == (1, 1)

    def test_surplus_answers_are_not_recorded(self) -> None:
        commit = self._evaluate(self._only(self._begin(toy_spec(3))))
        commit = self._generate(self._only(commit), *(f"x = {i}\ny = 9\n" for i in range(4)))
        commit = self._evaluate(self._only(commit))
        assert self.harness.progress(commit.run_id).evaluations == 3

    def test_tokens_are_reserved_and_charged(self) -> None:
        budget = Budget(tokens=100)
        commit = self._evaluate(self._only(self._begin(toy_spec(budget=budget))))
        lease = self._claim(self._only(commit))
        assert self.harness.work.reserve_tokens(lease, 101) is False
        assert self.harness.work.reserve_tokens(lease, 90) is True
        assert self.harness.work.reserve_tokens(lease, 60) is True
        assert self.harness.progress(lease.run_id).reserved_tokens == 60
        batch = ProposedBatch((toy_rollout(35),), toy_proposals("x = 2\ny = 9\n"))
        assert self.harness.work.commit_proposals(lease, batch) is not None
        progress = self.harness.progress(lease.run_id)
        assert (progress.tokens, progress.reserved_tokens) == (35, 0)

    def test_a_lane_that_exceeds_the_budget_ends_the_run(self) -> None:
        commit = self._evaluate(self._only(self._begin(toy_spec(budget=Budget(tokens=5)))))
        lease = self._claim(self._only(commit))
        assert self.harness.work.reserve_tokens(lease, 6) is False
        assert self.harness.work.end_lane(lease) is not None
        progress = self.harness.progress(lease.run_id)
        assert progress.state is RunState.COMPLETED
        assert progress.tokens <= 5

    def test_pause_lets_work_in_flight_finish_and_dispatches_no_more(self) -> None:
        lease = self._claim(self._only(self._begin()))
        self.harness.pause(lease.run_id)
        commit = self.harness.work.commit_evaluations(lease, self._scored(lease))
        assert commit is not None
        assert commit.dispatch == ()
        assert self.harness.progress(lease.run_id).evaluations == 1
        resumed = self.harness.resume(lease.run_id)
        assert self._kind(resumed) is WorkKind.GENERATE
        self._claim(self._only(resumed))

    def _waiting(self) -> Commit:
        """Return the last commit of a run that has spent a grant of 3 evaluations, including the seed program."""
        commit = self._evaluate(self._only(self.harness.begin(toy_problem(), toy_spec(40), 3)))
        commit = self._generate(self._only(commit), "x = 1\ny = 1\n", "x = 2\ny = 1\n")
        return self._evaluate(self._only(commit))

    def test_a_run_spends_its_grant_and_then_waits(self) -> None:
        commit = self._waiting()
        progress = self.harness.progress(commit.run_id)
        assert (commit.dispatch, progress.evaluations, progress.live, progress.granted) == ((), 3, 0, 3)
        assert self.harness.work.standing(commit.run_id).evaluations_left == 0
        assert (progress.state, progress.reason) == (RunState.PAUSED, WAITS_FOR_GRANT)
        assert self.harness.grant(commit.run_id, 3).dispatch == ()
        lease = self._claim(self._only(self.harness.grant(commit.run_id, 5)))
        assert lease.payload["answers"] == 2
        assert self.harness.grant(commit.run_id, 5).dispatch == ()  # idempotent
        progress = self.harness.progress(commit.run_id)
        assert (progress.state, progress.reason, progress.reserved_evaluations) == (RunState.RUNNING, None, 2)
        granted = [e.data["evaluations"] for e in self.harness.events(commit.run_id) if e.kind is EventKind.RUN_GRANTED]
        assert granted == [3, 5]

    def test_a_resumed_run_without_a_new_grant_waits_again(self) -> None:
        commit = self._waiting()
        assert self.harness.resume(commit.run_id).dispatch == ()
        assert self.harness.progress(commit.run_id).reason == WAITS_FOR_GRANT

    def test_a_grant_does_not_resume_a_run_paused_by_a_user(self) -> None:
        commit = self._evaluate(self._only(self.harness.begin(toy_problem(), toy_spec(40), 3)))
        commit = self._generate(self._only(commit), "x = 1\ny = 1\n", "x = 2\ny = 1\n")
        lease = self._claim(self._only(commit))
        self.harness.pause(lease.run_id)
        assert self.harness.work.commit_evaluations(lease, self._scored(lease)) is not None
        assert self.harness.progress(lease.run_id).reason is None
        assert self.harness.grant(lease.run_id, 5).dispatch == ()
        assert self._claim(self._only(self.harness.resume(lease.run_id))).payload["answers"] == 2

    def test_closing_completes_a_run_that_waits(self) -> None:
        run_id = self._waiting().run_id
        self.harness.close(run_id, "the campaign has ended")
        progress = self.harness.progress(run_id)
        assert (progress.state, progress.reason) == (RunState.COMPLETED, "the campaign has ended")
        assert self.harness.grant(run_id, 9).dispatch == ()
        assert self.harness.progress(run_id).granted == 3

    def test_a_grant_of_the_whole_budget_completes_the_run(self) -> None:
        commit = self._evaluate(self._only(self.harness.begin(toy_problem(), toy_spec(1), 1)))
        assert self.harness.progress(commit.run_id).state is RunState.COMPLETED

    def test_paused_work_cannot_be_leased(self) -> None:
        ref = self._only(commit := self._begin())
        self.harness.pause(commit.run_id)
        assert self.harness.work.claim(ref.id) is None

    def test_cancel_discards_work_in_flight(self) -> None:
        lease = self._claim(self._only(self._begin()))
        self.harness.cancel(lease.run_id)
        assert self.harness.work.commit_evaluations(lease, self._scored(lease)) is None
        progress = self.harness.progress(lease.run_id)
        assert progress.state is RunState.CANCELLED
        assert (progress.evaluations, progress.reserved_evaluations, progress.live) == (0, 0, 0)

    def test_released_work_pauses_the_run_with_the_reason(self) -> None:
        commit = self._evaluate(self._only(self._begin()))
        lease = self._claim(self._only(commit))
        assert self.harness.work.release(lease, "the endpoint is down") is not None
        progress = self.harness.progress(lease.run_id)
        assert (progress.state, progress.reason) == (RunState.PAUSED, "the endpoint is down")
        again = self._claim(self._only(self.harness.resume(lease.run_id)))
        assert again.work_id == lease.work_id
        assert again.attempt == 1

    def test_an_outage_before_a_resume_does_not_pause_the_run_again(self) -> None:
        first, late = (self._claim(ref) for ref in self._evaluate(self._only(self._begin(toy_spec(lanes=2)))).dispatch)
        self.harness.work.release(first, "the endpoint is down")
        self.harness.resume(first.run_id)
        told = self.harness.work.release(late, "the endpoint is down")
        assert told is not None
        assert self.harness.progress(first.run_id).state is RunState.RUNNING
        again = self._claim(self._only(told))
        assert (again.work_id, again.attempt) == (late.work_id, 1)
        self.harness.work.release(again, "it is still down")
        progress = self.harness.progress(first.run_id)
        assert (progress.state, progress.reason) == (RunState.PAUSED, "it is still down")

    def test_tokens_of_released_work_are_freed(self) -> None:
        commit = self._evaluate(self._only(self._begin(toy_spec(budget=Budget(tokens=100)))))
        lease = self._claim(self._only(commit))
        assert self.harness.work.reserve_tokens(lease, 90) is True
        assert self.harness.work.release(lease, "down", spent=Charge(7, 0.5, 3)) is not None
        progress = self.harness.progress(lease.run_id)
        assert (progress.tokens, progress.reserved_tokens) == (7, 0)
        assert (progress.cost, progress.estimated_tokens) == (0.5, 3)

    def test_tokens_of_unknown_use_count_as_spent(self) -> None:
        commit = self._evaluate(self._only(self._begin(toy_spec(budget=Budget(tokens=100)))))
        lease = self._claim(self._only(commit))
        assert self.harness.work.reserve_tokens(lease, 90) is True
        assert self.harness.work.release(lease, "the disk is full") is not None
        progress = self.harness.progress(lease.run_id)
        assert (progress.tokens, progress.reserved_tokens) == (90, 0)

    def test_tokens_of_open_requests_stay_reserved_when_a_run_ends(self) -> None:
        commit = self._evaluate(self._only(self._begin(toy_spec(budget=Budget(tokens=100)))))
        lease = self._claim(self._only(commit))
        assert self.harness.work.reserve_tokens(lease, 90) is True
        self.harness.cancel(lease.run_id)
        progress = self.harness.progress(lease.run_id)
        assert (progress.tokens, progress.reserved_tokens) == (0, 90)

    def test_an_attempt_that_fails_after_the_end_is_charged(self) -> None:
        lease = self._claim(self._only(self._evaluate(self._only(self._begin(toy_spec(budget=Budget(tokens=100)))))))
        assert self.harness.work.reserve_tokens(lease, 90) is True
        self.harness.cancel(lease.run_id)
        assert self.harness.work.release(lease, "interrupted", spent=Charge(7, 0.5, 3)) is None
        progress = self.harness.progress(lease.run_id)
        assert (progress.tokens, progress.cost, progress.reserved_tokens) == (7, 0.5, 0)

    def test_a_reason_may_contain_any_characters(self) -> None:
        lease = self._claim(self._only(self._begin()))
        assert self.harness.work.release(lease, "bad\x00text \ud800") is not None
        assert self.harness.progress(lease.run_id).state is RunState.PAUSED

    def test_a_spent_time_budget_ends_the_run_and_late_results_do_not_count(self) -> None:
        lease = self._claim(self._only(self._begin(toy_spec(budget=Budget(seconds=1.0)))))
        self.harness.pass_time(1.5)
        self.harness.work.commit_evaluations(lease, self._scored(lease))
        progress = self.harness.progress(lease.run_id)
        assert (progress.state, progress.evaluations, progress.live) == (RunState.COMPLETED, 0, 0)

    @pytest.mark.parametrize("ended", [False, True])
    def test_answers_that_come_too_late_are_charged_once(self, *, ended: bool) -> None:
        budget = Budget(seconds=1.0, tokens=100)
        lease = self._claim(self._only(self._evaluate(self._only(self._begin(toy_spec(budget=budget))))))
        assert self.harness.work.reserve_tokens(lease, 90)
        self.harness.pass_time(1.5)
        if ended:
            self.harness.work.reconcile()
        rollout = replace(toy_rollout(35), cost=0.5)
        for _ in range(2):
            self.harness.work.commit_proposals(lease, ProposedBatch((rollout,), toy_proposals("x = 2\ny = 9\n")))
        progress = self.harness.progress(lease.run_id)
        assert (progress.state, progress.live, progress.numbers) == (RunState.COMPLETED, 0, 1)
        assert (progress.tokens, progress.cost, progress.reserved_tokens) == (35, 0.5, 0)

    def test_the_reconciler_ends_a_run_with_a_spent_time_budget(self) -> None:
        commit = self._begin(toy_spec(budget=Budget(seconds=1.0)))
        self.harness.pass_time(1.5)
        self.harness.work.reconcile()
        assert self.harness.progress(commit.run_id).state is RunState.COMPLETED

    def test_an_unlock_counts_after_its_confirmation(self) -> None:
        commit = self._evaluate(self._only(self._begin()))
        commit = self._generate(self._only(commit), "x = 1\ny = 8\n", "x = 9\ny = 1\n", "x = 9\ny = 2\n")
        commit = self._evaluate(self._only(commit))
        assert self._kind(commit) is WorkKind.CONFIRM
        assert {(c.target, c.number, c.state) for c in self.harness.claims(commit.run_id)} == {
            ("half", 3, ClaimState.PENDING),
            ("both", 3, ClaimState.PENDING),
        }
        commit = self._confirm(self._only(commit), holds=True)
        assert self._kind(commit) is WorkKind.GENERATE
        both = next(c for c in self.harness.claims(commit.run_id) if c.target == "both")
        assert (both.state, both.evaluations, both.unlock) == (ClaimState.CONFIRMED, 3, True)
        assert self.harness.progress(commit.run_id).confirmed == 0b11

    def test_after_a_refuted_claim_the_next_claimant_is_confirmed(self) -> None:
        commit = self._evaluate(self._only(self._begin()))
        commit = self._generate(self._only(commit), "x = 6\ny = 8\n", "x = 7\ny = 9\n")
        commit = self._confirm(self._only(self._evaluate(self._only(commit))), holds=False)
        commit = self._confirm(self._only(commit), holds=True)
        states = [(c.number, c.state) for c in self.harness.claims(commit.run_id)]
        assert states == [(2, ClaimState.REFUTED), (3, ClaimState.CONFIRMED)]

    def test_a_refuted_candidate_leaves_the_cells_of_its_target_to_the_next_and_is_best_by_less(self) -> None:
        problem = toy_problem()
        commit = self._evaluate(self._only(self._begin(problem=problem)))
        commit = self._generate(self._only(commit), "x = 7\ny = 8\n", "x = 6\ny = 8\n")
        rewards = {2: (7.0, 8.0), 3: (6.0, 8.0)}
        found = [evaluated(i, 0, "", given, problem.targets_met(given)) for i, given in rewards.items()]
        commit = self._evaluate(self._only(commit), target_placements(problem, found))
        assert self.harness.progress(commit.run_id).best_number == 2
        assert self._holders(commit.run_id, "target:half/") == {2}
        self._confirm(self._only(commit), holds=False)
        assert self._holders(commit.run_id, "target:half/") == {3}
        progress = self.harness.progress(commit.run_id)
        assert (progress.best_number, progress.best, progress.best_targets) == (3, [6.0, 8.0], 0b01)

    def _holders(self, run_id: UUID, prefix: str) -> set[int]:
        table = self.harness.work.elites(run_id, 0)
        return {int(n) for cell, n in zip(table.cells, table.numbers, strict=True) if cell.startswith(prefix)}

    def test_after_the_last_refutation_the_target_is_open_again(self) -> None:
        commit = self._evaluate(self._only(self._begin()))
        commit = self._generate(self._only(commit), "x = 6\ny = 8\n")
        commit = self._confirm(self._only(self._evaluate(self._only(commit))), holds=False)
        assert self.harness.progress(commit.run_id).claimed == 0
        commit = self._generate(self._only(commit), "x = 7\ny = 8\n")
        assert self._kind(self._evaluate(self._only(commit))) is WorkKind.CONFIRM

    def test_without_confirmations_a_target_counts_at_once(self) -> None:
        commit = self._begin(problem=toy_problem(seed_program="x = 9\ny = 0\n", confirmations=0))
        commit = self._evaluate(self._only(commit))
        assert {c.state for c in self.harness.claims(commit.run_id)} == {ClaimState.CONFIRMED}

    def test_stop_on_unlock_ends_the_run(self) -> None:
        commit = self._begin(toy_spec(stop_on_unlock=True, lanes=2), toy_problem(seed_program="x = 9\ny = 0\n"))
        commit = self._evaluate(self._only(commit))
        commit = self._confirm(self._only(commit), holds=True)
        progress = self.harness.progress(commit.run_id)
        assert (progress.state, progress.live) == (RunState.COMPLETED, 0)

    def test_stop_on_unlock_holds_when_the_run_is_paused_meanwhile(self) -> None:
        commit = self._begin(toy_spec(stop_on_unlock=True), toy_problem(seed_program="x = 9\ny = 0\n"))
        lease = self._claim(self._only(self._evaluate(self._only(commit))))
        self.harness.pause(lease.run_id)
        confirmation = Confirmation(lease.payload["number"], lease.payload["targets"])
        assert self.harness.work.commit_confirmation(lease, confirmation) is not None
        assert self.harness.progress(lease.run_id).state is RunState.COMPLETED

    def test_repeats_decide_all_targets_of_a_candidate_and_the_next_candidate_is_due(self) -> None:
        commit = self._evaluate(self._only(self._begin()))
        commit = self._generate(self._only(commit), "x = 9\ny = 1\n", "x = 8\ny = 2\n", "x = 9.0\ny = 1\n")
        batch = self._scored(lease := self._claim(self._only(commit)))
        twin = replace(batch.candidates[2], duplicate_of=2)
        commit = self.harness.work.commit_evaluations(lease, EvaluatedBatch((*batch.candidates[:2], twin)))
        assert commit is not None
        lease = self._claim(self._only(commit))
        assert read_confirmations(lease.payload) == [(2, (0, 1))]
        confirmation = Confirmation(2, [0], {1: "missed"}, ((6.0, 1.0), "timeout (wall_clock)"))
        commit = self.harness.work.commit_confirmation(lease, confirmation)
        assert commit is not None
        assert {(c.target, c.number, c.state) for c in self.harness.claims(commit.run_id)} == {
            ("half", 2, ClaimState.CONFIRMED),
            ("both", 2, ClaimState.REFUTED),
            ("both", 3, ClaimState.PENDING),
        }
        members = self.harness.work.members(commit.run_id, [2, 3, 4])
        assert [members[number].refuted for number in (2, 3, 4)] == [0b10, 0, 0b10]
        assert members[2].repeats == ((6.0, 1.0), "timeout (wall_clock)")
        assert self.harness.work.standing(commit.run_id).confirmed == {"half": 2}
        assert read_confirmations(self._claim(self._only(commit)).payload) == [(3, (1,))]

    def test_the_best_output_is_carried_and_its_receivers_are_remembered(self) -> None:
        commit = self._begin()
        run, work = commit.run_id, self.harness.work
        assert work.carried(run) is None
        assert work.standing(run) == Standing(None, None, 39)
        lease = self._claim(self._only(commit))
        commit = work.commit_evaluations(lease, _with_output(self._scored(lease), "[1]", None)) or commit
        assert work.carried(run) == CarriedOutput(1, "[1]")
        assert work.carried(run, 1) is None
        commit = self._generate(self._only(commit), "x = 7\ny = 3\n", "x = 2\ny = 9\n")
        lease = self._claim(self._only(commit))
        work.commit_evaluations(lease, _with_output(self._scored(lease), "[7]", 1))
        assert work.carried(run) == CarriedOutput(2, "[7]")
        assert work.standing(run) == Standing(1, 2, 37)
        assert work.carried(run, 3) == work.carried(run, 2) == CarriedOutput(1, "[1]")
        duplicates = work.duplicates(run, [text_digest("x = 7\ny = 3\n")])
        assert [found.evaluation.carried_from for found in duplicates.values()] == [1]

    def test_completions_that_gave_one_candidate_are_found_by_it(self) -> None:
        lease = self._claim(self._only(self._evaluate(self._only(self._begin()))))
        alone, shared = replace(toy_rollout(), answers=1), toy_rollout()
        first, *others = toy_proposals("x = 1\ny = 2\n", "x = 2\ny = 3\n", "x = 3\ny = 3\n")
        proposals = (first, *(replace(other, rollout=1) for other in others))
        commit = self.harness.work.commit_proposals(lease, ProposedBatch((alone, shared), proposals))
        assert commit is not None
        self._evaluate(self._only(commit))
        assert self.harness.work.completions(lease.run_id, [1, 2, 3]) == {2: "text"}

    def test_a_plateau_stops_a_run_with_stop_on_plateau(self) -> None:
        better = Placement(2, 0, "w0", 0.5, (2.0, 9.0))
        commit = self._evaluate(self._only(self._begin(toy_spec(100, stop_on_plateau=8))))
        commit = self._generate(self._only(commit), *(f"x = {i}\ny = 9\n" for i in range(4)))
        commit = self._evaluate(self._only(commit), (better,))
        assert self.harness.progress(commit.run_id).since_improvement() == 0
        for batch in range(2):
            assert self.harness.progress(commit.run_id).state is RunState.RUNNING
            commit = self._generate(self._only(commit), *(f"x = 0.{batch}{i}\ny = 9\n" for i in range(4)))
            commit = self._evaluate(self._only(commit))
        progress = self.harness.progress(commit.run_id)
        assert (progress.state, progress.evaluations, progress.live) == (RunState.COMPLETED, 13, 0)
        assert progress.reason == "the archive has not improved for 8 evaluations"

    def test_candidates_that_improve_the_archive_are_counted_once(self) -> None:
        commit = self._evaluate(self._only(self._begin(toy_spec(100))))
        commit = self._generate(self._only(commit), *(f"x = {i}\ny = 9\n" for i in range(4)))
        two_cells = [Placement(2, 0, cell, 0.5, (2.0, 9.0)) for cell in ("w0", "w1")]
        latest = Placement(3, 0, "@latest", 0.5, (3.0, 9.0))
        commit = self._evaluate(self._only(commit), (*two_cells, latest))
        assert self.harness.progress(commit.run_id).improvements == 1

    def test_a_plateau_does_not_stop_other_runs(self) -> None:
        commit = self._evaluate(self._only(self._begin(toy_spec(100))))
        for batch in range(4):
            commit = self._generate(self._only(commit), *(f"x = 0.{batch}{i}\ny = 9\n" for i in range(4)))
            commit = self._evaluate(self._only(commit))
        progress = self.harness.progress(commit.run_id)
        assert (progress.state, progress.since_improvement()) == (RunState.RUNNING, 17)

    def test_at_a_plateau_work_in_flight_is_recorded_and_confirmed(self) -> None:
        commit = self._evaluate(self._only(self._begin(toy_spec(100, lanes=2, stop_on_plateau=5))))
        first, second = commit.dispatch
        late = self._generate(second, "x = 9\ny = 1\n")
        commit = self._generate(first, *(f"x = 0.{i}\ny = 9\n" for i in range(4)))
        assert self._evaluate(self._only(commit)).dispatch == ()
        assert self.harness.progress(commit.run_id).state is RunState.RUNNING
        better = Placement(2, 0, "w0", 0.9, (9.0, 1.0))
        commit = self._evaluate(self._only(late), (better,))
        while commit.dispatch:
            assert self._kind(commit) is WorkKind.CONFIRM
            commit = self._confirm(self._only(commit), holds=True)
        progress = self.harness.progress(commit.run_id)
        assert (progress.state, progress.evaluations, progress.confirmed) == (RunState.COMPLETED, 6, 0b11)

    def test_duplicates_are_found_by_hash_and_rejected_proposals_have_none(self) -> None:
        commit = self._evaluate(self._only(self._begin()))
        proposals = toy_proposals("x = 2\ny = 9\n", "broken")
        rejected = Failure(FailureKind.REJECTED, "no_code_block")
        lease = self._claim(self._only(commit))
        commit2 = self.harness.work.commit_proposals(lease, ProposedBatch((toy_rollout(),), proposals))
        assert commit2 is not None
        lease = self._claim(self._only(commit2))
        candidates = (
            Candidate(lease.payload["first"], proposals[0], Evaluation(rewards=(2.0, 9.0))),
            Candidate(lease.payload["first"] + 1, proposals[1], Evaluation(failure=rejected)),
        )
        self.harness.work.commit_evaluations(lease, EvaluatedBatch(candidates))
        duplicates = self.harness.work.duplicates(lease.run_id, [p.program_hash for p in proposals] + ["0" * 64])
        assert {k: t.number for k, t in duplicates.items()} == {proposals[0].program_hash: 2}
        progress = self.harness.progress(lease.run_id)
        assert (progress.failures, progress.reasons) == ({"rejected": 1}, {"no_code_block": 1})

    def test_duplicates_are_found_by_shape_earliest_first(self) -> None:
        commit = self._evaluate(self._only(self._begin()))
        commit = self._generate(self._only(commit), "x = 2\ny = 9\n", "x = (2)\ny = 9\n", "x = 3\ny = 9\n")
        lease = self._claim(self._only(commit))
        proposals = read_proposals(lease.payload)
        duplicate = Evaluation(rewards=(2.0, 9.0))
        candidates = (
            Candidate(lease.payload["first"], proposals[0], duplicate, shape="a" * 32),
            Candidate(lease.payload["first"] + 1, proposals[1], duplicate, duplicate_of=2),
            Candidate(lease.payload["first"] + 2, proposals[2], Evaluation(rewards=(3.0, 9.0)), shape="b" * 32),
        )
        assert self.harness.work.commit_evaluations(lease, EvaluatedBatch(candidates)) is not None
        hashes = [proposals[1].program_hash, proposals[2].program_hash]
        duplicates = self.harness.work.duplicates(lease.run_id, hashes, ["a" * 32, "c" * 32])
        assert {name: t.number for name, t in duplicates.items()} == {"a" * 32: 2, proposals[2].program_hash: 4}
        assert duplicates["a" * 32].evaluation.rewards == (2.0, 9.0)

    def test_a_near_duplicate_is_rejected_and_not_counted_as_a_duplicate(self) -> None:
        commit = self._evaluate(self._only(self._begin()))
        commit = self._generate(self._only(commit), "x = 2\ny = 9\n", "x = 2\ny = 9\n# so\n")
        lease = self._claim(self._only(commit))
        proposals = read_proposals(lease.payload)
        near = Evaluation(failure=Failure(FailureKind.REJECTED, "near_duplicate", "98% similar to candidate 1"))
        candidates = (
            Candidate(lease.payload["first"], proposals[0], near, duplicate_of=1),
            Candidate(lease.payload["first"] + 1, proposals[1], Evaluation(rewards=(2.0, 9.0))),
        )
        assert self.harness.work.commit_evaluations(lease, EvaluatedBatch(candidates)) is not None
        progress = self.harness.progress(lease.run_id)
        assert (progress.duplicates, progress.reasons, progress.failed) == (0, {"near_duplicate": 1}, 1)
        assert [(n, d) for n, _, d in self.harness.candidates(lease.run_id)] == [(1, None), (2, 1), (3, None)]
        assert self.harness.work.duplicates(lease.run_id, [proposals[0].program_hash]) == {}

    def test_runs_that_share_results_find_them(self) -> None:
        sharing = toy_spec(reuse_results=True)
        first = self._evaluate(self._only(self._begin(sharing)))
        again = self._evaluate(self._only(self._begin(sharing)))
        other, alone = self._begin(sharing), self._begin()
        known, unknown = text_digest(toy_problem().seed_program), text_digest("never seen")
        results = self.harness.work.results(other.run_id, [known, unknown], "none")
        assert set(results) == {known}
        source, result = results[known]
        assert source == f"{first.run_id}/1" != f"{again.run_id}/1"
        assert (result.rewards, result.tier) == ((1.0, 9.0), "none")
        (repeated,) = self.harness.work.duplicates(first.run_id, [known]).values()
        for free in (result, repeated.evaluation):
            assert {getattr(free, cost) for cost in COSTS} == {0}, "nothing was run"
        assert self.harness.work.results(other.run_id, [known], "A") == {}
        assert self.harness.work.results(alone.run_id, [known], "none") == {}

    def test_advice_is_kept_counted_and_dropped(self) -> None:
        """One piece is in use besides no advice. An answer counts for the advice in its prompt."""
        commit = self._begin(toy_spec(40, guidance={"every": 1, "most": 1}))
        run_id, commit = commit.run_id, self._evaluate(self._only(commit))
        read = self.harness.work.advice
        assert read(run_id) == (Advice(),)
        for number, carried in ((1, 0), (2, 1)):
            commit = self._advise(commit, number, carried)
        # The second piece halved the statistics and replaced the first one, whose answers were still pending.
        assert read(run_id) == (Advice(gain=Gain(2, 1, 1.0, 0.5)), Advice(2, "piece 2 \u2028 $x", 1))
        written = [e.data for e in self.harness.events(run_id) if e.kind is EventKind.ADVICE_WRITTEN]
        assert [(data["advice"], data["parent"], data["dropped"]) for data in written] == [(1, 0, None), (2, 1, 1)]

    def _advise(self, commit: Commit, number: int, carried: int) -> Commit:
        """Record a batch that writes piece ``number`` of advice, and whose answers had ``carried`` in their prompt."""
        lease = self._claim(self._only(commit))
        assert (lease.ordinal, lease.payload["latest"]) == (number, 1 + 2 * (number - 1))
        written = Advice(number, f"piece {number} \u2028 $x", number - 1)
        request = replace(toy_rollout(), role=PolicyRole.ADVISE, advice=number - 1)
        answers = [replace(p, advice=carried) for p in toy_proposals(f"x = {number}\ny = 1\n", f"x = 0.{number}\n")]
        proposed = self.harness.work.commit_proposals(
            lease, ProposedBatch((toy_rollout(), request), tuple(answers), advice=written)
        )
        assert proposed is not None
        assert self.harness.work.advice(commit.run_id)[1] == written
        placed = (Placement(2 * number, 0, f"cell {number}", 1.0, (float(number), 1.0)),)
        return self._evaluate(self._only(proposed), placed)

    def test_a_cell_accepts_only_better_candidates(self) -> None:
        low, high = Placement(1, 0, "w0", 0.2, (1.0, 9.0)), Placement(2, 0, "w0", 0.5, (2.0, 9.0))
        commit = self._evaluate(self._only(self._begin()), (low,))
        assert commit.placements == (low,)
        commit = self._generate(self._only(commit), "x = 2\ny = 9\n", "x = 0\ny = 9\n")
        worse = Placement(3, 0, "w0", 0.4, (0.0, 9.0))
        commit = self._evaluate(self._only(commit), (worse, high))
        assert commit.placements == (high,)
        table = self.harness.work.elites(commit.run_id, 0)
        assert (table.cells, table.numbers.tolist(), table.rewards.tolist()) == (("w0",), [2], [[2.0, 9.0]])

    def test_members_are_read_by_number(self) -> None:
        commit = self._evaluate(self._only(self._begin()))
        members = self.harness.work.members(commit.run_id, [1, 99])
        assert set(members) == {1}
        assert (members[1].program, members[1].rewards) == ("x = 1\ny = 9\n", (1.0, 9.0))

    def test_the_family_has_every_candidate_with_its_first_parent(self) -> None:
        commit = self._evaluate(self._only(self._begin()))
        commit = self._generate(self._only(commit), "x = 2\ny = 9\n", "broken")
        self._evaluate(self._only(commit))
        rows = self.harness.work.lineage_rows(commit.run_id)
        assert [(number, parent) for number, parent, _ in rows] == [(1, 0), (2, 1), (3, 1)]
        assert [None if rewards is None else tuple(rewards) for _, _, rewards in rows] == [(1.0, 9.0), (2.0, 9.0), None]

    def test_the_alarm_is_raised_and_cleared(self) -> None:
        commit = self._evaluate(self._only(self._begin(toy_spec(1000, batch=64))))
        commit = self._generate(self._only(commit), *(f"broken {i}" for i in range(63)))
        commit = self._evaluate(self._only(commit))
        alarm = self.harness.progress(commit.run_id).alarm
        assert alarm is not None
        assert "their output was invalid" in alarm
        commit = self._generate(self._only(commit), *(f"x = 0.{i}\ny = 9\n" for i in range(64)))
        commit = self._evaluate(self._only(commit))
        assert self.harness.progress(commit.run_id).alarm is None
        kinds = [event.kind for event in self.harness.events(commit.run_id)]
        assert EventKind.ALARM_RAISED in kinds
        assert EventKind.ALARM_CLEARED in kinds

    def _fail(self, ref: WorkRef, failure: Failure) -> Commit:
        """Settle an ``evaluate`` unit in which every readable program fails alike."""
        lease = self._claim(ref)
        candidates = [
            Candidate(number, p, Evaluation(failure=p.failure or failure))
            for number, p in enumerate(read_proposals(lease.payload), start=lease.payload["first"])
        ]
        commit = self.harness.work.commit_evaluations(lease, EvaluatedBatch(tuple(candidates)))
        assert commit is not None
        return commit

    def _batch(self, commit: Commit, failure: Failure) -> Commit:
        commit = self._generate(self._only(commit), *(f"x = {commit.revision}.{i}\ny = 9\n" for i in range(8)))
        return self._fail(self._only(commit), failure)

    def _unreadable(self, commit: Commit, count: int) -> Commit:
        proposals = tuple(replace(p, program="", failure=NO_CODE) for p in toy_proposals(*["prose"] * count))
        lease = self._claim(self._only(commit))
        made = self.harness.work.commit_proposals(lease, ProposedBatch((toy_rollout(),), proposals))
        assert made is not None
        return self._fail(self._only(made), NO_CODE)

    def test_an_evaluator_that_cannot_score_the_seed_pauses_the_run_at_once(self) -> None:
        commit = self._fail(self._only(self._begin()), RAISED)
        progress = self.harness.progress(commit.run_id)
        assert (progress.state, progress.live, progress.diagnosis["fault"]) == (RunState.PAUSED, 0, "evaluator")
        assert commit.dispatch == ()
        assert self.harness.work.duplicates(commit.run_id, [text_digest("x = 1\ny = 9\n")]) == {}
        commit = self.harness.resume(commit.run_id)
        assert self._kind(commit) is WorkKind.EVALUATE
        assert self.harness.work.standing(commit.run_id).seed is None
        commit = self._evaluate(self._only(commit))
        assert self._kind(commit) is WorkKind.GENERATE
        assert [number for number, _, _ in self.harness.candidates(commit.run_id)] == [1, 2]
        commit = self._evaluate(self._only(self._generate(self._only(commit), "x = 2\ny = 9\n")))
        assert self.harness.work.standing(commit.run_id).seed == 2

    def test_without_a_scored_seed_program_no_other_candidate_stands_for_it(self) -> None:
        commit = self._fail(self._only(self._begin()), CRASHED)
        commit = self._evaluate(self._only(self._generate(self._only(commit), "x = 2\ny = 9\n")))
        assert self.harness.work.standing(commit.run_id).seed is None

    def test_a_seed_that_fails_by_itself_does_not_pause_the_run(self) -> None:
        commit = self._fail(self._only(self._begin()), CRASHED)
        assert self._kind(commit) is WorkKind.GENERATE

    def test_batches_that_the_evaluator_cannot_score_pause_the_run(self) -> None:
        commit = self._evaluate(self._only(self._begin(toy_spec(1000, batch=8))))
        for failure in (RAISED, CRASHED, RAISED):
            commit = self._batch(commit, failure)
        commit = self._evaluate(self._only(self._generate(self._only(commit), "x = 2\ny = 9\n")))
        for _ in range(2):
            commit = self._batch(commit, RAISED)
        assert self.harness.progress(commit.run_id).state is RunState.RUNNING
        commit = self._batch(commit, RAISED)
        progress = self.harness.progress(commit.run_id)
        assert (progress.state, progress.diagnosis["failures"]) == (RunState.PAUSED, 24)
        assert progress.diagnosis["fault"] == "policy"  # the evaluator has scored the seed program
        assert str(progress.reason).startswith("no new program could be scored (24 in a row): evaluator_raised: Import")
        assert progress.diagnosis["remedy"].startswith("The evaluator has scored another program of this run")
        last = self.harness.events(commit.run_id)[-1]
        assert last.kind is EventKind.RUN_PAUSED
        assert last.data["diagnosis"] == progress.diagnosis
        assert (last.data["fault"], last.data["reason"]) == (True, progress.reason)
        commit = self.harness.resume(commit.run_id)
        assert self.harness.progress(commit.run_id).diagnosis == {}
        for _ in range(2):
            commit = self._batch(commit, RAISED)
        assert self.harness.progress(commit.run_id).state is RunState.RUNNING
        assert self.harness.progress(self._batch(commit, RAISED).run_id).state is RunState.PAUSED

    def test_unreadable_answers_pause_the_run(self) -> None:
        commit = self._evaluate(self._only(self._begin(toy_spec(1000, batch=32))))
        commit = self._unreadable(commit, 32)
        assert self.harness.progress(commit.run_id).state is RunState.RUNNING
        commit = self._unreadable(commit, 16)
        progress = self.harness.progress(commit.run_id)
        assert (progress.state, progress.diagnosis["fault"]) == (RunState.PAUSED, "policy")
        assert (progress.diagnosis["reason"], progress.diagnosis["candidate"]) == ("no_code_block", 49)

        commit = self.harness.resume(commit.run_id)
        commit = self._evaluate(self._only(self._generate(self._only(commit), "x = 2\ny = 9\n")))
        for _ in range(4):
            commit = self._unreadable(commit, 32)
        assert self.harness.progress(commit.run_id).state is RunState.RUNNING
        commit = self._unreadable(commit, 32)
        assert self.harness.progress(commit.run_id).diagnosis["failures"] == 160

    def test_events_come_in_order(self) -> None:
        commit = self._evaluate(self._only(self._begin()))
        self._generate(self._only(commit), "x = 2\ny = 9\n")
        kinds = [event.kind for event in self.harness.events(commit.run_id)]
        assert kinds == [
            EventKind.RUN_CREATED,
            EventKind.RUN_STARTED,
            EventKind.BATCH_EVALUATED,
            EventKind.BATCH_PROPOSED,
        ]


def _with_output(batch: EvaluatedBatch, output: str, carried_from: int | None) -> EvaluatedBatch:
    evaluations = [
        replace(outcome.evaluation, artifacts={OUTPUT: output}, carried_from=carried_from)
        for outcome in batch.candidates
    ]
    candidates = [
        replace(o, evaluation=evaluation) for o, evaluation in zip(batch.candidates, evaluations, strict=True)
    ]
    return EvaluatedBatch(tuple(candidates), batch.placements)
