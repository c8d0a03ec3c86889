"""Run GEPA's ``optimize_anything`` on one problem; it goes on with the state in its folder."""

from contextlib import suppress
from pathlib import Path

from addresses import EVALUATIONS, RUN, BudgetSpentError, complete, evaluate
from gepa.optimize_anything import EngineConfig, GEPAConfig, ReflectionConfig, optimize_anything


def ask(prompt):
    """Return the model's answer: GEPA takes any function as its model."""
    return complete(prompt if isinstance(prompt, list) else [{"role": "user", "content": prompt}])


def score(candidate):
    """Return score and feedback of a program."""
    result = evaluate(candidate)
    feedback = {"rewards": result["rewards"], "error": result["failure_detail"], **result["feedback"]}
    return result["score"], {key: value for key, value in feedback.items() if value}


if __name__ == "__main__":
    with suppress(BudgetSpentError):
        optimize_anything(
            seed_candidate=Path(RUN["initial"]).read_text(encoding="utf-8"),
            evaluator=score,
            objective=RUN["description"],
            config=GEPAConfig(
                engine=EngineConfig(
                    max_candidate_proposals=EVALUATIONS - 1, run_dir=RUN["output"], seed=RUN["seed"],
                    parallel=False, cache_evaluation=True,
                ),
                reflection=ReflectionConfig(reflection_lm=ask),
            ),
        )  # fmt: skip
