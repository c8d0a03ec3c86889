"""Generate the blocking client, which git ignores, before a wheel is built or an editable install is made."""

from __future__ import annotations

import runpy
from pathlib import Path

from hatchling.builders.hooks.plugin.interface import BuildHookInterface


class GenerateClient(BuildHookInterface):
    """Run ``scripts/generate_client.py``."""

    def initialize(self, *_: object) -> None:
        runpy.run_path(str(Path(self.root, "scripts/generate_client.py")), run_name="__main__")
