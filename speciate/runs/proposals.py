"""Prepare prompts for proposers outside the service, and read what they send (ADR 38)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from uuid import UUID

import numpy as np

from speciate.domain.candidate import Individual, Proposal
from speciate.domain.errors import InvalidInputError
from speciate.domain.policy import Policy, PolicyRole
from speciate.domain.problem import ProblemKind
from speciate.domain.rollout import Completion, Prompt, Rollout
from speciate.domain.values import storable
from speciate.ports.work import RunContext, WorkStore
from speciate.prompts.parse import parse_completion, read_program, unfenced
from speciate.runs.answers import no_program, proposals_of
from speciate.runs.checks import CanAdvise, check_advice_shown
from speciate.runs.prompting import Prompter, ShownPrompt
from speciate.runs.stored_population import StoredPopulation
from speciate.search.strategies import build_strategy
from speciate.search.strategy import Selection
from speciate.search.targets import select_parents

_NO_PROMPT = Prompt("", "")
_SENT = "external"


@dataclass(frozen=True, slots=True)
class Ask:
    """A prompt that a proposer received.

    Attributes:
        id: Token that ties an answer to it.
        selection: Role, island, parents and inspirations.
        shown: The prompt.
        seed: Seed for sampling an answer.
    """

    id: UUID
    selection: Selection
    shown: ShownPrompt
    seed: int


def plan_asks(
    context: RunContext,
    work: WorkStore,
    policy: Policy,
    ids: Sequence[UUID],
    *,
    batch: int,
    hinted: bool,
    parents: Sequence[int] = (),
) -> list[Ask]:
    """Return prompts as the run's own policies would receive them.

    Args:
        context: The run.
        work: Store of its population.
        policy: Policy of the proposer; it determines the form of the answers.
        ids: Token of each prompt; with the run's seed it determines all random choices.
        batch: Ordinal of the next batch, the clock of the search.
        hinted: True if users gave hints to the run.
        parents: Numbers of the programs to change; the strategy selects them by default.

    Raises:
        InvalidInputError: A parent does not exist.
    """
    strategy = build_strategy(context.spec.strategy, context.spec.strategy_options)
    population = StoredPopulation(work, context, batch)
    prompter = Prompter(context, work, strategy, population, hinted=hinted, readers=[policy])
    rngs = [np.random.default_rng([context.spec.seed, int(context.problem.digest, 16), id_.int]) for id_ in ids]
    requested = _selection(context, work, parents) if parents else None
    selections = [
        requested or prompter.failures.or_repair(select_parents(strategy, population, rng), rng) for rng in rngs
    ]
    members = prompter.members(selections)
    asks = []
    for id_, selection, rng in zip(ids, selections, rngs, strict=True):
        shown = prompter.show(selection, members, policy, rng)
        asks.append(Ask(id_, selection, shown, int(rng.integers(2**31))))
    return asks


def _selection(context: RunContext, work: WorkStore, parents: Sequence[int]) -> Selection:
    members = work.members(context.run_id, parents)
    if missing := [number for number in parents if number not in members]:
        raise InvalidInputError(f"run {context.run_id} has no candidate {missing[0]} to change.")
    return Selection(PolicyRole.MUTATE, members[parents[0]].island, tuple(parents))


def check_hint(context: RunContext, can_advise: CanAdvise) -> None:
    """Reject hints to a run whose prompts cannot show them.

    Raises:
        InvalidInputError: No policy of the run reads prompts, or the problem's template omits the advice.
    """
    readers = [share.policy for share in context.policies(PolicyRole.MUTATE)]
    if not any(policy.is_external or can_advise(policy) for policy in readers):
        names = ", ".join(policy.slug for policy in readers)
        raise InvalidInputError(
            f"run {context.run_id} takes no hints: {names} reads no prompts.",
            remedy="Use a policy that answers prompts in words, or propose programs instead.",
        )
    check_advice_shown(context.problem, "hint")


@dataclass(frozen=True, slots=True)
class SentProposal:
    """A proposal as its proposer sends it: either a program or a completion.

    Attributes:
        program: The whole program; files of a program with many files stand under their headings.
        completion: Text that answers the prompt of ``ask``; programs are read from it as from a policy's.
        parents: Numbers of the candidates that it changes, the main one first.
        inspirations: Numbers of further candidates that its author saw.
        ask: Token of the prompt that it answers; parents and inspirations are then those of the prompt.
        rationale: Why, in words.
        model: Model that wrote it.
        prompt_tokens: Tokens read.
        completion_tokens: Tokens written.
        cost: US dollars.
    """

    program: str | None = None
    completion: str | None = None
    parents: tuple[int, ...] = ()
    inspirations: tuple[int, ...] = ()
    ask: UUID | None = None
    rationale: str = ""
    model: str | None = None
    prompt_tokens: int = 0
    completion_tokens: int = 0
    cost: float = 0.0


@dataclass(frozen=True, slots=True)
class StoredAsk:
    """A stored prompt: what its answers inherit.

    Attributes:
        selection: Role, island, parents and inspirations.
        prompt: The prompt.
        seed: Seed for sampling an answer.
        advice: Number of the advice in it.
    """

    selection: Selection
    prompt: Prompt = _NO_PROMPT
    seed: int = 0
    advice: int | None = None


def read_sent(
    sent: SentProposal,
    answered: StoredAsk,
    context: RunContext,
    policy: Policy,
    policy_id: UUID,
    parent: Individual | None,
    rollout: int,
    author: str,
) -> tuple[Rollout, list[Proposal]]:
    """Return the rollout and the children of one sent proposal: at least one, so that it costs an evaluation.

    Args:
        sent: The proposal.
        answered: The prompt that it answers.
        context: The run.
        policy: Policy of the proposer.
        policy_id: Its ID.
        parent: The candidate that it changes; None for a program from scratch.
        rollout: Position of the rollout in its batch.
        author: Name of the token.
    """
    base = parent.program if parent is not None else context.problem.seed_program or None
    if sent.completion is not None:
        answers = parse_completion(sent.completion, problem=context.problem, policy=policy, parent=base)
    else:
        program = (sent.program or "").replace("\r\n", "\n")
        if context.problem.kind is not ProblemKind.DATA:
            program = unfenced(program)
        answers = [read_program(program, base, context.problem)]
    selection = answered.selection
    children = [
        replace(child, proposed_by=str(policy_id))
        for child in proposals_of(answers, selection, rollout, answered.advice)
    ]
    text = sent.completion if sent.completion is not None else sent.rationale
    made = Rollout(
        role=selection.role,
        prompt=answered.prompt,
        completion=Completion(storable(text), sent.completion_tokens, finish_reason=_SENT),
        seed=answered.seed,
        prompt_tokens=sent.prompt_tokens,
        answers=sum(child.failure is None for child in children),
        reason=no_program(children),
        advice=answered.advice,
        proposed_by=str(policy_id),
        author=author,
        model=None if sent.model is None else storable(sent.model),
    )
    return made, children
