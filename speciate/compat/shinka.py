"""Read a directory made for ShinkaEvolve: ``initial.*``, ``evaluate.py``, and files beside them.

``run_evo.py`` contains the description for the policy as the value of ``task_sys_msg``; it is parsed, not run.
"""

from __future__ import annotations

import ast
import re
import warnings
from dataclasses import replace
from pathlib import Path
from typing import Final

from speciate.compat import Choice
from speciate.compat.draft import Draft
from speciate.compat.folder import read_plain
from speciate.compat.reading import read_evaluated
from speciate.problems.unreadable import UnreadableError

_LAUNCHER: Final = "run_evo.py"
_MESSAGE: Final = "task_sys_msg"
_MAX_CHARS: Final = 1 << 18


def read(folder: Path, choice: Choice) -> Draft:
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
    return replace(draft, remarks=(*draft.remarks, *_other_parts(evaluator, draft.files[evaluator])))


def _other_parts(name: str, evaluator: str) -> list[str]:
    names = dict.fromkeys(re.findall(r"(?m)^(?:from|import) +(shinka\.(?!core\b)[\w.]+)", evaluator))
    return [f"{name} imports {part} of ShinkaEvolve, which is not provided" for part in names]


def _message_in(folder: Path) -> str:
    """Return the text that the launcher assigns to a name that ends in ``task_sys_msg``, or an empty text."""
    try:
        text = read_plain(folder, _LAUNCHER)
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
