"""Rules of run state: the changes of one transaction.

A store loads ``RunProgress`` under a lock, calls functions of this module with a ``RunChange`` of it, and writes the
change in the same transaction. The functions do no I/O. They are the rules for budgets, lanes and claims; those for the
end of a run and for pauses are in ``speciate.runs.stopping``.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, replace
from typing import Any
from uuid import UUID

from speciate.domain.campaign import waits_for_grant
from speciate.domain.candidate import Candidate, Evaluation, Failure, FailureKind, Individual, Proposal
from speciate.domain.charge import Charge
from speciate.domain.event import EventKind
from speciate.domain.guidance import NO_ADVICE, Advice, Guidance
from speciate.domain.policy import PolicyRole
from speciate.domain.rollout import Rollout
from speciate.domain.run import RunState
from speciate.domain.target import Claim, ClaimState
from speciate.ports.work import Confirmation, EvaluatedBatch, FinalValue, LearnedStep, Lease, ProposedBatch, RunContext
from speciate.runs.counters import add_confirmed_event, claim_targets, count_outcome, keep_best, summary
from speciate.runs.ensemble import count_arm
from speciate.runs.guidance import adopt, count_gain
from speciate.runs.lanes import EXTERNAL_LANE, add_evaluate, continue_lanes, open_lanes, proceed
from speciate.runs.learning import end_learning as stop_learning
from speciate.runs.learning import finish_step, groups_of, record_groups
from speciate.runs.payloads import read_confirmations, read_proposals
from speciate.runs.progress import RunChange, RunProgress
from speciate.runs.stopping import (
    add_final,
    complete_when_idle,
    diagnose,
    forget_streaks,
    judge_alarm,
    judge_outages,
    pause,
)
from speciate.search.cells import improves
from speciate.search.noise import LEAST_BUDGET, SEED_TRIALS, Revision
from speciate.search.strategies import strategy_of
from speciate.search.strategy import Placement

MAX_ATTEMPTS = 3
"""Attempts after which a work unit is abandoned."""


FindClaimant = Callable[[int], Claim | None]
"""Maps the position of a target to the claim of the earliest candidate that meets it and is not refuted."""


def create(change: RunChange, context: RunContext, granted: int | None = None) -> None:
    """Record a new run. ``granted`` is the first grant of its campaign."""
    spec = context.spec
    change.event(
        EventKind.RUN_CREATED,
        problem=context.problem.digest,
        policy=context.proposer.digest,
        mutator=context.mutator.digest if context.mutator else None,
        strategy=spec.strategy,
        seed=spec.seed,
        lanes=spec.lanes,
        **({"seeds": len(context.seeds)} if context.seeds else {}),
        **_ensembles(context),
    )
    change.progress.state = RunState.CREATED
    if granted is not None:
        _grant(change, granted)


def _ensembles(context: RunContext) -> dict[str, Any]:
    """Return the first event's data about ensembles; empty if every role has one policy."""
    if not context.has_ensemble:
        return {}
    shares = {role.value: [[s.policy.digest, s.weight] for s in of] for role, of in sorted(context.ensembles.items())}
    discount = context.spec.policy_discount
    more = {} if discount == 1.0 else {"discount": discount}
    return {"choice": context.spec.policy_choice.value, **more, "ensembles": shares}


def start(change: RunChange, context: RunContext) -> None:
    """Start a run with the evaluation of the seed programs, or with all lanes if there are none."""
    change.progress.state = RunState.RUNNING
    change.event(EventKind.RUN_STARTED)
    _begin(change, context)


def _begin(change: RunChange, context: RunContext) -> None:
    """Evaluate the seed programs unless a program is scored, and start all lanes otherwise.

    Seed programs are spread over the islands, from which the strategy lets them migrate.
    """
    progress = change.progress
    progress.lanes = 0
    left = progress.evaluations_left(context.spec.budget)
    # Hints and proposals from outside also take batch ordinals, so these do not tell whether a seed is scored.
    seeds = () if progress.evaluated else context.seed_programs[:left]
    if seeds:
        islands = strategy_of(context.spec).islands
        proposals = [
            Proposal(seed.program, seed.digest, PolicyRole.SEED, island=i % islands, origin=seed.origin)
            for i, seed in enumerate(seeds)
        ]
        if context.repeats and (left is None or left >= LEAST_BUDGET):
            proposals += [replace(proposals[0], role=PolicyRole.REPEAT) for _ in range(SEED_TRIALS - 1)]
        proposals = _numbered_trials(progress, proposals[:left])
        add_evaluate(change, 0, 0, proposals)
        progress.batches = max(progress.batches, 1)
        progress.reserved_evaluations += len(proposals)
    else:
        continue_lanes(change, context, *open_lanes(progress, context))


