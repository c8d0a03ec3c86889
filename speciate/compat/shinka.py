"""Read a directory made for ShinkaEvolve: ``initial.*``, ``evaluate.py``, and files beside them.

``run_evo.py`` contains the description for the policy as the value of ``task_sys_msg``; it is parsed, not run.
"""

from __future__ import annotations

import ast
import re
import warnings
from pathlib import Path
from typing import Final

from speciate.compat import USUAL, Choice
from speciate.compat.draft import Draft
from speciate.compat.folder import read_folder, read_plain
from speciate.compat.naming import chosen_evaluator, named_after, packages_in, remarks_on, seed_in, with_seed
from speciate.problems.unreadable import UnreadableError

SEEDS: Final = ("initial",)
EVALUATOR: Final = "evaluate.py"
LAUNCHER: Final = "run_evo.py"

_MESSAGE: Final = "task_sys_msg"
_MAX_CHARS: Final = 1 << 18


def read_shinka(folder: Path, choice: Choice = USUAL) -> Draft:
    seed = seed_in(folder, SEEDS, chosen=choice.program)
    evaluator = chosen_evaluator(folder, choice, EVALUATOR)
    files, left_out = read_folder(folder, (seed, evaluator), without=(LAUNCHER,), include=choice.include)
    seed, files = with_seed(folder, files, seed)
    slug, title = named_after(folder, "shinka")
    message = _message_in(folder)
    return Draft(
        slug=slug,
        title=title,
        seed=seed,
        files=files,
        adapter="shinka",
        options={"evaluator": evaluator},
        description=message,
        constraints=("correct",),
        packages=packages_in(folder, files),
        remarks=(*remarks_on(folder, files, evaluator, message), *_other_parts(evaluator, files[evaluator])),
        left_out=left_out,
    )


def _other_parts(name: str, evaluator: str) -> list[str]:
    names = dict.fromkeys(re.findall(r"(?m)^(?:from|import) +(shinka\.(?!core\b)[\w.]+)", evaluator))
    return [f"{name} imports {part} of ShinkaEvolve, which is not provided" for part in names]


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
