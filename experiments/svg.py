"""Write figures of the evidence."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from matplotlib.figure import Figure


def save_svg(figure: Figure, path: Path) -> None:
    """Write a figure as SVG without a timestamp and with stable ids: an unchanged figure is an unchanged file."""
    from matplotlib import rc_context

    with rc_context({"svg.hashsalt": "speciate"}):
        figure.savefig(path, metadata={"Date": None})