def record_proposals(
    change: RunChange, context: RunContext, lease: Lease, reserved: tuple[int, int], batch: ProposedBatch
) -> None:
    """Record a generated batch. ``reserved`` are the evaluations and tokens that its unit had reserved."""
    progress, (evaluations, tokens) = change.progress, reserved
    progress.live -= 1
    settle(progress, context, tokens, batch.rollouts)
    proposals = _numbered_trials(progress, batch.proposals[:evaluations])
    for rollout in batch.rollouts:
        count_arm(progress, context, rollout.role, rollout.policy, lease.ordinal, tokens=rollout.tokens)
    for proposal in proposals:
        count_arm(progress, context, proposal.role, proposal.policy, lease.ordinal, asked=1)
    answered = {context.policies(rollout.role)[rollout.policy].policy.digest for rollout in batch.rollouts}
    judge_outages(change, batch.outages, answered)
    _add_proposed_event(change, lease.lane, lease.ordinal, batch.rollouts, proposals)
    if batch.advice is not None and context.spec.guidance is not None:
        adopt(change, context.spec.guidance.most, batch.advice)
    # Evaluations for missing answers return to the budget before the next batch is sized.
    progress.reserved_evaluations -= evaluations - len(proposals)
    if proposals:
        learns = context.spec.learning is not None
        # A completion whose last answers find no budget would look worse than it is: no group holds it.
        cut = next((p.rollout for p in batch.proposals[evaluations:] if p.rollout is not None), None)
        more = {"groups": groups_of(batch.rollouts[:cut]), "step": batch.step} if learns else None
        add_evaluate(change, lease.lane, lease.ordinal, proposals, more)
    # The first bill opens lanes.
    continue_lanes(change, context, *(() if proposals else (lease.lane,)), *open_lanes(progress, context))


def _charge_rollouts(progress: RunProgress, context: RunContext, rollouts: Sequence[Rollout]) -> None:
    progress.rollouts += len(rollouts)
    progress.tokens += sum(rollout.tokens for rollout in rollouts)
    progress.estimated_tokens += sum(rollout.estimated_tokens for rollout in rollouts)
    for rollout in rollouts:
        policy, cost = context.policies(rollout.role)[rollout.policy].policy, rollout.cost
        if cost is None:
            price = policy.price
            cost = 0.0 if price is None else price.cost(rollout.prompt_tokens, rollout.completion.tokens)
        progress.cost += cost
        if policy.bills_afterwards and rollout.proposed_by is None:
            progress.dearest = max(progress.dearest or 0.0, cost)


def settle(progress: RunProgress, context: RunContext, reserved_tokens: int, rollouts: Sequence[Rollout]) -> None:
    """Charge answers in place of the tokens that their request had reserved."""
    progress.reserved_tokens -= reserved_tokens
    _charge_rollouts(progress, context, rollouts)


def charge_of(context: RunContext, rollouts: Sequence[Rollout]) -> Charge:
    settled = RunProgress()
    _charge_rollouts(settled, context, rollouts)
    return Charge(settled.tokens, settled.cost, settled.estimated_tokens)


def _numbered_trials(progress: RunProgress, proposals: Sequence[Proposal]) -> list[Proposal]:
    """Return the proposals; each that evaluates a program again has the next shared seed of that program."""
    numbered = []
    for proposal in proposals:
        if proposal.role is PolicyRole.REPEAT:
            program = proposal.program_hash[:16]
            progress.trials[program] = trial = progress.trials.get(program, 0) + 1
            numbered.append(replace(proposal, trial=trial))
        else:
            numbered.append(proposal)
    return numbered


