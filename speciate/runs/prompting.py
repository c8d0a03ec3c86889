"""Build the prompts of a batch, and choose the policies that receive them."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial
from typing import Final

import numpy as np

from speciate.domain.candidate import Individual
from speciate.domain.guidance import Advice, draw
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
    answers: int  # wanted answers; a completion may hold several
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
        self._unreserved = readers is not None  # the evaluation of an answer, which a batch reserves
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
        best, left = standing.best, standing.evaluations_left
        members = self._work.members(run_id, [*tried, *(number for number in (best, seed) if number is not None)])
        parents = self._work.members(run_id, [number for each in tried for number in members[each].parents[:1]])
        completions = self._work.completions(run_id, tried)
        return SearchState(
            best=None if best is None else members.get(best),
            seed=None if seed is None else members.get(seed),
            left=None if left is None else max(0, left - self._unreserved),
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


class RequestPlanner:
    """Chooses the policies of one batch and builds their requests."""

    def __init__(
        self, lease: Lease, context: RunContext, work: WorkStore, prompter: Prompter, rng: np.random.Generator
    ) -> None:
        self._lease, self._context, self._prompter, self._rng = lease, context, prompter, rng
        self._chooser = PolicyChooser(context, work)
        self._relatives = Relatives(work, context)
        self._members: dict[int, Individual] = {}

    def plan(self, selections: Sequence[tuple[Selection, int]]) -> list[PlannedRequest]:
        """Return the request of each selection, given with its number of answers; last comes one for advice, if due.

        A tight budget drops requests from the end, so the advice first.
        """
        self._members = self._prompter.members([selection for selection, _ in selections])
        planned, taken = [], Counter[tuple[int, ...]]()
        in_other_lanes = self._lease.lane * int(self._lease.payload["answers"])
        for proposed, answers in selections:
            selection = _polishable(proposed, self._members)
            planned.append(self._plan(selection, answers, in_other_lanes + taken[selection.parents[:1]]))
            taken[selection.parents[:1]] += answers
        latest = latest_of(self._lease)
        if latest is not None and any(plan.selection.role is PolicyRole.MUTATE for plan in planned):
            planned.append(self._plan_advice(draw(self._prompter.adviser.pieces, self._rng), latest))
        return planned

    def instead(self, plan: PlannedRequest) -> PlannedRequest | None:
        """Return the request for another policy, since that of ``plan`` is unavailable; None if there is no other."""
        self._chooser.leave_out(plan.policy)
        role = plan.selection.role
        if self._context.bills_afterwards or not self._chooser.available(role):
            return None
        if role is PolicyRole.ADVISE:
            (parent,) = (piece for piece in self._prompter.adviser.pieces if piece.number == plan.advice)
            return self._plan_advice(parent, latest_of(self._lease) or 0)
        # A tight budget may have left fewer.
        answers = min(plan.answers, plan.request.n * plan.policy.answers_for(role))
        return self._plan(plan.selection, answers, plan.request.earlier)

    def _is_replaceable(self, role: PolicyRole) -> bool:
        # A budget of dollars sets limits to the answers of agents before they are asked.
        return not self._context.bills_afterwards and len(self._chooser.available(role)) > 1

    def _plan(self, selection: Selection, answers: int, earlier: int) -> PlannedRequest:
        position = self._chooser.pick(selection.role, answers, self._rng)
        policy = self._context.policies(selection.role)[position].policy
        shown_prompt = self._prompter.show(selection, self._members, policy, self._rng)
        request = SampleRequest(
            prompt=shown_prompt.prompt,
            role=selection.role,
            n=-(-answers // policy.answers_for(selection.role)),
            seed=int(self._rng.integers(2**31)),
            parents=shown_prompt.parents,
            seed_program=self._context.problem.seed_program,
            keep_tokens=self._context.spec.keeps_tokens,
            relatives=partial(self._relatives.of, selection.parents[:1]),
            problem=self._context.problem,
            earlier=earlier,
            replaceable=self._is_replaceable(selection.role),
        )
        return PlannedRequest(selection, position, policy, request, answers, shown_prompt.advice)

    def _plan_advice(self, parent: Advice, latest: int) -> PlannedRequest:
        position = self._chooser.pick(PolicyRole.ADVISE, 0, self._rng)
        policy = self._context.policies(PolicyRole.ADVISE)[position].policy
        request = SampleRequest(
            prompt=self._prompter.adviser.prompt(parent, policy, latest),
            role=PolicyRole.ADVISE,
            n=1,
            seed=int(self._rng.integers(2**31)),
            replaceable=self._is_replaceable(PolicyRole.ADVISE),
        )
        return PlannedRequest(Selection(PolicyRole.ADVISE), position, policy, request, 1, parent.number)


def batch_rng(context: RunContext, ordinal: int, *stream: int) -> np.random.Generator:
    """Return the generator for the random choices of one batch, seeded by run, problem and ordinal (ADR 27).

    Choices with a ``stream`` of their own leave the others as they are.
    """
    return np.random.default_rng([context.spec.seed, int(context.problem.digest, 16), ordinal, *stream])
