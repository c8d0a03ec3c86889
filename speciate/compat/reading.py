"""Read a directory with an initial program and a Python evaluator, as most systems have it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path, PurePosixPath
from typing import Any

from speciate.compat import Choice
from speciate.compat.draft import Draft
from speciate.compat.folder import path_within, read_folder
from speciate.compat.naming import (
    named_after,
    packages_in,
    program_elsewhere,
    remarks_on,
    seed_in,
    with_program,
    with_seed,
)


def read_evaluated(
    folder: Path,
    choice: Choice,
    system: str,
    *,
    seeds: Sequence[str],
    suffix: str | None = None,
    evaluator: str,
    without: str,
    description: str,
    options: Mapping[str, Any] | None = None,
    remarks: Sequence[str] = (),
    own_requirements: bool = False,
    **fields: Any,
) -> Draft:
    """Return the problem in a directory.

    Args:
        seeds: Usual names of the initial program, without suffix.
        suffix: Its suffix in the other system's configuration; it decides between several files.
        evaluator: Usual path of the evaluator.
        without: File that configures the other system's search.
        own_requirements: True if ``requirements.txt`` lies beside the evaluator, not at the top.
        fields: Further fields of ``Draft``.
    """
    elsewhere = program_elsewhere(folder, choice.program)
    seed = "" if elsewhere else seed_in(folder, seeds, suffix, choice.program)
    if choice.evaluator is not None:
        evaluator = path_within(folder, choice.evaluator, "--evaluator")
    needed = (evaluator,) if elsewhere else (seed, evaluator)
    files, left_out = read_folder(folder, needed, without=(without,), include=choice.include, alone=choice.alone)
    seed, files = with_program(files, elsewhere) if elsewhere else with_seed(folder, files, seed)
    slug, title = named_after(folder, system)
    place = PurePosixPath(evaluator).parent if own_requirements else PurePosixPath()
    listed = str(place / "requirements.txt")
    return Draft(
        **{"adapter": system, **fields},
        slug=slug,
        title=title,
        seed=seed,
        files=files,
        options={"evaluator": evaluator, **(options or {})},
        description=description,
        packages=packages_in(folder, files, listed),
        remarks=(*remarks, *remarks_on(folder, files, evaluator, description, listed)),
        left_out=left_out,
    )
