"""Estimate what a run will spend before it starts.

The first prompt of every policy is built as the run will build it, and the sizes of the batches are those of the run.
What an answer costs is taken from the earlier runs that are most like it: of the same policy, else of the same problem.
A range spans the means of these n runs, widened by a factor of 1 + 1 / 2n, or of 2 if their policy is another one.
``docs/howto/monitor.md`` states what is assumed where no run tells.
"""

import math
from collections.abc import Callable, Sequence
from typing import Final
from uuid import UUID

import numpy as np

from speciate.domain.candidate import Individual
from speciate.domain.errors import InvalidInputError
from speciate.domain.policy import Policy, PolicyRole
from speciate.domain.rollout import Prompt
from speciate.ports.runs import NewRun, RunStore
from speciate.ports.work import RunContext, WeightedPolicy
from speciate.prompts.mutation import build_prompt
from speciate.prompts.state import SearchState
from speciate.prompts.text import prompt_tokens
from speciate.runs.lanes import batch_size
from speciate.schema.estimates import EstimateSource, ObservedRun, Range, RunEstimate
from speciate.search.strategies import strategy_of

_ENDS: Final = ("low", "expected", "high")
_NOTHING: Final = Range(low=0, expected=0, high=0)
_ALL: Final = Range(low=1, expected=1, high=1)
_TOKENS_OF_BYTE: Final = Range(low=0.2, expected=0.4, high=1.0)
"""Tokens of the mean prompt of a run, for each byte of the first one: prompts grow."""
_OF_MAX_TOKENS: Final = Range(low=0.05, expected=0.25, high=1.0)
_WRITTEN: Final = Range(low=0.3, expected=0.75, high=1.0)
"""Share of the candidates that models write if the strategy polishes others; without a model they cost nothing."""
_POLICY, _PROBLEM, _STRATEGY = 4, 2, 1
_MOST_EVALUATIONS: Final = 1e12
_HALVINGS: Final = 60


def estimate_run(store: RunStore, new: NewRun, is_single: Callable[[Policy], bool]) -> RunEstimate:
    """Return what a run will spend, unless it ends before its budget is spent.

    ``is_single`` returns True for a policy of which each completion takes a request of its own. ``InvalidInputError``
    if only seconds limit the run, and no earlier run tells how many evaluations they hold.
    """
    context, spec = new.context(UUID(int=0), UUID(int=0)), new.spec
    strategy = strategy_of(spec)
    role = PolicyRole.MUTATE if strategy.changes_programs and context.seed_programs else PolicyRole.PROPOSE
    members = []
    for share in context.policies(role):
        observed = store.observed(context.problem.slug, spec.strategy, share.policy_id)
        members.append(_Member(context, role, share, observed, single=is_single(share.policy)))
    plan = _Plan(context, members, polishes=getattr(strategy.config, "polish", False))
    ends = [plan.amounts(plan.evaluations(end), end) for end in _ENDS]
    ranges = {
        name: Range(low=min(values), expected=values[1], high=max(values))
        for name in ends[0]
        if (values := [amounts[name] for amounts in ends])
    }
    if all(each.share.policy.price is None for each in members):
        del ranges["dollars"]
    versions = [new.policies.policy, *([] if new.policies.mutator is None else [new.policies.mutator])]
    versions += [each.version for many in new.policies.ensembles.values() for each in many]
    names = {version.id: version.name for version in versions}
    return RunEstimate(
        **ranges,
        first_prompt_bytes=max(each.bytes for each in members),
        sources=tuple(each.source(names[each.share.policy_id]) for each in members),
    )


class _Member:
    """A policy with the tokens of its prompts and completions."""

    def __init__(
        self, context: RunContext, role: PolicyRole, share: WeightedPolicy, runs: Sequence[ObservedRun], *, single: bool
    ) -> None:
        self.share, self.runs, self.single, policy = share, runs, single, share.policy
        self.answers, self.bytes = policy.answers_for(role), prompt_tokens(_first_prompt(context, role, policy))
        self.prompt = self.completion = _NOTHING
        if not policy.asks_model:
            return
        most = policy.tokens_for(role)
        of_byte = _spread(runs, lambda run: (run.prompt_tokens, run.calls * run.first_bytes)) or _TOKENS_OF_BYTE
        observed = _spread(runs, lambda run: (run.completion_tokens, run.completions), most)
        self.prompt = _times(of_byte, self.bytes, policy.prompt_tokens)
        self.completion = observed or _times(_OF_MAX_TOKENS, most)

    def like(self, alike: int) -> list[ObservedRun]:
        return [run for run in self.runs if run.alike & alike == alike]

    def source(self, name: str) -> EstimateSource:
        bits = {"policy": _POLICY, "problem": _PROBLEM, "strategy": _STRATEGY}
        same = tuple(word for word, bit in bits.items() if self.like(bit))
        return EstimateSource(policy=name, same=same, runs=tuple(run.run for run in self.runs))


