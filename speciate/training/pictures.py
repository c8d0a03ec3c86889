"""Pictures as files: the same drawing is the same file, so that a repository sees what changed and nothing else."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from matplotlib.figure import Figure


def save_svg(figure: Figure, path: Path) -> None:
    """Write a figure as an SVG file without the time, and with names that do not change."""
    from matplotlib import rc_context

    with rc_context({"svg.hashsalt": "speciate"}):
        figure.savefig(path, metadata={"Date": None})
