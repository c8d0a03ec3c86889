"""Run OpenEvolve on one problem; it loads this file as its evaluator, too."""

import asyncio
from pathlib import Path

from addresses import EVALUATIONS, MODEL, MODEL_URL, RUN
from addresses import evaluate as evaluate_program
from openevolve import OpenEvolve
from openevolve.config import Config, LLMModelConfig

_LONGEST_S = 3600


def evaluate(program_path):
    result = evaluate_program(Path(program_path).read_text(encoding="utf-8"))
    return {**(result["rewards"] or {}), "combined_score": result["score"]}


def configuration():
    """Return the defaults, but: the endpoint, whole programs as answers, the concurrency, a checkpoint every 10."""
    config = Config()
    config.max_iterations = EVALUATIONS - 1
    config.random_seed = RUN["seed"]
    config.diff_based_evolution = False
    config.checkpoint_interval = 10
    config.evaluator.parallel_evaluations = RUN["concurrency"]
    config.evaluator.cascade_evaluation = False  # the problem has one stage
    config.evaluator.timeout = _LONGEST_S
    config.llm.api_base = MODEL_URL
    config.llm.api_key = "none"
    config.llm.models = [
        LLMModelConfig(name=MODEL, api_base=MODEL_URL, api_key="none", weight=1.0, timeout=_LONGEST_S, retries=3,
                       retry_delay=1, temperature=0.8, max_tokens=8192, system_message=RUN["description"])
    ]  # fmt: skip
    config.prompt.system_message = RUN["description"]
    config.language = RUN["language"]
    return config


if __name__ == "__main__":
    output = Path(RUN["output"])
    checkpoints = sorted(output.glob("checkpoints/checkpoint_*"), key=lambda path: int(path.name.rpartition("_")[2]))
    evolution = OpenEvolve(RUN["initial"], __file__, config=configuration(), output_dir=str(output))
    if checkpoints:
        asyncio.run(evolution.run(iterations=RUN["evaluations_left"], checkpoint_path=str(checkpoints[-1])))
    else:
        asyncio.run(evolution.run())
