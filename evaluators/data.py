"""Kind ``data``: the author's ``score(text, context)`` over many texts in one contained process; no text is executed.

Each text has the problem's wall limit to itself. One that makes the function loop or die fails alone: the process is
started anew for the next. Since the process is the author's and outlives an evaluation, processor time and memory are
not attributed to single texts.
"""

from __future__ import annotations

import time

from evaluators.batch import Batch
from evaluators.script import Script, ScriptFailedError, read_notes, read_verdict
from speciate.domain.candidate import Evaluation, Failure


def evaluate_data(batch: Batch) -> list[Evaluation]:
    """Score every text of a batch."""
    with Script(batch, "score") as script:
        return [batch.out_of_time() if batch.expired else _evaluate(batch, script, text, seed) for text, seed in batch]


def _evaluate(batch: Batch, script: Script, text: str, seed: int) -> Evaluation:
    started = time.monotonic()
    artifacts: dict[str, str] = {}
    try:
        script.begin(text, seed)
        started = time.monotonic()
        message = script.receive(started + batch.problem.limits.wall_s)
        outcome = read_verdict(batch.problem, message)
        if outcome is None:
            raise script.broken("the script wrote to the channel")
        artifacts, log = read_notes(batch.problem, message), script.log()
    except ScriptFailedError as error:
        outcome, log = error.failure, error.log
    wall_s = time.monotonic() - started
    if isinstance(outcome, Failure):
        artifacts |= {"evaluator_log": log} if log else {}
        return Evaluation(failure=outcome, tier=batch.sandbox.name, wall_s=wall_s, artifacts=artifacts)
    return Evaluation(rewards=outcome, tier=batch.sandbox.name, wall_s=wall_s, artifacts=artifacts)
