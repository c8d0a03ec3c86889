"""Generate a batch of candidates: select parents, build prompts, sample the policies, parse the answers."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from speciate.domain.budget import Charge
from speciate.domain.candidate import Individual, Proposal
from speciate.domain.errors import PolicyUnavailableError
from speciate.domain.guidance import draw
from speciate.domain.policy import Policy, PolicyRole
from speciate.domain.problem import Problem
from speciate.domain.rollout import Completion, Prompt, Rollout
from speciate.domain.values import storable, text_digest
from speciate.ports.policy import IdentifyingClient, PolicyClient, SampleRequest, SampleResult
from speciate.ports.work import Commit, Lease, ProposedBatch, RunContext, WorkStore
from speciate.prompts.guidance import advice_text, read_advice
from speciate.prompts.mutation import build_prompt
from speciate.prompts.parse import parse_completion
from speciate.runs.ensemble import PolicyChooser
from speciate.runs.failures import RecentFailures
from speciate.runs.guidance import Adviser, has_hints, latest_of
from speciate.runs.novelty import shape_of
from speciate.runs.stored_population import StoredPopulation
from speciate.search.strategies import build_strategy
from speciate.search.strategy import Selection
from speciate.search.targets import select_parents

ClientFor = Callable[[Policy], PolicyClient]


@dataclass(frozen=True, slots=True)
class _PlannedRequest:
    """A request with its selection, policy and advice."""

    selection: Selection
    position: int
    policy: Policy
    request: SampleRequest
    advice: int | None = None


def generate(lease: Lease, work: WorkStore, client_for: ClientFor) -> Commit | None:
    """Generate one batch of proposals.

    Returns:
        The commit, or None if the lease was lost.

    Raises:
        PolicyUnavailableError: A policy gave no usable answer.
    """
    context = work.context(lease.run_id)
    version = work.learned(lease.run_id) if context.spec.learning is not None else None
    context = context.learned(version)
    rng = batch_rng(context, lease.ordinal)
    strategy = build_strategy(context.spec.strategy, context.spec.strategy_options)
    view = StoredPopulation(work, context, lease.ordinal)
    placements = strategy.maintain(view, rng)
    shares = _shares(int(lease.payload["answers"]), context)
    mutators = [share.policy for share in context.policies(PolicyRole.MUTATE)]
    failures = RecentFailures(context, work, strategy, mutators)
    selections = []
    for _ in shares:
        selections.append(failures.or_repair(select_parents(strategy, view, rng), rng))
        view.take(selections[-1].parents)
    chooser, adviser = (
        PolicyChooser(context, work),
        Adviser(context, work, view, strategy.islands, hinted=has_hints(lease)),
    )
    planned = _plan(selections, shares, context, work, chooser, adviser, failures.causes, rng)
    if (latest := latest_of(lease)) is not None and any(p.selection.role is PolicyRole.MUTATE for p in planned):
        # A tight token budget drops requests from the end of the plan, so the advice is dropped first.
        planned.append(_plan_advice(context, chooser, adviser, latest, rng))
    if context.spec.budget.limits_requests:
        affordable = _afford(planned, lease, work, client_for)
        if affordable is None:
            return None
        if not affordable:
            return work.end_lane(lease)
        planned = affordable
    results = _sample(planned, client_for, begins=lease.ordinal <= context.spec.lanes)
    rollouts, proposals = _read(planned, results, context)
    advice = adviser.read(lease.ordinal, rollouts)
    if version is None:
        return work.commit_proposals(lease, ProposedBatch(rollouts, proposals, placements, advice))
    wrote = str(version.policy_id)
    rollouts = tuple(replace(rollout, version=wrote) for rollout in rollouts)
    proposals = tuple(replace(proposal, version=wrote) for proposal in proposals)
    return work.commit_proposals(lease, ProposedBatch(rollouts, proposals, placements, advice, version.step))


def _shares(answers: int, context: RunContext) -> list[int]:
    """Split the answers of a batch into answers per prompt."""
    size = context.spec.samples_per_prompt
    return [min(size, answers - start) for start in range(0, answers, size)]


def _plan(
    selections: Sequence[Selection],
    shares: Sequence[int],
    context: RunContext,
    work: WorkStore,
    chooser: PolicyChooser,
    adviser: Adviser,
    causes: Sequence[str],
    rng: np.random.Generator,
) -> list[_PlannedRequest]:
    numbers = [number for s in selections for number in (*s.parents, *s.inspirations)]
    members = work.members(context.run_id, numbers)
    planned = []
    for selection, share in zip(selections, shares, strict=True):
        position = chooser.pick(selection.role, share, rng)
        policy = context.policies(selection.role)[position].policy
        shown = show(context.problem, selection, members, policy, adviser, causes, rng)
        request = SampleRequest(
            prompt=shown.prompt,
            role=selection.role,
            n=-(-share // policy.answers_for(selection.role)),
            seed=int(rng.integers(2**31)),
            parents=shown.parents,
            seed_program=context.problem.seed_program,
            keep_tokens=context.spec.keeps_tokens,
            others=shown.inspirations,
        )
        planned.append(_PlannedRequest(selection, position, policy, request, shown.advice))
    return planned


@dataclass(frozen=True, slots=True)
class ShownPrompt:
    """A prompt with what it shows.

    Attributes:
        prompt: The prompt.
        parents: Programs to change, the most important first; empty for a program from scratch.
        inspirations: Further programs.
        advice: Number of the advice; None if the run has none.
    """

    prompt: Prompt
    parents: tuple[Individual, ...]
    inspirations: tuple[Individual, ...]
    advice: int | None


def show(
    problem: Problem,
    selection: Selection,
    members: dict[int, Individual],
    policy: Policy,
    adviser: Adviser,
    causes: Sequence[str],
    rng: np.random.Generator,
) -> ShownPrompt:
    """Return the prompt of a selection.

    Args:
        problem: The problem.
        selection: Role, parents and inspirations.
        members: Individuals by number; missing ones are left out.
        policy: The policy that receives the prompt.
        adviser: Draws the advice.
        causes: Causes of recent failures.
        rng: Draws advice and requests.
    """
    parents, others = _present(members, selection.parents), _present(members, selection.inspirations)
    advice = adviser.pick(rng) if parents else None
    text = "" if advice is None else advice_text(advice)
    prompt = build_prompt(problem, selection.role, parents, others, policy, rng, advice=text, causes=causes)
    return ShownPrompt(prompt, parents, others, None if advice is None else advice.number)


def _plan_advice(
    context: RunContext, chooser: PolicyChooser, adviser: Adviser, latest: int, rng: np.random.Generator
) -> _PlannedRequest:
    """Plan the request for a new piece of advice, to one of the mutating policies."""
    parent = draw(adviser.pieces, rng)
    position = chooser.pick(PolicyRole.MUTATE, 0, rng)
    policy = context.policies(PolicyRole.ADVISE)[position].policy
    prompt = adviser.prompt(parent, policy, latest)
    request = SampleRequest(prompt, PolicyRole.ADVISE, n=1, seed=int(rng.integers(2**31)))
    return _PlannedRequest(Selection(PolicyRole.ADVISE), position, policy, request, parent.number)


def _present(members: dict[int, Individual], numbers: Sequence[int]) -> tuple[Individual, ...]:
    return tuple(members[number] for number in numbers if number in members)


def _afford(
    planned: list[_PlannedRequest], lease: Lease, work: WorkStore, client_for: ClientFor
) -> list[_PlannedRequest] | None:
    """Reserve tokens and shrink the plan from its end until the budget holds it; None if the lease was lost."""
    while planned:
        ceiling = sum(client_for(p.policy).token_ceiling(p.request) for p in planned)
        budget = work.context(lease.run_id).spec.budget
        if ceiling == 0 and budget.evaluations is None and budget.seconds is None:
            raise PolicyUnavailableError(
                f"policy {planned[0].policy.slug!r} uses no tokens, so a token budget alone never ends the run.",
                remedy="Set a budget of evaluations or seconds.",
            )
        granted = work.reserve_tokens(lease, ceiling)
        if granted is None:
            return None
        if granted:
            reserve = _Reservation(lease, work, ceiling).extend
            return [replace(p, request=replace(p.request, reserve=reserve)) for p in planned]
        *head, last = planned
        smaller = replace(last, request=replace(last.request, n=last.request.n // 2))
        planned = [*head, smaller] if smaller.request.n else head
    return []


class _Reservation:
    """The tokens that a unit has reserved. Attempts after the first extend it, from the threads of a client."""

    def __init__(self, lease: Lease, work: WorkStore, tokens: int) -> None:
        self._lease, self._work, self._tokens = lease, work, tokens
        self._lock = threading.Lock()

    def extend(self, tokens: int) -> bool:
        """Reserve further tokens; False if the budget does not hold them or the lease is lost."""
        with self._lock:
            granted = bool(self._work.reserve_tokens(self._lease, self._tokens + tokens))
            self._tokens += tokens if granted else 0
            return granted


def _sample(planned: Sequence[_PlannedRequest], client_for: ClientFor, *, begins: bool) -> list[SampleResult]:
    """Send each policy all of its requests in one call; return the results in the order of the plan.

    Args:
        planned: The planned requests.
        client_for: Returns the client of a policy.
        begins: True at the start of a run, when clients check again which weights their endpoints serve.

    Raises:
        PolicyUnavailableError: A policy gave no usable answer. ``spent`` includes all answered requests.
    """
    results: dict[int, SampleResult] = {}
    try:
        for policy in dict.fromkeys(p.policy.digest for p in planned):
            mine = {i: p for i, p in enumerate(planned) if p.policy.digest == policy}
            client = client_for(next(iter(mine.values())).policy)
            if begins and isinstance(client, IdentifyingClient):
                client.revalidate()
            _sample_one(client, mine, results)
    except PolicyUnavailableError as error:
        for index, result in results.items():
            written = result.tokens - result.prompt_tokens
            price = planned[index].policy.price
            cost = 0.0 if price is None else price.cost(result.prompt_tokens, written)
            error.spent += Charge(result.tokens, cost, result.estimated_tokens)
        raise
    return [result for _, result in sorted(results.items())]


def _sample_one(client: PolicyClient, planned: Mapping[int, _PlannedRequest], results: dict[int, SampleResult]) -> None:
    """Sample one policy; add the results before their check, so that the caller knows what was spent on an error."""
    answers = client.sample([p.request for p in planned.values()])
    results |= dict(zip(planned, answers, strict=True))
    for i, request in planned.items():
        _check(request, results[i])


def _check(planned: _PlannedRequest, result: SampleResult) -> None:
    if not result.completions:
        raise PolicyUnavailableError(f"policy {planned.policy.slug!r} returned no completion.")
    if len(result.completions) > planned.request.n:
        raise PolicyUnavailableError(
            f"policy {planned.policy.slug!r} returned {len(result.completions)} completions to a request for"
            f" {planned.request.n}."
        )
    if planned.request.keep_tokens and any(c.tokens and c.text and not c.token_ids for c in _answered(result)):
        raise PolicyUnavailableError(
            f"policy {planned.policy.slug!r} reports no token ids and log-probabilities, which this run keeps.",
            remedy="Serve it with vLLM or `speciate serve`, or start the run without keep_tokens and learning.",
        )


def _answered(result: SampleResult) -> list[Completion]:
    return [completion for completion in result.completions if completion.has_answer]


def _read(
    planned: Sequence[_PlannedRequest], results: Sequence[SampleResult], context: RunContext
) -> tuple[tuple[Rollout, ...], tuple[Proposal, ...]]:
    rollouts: list[Rollout] = []
    proposals: list[Proposal] = []
    for plan, result in zip(planned, results, strict=True):
        for position, raw in enumerate(result.completions):
            # Parse the text as it will be stored, so that a replay parses the same text.
            completion = replace(raw, text=storable(raw.text))
            advises = plan.selection.role is PolicyRole.ADVISE
            children = [] if advises else _children(plan, completion, context, len(rollouts))
            rollouts.append(
                Rollout(
                    role=plan.selection.role,
                    prompt=plan.request.prompt,
                    completion=completion,
                    seed=plan.request.seed,
                    prompt_tokens=result.prompt_tokens if position == 0 else 0,
                    latency_s=result.latency_s,
                    answers=sum(child.failure is None for child in children),
                    reason=_no_advice(completion) if advises else _no_program(children),
                    policy=plan.position,
                    advice=plan.advice,
                    estimated_tokens=result.estimated_tokens if position == 0 else 0,
                )
            )
            proposals.extend(children)
    return tuple(rollouts), tuple(proposals)


def _no_advice(completion: Completion) -> str | None:
    if not completion.has_answer:
        return completion.finish_reason
    return None if read_advice(completion.text) else "no_advice"


def _no_program(children: Sequence[Proposal]) -> str | None:
    return next((child.failure.reason for child in children if child.failure), None)


def _children(plan: _PlannedRequest, completion: Completion, context: RunContext, rollout: int) -> list[Proposal]:
    """Return the children of one completion: at least one, so that every completion costs an evaluation."""
    selection = plan.selection
    parent = plan.request.parents[0].program if plan.request.parents else context.problem.seed_program or None
    answers = parse_completion(
        completion.text,
        problem=context.problem,
        policy=plan.policy,
        parent=parent,
        finish_reason=completion.finish_reason,
    )
    return [
        Proposal(
            program=answer.program,
            program_hash=text_digest(answer.program),
            role=selection.role,
            island=selection.island,
            parents=selection.parents,
            inspirations=selection.inspirations,
            rollout=rollout,
            answer=position,
            failure=answer.failure,
            policy=plan.position,
            advice=plan.advice,
            # Here, because the program was just parsed.
            shape=shape_of(context, answer.program) if answer.failure is None else None,
        )
        for position, answer in enumerate(answers)
    ]


def batch_rng(context: RunContext, ordinal: int) -> np.random.Generator:
    """Return the generator for the random choices of one batch, seeded by run, problem and ordinal (ADR 27)."""
    return np.random.default_rng([context.spec.seed, int(context.problem.digest, 16), ordinal])
