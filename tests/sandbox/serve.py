"""Holds one worker and evaluates: the process whose secrets and neighbours the attacks are after.

``python serve.py TIER``; one line of JSON in, one line out, in any order: ``{"number", "problem", "programs"}`` gives
``{"number", "evaluations"}`` or ``{"number", "error"}``. It ends, and closes the worker, when its input does.
"""

import json
import sys
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import closing
from functools import partial

from pydantic import TypeAdapter

from evaluators.evaluator import SandboxEvaluator
from speciate.domain.candidate import Evaluation
from speciate.domain.problem import Problem

_EVALUATIONS = TypeAdapter(list[Evaluation])


def main() -> None:
    """Serve until the input ends."""
    with closing(SandboxEvaluator(sys.argv[1])) as sandbox, ThreadPoolExecutor(8) as threads:
        for line in sys.stdin:
            task = json.loads(line)
            threads.submit(_evaluate, sandbox, task).add_done_callback(partial(_answer, task["number"]))


def _evaluate(sandbox: SandboxEvaluator, task: dict) -> list[Evaluation]:
    problem = Problem.model_validate(task["problem"])
    return sandbox.evaluate(problem, task["programs"], seeds=task["seeds"])


def _answer(number: int, future: Future[list[Evaluation]]) -> None:
    error = future.exception()
    body = {"evaluations": _EVALUATIONS.dump_python(future.result(), mode="json")} if error is None else {}
    line = json.dumps({"number": number, "error": error and f"{type(error).__name__}: {error}", **body})
    sys.stdout.write(line + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    main()
