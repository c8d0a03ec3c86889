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
    from speciate import process_roots
    from speciate.cli.app import app

    process_roots.make_importable()

    try:
        try:
            app(prog_name="speciate")
        finally:
            if sys.stdout is not None:
                sys.stdout.flush()  # at the interpreter's end nobody could tell any more that it failed
    except OSError as error:
        sys.exit(_unwritten(error))


def _unwritten(error: OSError) -> int:
    """Say that what was to be written does not fit, and return the exit code; any other error is raised again."""
    import errno
    import os
    import sys

    from speciate.cli.exits import Exit
    from speciate.cli.output import print_error
    from speciate.domain.errors import SpeciateError

    if error.errno not in {errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EPIPE}:
        raise error
    # What waits in the buffer would fail again at the end.
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    if error.errno != errno.EPIPE:  # whoever closes a pipe has read enough
        what = error.filename or "the output"
        remedy = "Make room there, or write it elsewhere."
        print_error(SpeciateError(f"{what} cannot be written: {error.strerror}.", remedy=remedy))
    return Exit.FAILED
