"""Call the evaluator of a problem as a function, without a sandbox."""

from __future__ import annotations

import importlib.util
import json
import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

Evaluator = Callable[..., dict[str, float]]
"""Takes the function that answers calls, and optionally a dictionary for notes and a list for held-out inputs."""


class InvalidAnswerError(Exception):
    """Raised in place of the end of an evaluation."""


class Context:
    """Records notes, and ends an evaluation by an exception."""

    def __init__(self, notes: dict[str, str]) -> None:
        self.notes = notes

    def invalid(self, reason: str) -> None:
        raise InvalidAnswerError(reason)

    def note(self, name: str, text: str) -> None:
        assert name
        assert text
        self.notes[name] = text


def evaluator_in(problem: Path, **constants: int) -> Evaluator:
    """Return the evaluator in a problem's directory, for other sizes if constants are given.

    It takes a function that receives the name and the arguments of a call and returns the candidate's answer.
    """
    spec = importlib.util.spec_from_file_location(problem.name.replace("-", "_"), problem / "evaluate.py")
    assert spec is not None
    assert spec.loader is not None
    module: ModuleType = importlib.util.module_from_spec(spec)
    sys.path.insert(0, str(problem.parent))  # of files that bundled problems share
    spec.loader.exec_module(module)
    sys.path.remove(str(problem.parent))
    vars(module).update(constants)

    def evaluate(
        answer: Callable[..., Any], notes: dict[str, str] | None = None, hidden: list[Any] | None = None
    ) -> dict[str, float]:
        def call(name: str, *arguments: Any, held_out: bool = False) -> Any:
            if held_out and hidden is not None:
                hidden.append(arguments)
            found = json.loads(json.dumps(answer(name, *json.loads(json.dumps(arguments)))))
            return SimpleNamespace(unwrap=lambda: found)

        rewards: dict[str, float] = module.evaluate(SimpleNamespace(call=call), Context({} if notes is None else notes))
        return rewards

    return evaluate
