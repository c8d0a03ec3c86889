"""Run OpenEvolve on one problem; with ``--survivors`` print how many programs its last checkpoint holds."""

import asyncio
import sys
from pathlib import Path

from adapter import CONFIG
from openevolve import OpenEvolve
from openevolve.config import Config, LLMModelConfig


def configuration():
    """Return the defaults, but: the endpoint, whole programs as answers, two workers, a checkpoint every 10."""
    config = Config()
    config.max_iterations = CONFIG["evaluations"] - 1
    config.random_seed = CONFIG["seed"]
    config.diff_based_evolution = False
    config.checkpoint_interval = 10
    config.evaluator.parallel_evaluations = CONFIG["workers"]
    config.evaluator.cascade_evaluation = False  # the problem has one stage
    config.evaluator.timeout = CONFIG["timeout_s"]
    config.llm.api_base = CONFIG["url"]
    config.llm.api_key = "none"
    config.llm.models = [
        LLMModelConfig(name=CONFIG["model"], api_base=CONFIG["url"], api_key="none", weight=1.0, timeout=60, retries=3,
                       retry_delay=1, temperature=CONFIG["temperature"], max_tokens=8192,
                       system_message=CONFIG["description"])
    ]  # fmt: skip
    config.prompt.system_message = CONFIG["description"]
    config.language = "python"
    return config


def checkpoints():
    """Return the folders of the checkpoints, oldest first."""
    found = Path(CONFIG["output"], "checkpoints").glob("checkpoint_*")
    return sorted(found, key=lambda folder: int(folder.name.rpartition("_")[2]))


if __name__ == "__main__":
    if "--survivors" in sys.argv:
        folders = checkpoints()
        print(len(list(folders[-1].glob("programs/*.json"))) if folders else 0)  # noqa: T201
    else:
        here = Path(__file__).parent
        evolution = OpenEvolve(
            CONFIG["initial"], str(here / "openevolve_evaluator.py"), config=configuration(),
            output_dir=CONFIG["output"],
        )  # fmt: skip
        asyncio.run(evolution.run())
