"""Common parts of the tasks on public datasets: problems and disjoint splits."""

from __future__ import annotations

import inspect
import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import ClassVar, NamedTuple

from experiments.datasets.rows import DatasetRow
from speciate.domain.errors import InvalidInputError
from speciate.domain.problem import Problem
from speciate.domain.values import text_digest
from speciate.ports.evaluator import EvaluatorClient
from speciate.training.tasks.scoring import Vector, score_by_evaluator, unlock_all
from speciate.training.tasks.task import Split


def split_by_digest(text: str) -> Split:
    """Return the split of a text by its digest; each split gets half of all texts."""
    return Split.TRAIN if int(text_digest(text)[-1], 16) % 2 else Split.TEST


def slug_of(task: str, *words: str) -> str:
    slug = re.sub("[^a-z0-9]+", "-", " ".join((task, *words)).lower()).strip("-")
    return slug if len(slug) <= 80 else f"{slug[:63].rstrip('-')}-{text_digest(slug)[:16]}"


def text_problem(
    row: DatasetRow, script: ModuleType, weights: Mapping[str, float], files: Mapping[str, object], **rest: str
) -> Problem:
    return row.problem(
        {
            **rest,
            "title": rest["title"][:200],
            "kind": "data",
            "objectives": [{"name": name} for name in weights],
            "weights": weights,
            "targets": unlock_all(weights),
            "evaluator": inspect.getsource(script),
            "files": {name: json.dumps(value) for name, value in files.items()},
            "preload": [],
        }
    )


class Dataset(NamedTuple):
    """A public dataset in a user's folder."""

    rewards: tuple[str, ...]
    """Names of the k rewards. A problem may have only the first ones."""
    max_tokens: int
    """Longest sensible answer in tokens."""
    problems: Callable[[Path], Iterable[tuple[Split, Problem]]]


@dataclass(frozen=True)
class DatasetTask:
    """A task on a dataset."""

    name: str
    rewards: tuple[str, ...]
    max_tokens: int
    pools: Mapping[Split, Sequence[Problem]]
    evaluator: EvaluatorClient | None
    """Evaluator that scores answers; None if nothing is scored."""

    answers: ClassVar[int] = 3
    codec: ClassVar[str | None] = None

    @classmethod
    def read(cls, name: str, dataset: Dataset, folder: Path | None, evaluator: EvaluatorClient | None) -> DatasetTask:
        """Return the task with its problems in an order that does not depend on the files.

        A duplicate problem is kept once, in the test split if it is in both, so that no test problem is trained on.
        """
        if folder is None:
            raise InvalidInputError(
                f"task {name!r} reads a dataset.", remedy="Pass the folder with its files as --data DIR."
            )
        pools: dict[Split, list[Problem]] = {split: [] for split in Split}
        slugs: set[str] = set()
        seen: set[str] = set()
        by_split = sorted(
            dataset.problems(folder), key=lambda item: (item[0] is Split.TRAIN, text_digest(item[1].slug))
        )
        for split, problem in by_split:
            content = text_digest(problem.description)
            if content in seen:
                continue
            if problem.slug in slugs:
                raise InvalidInputError(f"two different rows of {name!r} are both called {problem.slug!r}.")
            seen.add(content)
            slugs.add(problem.slug)
            pools[split].append(problem)
        return cls(name, dataset.rewards, dataset.max_tokens, pools, evaluator)

    def problems(self, split: Split, count: int, *, start: int = 0) -> Iterator[Problem]:
        pool = self.pools[split]
        if start + count > len(pool):
            raise InvalidInputError(
                f"{self.name!r} has {len(pool)} problems in its {split} split: {start + count} were requested.",
                remedy=f"Request fewer (training: --set problems={len(pool)}), or add files." if pool else "Add files.",
            )
        yield from pool[start : start + count]

    def score(self, batch: Sequence[tuple[Problem, Sequence[str]]]) -> list[list[Vector]]:
        return score_by_evaluator(self.name, self.evaluator, batch)
