"""Checkpoints that come with the library, one folder each, for ``speciate serve``."""

from __future__ import annotations

from pathlib import Path


def checkpoints() -> dict[str, Path]:
    """Return the folders of all bundled policies by name."""
    here = Path(__file__).parent
    return {folder.name: folder for folder in sorted(here.iterdir()) if (folder / "config.json").is_file()}
