"""Locate the process roots: beside the library in a checkout, inside it in a wheel.

The roots are the packages ``service``, ``workers`` and ``evaluators`` and the folder ``migrations``.

A wheel must not install top-level packages with such common names. It holds them in ``speciate/_roots``, and that
folder goes onto the path of our own processes only.
"""

import os
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Final

_IN_WHEEL: Final = Path(__file__).resolve().parent / "_roots"

FOLDER: Final = _IN_WHEEL if _IN_WHEEL.is_dir() else Path(__file__).resolve().parents[1]
"""Folder that holds the process roots."""


_DOCS_IN_WHEEL: Final = Path(__file__).resolve().parent / "_docs"

DOCS: Final = _DOCS_IN_WHEEL if FOLDER == _IN_WHEEL else FOLDER / "docs"
"""Folder that holds the guides."""


def make_importable() -> None:
    """Put the process roots on this interpreter's path; a checkout's editable install has them there already."""
    if FOLDER == _IN_WHEEL and str(FOLDER) not in sys.path:
        sys.path.insert(0, str(FOLDER))


def child_environment(environment: Mapping[str, str]) -> dict[str, str]:
    """Return an environment in which a child interpreter can import the process roots."""
    if FOLDER != _IN_WHEEL:
        return dict(environment)
    inherited = environment.get("PYTHONPATH")
    return {**environment, "PYTHONPATH": os.pathsep.join((str(FOLDER), *filter(None, (inherited,))))}