def _add_proposed_event(
    change: RunChange, lane: int, ordinal: int, rollouts: Sequence[Rollout], proposals: Sequence[Proposal]
) -> None:
    change.event(
        EventKind.BATCH_PROPOSED,
        batch=ordinal,
        lane=lane,
        first=change.progress.numbers + 1,
        proposals=len(proposals),
        rollouts=len(rollouts),
        tokens=sum(rollout.tokens for rollout in rollouts),
        rejected=dict(Counter(p.failure.reason for p in proposals if p.failure)),
    )


def record_external_batch(change: RunChange, context: RunContext, batch: ProposedBatch) -> None:
    """Record a batch that a proposer outside the service sent (ADR 38). The caller has checked the budget."""
    progress, proposals = change.progress, batch.proposals
    ordinal = progress.batches
    progress.batches += 1
    _charge_rollouts(progress, context, batch.rollouts)
    _add_proposed_event(change, EXTERNAL_LANE, ordinal, batch.rollouts, proposals)
    progress.reserved_evaluations += len(proposals)
    add_evaluate(change, EXTERNAL_LANE, ordinal, proposals)


def apply_advice(change: RunChange, context: RunContext, text: str, author: str) -> Advice:
    """Add a user's hint to the advice in use, and return it."""
    advice = Advice(max(change.progress.batches, NO_ADVICE + 1), text)
    change.progress.batches = advice.number + 1
    adopt(change, (context.spec.guidance or Guidance()).most, advice, author)
    return advice


def record_evaluations(
    change: RunChange,
    context: RunContext,
    lease: Lease,
    reserved: tuple[int, int],
    batch: EvaluatedBatch,
    accepted: Sequence[Placement],
    revision: Revision | None = None,
) -> None:
    """Record an evaluated batch; see ``record_proposals``.

    ``accepted`` are the archive updates that took effect, and ``revision`` what is known of its programs if rewards are
    noisy.
    """
    progress = change.progress
    progress.live -= 1
    progress.reserved_evaluations -= reserved[0]
    # Cells that rank by time accept every candidate, so entering one is no improvement.
    winners = {placement.number for placement in accepted if improves(placement.cell)}
    winners &= {candidate.number for candidate in batch.candidates}
    for candidate in batch.candidates:
        progress.evaluations += 1
        count_outcome(progress, context, candidate)
        proposal, won = candidate.proposal, candidate.number in winners
        if proposal.proposed_by is None:
            count_arm(progress, context, proposal.role, proposal.policy, lease.ordinal, judged=1, won=won)
        count_gain(change, proposal.advice, won=won)
        if candidate.duplicate_of is None:
            claim_targets(change, context, candidate.number, candidate.targets)
    if revision is None:
        scored = [each for each in batch.candidates if each.evaluation.rewards is not None]
        keep_best(progress, context, [each.individual for each in scored if each.duplicate_of is None])
    else:
        for each in revision.individuals:  # their bounds claim targets
            claim_targets(change, context, each.number, each.targets)
        _choose_best(progress, context, revision)
    progress.improvements += len(winners)
    if winners:
        progress.improved_at = progress.evaluations
    change.event(
        EventKind.BATCH_EVALUATED,
        batch=lease.ordinal,
        lane=lease.lane,
        first=int(lease.payload["first"]),
        candidates=[summary(context, candidate) for candidate in batch.candidates],
        archive=[[p.island, p.cell, p.number] for p in accepted],
        evaluations=progress.evaluations,
        **_learned_of(batch, revision),
    )
    judge_alarm(change)
    record_groups(change, context, lease, batch.candidates)
    pending = _announce_claims(change)
    opens_lanes = lease.ordinal == 0 and bool(context.seed_programs)
    diagnosis = diagnose(progress, context, batch.candidates)
    if diagnosis is not None and progress.state is RunState.RUNNING:
        pause(change, diagnosis.summary, fault=True, diagnosis=diagnosis)
    if diagnosis is None or not opens_lanes:  # a run without a scored seed program opens no lanes
        opens = len(open_lanes(progress, context)) if opens_lanes else 0
        failed = any(c.proposal.role is PolicyRole.REPEAT and c.evaluation.failure for c in batch.candidates)
        proceed(change, context, lease.lane, pending, opens=opens, failed=failed)
        if not opens_lanes and not progress.state.ended:
            continue_lanes(change, context, *open_lanes(progress, context))


