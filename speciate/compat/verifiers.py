"""Write a problem as an environment package for Prime Intellect's ``verifiers`` 0.4 (its API ``verifiers.v1``).

The package holds the problem, a taskset of prompts and a reward function for each objective. It scores completions with
``speciate.runs.environment``.
"""

import json
from pathlib import Path

from jinja2 import Environment, PackageLoader, StrictUndefined

from speciate.domain.errors import InvalidInputError
from speciate.domain.problem import Problem
from speciate.problems.writing import write


def write_verifiers(problem: Problem, directory: Path) -> list[Path]:
    if problem.external_stage is not None:
        raise InvalidInputError(
            f"problem {problem.slug} has external evaluation: an environment scores completions in the sandbox."
        )
    name = f"speciate-{problem.slug}"
    package = name.replace("-", "_")
    selected = [objective.name for objective in problem.space.selected]
    declared = problem.weight_vector
    weights = declared if declared is not None else [1.0 / len(selected)] * len(selected)
    values = {
        "name": name,
        "package": package,
        "slug": problem.slug,
        "title": json.dumps(problem.title, ensure_ascii=False),
        "weights": dict(zip(selected, map(float, weights), strict=True)),
        "declared": declared is not None,
    }
    templates = Environment(  # noqa: S701 - no HTML
        loader=PackageLoader("speciate.compat", "environment"), undefined=StrictUndefined, keep_trailing_newline=True
    )
    places = {"__init__.py": package, "taskset.py": package, "pyproject.toml": ".", "README.md": "."}
    texts = {
        Path(folder, file).as_posix(): templates.get_template(f"{file}.jinja").render(values)
        for file, folder in places.items()
    }
    texts[f"{package}/problem.json"] = json.dumps(problem.stored_json(), indent=1, ensure_ascii=False) + "\n"
    return write(texts, directory)
