"""Read a directory made for ShinkaEvolve: ``initial.*``, ``evaluate.py``, and files beside them.

``run_evo.py`` contains the description for the policy as the value of ``task_sys_msg``; it is parsed, not run.
"""

from __future__ import annotations

import ast
import re
import warnings
from pathlib import Path
from typing import Final

from speciate.compat.draft import Draft
from speciate.compat.folder import read_folder, read_plain
from speciate.compat.naming import named_after, packages_in, remarks_on, seed_in
from speciate.problems.unreadable import UnreadableError

SEEDS: Final = ("initial",)
EVALUATOR: Final = "evaluate.py"
LAUNCHER: Final = "run_evo.py"

_MESSAGE: Final = "task_sys_msg"
_MAX_CHARS: Final = 1 << 18


def read_shinka(folder: Path) -> Draft:
    """Read the problem in a directory.

    Raises:
        NotFoundError: The directory or a required file does not exist.
        InvalidInputError: A file in the directory cannot be used.
    """
    seed = seed_in(folder, SEEDS)
    files, left_out = read_folder(folder, (seed, EVALUATOR), without=(LAUNCHER,))
    slug, title = named_after(folder, "shinka")
    message = _message_in(folder)
    return Draft(
        slug=slug,
        title=title,
        seed=seed,
        files=files,
        adapter="shinka",
        description=message,
        constraints=("correct",),
        packages=packages_in(folder, files),
        remarks=(*remarks_on(folder, files, EVALUATOR, message), *_other_parts(files[EVALUATOR])),
        left_out=left_out,
    )


def _other_parts(evaluator: str) -> list[str]:
    """Return a note about parts of ShinkaEvolve that evaluations do not have."""
    names = dict.fromkeys(re.findall(r"(?m)^(?:from|import) +(shinka\.(?!core\b)[\w.]+)", evaluator))
    return [f"{EVALUATOR} imports {name} of ShinkaEvolve, which is not provided" for name in names]


def _message_in(folder: Path) -> str:
    """Return the text that the launcher assigns to a name that ends in ``task_sys_msg``, or an empty text."""
    try:
        text = read_plain(folder, LAUNCHER)
    except UnreadableError:
        return ""
    if len(text) > _MAX_CHARS:
        return ""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            tree = ast.parse(text)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return ""
    for node in ast.walk(tree):
        match node:
            case ast.Assign(targets=[ast.Name(id=name)], value=ast.Constant(value=str(message))) if name.endswith(
                _MESSAGE
            ):
                return message
            case ast.keyword(arg=name, value=ast.Constant(value=str(message))) if name and name.endswith(_MESSAGE):
                return message
    return ""
