"""Run ShinkaEvolve on one problem; it goes on with the database in its results."""

import random

import numpy as np
from addresses import EVALUATIONS, MODEL, MODEL_URL, RUN
from shinka.core import EvolutionConfig, ShinkaEvolveRunner
from shinka.database import DatabaseConfig
from shinka.launch import LocalJobConfig
from shinka_evaluator import __file__ as evaluator


def runner():
    """Return the defaults, but: the endpoint, whole programs as answers, no embeddings, no meta prompts."""
    return ShinkaEvolveRunner(
        evo_config=EvolutionConfig(
            task_sys_msg=RUN["description"],
            patch_types=["full"],
            patch_type_probs=[1.0],
            num_generations=EVALUATIONS,
            llm_models=[f"local/{MODEL}@{MODEL_URL}"],
            llm_dynamic_selection=None,
            llm_kwargs={"temperatures": [0.8], "max_tokens": 8192},
            meta_rec_interval=None,
            embedding_model=None,
            init_program_path=RUN["initial"],
            results_dir=RUN["output"],
        ),
        job_config=LocalJobConfig(eval_program_path=evaluator, time="01:00:00"),
        db_config=DatabaseConfig(),
        verbose=False,
        max_evaluation_jobs=RUN["concurrency"],
        max_proposal_jobs=RUN["concurrency"],
    )


if __name__ == "__main__":
    random.seed(RUN["seed"])
    np.random.seed(RUN["seed"])  # noqa: NPY002  # ShinkaEvolve draws from the global generator
    runner().run()