def _choose_best(progress: RunProgress, context: RunContext, revision: Revision) -> None:
    """Choose the candidate with the best bound; its value is its mean."""
    progress.best_number = None
    keep_best(progress, context, revision.individuals)
    if progress.best_number is not None:
        progress.best = list(revision.estimates[progress.best_number].mean)


def _learned_of(batch: EvaluatedBatch, revision: Revision | None) -> dict[str, Any]:
    """Return, for the event, evaluations and mean rewards of the programs that a batch evaluated again."""
    if revision is None:
        return {}
    known = {number: revision.estimates[number] for number in batch.repeated if number in revision.estimates}
    return {"known": {str(number): [each.evaluations, *each.mean] for number, each in known.items()}}


def _announce_claims(change: RunChange) -> list[Claim]:
    """Append the events of new claims, pending ones first; return the pending ones."""
    pending = [claim for claim in change.claims if claim.state is ClaimState.PENDING]
    for claim in pending:
        change.event(EventKind.TARGET_CLAIMED, target=claim.target, candidate=claim.number)
    for claim in change.claims:
        if claim.state is ClaimState.CONFIRMED:
            add_confirmed_event(change, claim)
    return pending


def record_confirmation(
    change: RunChange,
    context: RunContext,
    lease: Lease,
    confirmation: Confirmation,
    claims: Mapping[int, Claim],
    find_claimant: FindClaimant,
    elites: Callable[[], Iterable[Individual]],
    revision: Revision | None = None,
) -> None:
    """Record a confirmation of stored claims, by position of their target.

    The next candidate that meets a refuted target is due. A refuted best candidate competes again with the ``elites``:
    the candidates of the archive without refuted targets. With noisy rewards ``revision`` says what is known of them.
    """
    progress = change.progress
    progress.live -= 1
    for position in confirmation.confirmed:
        progress.confirmed |= 1 << position
        confirmed = replace(claims[position], state=ClaimState.CONFIRMED)
        change.claims.append(confirmed)
        add_confirmed_event(change, confirmed)
    number, refuted = confirmation.number, confirmation.refuted_targets
    if revision is not None:
        _choose_best(progress, context, revision)
    elif progress.best_number == number and progress.best_targets & refuted:
        progress.best_targets &= ~refuted
        keep_best(progress, context, elites())
    pending: list[Claim] = []
    for position, detail in confirmation.refuted.items():
        claim = claims[position]
        change.claims.append(replace(claim, state=ClaimState.REFUTED))
        change.event(EventKind.TARGET_REFUTED, target=claim.target, candidate=number, detail=detail[:2000])
        successor = find_claimant(position)
        if successor is None:
            progress.claimed &= ~(1 << position)
        else:
            change.claims.append(successor)
            change.event(EventKind.TARGET_CLAIMED, target=successor.target, candidate=successor.number)
            pending.append(successor)
    _, *queued = read_confirmations(lease.payload)
    opens, ends = int(lease.payload.get("opens", 0)), bool(lease.payload.get("ends"))
    proceed(change, context, lease.lane, pending, opens=opens, ends=ends, queued=queued)


def record_final(change: RunChange, context: RunContext, final: FinalValue, elites: Iterable[Individual]) -> None:
    """Record the value of the best candidate after the end, and complete the run.

    If one of the ``elites``, by its bound, ranks above that value, it is evaluated, too; the better one is the best.
    """
    progress = change.progress
    progress.live -= 1
    if not progress.final:
        progress.best = list(final.mean or progress.best)
        above = progress.model_copy()
        keep_best(above, context, [each for each in elites if each.number != final.number])
        if above.best_number and above.best_number != final.number:
            add_final(change, above.best_number)
    elif final.mean and final.failed <= progress.final["failed"]:
        keep_best(progress, context, [replace(e, rewards=final.mean) for e in elites if e.number == final.number])
    if progress.best_number == final.number:
        progress.final = asdict(final)
    complete_when_idle(change, context)


def record_step(change: RunChange, context: RunContext, lease: Lease, step: LearnedStep, policy_id: UUID) -> None:
    """Record a training step; the lanes that waited for it continue, and the next batch uses its version."""
    change.progress.live -= 1
    continue_lanes(change, context, *finish_step(change, context, lease, step, policy_id))


