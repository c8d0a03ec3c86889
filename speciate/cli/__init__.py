"""The command line: ``speciate NOUN VERB``. One file for each noun; ``app`` puts them together.

Nothing that takes long to load is imported before a command needs it.
"""

from __future__ import annotations


def main() -> None:
    """Run the command line and exit with its code."""
    from speciate.cli.app import app

    app(prog_name="speciate")
