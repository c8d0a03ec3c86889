"""LiveCodeBench: programming contests, with one reward for each of at most 16 tests.

Files: ``test.jsonl``, ``test2.jsonl``, … of ``code_generation_lite`` (Jain et al., arXiv 2403.07974), one object a
line, every field a text: ``question_title``, ``question_content``, ``question_id``, ``contest_date``,
``starter_code``, ``public_test_cases`` (JSON), ``private_test_cases`` (JSON, or JSON in a pickle in zlib in base64) and
``metadata`` (JSON). A test has ``input``, ``output`` and ``testtype``. Pickles can execute code, so none is loaded: a
parser that accepts a single text only extracts it (``_unpacked``).

Contests before February 2025 are for training, later ones for testing, as in arXiv 2605.22817. The tests of a problem
are the public ones and then the smallest private ones, none over 8192 characters; the paper's public code uses private
ones only, which leaves nothing to show as feedback. Problems without such a test are dropped.

``functional`` tests make a problem of kind ``cases``: a function is called, and exact results are compared. ``stdin``
tests make one of kind ``evaluator``: the program defines ``solve(text)``, which takes standard input as a text and
returns standard output, compared by the benchmark's rules. The benchmark runs whole programs instead, so figures are
not comparable with its leaderboard; this form needs no process per test and works in every sandbox tier.
"""

from __future__ import annotations

import base64
import inspect
import json
import pickletools
import re
import zlib
from collections.abc import Iterator
from datetime import date
from pathlib import Path
from typing import Any, Final

from experiments.datasets import livecodebench_score
from experiments.datasets.dataset import Dataset, DatasetTask, slug_of
from experiments.datasets.rows import DatasetRow, files_of, read_rows, strict_json
from speciate.domain.problem import Problem
from speciate.ports.evaluator import EvaluatorClient
from speciate.training.tasks.scoring import unlock_all
from speciate.training.tasks.task import Split

MAX_TESTS: Final = 16
REWARDS: Final = tuple(f"test_{i + 1}" for i in range(MAX_TESTS))
MAX_UNPACKED_BYTES: Final = 1 << 30
_MAX_TEST_CHARS: Final = 8192
_TESTED_FROM: Final = date(2025, 2, 1)
_LIMITS: Final = {"wall_s": 12, "cpu_s": 12}
_TEXT: Final = frozenset({"SHORT_BINUNICODE", "BINUNICODE", "BINUNICODE8"})
_AROUND: Final = frozenset({"PROTO", "FRAME", "MEMOIZE", "BINPUT", "LONG_BINPUT", "STOP"})
_GENERICS: Final = re.compile(r"\b(List|Dict|Set|Tuple)\b")

_FUNCTION: Final = """{content}

Define this function, outside of any class. Import what you use.
{signature}"""

_STANDARD: Final = """{content}

Define solve(text): text is all of standard input; return all of standard output as one text. Read nothing and print
nothing."""

Test = dict[str, Any]


def task(folder: Path | None, evaluator: EvaluatorClient | None) -> DatasetTask:
    return DatasetTask.read("livecodebench", Dataset(REWARDS, 2048, read_problems), folder, evaluator)


def read_problems(folder: Path) -> Iterator[tuple[Split, Problem]]:
    files = "test.jsonl, test2.jsonl, … of code_generation_lite"
    for path in files_of("livecodebench", folder, files, r"(^|/)test\d*\.jsonl$"):
        for row in read_rows(path):
            tests = _chosen(row)
            if tests:
                yield _split(row), _problem(row, tests)


def _split(row: DatasetRow) -> Split:
    try:
        day = date.fromisoformat(row.text("contest_date", 40)[:10])
    except ValueError:
        raise row.refusal("contest_date", "expected a date such as 2024-08-31T00:00:00") from None
    return Split.TEST if day >= _TESTED_FROM else Split.TRAIN


def _problem(row: DatasetRow, tests: list[Test]) -> Problem:
    content = row.text("question_content", 80_000).strip()
    rewards = REWARDS[: len(tests)]
    base = {
        "slug": slug_of("livecodebench", row.text("question_id", 200)),
        "title": row.text("question_title", 1000)[:200],
        "source": "LiveCodeBench (Jain et al., arXiv 2403.07974), rewards after arXiv 2605.22817.",
        "objectives": [{"name": name} for name in rewards],
        "weights": dict.fromkeys(rewards, 1.0),
        "targets": unlock_all(rewards),
        "limits": _LIMITS,
    }
    kind = tests[0]["testtype"]
    if kind == "functional":
        name = _function(row)
        return row.problem(
            base
            | {
                "kind": "cases",
                "entry_point": name,
                "description": _FUNCTION.format(content=content, signature=_signature(row, name)),
                "cases": [_case(row, test, reward) for test, reward in zip(tests, rewards, strict=True)],
            }
        )
    return row.problem(
        base
        | {
            "kind": "evaluator",
            "description": _STANDARD.format(content=content),
            "evaluator": inspect.getsource(livecodebench_score),
            "files": {"tests.json": json.dumps([{k: t[k] for k in ("input", "output", "public")} for t in tests])},
        }
    )


