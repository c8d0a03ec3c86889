"""Read a directory made for OpenEvolve: ``initial_program.*``, ``evaluator.py``, ``config.yaml`` and other files."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Final

from speciate.compat import USUAL, Choice
from speciate.compat.draft import Draft, Objectives
from speciate.compat.folder import read_folder
from speciate.compat.naming import chosen_evaluator, named_after, packages_in, remarks_on, seed_in, with_seed
from speciate.compat.settings import CONFIG, settings_in

SEEDS: Final = ("initial_program", "init_program")
EVALUATOR: Final = "evaluator.py"


def read_openevolve(folder: Path, choice: Choice = USUAL) -> Draft:
    settings, remarks = settings_in(folder)
    seed = seed_in(folder, SEEDS, settings.file_suffix, choice.program)
    evaluator = chosen_evaluator(folder, choice, EVALUATOR)
    files, left_out = read_folder(folder, (seed, evaluator), without=(CONFIG,), include=choice.include)
    seed, files = with_seed(folder, files, seed)
    slug, title = named_after(folder, "openevolve")
    options: dict[str, Any] = {"evaluator": evaluator, "features": list(settings.database.feature_dimensions)}
    if settings.evaluator.cascade_evaluation:
        options["thresholds"] = list(settings.evaluator.cascade_thresholds)
    return Draft(
        slug=slug,
        title=title,
        seed=seed,
        files=files,
        adapter="openevolve",
        options=options,
        description=settings.message,
        wall_s=settings.wall_s,
        memory_bytes=settings.evaluator.memory_limit_mb << 20,
        packages=packages_in(folder, files),
        undeclared=Objectives.MEAN,
        remarks=(*remarks, *remarks_on(folder, files, evaluator, settings.message)),
        left_out=left_out,
    )
