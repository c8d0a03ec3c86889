"""The evolution loop of a run, on one page.

A run has ``RunSpec.lanes`` lanes. Each is a chain of work units, and every function here executes one unit::

    generate   select parents → build prompts → sample the policies → parse the answers → commit
    evaluate   skip repeated programs → evaluate the new ones → place them in the archive → commit
               (noisy rewards: evaluate repeated programs once more, and place all by what is known of them)
    confirm    evaluate a candidate that met targets again, with other seeds → commit
               (and the best one of a problem with noise, after the end: its value does not depend on luck)
    learn      train the policy on groups of its completions → commit (``runs.training_step``)

A ``generate`` unit is followed by the ``evaluate`` unit of its proposals, and this one by a ``confirm`` unit for each
candidate that met a target first, or by the next ``generate`` unit of the lane. A run starts with the ``evaluate`` unit
of its seed programs, or with all lanes if it has none. Which unit follows is decided within the commit: ``runs.lanes``
applies the budget, and ``runs.stopping`` decides whether the run ends, pauses or raises its alarm.

Every unit ends with one transaction of the ``WorkStore``. It records the results, the counters, the archive, the events
and the units that follow, together or not at all. It is fenced by the token of the lease: a worker that lost its lease
commits nothing, and the function returns None. A worker that dies leaves nothing behind, and its unit is executed again
from the start. Only the reservation of tokens, which keeps a run within its budget, is a transaction before that.

This module knows neither processes nor queues: ``WorkExecutor`` leases a unit, renews the lease, calls this module and
publishes the commit, both for the Celery tasks (``workers.tasks``) and for runs in one process (``executor.drain``). It
knows no database (``WorkStore``), no model server (``PolicyClient``) and no sandbox (``EvaluatorClient``). The strategy
(``speciate.search``) selects parents and places candidates, and ``speciate.prompts`` words the prompts.

All random choices of a unit come from the seed, the problem and the ordinal of its batch (ADR 27). With one lane, the
same seed and the same answers therefore give the same events on any worker.
"""

from speciate.domain.policy import PolicyRole
from speciate.ports.evaluator import EvaluatorClient
from speciate.ports.work import Commit, Confirmation, EvaluatedBatch, Lease, ProposedBatch, WorkStore
from speciate.runs.answers import read_answers, repetitions
from speciate.runs.evaluation import ProgramBatch, evaluate_programs, final_value, repeat_evaluation
from speciate.runs.guidance import has_hints
from speciate.runs.payloads import read_confirmations
from speciate.runs.prompting import REPEATING, Prompter, RequestPlanner, answers_per_prompt, batch_rng
from speciate.runs.sampling import ClientFor, afford, sample
from speciate.runs.stored_population import StoredPopulation
from speciate.search.noise import again
from speciate.search.strategies import strategy_of
from speciate.search.targets import place_candidates


def generate(lease: Lease, work: WorkStore, client_for: ClientFor) -> Commit | None:
    """Generate a batch of proposals; None if the lease was lost.

    In a ``PolicyUnavailableError``, ``spent`` is what its requests cost.
    """
    context = work.context(lease.run_id)
    version = None if context.spec.learning is None else work.learned(lease.run_id)
    context = context.learned(version)
    rng = batch_rng(context, lease.ordinal)
    population = StoredPopulation(work, context, lease.ordinal)
    strategy = strategy_of(context.spec)
    migrants = strategy.maintain(population, rng)

    # Select the parents of every prompt; where noise hides which program is best, evaluate one of them again instead.
    prompter = Prompter(context, work, strategy, population, hinted=has_hints(lease))
    selections, repeated, repeating = [], [], batch_rng(context, lease.ordinal, REPEATING)
    undecided = population.unconfirmed if context.waits_for_proposals else 0
    for answers in answers_per_prompt(lease, context):
        if context.repeats and (selection := again(strategy, population, repeating, undecided)) is not None:
            repeated.append((selection, answers))
            continue
        if context.waits_for_proposals:  # new programs come from outside
            return work.end_lane(lease)
        selection = prompter.select(rng)
        population.polishing += answers * (selection.role is PolicyRole.POLISH)
        selections.append((selection, answers))

    # Build the prompts, and choose the policies that receive them.
    planner = RequestPlanner(lease, context, work, prompter, rng)
    requests = planner.plan(selections)

    # Sample the policies; a budget of tokens or dollars may hold only the first requests. If a policy is unavailable,
    # another one of its role answers.
    if context.spec.budget.limits_requests and requests:
        affordable = afford(requests, lease, work, client_for)
        if affordable is None:
            return None
        if not affordable:
            return work.end_lane(lease)
        requests = affordable
    begins = lease.ordinal <= context.spec.lanes or lease.attempt > 1
    sampled = sample(requests, client_for, planner.instead, begins=begins)
    if requests and not sampled.planned:
        return work.end_lane(lease)

    # Parse the answers: each completion gives at least one proposal, which costs an evaluation even if it is rejected.
    rollouts, proposals = read_answers(sampled.planned, sampled.results, context, version)
    proposals += repetitions(repeated, prompter)
    advice = prompter.adviser.read(lease.ordinal, rollouts)

    step = 0 if version is None else version.step
    return work.commit_proposals(lease, ProposedBatch(rollouts, proposals, migrants, advice, step, sampled.outages))


def evaluate(lease: Lease, work: WorkStore, evaluator: EvaluatorClient) -> Commit | None:
    """Evaluate a batch of proposals; None if the lease was lost. Raises as ``EvaluatorClient.evaluate`` does."""
    context = work.context(lease.run_id)
    batch = ProgramBatch.read(lease, context, work)

    # Evaluate the new programs. Repeated ones get the result of the first, near-duplicates are rejected. Where rewards
    # are noisy, each evaluation of a program adds to what is known of it, and the commit revises the archive.
    results, sources = evaluate_programs(lease, batch, work, evaluator)
    candidates = batch.candidates(results, sources)

    # Place the new programs with rewards in the archive.
    new = [each for each in candidates if each.number in batch.new]
    scored = [each.individual for each in new if each.evaluation.rewards is not None]
    strategy = strategy_of(context.spec)
    population = StoredPopulation(work, context, lease.ordinal)
    placements = place_candidates(strategy, population, scored) if scored and not context.problem.is_noisy else ()

    return work.commit_evaluations(lease, EvaluatedBatch(candidates, placements))


def confirm(lease: Lease, work: WorkStore, evaluator: EvaluatorClient) -> Commit | None:
    """Confirm or refute the targets that a candidate met: every repeat must meet them; None if the lease was lost."""
    context = work.context(lease.run_id)
    number, targets = read_confirmations(lease.payload)[0]
    member = work.members(lease.run_id, [number])[number]
    if lease.payload.get("final"):
        return work.commit_final(lease, final_value(context, work, evaluator, member))
    repeats, met = repeat_evaluation(context, work, evaluator, member)
    missed = [i for i in targets if not met >> i & 1]
    refuted = {i: context.problem.ranking.refutation(i, member.rewards or (), repeats) for i in missed}
    confirmed = [i for i in targets if i not in refuted]
    return work.commit_confirmation(lease, Confirmation(number, confirmed, refuted, repeats))
