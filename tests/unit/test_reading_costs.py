"""The processor time that a reader takes grows far less than with the square of the text of a user or a model."""

from __future__ import annotations

import gc
import itertools
import json
import time
from collections.abc import Callable
from contextlib import suppress

import pytest

from service.diffs import unified_diff
from speciate.cli.output import sanitize
from speciate.domain.candidate import Failure, FailureKind
from speciate.domain.errors import SpeciateError
from speciate.domain.files import FilesError, sections_of
from speciate.domain.rule import parse_rule
from speciate.domain.unstorable import storage_errors, values_within
from speciate.problems.loader import parse_problem
from speciate.prompts.evolve_blocks import find_blocks, without_markers
from speciate.prompts.failures import frequent_causes
from speciate.prompts.guidance import read_advice
from speciate.prompts.parse import parse_completion
from speciate.prompts.protected import keep_protected
from speciate.prompts.template import template_field_errors
from speciate.runs.silent_failure import stated_failure
from tests.support.runs import toy_policy, toy_problem

MEASURABLE_S = 0.005
"""Processor time from which a ratio means something."""

_CALLS = itertools.count()

BASE = "# EVOLVE-BLOCK-START\nx = 1\n# EVOLVE-BLOCK-END\ny = 9\n"
PROBLEM, FILES = toy_problem(), toy_problem().model_copy(update={"many_files": True})
SETS, DIFFS = toy_policy(answers_per_rollout=3), toy_policy(edit_format="diff")


def _json(text: str) -> None:
    with suppress(ValueError, RecursionError):
        value = json.loads(text)
        if values_within(text, 1_000_000):
            storage_errors(value)


READERS: dict[str, tuple[Callable[[str], object], int, tuple[str, ...]]] = {
    "problem.toml": (
        lambda text: parse_problem(text, {}),
        1 << 19,
        ("a.", "[a.", "a.b.c=1\n", "x = [", "x={x=", "[[a]]\n", "a = '", '"""', "# a.\n", "a = [1,2]\n", '"a" . '),
    ),
    "JSON": (_json, 1 << 21, ("[", '{"a":', "1,", '"\\u0000",', "[[],[]],")),
    "rule": (lambda text: parse_rule(text, ["x", "y"]), 10_000, ("x>=1 and ", "(", "not ", "x", "1e", " ")),
    "completion": (
        lambda text: parse_completion(text, problem=PROBLEM, policy=SETS, parent=BASE),
        1 << 19,
        ("```\n", "`", "\n", "a```python\n", "```python\nx = 1\n", "<answer_1>", "</think>",
         "a\n", "a = 1\n", "~~~~\n    ", "(", "'''", "# a\r",
         "```python\nx = y\n```\n", "```py\nimport y\n```\n", '{"a": "', '{"x": "x = 1"}\n', "x = 1\u00a0\n",
         "# ...\n", "[1] ", '{"a":1}\n'),
    ),
    "program without marks": (
        lambda text: keep_protected(BASE, f"x = 2\n{text}"), 1 << 19,
        ("import a\n", "y = 9\n", "z = 1\n", "def f():\n    return x\n", "a;", "if a:\n    b = 1\n"),
    ),
    "completion with files": (
        lambda text: parse_completion(text, problem=FILES, policy=SETS, parent=BASE),
        1 << 19,
        ("# === file: a.py ===\n", "# === file: ", "```\n# === file: a.py ===\nx\n"),
    ),
    "diff": (
        lambda text: parse_completion(text, problem=PROBLEM, policy=DIFFS, parent=BASE * 100),
        1 << 19,
        ("<<<<<<< SEARCH\n", "<<<<<<< SEARCH\nx = 1\n=======\nx = 2\n>>>>>>> REPLACE\n", "=======\n", "a\n"),
    ),
    "EVOLVE-BLOCK": (find_blocks, 1 << 20, ("# EVOLVE-BLOCK-START\n", "#\tEVOLVE-BLOCK-", "# " * 9, "/*", " \t")),
    "markers": (without_markers, 1 << 20, ("# EVOLVE-BLOCK-START\n", " \t", "#EVOLVE-BLOCK-END", "\r")),
    "protected code": (lambda text: keep_protected(BASE * 20, text), 1 << 20, ("y = 9\n", BASE, "a\n", "\n")),
    "files": (sections_of, 1 << 20, ("# === file: a.py ===\n", "# \\=== file: ", "# " * 9)),
    "advice": (read_advice, 1 << 20, ("<advice>", "</advice>", "<advice", "<")),
    "failure": (
        lambda text: frequent_causes(PROBLEM, [Failure(FailureKind.CRASHED, "raised", text)]), 1 << 20,
        ('  File "a", line 1\n', "    \n", "~^\n", "e", "Error", '  File "'),
    ),
    "template": (lambda text: template_field_errors("change", text, where="x"), 1 << 17, ("{", "{problem}", "}", "{a")),
    "diff of programs": (
        lambda text: unified_diff(text, text[::-1], before="a", after="b"), 1 << 20, ("a\n", "\n", "a", "a\nb\n")
    ),
    "errors": (
        lambda text: stated_failure({"log": text + "\nValueError: x"}), 1 << 17,
        ("\n", " ", 'File "', "a.E", "Error: ", 'File "a", line 1\n'),
    ),
    "terminal": (sanitize, 1 << 20, ("\x1b[2J", "\r\n", "\u202e")),
}  # fmt: skip


@pytest.mark.parametrize("name", READERS)
def test_eight_times_the_text_takes_at_most_24_times_as_long(name: str) -> None:
    read, most, pieces = READERS[name]
    slow = []
    for piece in pieces:
        size = 1024
        while (cost := _seconds(read, piece, size)) < MEASURABLE_S and 2 * size <= most:
            size *= 2
        if cost >= MEASURABLE_S and not any(_below_quadratic(read, piece, min(size, most // 8)) for _ in range(8)):
            slow.append((piece, size, cost))
    assert slow == []


def _below_quadratic(read: Callable[[str], object], piece: str, size: int) -> bool:
    """Return True if one measurement stays below 24 times another: noise can only add time.

    A step by a constant factor passes: texts beyond a limit are not remembered, so they are parsed twice.
    """
    return _seconds(read, piece, 8 * size) <= 24 * _seconds(read, piece, size)


def _seconds(read: Callable[[str], object], piece: str, size: int) -> float:
    size -= next(_CALLS) % 100  # a reader may remember a text
    text = (piece * (size // len(piece) + 1))[:size]
    gc.disable()  # it walks through all that earlier tests left
    begun = time.process_time()
    try:
        with suppress(SpeciateError, FilesError, ValueError):
            read(text)
        return time.process_time() - begun
    finally:
        gc.enable()
