"""Example prompts and editable prompt templates of a problem."""

from pathlib import Path
from typing import Final

import numpy as np

from speciate.cli import output
from speciate.cli.problems.check import score_seed
from speciate.domain.candidate import Individual
from speciate.domain.errors import ConflictError, EvaluatorUnavailableError, NotFoundError
from speciate.domain.guidance import Advice
from speciate.domain.policy import EditFormat, Policy, PolicyRole
from speciate.domain.problem import Problem
from speciate.domain.rollout import Prompt, TemplateName
from speciate.problems.siblings import TEMPLATE_FOLDER, TEMPLATE_SUFFIX
from speciate.prompts.guidance import guidance_prompt
from speciate.prompts.mutation import build_prompt
from speciate.prompts.template import default_template

TEMPLATE_FILES: Final = {f"{name.value}{TEMPLATE_SUFFIX}": name for name in TemplateName}
"""Template by file name."""


def seed_of(problem: Problem) -> Individual:
    """Return the seed program as scored on this machine.

    Where nothing here can score it, a note says so, and every reward has the worst value of its range.
    """
    try:
        evaluation = score_seed(problem).evaluation
    except EvaluatorUnavailableError as error:
        evaluation = None
        output.print_note(str(error))
    if evaluation is None:
        if problem.seed_program:
            output.print_note("The rewards of the seed program are not measured: the worst values stand for them.")
        return Individual(1, problem.seed_program, tuple(o.worst for o in problem.objectives))
    return Individual(
        1,
        problem.seed_program,
        evaluation.rewards,
        evaluation.failure,
        evaluation.artifacts,
        stopped_at=evaluation.stopped_at,
    )


def example_prompts(problem: Problem, parent: Individual, *, diff: bool, answers: int, seed: int) -> dict[str, Prompt]:
    """Return the prompts by role: for a first program, a change of ``parent``, and advice."""
    policy = Policy(
        slug="example",
        kind="scripted",
        edit_format=EditFormat.DIFF if diff else EditFormat.REWRITE,
        answers_per_rollout=answers,
    )
    parents = {PolicyRole.PROPOSE: (), PolicyRole.MUTATE: (parent,)}
    improved, failed = ((parent,), ()) if parent.failure is None else ((), (parent,))
    advise = guidance_prompt(problem, policy, (Advice(),), Advice(), improved, failed)
    return {
        role.value: build_prompt(problem, role, members, (), policy, np.random.default_rng(seed))
        for role, members in parents.items()
    } | {PolicyRole.ADVISE.value: advise}


def write_templates(directory: Path) -> list[Path]:
    """Write the default templates into the template folder of a problem directory, and return the files."""
    if not directory.is_dir():
        raise NotFoundError(f"there is no directory {directory}.")
    folder = directory / TEMPLATE_FOLDER
    paths = {folder / file: name for file, name in TEMPLATE_FILES.items()}
    if present := [path for path in paths if path.exists()]:
        raise ConflictError(f"{present[0]} already exists.", remedy="Move it away first.")
    folder.mkdir(exist_ok=True)
    for path, name in paths.items():
        path.write_text(default_template(name), encoding="utf-8")
    return list(paths)
