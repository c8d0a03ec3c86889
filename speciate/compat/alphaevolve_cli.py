"""Read a directory made for the command line of AlphaEvolve: ``initial_program.*``, ``evaluator.py`` and others.

The evaluator is a script that writes JSON to ``--output-file``: ``{"score": S}``, or a list ``scores`` of metrics, and
a list ``insights`` of texts. AlphaEvolve maximizes every metric.
"""

from __future__ import annotations

from pathlib import Path
from typing import Final

from speciate.compat import USUAL, Choice
from speciate.compat.draft import Draft, Objectives
from speciate.compat.folder import read_folder, read_plain
from speciate.compat.naming import chosen_evaluator, named_after, packages_in, remarks_on, seed_in, with_seed
from speciate.problems.unreadable import UnreadableError

SEEDS: Final = ("initial_program", "program")
EVALUATOR: Final = "evaluator.py"
DESCRIPTION: Final = "problem_description.md"


def read_alphaevolve(folder: Path, choice: Choice = USUAL) -> Draft:
    seed = seed_in(folder, SEEDS, chosen=choice.program)
    evaluator = chosen_evaluator(folder, choice, EVALUATOR)
    files, left_out = read_folder(folder, (seed, evaluator), without=(DESCRIPTION,), include=choice.include)
    seed, files = with_seed(folder, files, seed)
    slug, title = named_after(folder, "alphaevolve")
    try:
        description = read_plain(folder, DESCRIPTION)
    except UnreadableError:
        description = ""
    return Draft(
        slug=slug,
        title=title,
        seed=seed,
        files=files,
        adapter="alphaevolve_cli",
        options={"evaluator": evaluator, "seed": seed},
        description=description,
        packages=packages_in(folder, files),
        undeclared=Objectives.ALL,
        remarks=remarks_on(folder, files, evaluator, description),
        left_out=left_out,
    )
