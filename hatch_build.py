"""Generate the blocking client, which git ignores, and add the guides to a wheel."""

from __future__ import annotations

import runpy
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

GUIDES = ("README.md", "tutorial.md", "glossary.md", "concepts", "howto", "reference")


class GenerateClient(BuildHookInterface):
    """Run ``scripts/generate_client.py``, and include the guides unless the install is editable."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        if version == "standard":
            build_data["force_include"] |= {f"{self.root}/docs/{name}": f"speciate/_docs/{name}" for name in GUIDES}
        runpy.run_path(str(Path(self.root, "scripts/generate_client.py")), run_name="__main__")
