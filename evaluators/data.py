"""Kind ``data``: the author's ``score(text, context)`` scores many texts in one contained process, executing none.

The problem's wall limit applies to each text. If a text makes the function loop or crash, only that text fails, and the
process restarts for the next. The author's process outlives an evaluation, so CPU time and memory are not attributed
to single texts.
"""

import time
from dataclasses import replace
from functools import partial

from evaluators.batch import EvaluationBatch
from evaluators.cascade import run_cascade
from evaluators.script import Script, ScriptOutput
from speciate.domain.candidate import Evaluation


def evaluate_data(batch: EvaluationBatch) -> list[Evaluation]:
    with Script(batch) as script:
        return batch.evaluate_each(partial(_evaluate, batch, script))


def _evaluate(batch: EvaluationBatch, script: Script, text: str, seed: int) -> Evaluation:
    findings = ScriptOutput()
    started = time.monotonic()
    limit_s = batch.problem.limits.wall_s

    score = run_cascade(
        batch.problem,
        lambda step: script.measure(step, text, seed, lambda: script.receive(script.allow(limit_s)), findings),
        text,
    )
    return findings.added_to(batch.problem, replace(score, tier=batch.sandbox.name, wall_s=time.monotonic() - started))
