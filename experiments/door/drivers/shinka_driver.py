"""Run ShinkaEvolve on one problem; with ``--survivors`` print how many programs its database holds."""

import random
import sqlite3
import sys
from pathlib import Path

import numpy as np
from adapter import CONFIG
from shinka.core import EvolutionConfig, ShinkaEvolveRunner
from shinka.database import DatabaseConfig
from shinka.launch import LocalJobConfig


def runner():
    """Return the defaults, but: the endpoint, whole programs as answers, no embeddings, no meta prompts."""
    return ShinkaEvolveRunner(
        evo_config=EvolutionConfig(
            task_sys_msg=CONFIG["description"],
            patch_types=["full"],
            patch_type_probs=[1.0],
            num_generations=CONFIG["evaluations"],
            llm_models=[f"local/{CONFIG['model']}@{CONFIG['url']}"],
            llm_dynamic_selection=None,
            llm_kwargs={"temperatures": [CONFIG["temperature"]], "max_tokens": 8192},
            meta_rec_interval=None,
            embedding_model=None,
            init_program_path=CONFIG["initial"],
            results_dir=CONFIG["output"],
        ),
        job_config=LocalJobConfig(eval_program_path=str(Path(__file__).with_name("adapter.py")), time="00:00:30"),
        db_config=DatabaseConfig(),
        verbose=False,
        max_evaluation_jobs=CONFIG["workers"],
        max_proposal_jobs=CONFIG["workers"],
    )


if __name__ == "__main__":
    database = Path(CONFIG["output"], "programs.sqlite")
    if "--survivors" in sys.argv:
        connection = sqlite3.connect(database)
        print(connection.execute("SELECT count(*) FROM programs").fetchone()[0])  # noqa: T201
    else:
        random.seed(CONFIG["seed"])
        np.random.seed(CONFIG["seed"])  # noqa: NPY002  # ShinkaEvolve draws from the global generator
        runner().run()
