"""Read a benchmark made for SkyDiscover: ``initial_program.*``, ``evaluator.py`` or a folder with it, ``config.yaml``.

The folder is the content of a container image. The importer runs its ``evaluator.py`` without the image, which needs
only Python packages in all public benchmarks but those with a GPU or a server.
"""

from __future__ import annotations

from pathlib import Path
from typing import Final

from speciate.compat import Choice
from speciate.compat.draft import Draft
from speciate.compat.reading import read_evaluated
from speciate.compat.settings import CONFIG, settings_in

_EVALUATORS: Final = ("evaluator/evaluator.py", "evaluator.py")


def read(folder: Path, choice: Choice) -> Draft:
    settings, remarks = settings_in(folder, choice.config)
    return read_evaluated(
        folder,
        choice,
        "skydiscover",
        seeds=("initial_program",),
        suffix=settings.file_suffix,
        evaluator=next((path for path in _EVALUATORS if (folder / path).is_file()), _EVALUATORS[-1]),
        without=CONFIG,
        description=settings.message,
        remarks=remarks,
        own_requirements=True,
        wall_s=settings.wall_s,
        memory_bytes=settings.memory_bytes,
    )
