"""Build the prompts of a batch, and choose the policies that receive them."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial
from typing import Final

import numpy as np

from speciate.domain.candidate import Individual
from speciate.domain.guidance import draw
from speciate.domain.policy import Policy, PolicyRole
from speciate.domain.rollout import Prompt
from speciate.ports.policy import SampleRequest
from speciate.ports.work import Lease, RunContext, WorkStore
from speciate.prompts.evolve_blocks import has_numbers
from speciate.prompts.guidance import advice_text
from speciate.prompts.mutation import build_prompt
from speciate.prompts.state import Attempt, SearchState
from speciate.runs.ensemble import PolicyChooser
from speciate.runs.failures import RecentFailures
from speciate.runs.guidance import Adviser, latest_of
from speciate.runs.relatives import Relatives
from speciate.runs.stored_population import StoredPopulation
from speciate.search.strategy import Selection, Strategy
from speciate.search.targets import select_parents

REPEATING: Final = 1
"""Stream of random numbers that decide which programs with noisy rewards are evaluated again."""
_ATTEMPTS: Final = 5
"""Attempts that a prompt lists."""


@dataclass(frozen=True, slots=True)
class PlannedRequest:
    """A request to a policy, with what its answers inherit."""

    selection: Selection  # role, island, parents and inspirations
    position: int  # position of the policy among those of its role
    policy: Policy
    request: SampleRequest  # prompt, number of completions and seed
    advice: int | None = None  # number of the advice in the prompt; None if the run has none


@dataclass(frozen=True, slots=True)
class ShownPrompt:
    """A prompt with what it shows."""

    prompt: Prompt
    parents: tuple[Individual, ...]  # programs to change, the most important first; empty for a program from scratch
    inspirations: tuple[Individual, ...]
    advice: int | None  # number of the advice; None if the run has none


class Prompter:
    """Builds the prompts of one batch, for the run's policies and for proposers outside the service."""

    def __init__(
        self,
        context: RunContext,
        work: WorkStore,
        strategy: Strategy,
        population: StoredPopulation,
        *,
        hinted: bool,
        readers: Sequence[Policy] | None = None,
    ) -> None:
        """Read the latest failures and the advice in use."""
        if readers is None:
            readers = [share.policy for share in context.policies(PolicyRole.MUTATE)]
        self._context = context
        self._work = work
        self._strategy = strategy
        self._population = population
        self._failures = RecentFailures(context, work, population, strategy, readers)
        # Answers to a strategy that samples independently must not depend on earlier ones.
        self._tells = strategy.changes_programs
        self.adviser = Adviser(context, work, population, strategy.islands, hinted=hinted)

    def select(self, rng: np.random.Generator) -> Selection:
        """Select the programs of the batch's next prompt: those of the strategy, or at times one to repair."""
        selection = self._failures.or_repair(select_parents(self._strategy, self._population, rng), rng)
        self._population.taken += selection.parents
        return selection

    def members(self, selections: Sequence[Selection]) -> dict[int, Individual]:
        """Return all programs that the prompts of selections show, by number."""
        numbers = [number for s in selections for number in (*s.parents, *s.inspirations)]
        return self._work.members(self._context.run_id, numbers)

    def show(
        self, selection: Selection, members: dict[int, Individual], policy: Policy, rng: np.random.Generator
    ) -> ShownPrompt:
        """Build the prompt of a selection; programs that are not among ``members`` are left out.

        ``rng`` draws the advice, and the wording of the request.
        """
        parents, others = _present(members, selection.parents), _present(members, selection.inspirations)
        if selection.role is PolicyRole.POLISH:
            return ShownPrompt(Prompt("", ""), parents, others, None)
        advice = self.adviser.pick(rng) if parents else None
        text = "" if advice is None else advice_text(advice)
        prompt = build_prompt(
            self._context.problem,
            selection.role,
            parents,
            others,
            policy,
            rng,
            advice=text,
            state=self._state
            if self._tells and policy.reads_prompts and not policy.prompt_style.is_compact
            else SearchState(causes=self._failures.causes),
        )
        return ShownPrompt(prompt, parents, others, None if advice is None else advice.number)

    @cached_property
    def _state(self) -> SearchState:
        """What the run has found so far; read once, so that a batch sees one state."""
        run_id, tried = self._context.run_id, self._failures.numbers[:_ATTEMPTS]
        standing, seed = self._population.standing, self._population.seed_number
        best = standing.best
        members = self._work.members(run_id, [*tried, *(number for number in (best, seed) if number is not None)])
        parents = self._work.members(run_id, [number for each in tried for number in members[each].parents[:1]])
        completions = self._work.completions(run_id, tried)
        return SearchState(
            best=None if best is None else members.get(best),
            seed=None if seed is None else members.get(seed),
            left=standing.evaluations_left,
            attempts=tuple(
                Attempt(
                    each,
                    parents.get(next(iter(each.parents), 0)),
                    completions.get(n, ""),
                    self._best_before(n, members),
                )
                for n, each in ((n, members[n]) for n in tried)
            ),
            causes=self._failures.causes_beside(tried),
            confirmed=standing.confirmed,
        )

    def _best_before(self, number: int, members: dict[int, Individual]) -> Individual | None:
        """Return the best of the latest candidates and the ``members`` that are older than a candidate."""
        candidates = (*self._population.latest(), *members.values())
        older = {each.number: each for each in candidates if each.number < number and each.rewards}
        rivals = [each for _, each in sorted(older.items())]
        ranking = self._context.problem.ranking
        merits = ranking.merits([each.vector for each in rivals], [each.targets for each in rivals])
        place = max(range(len(rivals)), key=merits.__getitem__, default=None)
        return None if place is None or merits[place].feasibility < 0 else rivals[place]


