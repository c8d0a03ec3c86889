"""Read a benchmark made for SkyDiscover: ``initial_program.*``, ``evaluator.py`` or a folder with it, ``config.yaml``.

The folder is the content of a container image. The importer runs its ``evaluator.py`` without the image, which needs
only Python packages in all public benchmarks but those with a GPU or a server.
"""

from __future__ import annotations

from pathlib import Path
from typing import Final

from speciate.compat import USUAL, Choice
from speciate.compat.draft import Draft
from speciate.compat.folder import read_folder
from speciate.compat.naming import chosen_evaluator, named_after, packages_in, remarks_on, seed_in, with_seed
from speciate.compat.settings import CONFIG, settings_in

SEEDS: Final = ("initial_program",)
EVALUATORS: Final = ("evaluator/evaluator.py", "evaluator.py")


def read_skydiscover(folder: Path, choice: Choice = USUAL) -> Draft:
    settings, remarks = settings_in(folder)
    seed = seed_in(folder, SEEDS, settings.file_suffix, choice.program)
    usual = next((path for path in EVALUATORS if (folder / path).is_file()), EVALUATORS[-1])
    evaluator = chosen_evaluator(folder, choice, usual)
    files, left_out = read_folder(folder, (seed, evaluator), without=(CONFIG,), include=choice.include)
    seed, files = with_seed(folder, files, seed)
    slug, title = named_after(folder, "skydiscover")
    listed = f"{evaluator.removesuffix(evaluator.rpartition('/')[2])}requirements.txt"
    return Draft(
        slug=slug,
        title=title,
        seed=seed,
        files=files,
        adapter="skydiscover",
        options={"evaluator": evaluator},
        description=settings.message,
        wall_s=settings.wall_s,
        memory_bytes=settings.evaluator.memory_limit_mb << 20,
        packages=packages_in(folder, files, listed),
        remarks=(*remarks, *remarks_on(folder, files, evaluator, settings.message, listed)),
        left_out=left_out,
    )