def end_learning(change: RunChange, context: RunContext, lease: Lease, reason: str) -> None:
    change.progress.live -= 1
    continue_lanes(change, context, *stop_learning(change, lease, reason))


def poison_learn(change: RunChange, context: RunContext, lease: Lease) -> None:
    """Abandon a step that keeps losing its worker; the run goes on with its last version."""
    reason = f"step {lease.ordinal + 1} lost its worker {MAX_ATTEMPTS} times"
    change.event(EventKind.WORK_POISONED, work=lease.kind.value, batch=lease.ordinal, reason=reason)
    end_learning(change, context, lease, reason)


def end_lane(change: RunChange, context: RunContext, reserved: tuple[int, int]) -> None:
    change.progress.live -= 1
    change.progress.reserved_evaluations -= reserved[0]
    change.progress.reserved_tokens -= reserved[1]
    complete_when_idle(change, context)


def resume(change: RunChange, context: RunContext) -> None:
    """Dispatch work again."""
    progress = change.progress
    progress.state, progress.reason = RunState.RUNNING, None
    change.event(EventKind.RUN_RESUMED)
    forget_streaks(progress)
    if progress.live == 0:  # the seed was not scored, or the run spent its grant or received a new one
        _begin(change, context)


def grant_budget(change: RunChange, context: RunContext, granted: int) -> None:
    """Raise the limit of a campaign's run to ``granted`` evaluations in total, and resume it if it waited."""
    progress = change.progress
    if progress.state.ended or progress.granted is None or granted <= progress.granted:
        return
    _grant(change, granted)
    if progress.state is RunState.PAUSED and waits_for_grant(progress.reason):
        progress.state, progress.reason = RunState.RUNNING, None
        progress.lanes = 0
        continue_lanes(change, context, *open_lanes(progress, context))


def _grant(change: RunChange, granted: int) -> None:
    change.progress.granted = granted
    change.event(EventKind.RUN_GRANTED, evaluations=granted)


def charge(progress: RunProgress, spent: Charge) -> None:
    """Charge requests without a recorded answer."""
    progress.tokens += spent.tokens
    progress.cost += spent.cost
    progress.estimated_tokens += spent.estimated


def most_of(progress: RunProgress, context: RunContext, answers: int, tokens: int) -> Charge:
    """Return the most that requests can have cost: all reserved ``tokens`` at the highest price, or dearest answers."""
    agents = answers * (progress.dearest or 0.0) if tokens and context.bills_afterwards else 0.0
    return Charge(tokens, tokens * context.token_price + agents, tokens)


def record_lost_attempt(change: RunChange, lease: Lease, lost: Charge) -> None:
    """Charge an attempt without a result for what it ``lost``, as a replay reads it from the event."""
    charge(change.progress, lost)
    unit = {"work": lease.kind.value, "batch": lease.ordinal, "attempt": lease.attempt}
    change.event(EventKind.WORK_RETRIED, **unit, tokens=lost.tokens, cost=lost.cost)


def poison_generate(change: RunChange, context: RunContext, lease: Lease, reserved: tuple[int, int]) -> None:
    """Abandon a ``generate`` unit and pause the run, since a further attempt would probably fail as well."""
    progress = change.progress
    progress.live -= 1
    progress.reserved_evaluations -= reserved[0]
    progress.reserved_tokens -= reserved[1]
    charge(progress, most_of(progress, context, *reserved))
    reason = f"batch {lease.ordinal} lost its worker {MAX_ATTEMPTS} times during policy requests"
    change.event(EventKind.WORK_POISONED, work=lease.kind.value, batch=lease.ordinal, reason=reason)
    continue_lanes(change, context, lease.lane)
    if progress.state is RunState.RUNNING:
        pause(change, reason, fault=True)


def lost_candidates(lease: Lease) -> tuple[Candidate, ...]:
    """Return the candidates of a poisoned ``evaluate`` unit, which fail."""
    proposals, first = read_proposals(lease.payload), int(lease.payload["first"])
    text = f"the evaluation of this batch of {len(proposals)} lost its worker {MAX_ATTEMPTS} times"
    failure = Failure(FailureKind.CRASHED, "worker_lost", text)
    return tuple(
        Candidate(number, proposal, Evaluation(failure=proposal.failure or failure))
        for number, proposal in enumerate(proposals, start=first)
    )
