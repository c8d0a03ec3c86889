"""ToolRL: calls of tools with arguments, with rewards for format, tool names, argument names and argument values.

Files: ``train.parquet`` and ``test.parquet`` of ``rlla_4k`` (Qian et al., arXiv 2504.13958, in their repository), or
``rlla_rl.json`` of ``rlla_4k_raw``. A Parquet row has ``prompt`` (a system and a user message) and
``reward_model.ground_truth``; a JSON row has the same texts as ``instruction``, ``input`` and ``output``. The splits
are those of the files; ``rlla_rl.json``, which is read only without Parquet files, is split by digest.

Rewards follow arXiv 2605.22817 and its public code: ``format`` is 1 for a well-formed document that has tool calls if
and only if the reference answer has some; ``tool_name`` is the F1 of their names; ``arg_key`` and ``arg_value`` are the
mean F1 of the parameters' names and the mean match of their values over aligned calls. Two points differ, since the
service removes reasoning before it parses answers: ``<think>`` is neither requested nor rewarded, and ``format``
instead requires a document without text around its sections.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Final

from experiments.datasets import toolrl_score
from experiments.datasets.dataset import Dataset, DatasetTask, slug_of, split_by_digest, text_problem
from experiments.datasets.rows import DatasetRow, files_of, read_rows
from speciate.domain.problem import Problem
from speciate.domain.values import text_digest
from speciate.ports.evaluator import EvaluatorClient
from speciate.training.tasks.task import Split

WEIGHTS: Final = dict.fromkeys(("format", "tool_name", "arg_key", "arg_value"), 1.0)
_TOOLS, _STEPS = "**Available Tools**", "**Steps for Each Turn**"
_DESCRIPTION: Final = """Take the next turn in a dialogue with a user: call tools, or answer.

## Tools

{tools}

## Dialogue so far

{dialogue}

## The document

To call tools, write one JSON object a line, each with "name" and "parameters" (an object, empty if there are none):
<tool_call>
{{"name": "a tool", "parameters": {{"a parameter": "its value"}}}}
</tool_call>
To answer the user, when no tool fits or something that a tool needs is missing:
<response> what you say </response>

format rewards such a document with nothing around it, which calls tools if and only if it should; tool_name the right
tools, arg_key the right parameters, arg_value their right values."""


def task(folder: Path | None, evaluator: EvaluatorClient | None) -> DatasetTask:
    return DatasetTask.read("toolrl", Dataset(tuple(WEIGHTS), 1024, read_problems), folder, evaluator)


def read_problems(folder: Path) -> Iterator[tuple[Split, Problem]]:
    names = "train.parquet and test.parquet of rlla_4k, or rlla_rl.json"
    files = files_of("toolrl", folder, names, r"(^|/)((train|test)\.parquet|rlla_rl\.json)$")
    parquet = [path for path in files if path.suffix == ".parquet"]
    for path in parquet or files:
        for row in read_rows(path):
            problem = _problem(row, packed=path.suffix == ".parquet")
            yield Split(path.stem) if parquet else split_by_digest(problem.description), problem


def _problem(row: DatasetRow, *, packed: bool) -> Problem:
    system, user, answer = "instruction", "input", "output"
    if packed:
        system, user, answer = "prompt.0.content", "prompt.1.content", "reward_model.ground_truth"
    _, heading, tools = row.text(system, 50_000).partition(_TOOLS)
    tools, ended, _ = tools.partition(_STEPS)
    if not (heading and ended):
        raise row.refusal(system, f"expected a list of tools between {_TOOLS!r} and {_STEPS!r}")
    dialogue = row.text(user, 40_000)
    description = _DESCRIPTION.format(tools=tools.strip(), dialogue=dialogue.strip())
    return text_problem(
        row,
        toolrl_score,
        WEIGHTS,
        {"calls.json": _calls(row, answer)},
        slug=slug_of("toolrl", text_digest(description)[:16]),
        title="The next turn in a dialogue with tools",
        description=description,
        source="ToolRL rlla_4k (Qian et al., arXiv 2504.13958), rewards after arXiv 2605.22817.",
    )


def _calls(row: DatasetRow, path: str) -> list[toolrl_score.Call]:
    text = row.text(path, 50_000)
    called, rest = toolrl_score.section(text, "tool_call")
    calls, readable = toolrl_score.read_calls(called or "")
    if not readable or (called is not None and not calls):
        raise row.refusal(path, "expected tool calls as JSON objects with 'name' and 'parameters'")
    if called is None and toolrl_score.section(rest, "response")[0] is None:
        raise row.refusal(path, "expected a <tool_call> or a <response> section")
    return calls
