"""The command line: ``speciate NOUN VERB``. One file for each noun; ``app`` puts them together.

Nothing that takes long to load is imported before a command needs it.
"""

from __future__ import annotations


def main() -> None:
    """Run the command line and exit with its code."""
    import io
    import sys

    if isinstance(sys.stdout, io.TextIOWrapper):
        # A character that the locale lacks is shown as another one: it is no reason to end half-way.
        sys.stdout.reconfigure(errors="replace")
    from speciate.cli.app import app

    app(prog_name="speciate")
