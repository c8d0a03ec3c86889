"""Read directories with an initial program and a Python evaluator, as made for several other systems.

OpenEvolve: ``initial_program.*``, ``evaluator.py`` and ``config.yaml``.

SkyDiscover: the same, or a folder with the evaluator, which is the content of a container image. The importer runs
``evaluator.py`` without the image: in all public benchmarks but those with a GPU or a server it needs only Python
packages.

ShinkaEvolve: ``initial.*``, ``evaluate.py`` and ``run_evo.py``, which contains the description for the policy as the
value of ``task_sys_msg``; it is parsed, not run.

The command line of AlphaEvolve: ``initial_program.*`` and ``evaluator.py``, a script that writes JSON to
``--output-file``: ``{"score": S}``, or a list ``scores`` of metrics, and a list ``insights`` of texts. AlphaEvolve
maximizes every metric.
"""

import ast
import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path, PurePosixPath
from typing import Any, Final

from speciate.compat import Choice
from speciate.compat.draft import Draft, Objectives
from speciate.compat.folder import optional_text, path_within, read_folder
from speciate.compat.naming import (
    described_in,
    find_program,
    named_after,
    packages_in,
    parsed,
    remarks_on,
    with_program,
)
from speciate.compat.settings import CONFIG, MOST_S, settings_in

_DESCRIPTION: Final = "problem_description.md"
_LAUNCHER: Final = "run_evo.py"
_MESSAGE: Final = "task_sys_msg"
_IN_FOLDER: Final = "evaluator/evaluator.py"


def read_openevolve(folder: Path, choice: Choice) -> Draft:
    settings, _ = settings_in(folder, choice.config, alone=choice.alone)
    options: dict[str, Any] = {"features": list(settings.database.feature_dimensions)}
    if settings.evaluator.cascade_evaluation:
        options["thresholds"] = list(settings.evaluator.cascade_thresholds)
    seeds = ("initial_program", "init_program")
    return read_configured(folder, choice, "openevolve", seeds=seeds, options=options, undeclared=Objectives.MEAN)


def read_skydiscover(folder: Path, choice: Choice) -> Draft:
    return read_configured(
        folder,
        choice,
        "skydiscover",
        evaluator=_IN_FOLDER if (folder / _IN_FOLDER).is_file() else "evaluator.py",
        options={"skydiscover": True},
        own_requirements=True,
        adapter="openevolve",
    )


def read_shinka(folder: Path, choice: Choice) -> Draft:
    draft = read_evaluated(
        folder,
        choice,
        "shinka",
        seeds=("initial",),
        evaluator="evaluate.py",
        without=_LAUNCHER,
        description=_message_in(folder),
        constraints=("correct",),
    )
    evaluator = draft.options["evaluator"]
    parts = re.findall(r"(?m)^(?:from|import) +(shinka\.(?!core\b)[\w.]+)", draft.files[evaluator])
    remarks = (f"{evaluator} imports {part} of ShinkaEvolve, which is not provided" for part in dict.fromkeys(parts))
    return replace(draft, remarks=(*draft.remarks, *remarks))


def read_alphaevolve(folder: Path, choice: Choice) -> Draft:
    draft = read_evaluated(
        folder,
        choice,
        "alphaevolve",
        seeds=("initial_program", "program"),
        without=_DESCRIPTION,
        description=optional_text(folder, _DESCRIPTION),
        adapter="alphaevolve_cli",
        undeclared=Objectives.ALL,
    )
    return replace(draft, options={**draft.options, "seed": draft.seed})


def read_configured(folder: Path, choice: Choice, system: str, **fields: Any) -> Draft:
    settings, remarks = settings_in(folder, choice.config, alone=choice.alone)
    return read_evaluated(
        folder,
        choice,
        system,
        suffix=settings.file_suffix,
        description=settings.message,
        remarks=remarks,
        wall_s=min(settings.evaluator.timeout, MOST_S),
        memory_bytes=settings.evaluator.memory_limit_mb << 20,
        **fields,
    )


def _message_in(folder: Path) -> str:
    """Return the text that the launcher assigns to a name that ends in ``task_sys_msg``, or an empty text."""
    for node in ast.walk(parsed(optional_text(folder, _LAUNCHER))):
        match node:
            case (
                ast.Assign(targets=[ast.Name(id=name)], value=ast.Constant(value=str(message)))
                | ast.keyword(arg=str(name), value=ast.Constant(value=str(message)))
            ) if name.endswith(_MESSAGE):
                return message
    return ""


def read_evaluated(
    folder: Path,
    choice: Choice,
    system: str,
    *,
    seeds: Sequence[str] = ("initial_program",),
    suffix: str | None = None,
    evaluator: str = "evaluator.py",
    without: str = CONFIG,
    description: str = "",
    options: Mapping[str, Any] | None = None,
    remarks: Sequence[str] = (),
    own_requirements: bool = False,
    kind: type[Draft] = Draft,
    **fields: Any,
) -> Draft:
    """Return the problem in a directory.

    Args:
        seeds: Usual names of the initial program, without suffix.
        suffix: Its suffix in the other system's configuration; it decides between several files.
        evaluator: Usual path of the evaluator.
        without: File that configures the other system's search.
        description: The task in that configuration; by default ``described_in``.
        own_requirements: True if ``requirements.txt`` lies beside the evaluator, not at the top.
        fields: Further fields of ``Draft``.
    """
    place, program = find_program(folder, seeds, suffix, choice.program)
    inside = place == folder
    if choice.evaluator is not None:
        evaluator = path_within(folder, choice.evaluator, "--evaluator")
    needed = (program, evaluator) if inside else (evaluator,)
    files, left_out = read_folder(folder, needed, without=(without,), include=choice.include, alone=choice.alone)
    seed, files = with_program(files, place, program, inside=inside)
    description = description if description.strip() else described_in(files[evaluator], files[seed])
    slug, title = named_after(folder, system)
    beside = PurePosixPath(evaluator).parent if own_requirements else PurePosixPath()
    listed = str(beside / "requirements.txt")
    return kind(
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
