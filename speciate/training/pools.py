"""What a policy answers to held-out problems, alone and inside evolution, without a service: for reproductions.

Prompts, reading and scores are those of the service; only the queue between them is missing, so that a million answers
take minutes.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import numpy as np
from numpy.typing import NDArray

from speciate.domain.candidate import Member
from speciate.domain.policy import Policy, PolicyRole
from speciate.domain.problem import Problem
from speciate.policies.embedded_server.engine import Engine, Sampled
from speciate.policies.manifest import policy_of
from speciate.prompts.mutation import build_prompt
from speciate.prompts.parse import parse_completion
from speciate.training.tasks import Task

SCRATCH: Final = 30
CHILDREN: Final = 10
_AT_ONCE: Final = 4096


@dataclass(frozen=True, slots=True)
class Pool:
    """Answers to N problems, n each, in the order in which they were given.

    Attributes:
        rewards: Shape (N, n, k), in [0, 1], higher is better; zero for unreadable answers.
        tokens: Shape (N, n): completion tokens of each answer.
        repeated: Shape (N, n): whether an earlier answer to the problem was the same.
        surprise: Shape (N, n): mean −log-probability of the answer's tokens, in nats; its mean is the entropy.
    """

    rewards: NDArray[np.float64]
    tokens: NDArray[np.int64]
    repeated: NDArray[np.bool_]
    surprise: NDArray[np.float64]


class Asked:
    """A checkpoint that is asked in this process.

    Args:
        folder: The checkpoint.
        temperature: Of its answers.
    """

    def __init__(self, folder: Path, *, temperature: float = 1.0) -> None:
        from tokenizers import Tokenizer

        self.policy: Policy = policy_of(folder, "asked")
        self._engine = Engine.load(folder, max_live=512)
        self._tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))
        self._temperature = temperature

    def answers(
        self, asked: Sequence[tuple[Problem, Member | None]], count: int, seeds: Sequence[int]
    ) -> list[list[tuple[str, Sampled]]]:
        """Return ``count`` answers to each prompt: a candidate, empty where unreadable, and the tokens behind it.

        Args:
            asked: Problems, each with the parent to change or None.
            count: Answers to each.
            seeds: One for each prompt.
        """
        rng = np.random.default_rng(0)  # codecs draw nothing
        prompts = []
        for problem, parent in asked:
            role = PolicyRole.PROPOSE if parent is None else PolicyRole.MUTATE
            text = build_prompt(problem, role, [parent] if parent else [], [], self.policy, rng).text()
            prompts.append(self._tokenizer.encode(text, add_special_tokens=False).ids)
        found = self._engine.generate(
            prompts,
            n=count,
            max_tokens=self.policy.sampling.max_tokens,
            temperature=self._temperature,
            seeds=list(seeds),
        )
        return [
            [(self._read(one, problem), one) for one in completions]
            for (problem, _), completions in zip(asked, found, strict=True)
        ]

    def _read(self, sampled: Sampled, problem: Problem) -> str:
        text = self._tokenizer.decode(list(sampled.token_ids), skip_special_tokens=True)
        answer = parse_completion(text, problem=problem, policy=self.policy, parent=None)[0]
        return "" if answer.failure else answer.program


def independent(policy: Asked, task: Task, problems: Sequence[Problem], count: int, seed: int) -> Pool:
    """Return a pool of independent answers."""
    pools = [_Growing(task, problem) for problem in problems]
    step = max(1, _AT_ONCE // count)
    for start in range(0, len(pools), step):
        some = pools[start : start + step]
        seeds = [_seed(seed, start + i, 0, 0) for i in range(len(some))]
        for pool, answers in zip(some, policy.answers([(p.problem, None) for p in some], count, seeds), strict=True):
            pool.add(answers, keep=False)
    return _pool(pools)


def evolved(proposer: Asked, mutator: Asked, task: Task, problems: Sequence[Problem], count: int, seed: int) -> Pool:
    """Return a pool of evolved answers: 30 from scratch, then rounds of 10 changes of what was found.

    Parents are the best under a weighting of their own, w ~ Dir(1). Repeats cost as much as any other answer, and are
    not kept. A problem for which nothing valid was found is asked from scratch again.
    """
    pools = [_Growing(task, problem) for problem in problems]
    rng = np.random.default_rng([seed, 11])
    for begun in range(0, count, CHILDREN):
        asked = [
            (pool, pool.parent(rng) if begun >= SCRATCH else None, _seed(seed, i, begun, j))
            for i, pool in enumerate(pools)
            for j in range(min(CHILDREN, count - begun))
        ]
        for policy, some in (
            (proposer, [a for a in asked if a[1] is None]),
            (mutator, [a for a in asked if a[1] is not None]),
        ):
            for start in range(0, len(some), _AT_ONCE):
                part = some[start : start + _AT_ONCE]
                answers = policy.answers([(p.problem, parent) for p, parent, _ in part], 1, [s for _, _, s in part])
                for (pool, _, _), found in zip(part, answers, strict=True):
                    pool.add(found, keep=True)
    return _pool(pools)


class _Growing:
    """The answers to one problem so far."""

    def __init__(self, task: Task, problem: Problem) -> None:
        self.problem = problem
        self._task = task
        self._seen: dict[str, tuple[float, ...]] = {}
        self.rows: list[tuple[tuple[float, ...], int, bool, float]] = []
        self._members: list[Member] = []

    def add(self, answers: Sequence[tuple[str, Sampled]], *, keep: bool) -> None:
        fresh = [text for text in dict.fromkeys(text for text, _ in answers) if text and text not in self._seen]
        scores = dict(zip(fresh, self._task.score([(self.problem, fresh)])[0], strict=True))
        for text, sampled in answers:
            repeated = text in self._seen
            if text and not repeated:
                self._seen[text] = scores[text]
                if keep and max(scores[text]) > 0:
                    self._members.append(Member(len(self._members) + 1, text, scores[text]))
            rewards = self._seen[text] if text else (0.0,) * len(self._task.rewards)
            self.rows.append((rewards, len(sampled.token_ids), repeated, -float(np.mean(sampled.logprobs))))

    def parent(self, rng: np.random.Generator) -> Member | None:
        if not self._members:
            return None
        points = np.array([member.rewards for member in self._members])
        return self._members[int(np.argmax(points @ rng.dirichlet(np.ones(points.shape[1]))))]


def _pool(pools: Sequence[_Growing]) -> Pool:
    def column(i: int) -> list[list[object]]:
        return [[row[i] for row in pool.rows] for pool in pools]

    return Pool(
        np.array(column(0), dtype=np.float64),
        np.array(column(1), dtype=np.int64),
        np.array(column(2), dtype=np.bool_),
        np.array(column(3), dtype=np.float64),
    )


def _seed(seed: int, *place: int) -> int:
    return int(np.random.SeedSequence([seed, *place]).generate_state(1)[0])
