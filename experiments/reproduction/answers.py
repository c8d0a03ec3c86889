"""Sample a policy's answers to held-out problems in this process, independently and inside evolution.

Prompts, parsing and scores are those of the service; without its queue a million answers take minutes.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import numpy as np
from numpy.typing import NDArray

from experiments.generation import generate
from speciate.domain.candidate import Individual
from speciate.domain.policy import Policy, PolicyRole
from speciate.domain.problem import Problem
from speciate.inference.engine import Engine, SampledCompletion
from speciate.policies.manifest import policy_of
from speciate.prompts.mutation import build_prompt
from speciate.prompts.parse import parse_completion
from speciate.training.tasks import Task

SCRATCH: Final = 30
CHILDREN: Final = 10
_AT_ONCE: Final = 4096


@dataclass(frozen=True, slots=True)
class AnswerPool:
    """Answers to N problems, n each, in order.

    Attributes:
        rewards: Shape (N, n, k), in [0, 1], higher is better; zero for unreadable answers.
        tokens: Shape (N, n): completion tokens of each answer.
        repeated: Shape (N, n): True if an earlier answer to the problem was equal.
        surprise: Shape (N, n): mean −log-probability of the answer's tokens, in nats; its mean is the entropy.
    """

    rewards: NDArray[np.float64]
    tokens: NDArray[np.int64]
    repeated: NDArray[np.bool_]
    surprise: NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class SampledAnswer:
    """One answer: its candidate (empty if unreadable), its tokens, and its mean −log-probability in nats."""

    candidate: str
    tokens: int
    surprise: float


class LocalPolicy:
    """A checkpoint that is sampled in this process.

    Args:
        folder: The checkpoint.
        temperature: Softmax temperature.
        top_p: Nucleus mass.
        answers_per_rollout: Answers in a completion from scratch; None for as many as in its training.
    """

    def __init__(
        self, folder: Path, *, temperature: float = 1.0, top_p: float = 1.0, answers_per_rollout: int | None = None
    ) -> None:
        from tokenizers import Tokenizer

        policy = policy_of(folder, "asked")
        m = answers_per_rollout or policy.answers_per_rollout
        sampling = policy.sampling.model_copy(
            update={"max_tokens": policy.sampling.max_tokens * m // policy.answers_per_rollout}
        )
        self.policy: Policy = policy.model_copy(update={"answers_per_rollout": m, "sampling": sampling})
        self._engine = Engine.load(folder, max_live=512)
        self._tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))
        self._temperature, self._top_p = temperature, top_p
        self._texts: dict[str, list[str]] = {}

    def answers(
        self, asked: Sequence[tuple[Problem, Individual | None]], count: int, seeds: Sequence[int]
    ) -> list[list[SampledAnswer]]:
        """Return ``count`` answers to each prompt.

        Args:
            asked: Problems with the parent to change, or None for all of them.
            count: Answers to each. Missing answers of a rollout count as empty ones, since they cost tokens.
            seeds: One seed for each prompt.
        """
        rng = np.random.default_rng(0)  # codecs draw nothing
        role = PolicyRole.PROPOSE if asked[0][1] is None else PolicyRole.MUTATE
        m = self.policy.answers_for(role)
        prompts = []
        for problem, parent in asked:
            text = build_prompt(problem, role, [parent] if parent else [], [], self.policy, rng).text()
            prompts.append(self._tokenizer.encode(text, add_special_tokens=False).ids)
        found = generate(
            self._engine,
            prompts,
            n=-(-count // m),
            max_tokens=self.policy.tokens_for(role),
            temperature=self._temperature,
            top_p=self._top_p,
            seeds=list(seeds),
        )
        return [
            [given for one in completions for given in self._read(one, problem, m)][:count]
            for (problem, _), completions in zip(asked, found, strict=True)
        ]

    def _read(self, sampled: SampledCompletion, problem: Problem, m: int) -> list[SampledAnswer]:
        text = self._tokenizer.decode(list(sampled.token_ids), skip_special_tokens=True)
        if (texts := self._texts.get(text)) is None:
            # A task's problems are of one kind and its codec ignores parents, so equal completions parse equally.
            read = parse_completion(text, problem=problem, policy=self.policy, parent=None)
            texts = self._texts[text] = [answer.program if answer.failure is None else "" for answer in read]
        # The tokens of a rollout are divided evenly among its answers.
        size, surprise = len(sampled.token_ids), -float(np.mean(sampled.logprobs))
        shares = [size * (i + 1) // m - size * i // m for i in range(m)]
        padded = [*texts, *[""] * m][:m]
        return [SampledAnswer(text, share, surprise) for text, share in zip(padded, shares, strict=True)]


def independent(policy: LocalPolicy, task: Task, problems: Sequence[Problem], count: int, seed: int) -> AnswerPool:
    """Return a pool of independent answers."""
    pools = [_Growing(task, problem) for problem in problems]
    _ask(policy, [(pool, None) for pool in pools], count, [seed])
    return _pool(pools)


def evolved(
    proposer: LocalPolicy,
    mutators: Sequence[LocalPolicy],
    task: Task,
    problems: Sequence[Problem],
    count: int,
    seed: int,
) -> list[AnswerPool]:
    """Return a pool of evolved answers for each mutator: 30 from scratch, then rounds of 10 mutations.

    Each parent is the best answer under its own weighting, w ~ Dir(1). Repeats cost as much as other answers and are
    not kept. A problem without a valid answer gets answers from scratch again. All mutators start from the same
    answers.
    """
    begun = [_Growing(task, problem) for problem in problems]
    for number in range(0, min(count, SCRATCH), CHILDREN):
        _ask(proposer, [(pool, None) for pool in begun], min(CHILDREN, count - number), [seed, 0, number])
    return [_go_on(proposer, mutator, [pool.copy() for pool in begun], count, seed) for mutator in mutators]


def _go_on(proposer: LocalPolicy, mutator: LocalPolicy, pools: list[_Growing], count: int, seed: int) -> AnswerPool:
    rng = np.random.default_rng([seed, 11])
    for number in range(SCRATCH, count, CHILDREN):
        size = min(CHILDREN, count - number)
        changing = [pool for pool in pools if pool.members]
        _ask(proposer, [(pool, None) for pool in pools if not pool.members], size, [seed, 0, number])
        _ask(mutator, [(pool, pool.parent(rng)) for pool in changing for _ in range(size)], 1, [seed, 1, number])
    return _pool(pools)


def _ask(
    policy: LocalPolicy, asked: Sequence[tuple[_Growing, Individual | None]], count: int, seed: Sequence[int]
) -> None:
    for start in range(0, len(asked), _AT_ONCE // count):
        part = asked[start : start + _AT_ONCE // count]
        seeds = [_seed(*seed, start + i) for i in range(len(part))]
        answers = policy.answers([(pool.problem, parent) for pool, parent in part], count, seeds)
        for (pool, _), found in zip(part, answers, strict=True):
            pool.add(found)


class _Growing:
    """Answers to one problem so far."""

    def __init__(self, task: Task, problem: Problem) -> None:
        self.problem = problem
        self._task = task
        self._seen: dict[str, tuple[float, ...]] = {}
        self.rows: list[tuple[tuple[float, ...], int, bool, float]] = []
        self.members: list[Individual] = []

    def copy(self) -> _Growing:
        other = _Growing(self._task, self.problem)
        other._seen, other.rows, other.members = dict(self._seen), list(self.rows), list(self.members)
        return other

    def add(self, answers: Sequence[SampledAnswer]) -> None:
        fresh = [
            text for text in dict.fromkeys(given.candidate for given in answers) if text and text not in self._seen
        ]
        scores = dict(zip(fresh, self._task.score([(self.problem, fresh)])[0], strict=True))
        for given in answers:
            text = given.candidate
            repeated = text in self._seen
            if text and not repeated:
                self._seen[text] = scores[text]
                if max(scores[text]) > 0:
                    self.members.append(Individual(len(self.members) + 1, text, scores[text]))
            rewards = self._seen[text] if text else (0.0,) * len(self._task.rewards)
            self.rows.append((rewards, given.tokens, repeated, given.surprise))

    def parent(self, rng: np.random.Generator) -> Individual:
        points = np.array([member.rewards for member in self.members])
        return self.members[int(np.argmax(points @ rng.dirichlet(np.ones(points.shape[1]))))]


def _pool(pools: Sequence[_Growing]) -> AnswerPool:
    def column(i: int) -> list[list[object]]:
        return [[row[i] for row in pool.rows] for pool in pools]

    return AnswerPool(
        np.array(column(0), dtype=np.float64),
        np.array(column(1), dtype=np.int64),
        np.array(column(2), dtype=np.bool_),
        np.array(column(3), dtype=np.float64),
    )


def _seed(seed: int, *place: int) -> int:
    return int(np.random.SeedSequence([seed, *place]).generate_state(1)[0])
