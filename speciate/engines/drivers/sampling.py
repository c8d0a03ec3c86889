"""Two baselines: sample every program from the statement alone, or with the best programs so far in the prompt."""

import json
import re
import sys
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path

from addresses import RUN, BudgetSpentError, complete, evaluate

_HISTORY = Path(RUN["output"], "history.jsonl")
_SHOWN = RUN["engine_options"].get("best", 3) if RUN["engine"] == "sequential-sampling" else 0
_MOST_UNUSABLE = 50
"""Answers without a program, in a row, after which the model is taken for unable."""
_BLOCK = re.compile(r"^```[^\n]*\n(.*?)^```", re.DOTALL | re.MULTILINE)
_ORDER = (
    "Answer with one complete program in a block of code. If it has lines with EVOLVE-BLOCK-START and EVOLVE-BLOCK-END,"
    " change only what lies between them."
)


def prompt(history):
    """Return the messages of a request."""
    best = sorted(history, key=lambda each: -each["score"])[:_SHOWN]
    shown = [f"A program with score {each['score']:.6g}:\n```\n{each['program']}\n```" for each in best]
    shown = shown or [f"A program to begin with:\n```\n{RUN['seed_program']}\n```"]
    order = f"Write a better program, in {RUN['language']}; a higher score is better. {_ORDER}"
    return [{"role": "user", "content": "\n\n".join([RUN["description"], *shown, order])}]


def sample(history):
    """Evaluate programs until the budget is spent."""
    unusable = 0
    while unusable < _MOST_UNUSABLE:
        blocks = list(filter(str.strip, _BLOCK.findall(complete(prompt(history)))))
        unusable = 0 if blocks else unusable + 1
        if blocks:
            keep(history, blocks[-1])
    sys.exit(f"{_MOST_UNUSABLE} answers in a row have no block of code")


def keep(history, program):
    """Evaluate a program and store it with its score."""
    history.append({"program": program, "score": evaluate(program)["score"]})
    with _HISTORY.open("a", encoding="utf-8") as file:
        file.write(json.dumps(history[-1]) + "\n")


if __name__ == "__main__":
    lines = _HISTORY.read_text(encoding="utf-8").split("\n")[:-1] if _HISTORY.exists() else []
    past = [json.loads(line) for line in lines]
    if _HISTORY.exists():  # without a line that a kill has cut off
        _HISTORY.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
    if RUN["seed_program"] and not past:
        keep(past, RUN["seed_program"])
    with ThreadPoolExecutor(RUN["concurrency"]) as pool:
        for each in [pool.submit(sample, past) for _ in range(RUN["concurrency"])]:
            with suppress(BudgetSpentError):
                each.result()
