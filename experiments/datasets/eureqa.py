"""EUREQA: five masked entities along a chain of relations, with one reward for each entity that is named exactly.

Files: the Parquet files of the splits ``questions_normal_5`` and ``questions_hard_5`` of Li et al., NAACL 2024
(CC BY-NC 4.0), or the same rows as ``.json`` or ``.jsonl``, recognised by the split's name in their path. Columns, as
used by public code: ``idx``, ``question`` (sentences), ``entity_masks`` and ``entities`` (six each, from the requested
one to the given one). Not confirmed: the type of ``idx`` (numbers and texts are accepted), and that names never contain
line ends (such rows are refused).

Normal questions are for training. Hard ones are split in halves for training and testing, as in arXiv 2605.22817, which
draws the halves at random; here the digest of a question decides. Names are compared without case, articles,
punctuation and underscores, as in the paper.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Final

from experiments.datasets import eureqa_score
from experiments.datasets.dataset import Dataset, DatasetTask, slug_of, split_by_digest, text_problem
from experiments.datasets.rows import DatasetRow, files_of, read_rows
from speciate.domain.problem import Problem
from speciate.ports.evaluator import EvaluatorClient
from speciate.training.tasks.task import Split

_LETTERS: Final = "ABCDE"
WEIGHTS: Final = {f"entity_{letter}": 1.0 for letter in _LETTERS}
_DESCRIPTION: Final = """Find out who or what is meant. The entities in this text are masked and hang together in a
chain; only the last one is given. Work backwards from it.

{text}

Write five lines, each with the name of an entity as the title of its Wikipedia article would have it:
{lines}

Each right name is a reward of its own."""


def task(folder: Path | None, evaluator: EvaluatorClient | None) -> DatasetTask:
    return DatasetTask.read("eureqa", Dataset(tuple(WEIGHTS), 512, read_problems), folder, evaluator)


def read_problems(folder: Path) -> Iterator[tuple[Split, Problem]]:
    files = "questions_normal_5-*.parquet and questions_hard_5-*.parquet"
    for path in files_of("eureqa", folder, files, r"questions_(normal|hard)_5\b.*\.(parquet|jsonl?)$"):
        hard = "questions_hard_5" in path.relative_to(folder).as_posix()
        for row in read_rows(path):
            problem = _problem(row, "hard" if hard else "normal")
            yield split_by_digest(problem.description) if hard else Split.TRAIN, problem


def _problem(row: DatasetRow, level: str) -> Problem:
    number = row.value("idx")
    if isinstance(number, bool) or not isinstance(number, int | str):
        raise row.refusal("idx", "expected a number or a text")
    masks, entities = row.texts("entity_masks", 6, 6), row.texts("entities", 6, 6)
    for i, name in enumerate(entities[: len(_LETTERS)]):
        if len(name.splitlines()) > 1:
            raise row.refusal(f"entities.{i}", f"expected a name on one line, got {name!r}")
    return text_problem(
        row,
        eureqa_score,
        WEIGHTS,
        {"entities.json": dict(zip(_LETTERS, entities, strict=False))},
        slug=slug_of("eureqa", level, str(number)),
        title=f"Five masked entities, {level} question {number}",
        description=_DESCRIPTION.format(
            text="\n".join(row.texts("question", 1, 100)),
            lines="\n".join(
                f"{letter}: (who or what is {mask})" for letter, mask in zip(_LETTERS, masks, strict=False)
            ),
        ),
        source="EUREQA (Li et al., NAACL 2024), rewards after arXiv 2605.22817.",
    )
