"""Command line interface: ``speciate NOUN VERB``, with one module or package per noun, assembled in ``app``."""

import errno
import io
import os
import sys
from pathlib import Path


def main() -> None:
    """Run the command line and exit with its exit code."""
    for name in ("stdin", "stdout", "stderr"):
        if getattr(sys, name) is None:  # closed by the caller
            setattr(sys, name, Path(os.devnull).open("r" if name == "stdin" else "w"))  # noqa: SIM115
    if isinstance(sys.stdout, io.TextIOWrapper):
        # Replace characters that the locale cannot encode instead of failing.
        sys.stdout.reconfigure(errors="replace")
    from speciate import process_roots
    from speciate.cli.app import app

    process_roots.make_importable()

    try:
        try:
            app(prog_name="speciate")
        finally:
            if sys.stdout is not None:
                sys.stdout.flush()  # a failure during interpreter shutdown could not be reported
    except OSError as error:
        sys.exit(_report_write_error(error))


def _report_write_error(error: OSError) -> int:
    from speciate.cli.errors import ExitCode, print_error
    from speciate.domain.errors import SpeciateError

    if error.errno not in {errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EPIPE}:
        raise error
    # Discard the buffered output: flushing it at exit would fail again.
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    if error.errno != errno.EPIPE:  # a reader may close the pipe early
        what = error.filename or "the output"
        remedy = "Free disk space, or write to another location."
        print_error(SpeciateError(f"{what} cannot be written: {error.strerror}.", remedy=remedy))
    return ExitCode.FAILED
