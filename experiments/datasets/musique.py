"""MuSiQue: questions of two to four steps over twenty paragraphs, with rewards for the cited paragraphs and the answer.

Files: ``musique_ans_v1.0_train.jsonl`` and ``musique_ans_v1.0_dev.jsonl`` of Trivedi et al., TACL 2022 (CC BY 4.0), one
object a line: ``id``, ``question``, ``paragraphs`` of ``idx``, ``title`` and ``paragraph_text``,
``question_decomposition`` of ``paragraph_support_idx``, ``answer``, ``answer_aliases``, ``answerable``. Train is the
training split, dev the test split; unanswerable questions are dropped.

Rewards follow arXiv 2605.22817 and its public code: ``hop_i`` is 1 if the paragraph of step i is among the first four
citations, and 1 for a step that the question does not have; ``answer_f1`` is the best word F1 over the aliases and
weighs three times as much as a hop; without an answer all rewards are 0.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Final

from experiments.datasets import musique_score
from experiments.datasets.dataset import Dataset, DatasetTask, slug_of, text_problem
from experiments.datasets.rows import DatasetRow, files_of, read_rows
from speciate.domain.problem import Problem
from speciate.ports.evaluator import EvaluatorClient
from speciate.training.tasks.task import Split

WEIGHTS: Final = {f"hop_{i + 1}": 1.0 for i in range(musique_score.HOPS)} | {"answer_f1": 3.0}
_DESCRIPTION: Final = """Answer a question that takes several steps. Each step rests on one of these paragraphs.

{paragraphs}

Question: {question}

Write two lines:
support: the numbers of the paragraphs that the answer rests on, one for each step, at most four (such as 3, 7)
answer: the answer, as short as it can be

hop_1 to hop_4 reward the right paragraph for each step (steps that the question does not have count as right),
answer_f1 the words that the answer shares with the right one. Without an answer nothing counts."""


def task(folder: Path | None, evaluator: EvaluatorClient | None) -> DatasetTask:
    return DatasetTask.read("musique", Dataset(tuple(WEIGHTS), 512, read_problems), folder, evaluator)


def read_problems(folder: Path) -> Iterator[tuple[Split, Problem]]:
    files = "musique_ans_v1.0_train.jsonl and musique_ans_v1.0_dev.jsonl"
    for path in files_of("musique", folder, files, r"musique_[^/]*_(train|dev)\.jsonl$"):
        split = Split.TRAIN if path.stem.endswith("train") else Split.TEST
        for row in read_rows(path):
            if row.values.get("answerable", True) is True:
                yield split, _problem(row)


def _problem(row: DatasetRow) -> Problem:
    question = row.text("question", 2000)
    numbered = [_paragraph(row, f"paragraphs.{i}") for i in range(row.length("paragraphs", 1, 100))]
    numbers = {number for number, _ in numbered}
    support = []
    for i in range(row.length("question_decomposition", 2, musique_score.HOPS)):
        place = f"question_decomposition.{i}.paragraph_support_idx"
        support.append(row.whole(place))
        if support[-1] not in numbers:
            raise row.refusal(place, f"no paragraph has the idx {support[-1]}")
    answers = [row.text("answer", 1000), *row.texts("answer_aliases", 0, 100)]
    return text_problem(
        row,
        musique_score,
        WEIGHTS,
        {"question.json": {"support": support, "answers": answers}},
        slug=slug_of("musique", row.text("id", 200)),
        title=question,
        description=_DESCRIPTION.format(paragraphs="\n\n".join(text for _, text in numbered), question=question),
        source="MuSiQue-Ans v1.0 (Trivedi et al., TACL 2022), rewards after arXiv 2605.22817.",
    )


def _paragraph(row: DatasetRow, path: str) -> tuple[int, str]:
    number = row.whole(f"{path}.idx")
    return number, f"[{number}] {row.text(f'{path}.title', 1000)}\n{row.text(f'{path}.paragraph_text', 10_000)}"