def _function(row: DatasetRow) -> str:
    try:
        name = strict_json(row.text("metadata", 10_000))["func_name"]
    except (ValueError, LookupError, TypeError):
        name = None
    if not (isinstance(name, str) and name.isidentifier() and name.isascii() and len(name) <= 80):
        raise row.refusal("metadata", "expected JSON with the name of a function, func_name")
    return name


def _signature(row: DatasetRow, name: str) -> str:
    """Return the first line of the function, without ``self`` and with types that need no import."""
    starter = row.text("starter_code", 10_000)
    start = re.search(rf"\bdef {name}\(\s*self\s*,?\s*", starter)
    rest, *ended = re.split(r":[ \t]*(?:\n|$)", starter[start.end() :], maxsplit=1) if start else ("",)
    if not ended:
        raise row.refusal("starter_code", f"expected a line such as 'def {name}(self, …):'")
    return f"def {name}({_GENERICS.sub(lambda match: match[1].lower(), rest)}:"


def _case(row: DatasetRow, test: Test, reward: str) -> dict[str, object]:
    try:
        arguments = [strict_json(line) for line in test["input"].split("\n") if line.strip()]
        expected = strict_json(test["output"])
    except ValueError as error:
        raise row.refusal(test["where"], f"expected JSON in every line of a functional test: {error}") from None
    # With a tolerance 1 equals 1.0, as in the benchmark; integers stay exact however large they are.
    tolerance = 1e-9 if _has_fraction(expected) else 0.0
    return {
        "input": arguments,
        "expected": expected,
        "reward": reward,
        "tolerance": tolerance,
        "hidden": not test["public"],
    }


def _has_fraction(value: object) -> bool:
    values = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    return isinstance(value, float) or any(map(_has_fraction, values))


def _chosen(row: DatasetRow) -> list[Test]:
    """Return the selected tests: public ones first, then private ones by size."""
    public, private = _tests(row, "public_test_cases"), _tests(row, "private_test_cases")
    tests = [test | {"public": True} for test in public]
    tests += [test | {"public": False} for test in sorted(private, key=_size)]
    distinct: dict[tuple[str, str], Test] = {}
    for test in tests:
        if _size(test) <= _MAX_TEST_CHARS:
            distinct.setdefault((test["input"], test["output"]), test)
    first = list(distinct.values())[:MAX_TESTS]
    if len({test["testtype"] for test in first}) > 1:
        raise row.refusal("private_test_cases", "expected tests of one testtype in a problem")
    return first


def _tests(row: DatasetRow, field: str) -> list[Test]:
    text = row.text(field, MAX_UNPACKED_BYTES)
    try:
        tests = strict_json(text if text.lstrip().startswith("[") else _unpacked(text))
    except ValueError as error:
        raise row.refusal(field, f"expected a list of tests as JSON, plain or packed: {error}") from None
    if not isinstance(tests, list):
        raise row.refusal(field, "expected a list of tests")
    checked = DatasetRow(row.file, row.number, {field: tests})
    for i in range(len(tests)):
        for name in ("input", "output"):
            checked.text(f"{field}.{i}.{name}", MAX_UNPACKED_BYTES, empty=True)
        if checked.text(f"{field}.{i}.testtype") not in ("functional", "stdin"):
            raise row.refusal(f"{field}.{i}.testtype", "expected 'functional' or 'stdin'")
    return [{k: t[k] for k in ("input", "output", "testtype")} | {"where": f"{field}.{i}"} for i, t in enumerate(tests)]


def _unpacked(text: str) -> str:
    """Return the only text in a base64-encoded, zlib-compressed pickle, without loading the pickle."""
    stream = zlib.decompressobj()
    try:
        data = stream.decompress(base64.b64decode(text, validate=True), MAX_UNPACKED_BYTES)
    except zlib.error as error:
        raise ValueError(f"zlib: {error}") from None
    if stream.unconsumed_tail or not stream.eof:
        raise ValueError(f"incomplete, or more than {MAX_UNPACKED_BYTES} bytes unpacked")
    unpickled: list[str] = []
    for opcode, value, _ in pickletools.genops(data):
        if opcode.name in _TEXT:
            unpickled.append(str(value))
        elif opcode.name not in _AROUND:
            raise ValueError(f"the pickle contains {opcode.name}, which a text does not need: it is not loaded")
    if len(unpickled) != 1:
        raise ValueError(f"the pickle contains {len(unpickled)} texts: expected one")
    return unpickled[0]


def _size(test: Test) -> int:
    return len(test["input"]) + len(test["output"])
