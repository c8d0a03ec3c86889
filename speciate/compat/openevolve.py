"""Read a directory made for OpenEvolve: ``initial_program.*``, ``evaluator.py``, ``config.yaml`` and other files."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from speciate.compat import Choice
from speciate.compat.draft import Draft, Objectives
from speciate.compat.reading import read_evaluated
from speciate.compat.settings import CONFIG, settings_in


def read(folder: Path, choice: Choice) -> Draft:
    settings, remarks = settings_in(folder, choice.config)
    options: dict[str, Any] = {"features": list(settings.database.feature_dimensions)}
    if settings.evaluator.cascade_evaluation:
        options["thresholds"] = list(settings.evaluator.cascade_thresholds)
    return read_evaluated(
        folder,
        choice,
        "openevolve",
        seeds=("initial_program", "init_program"),
        suffix=settings.file_suffix,
        evaluator="evaluator.py",
        without=CONFIG,
        description=settings.message,
        options=options,
        remarks=remarks,
        wall_s=settings.wall_s,
        memory_bytes=settings.memory_bytes,
        undeclared=Objectives.MEAN,
    )