def _present(members: dict[int, Individual], numbers: Sequence[int]) -> tuple[Individual, ...]:
    return tuple(members[number] for number in numbers if number in members)


def _polishable(selection: Selection, members: dict[int, Individual]) -> Selection:
    """Return the selection, or one for a change if its program has no numbers to polish."""
    if selection.role is not PolicyRole.POLISH or any(
        has_numbers(each.program) for each in _present(members, selection.parents)
    ):
        return selection
    return replace(selection, role=PolicyRole.MUTATE)


def answers_per_prompt(lease: Lease, context: RunContext) -> list[int]:
    """Split the answers of a batch into those of each prompt."""
    answers, size = int(lease.payload["answers"]), int(lease.payload.get("samples", context.spec.samples_per_prompt))
    return [min(size, answers - start) for start in range(0, answers, size)]


def plan_requests(
    lease: Lease,
    context: RunContext,
    work: WorkStore,
    prompter: Prompter,
    selections: Sequence[tuple[Selection, int]],
    rng: np.random.Generator,
) -> list[PlannedRequest]:
    """Choose a policy for every selection and build its prompt; last comes the request for new advice, if it is due.

    Selections are given with the number of their answers.
    A tight budget drops requests from the end, so the advice first.
    """
    chooser, problem = PolicyChooser(context, work), context.problem
    members = prompter.members([selection for selection, _ in selections])
    relatives, taken = Relatives(work, context), Counter[tuple[int, ...]]()
    planned = []
    for proposed, answers in selections:
        selection = _polishable(proposed, members)
        position = chooser.pick(selection.role, answers, rng)
        policy = context.policies(selection.role)[position].policy
        shown_prompt = prompter.show(selection, members, policy, rng)
        request = SampleRequest(
            prompt=shown_prompt.prompt,
            role=selection.role,
            n=-(-answers // policy.answers_for(selection.role)),
            seed=int(rng.integers(2**31)),
            parents=shown_prompt.parents,
            seed_program=problem.seed_program,
            keep_tokens=context.spec.keeps_tokens,
            relatives=partial(relatives.of, selection.parents[:1]),
            problem=problem,
            earlier=lease.lane * int(lease.payload["answers"]) + taken[selection.parents[:1]],
        )
        taken[selection.parents[:1]] += answers
        planned.append(PlannedRequest(selection, position, policy, request, shown_prompt.advice))
    latest = latest_of(lease)
    if latest is not None and any(plan.selection.role is PolicyRole.MUTATE for plan in planned):
        parent = draw(prompter.adviser.pieces, rng)
        position = chooser.pick(PolicyRole.MUTATE, 0, rng)
        policy = context.policies(PolicyRole.ADVISE)[position].policy
        prompt = prompter.adviser.prompt(parent, policy, latest)
        request = SampleRequest(prompt, PolicyRole.ADVISE, n=1, seed=int(rng.integers(2**31)))
        planned.append(PlannedRequest(Selection(PolicyRole.ADVISE), position, policy, request, parent.number))
    return planned


def batch_rng(context: RunContext, ordinal: int, *stream: int) -> np.random.Generator:
    """Return the generator for the random choices of one batch, seeded by run, problem and ordinal (ADR 27).

    Choices with a ``stream`` of their own leave the others as they are.
    """
    return np.random.default_rng([context.spec.seed, int(context.problem.digest, 16), ordinal, *stream])