class _Plan:
    """The amounts of a run as functions of its evaluations."""

    def __init__(self, context: RunContext, members: Sequence[_Member], *, polishes: bool) -> None:
        first, seeds = members[0], len(context.seed_programs)
        self._budget, self._members, self._seeds, self._sizes = context.spec.budget, members, seeds, _sizes(context)
        self._written = _WRITTEN if (polishes := polishes and PolicyRole.POLISH in context.operators) else _ALL
        if polishes or first.answers > 1:  # a completion without a program takes one evaluation
            like = first.like(_POLICY | _STRATEGY)
            written = _spread(like, lambda run: (run.completions, run.evaluations - seeds), 1)
            self._written = _times(written, first.answers) if written is not None else self._written
        failed = _spread(first.runs, lambda run: (run.failed, run.evaluations), 1)
        seconds = _spread(
            [run for run in first.like(_POLICY | _PROBLEM) if run.lanes == context.spec.lanes],
            lambda run: (run.seconds, run.evaluations),
        )
        self._rates = {name: rate for name, rate in (("failed", failed), ("seconds", seconds)) if rate is not None}

    def amounts(self, evaluations: float, end: str) -> dict[str, float]:
        """Return all amounts at one of ``_ENDS``."""
        spent, prompts, advice = np.array(self._sizes).T
        written = getattr(self._written, end)
        completions = max(0.0, evaluations - self._seeds) * written / self._members[0].answers
        asked = min(completions, float(np.interp(evaluations, spent, prompts)) * written)
        advised = float(np.interp(evaluations, spent, advice))
        sums = dict.fromkeys(("calls", "completions", "prompt_tokens", "completion_tokens", "dollars"), 0.0)
        total = sum(each.share.weight for each in self._members)
        for each in self._members:
            weight, price = each.share.weight / total, each.share.policy.price
            calls = weight * ((completions if each.single else asked) + advised)
            wrote = weight * (completions + advised)
            tokens = calls * getattr(each.prompt, end), wrote * getattr(each.completion, end)
            cost = 0.0 if price is None else price.cost(*map(round, tokens))
            for name, more in zip(sums, (calls, wrote, *tokens, cost), strict=True):
                sums[name] += more
        sums |= {name: evaluations * getattr(rate, end) for name, rate in self._rates.items()}
        return sums | {"evaluations": evaluations, "tokens": sums["prompt_tokens"] + sums["completion_tokens"]}

    def evaluations(self, end: str) -> float:
        """Return the most evaluations that the budget holds."""
        limits = self._budget.model_dump(exclude_none=True)
        low, high = 0.0, float(limits.pop("evaluations", _MOST_EVALUATIONS))

        def holds(evaluations: float) -> bool:
            amounts = self.amounts(evaluations, end)
            return all(amounts.get(name, 0.0) <= limit for name, limit in limits.items())

        if not holds(high):
            for _ in range(_HALVINGS):
                middle = (low + high) / 2
                low, high = (middle, high) if holds(middle) else (low, middle)
            return low
        if high == _MOST_EVALUATIONS:
            raise InvalidInputError(
                f"no earlier run tells how many evaluations {' and '.join(limits)} hold: expected a limit of them.",
                remedy="Add --budget N.",
            )
        return high


def _first_prompt(context: RunContext, role: PolicyRole, policy: Policy) -> Prompt:
    """Return the first prompt, with rewards in the middle of their ranges for the seed program."""
    problem, seeds = context.problem, context.seed_programs
    seed = Individual(1, seeds[0].program, tuple(sum(o.range) / 2 for o in problem.objectives)) if seeds else None
    state = SearchState(best=seed, seed=seed, left=context.spec.budget.evaluations)
    changed = [seed] if seed is not None and role is PolicyRole.MUTATE else []
    return build_prompt(problem, role, changed, [], policy, np.random.default_rng(context.spec.seed), state=state)


def _sizes(context: RunContext) -> list[tuple[float, float, float]]:
    """Return the points between which prompts and advice are proportional to the evaluations."""
    every = context.spec.guidance.every if context.spec.guidance is not None else math.inf
    evaluations, prompts, advice = len(context.seed_programs), 0.0, 0.0
    points = [(float(evaluations), 0.0, 0.0)]
    while evaluations < _MOST_EVALUATIONS:
        size, samples = batch_size(context, evaluations)
        step = int(_MOST_EVALUATIONS) if size >= context.spec.batch else max(size, evaluations // 8)
        evaluations, prompts, advice = (
            evaluations + step, prompts + step / size * math.ceil(size / samples), advice + step / size / every,
        )  # fmt: skip
        points.append((float(evaluations), prompts, advice))
    return points


def _spread(
    runs: Sequence[ObservedRun], of: Callable[[ObservedRun], tuple[float, float]], most: float = math.inf
) -> Range | None:
    """Return the range of ratios of runs, each given as an amount and a count; None if nothing was counted."""
    pairs = [pair for pair in map(of, runs) if pair[1] > 0]
    if not pairs:
        return None
    wider = 1 + 0.5 / len(pairs) if runs[0].alike & _POLICY else 2.0
    ratios = [amount / count for amount, count in pairs]
    expected = sum(amount for amount, _ in pairs) / sum(count for _, count in pairs)
    return _times(Range(low=min(ratios) / wider, expected=expected, high=max(ratios) * wider), 1, most)


def _times(values: Range, factor: float, most: float = math.inf) -> Range:
    return Range(**{end: min(most, factor * getattr(values, end)) for end in _ENDS})
