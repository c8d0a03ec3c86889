"""Options, argument parsing, error handling and service access that all commands share."""

from __future__ import annotations

import inspect
import json
import os
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from functools import partial, wraps
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final, TypeVar

import typer
from typer.core import TyperGroup

from speciate.cli.errors import ExitCode, exit_code, print_error
from speciate.cli.output import command_line, print_note, request_json, wants_json
from speciate.domain.errors import FieldError, InvalidInputError, SpeciateError, UnavailableError

if TYPE_CHECKING:
    from speciate.client import Client

AsJson = Annotated[bool, typer.Option("--json", help="Print JSON: one document, or one line per list item.")]
Limit = Annotated[int, typer.Option("--limit", "-n", min=1, help="Maximum number of items.")]
LogTo = Annotated[
    str | None,
    typer.Option(
        "--log",
        metavar="TRACKER[:PROJECT]",
        help="Log metrics and best program to mlflow, tensorboard, trackio or wandb while watching.",
    ),
]
RunId = Annotated[
    str,
    typer.Argument(
        metavar="RUN",
        help="Run: id, at least 6 of its first or last characters, name, name of its answer's directory, or its problem"
        " for the latest run.",
    ),
]
OutDirectory = Annotated[
    Path | None,
    typer.Option("--out", metavar="DIR", help="Directory for the best program.", show_default="best/PROBLEM-RUN"),
]
NoOut = Annotated[bool, typer.Option("--no-out", help="Do not write the best program.")]

Yes = Annotated[bool, typer.Option("--yes", "-y", help="Skip the confirmation.")]
DataDir = Annotated[Path | None, typer.Option("--data-dir", help="Data directory of the service.")]

URL_FLAG: Final = "url"
PROJECT_FLAG: Final = "project"

RETRY_LIMIT_S: Final = 60.0
"""Seconds a watch command retries while the service is unavailable, for example during a restart."""

_FIRST_DELAY_S, _MAX_DELAY_S = 0.5, 5.0

_LOCAL: Final = {"runs", "best", "candidates", "unlocks", "strategies"}
_LOCAL_WRITERS: Final = {"run", "problems", "sets", "policies"}

_context: ContextVar[typer.Context] = ContextVar("context")
_CLIENT: Final = "speciate.client"
_CTX: Final = inspect.Parameter("ctx", inspect.Parameter.POSITIONAL_OR_KEYWORD, annotation=typer.Context)
_AS_JSON: Final = inspect.Parameter("as_json", inspect.Parameter.KEYWORD_ONLY, default=False, annotation=AsJson)

T = TypeVar("T")
Command = TypeVar("Command", bound=Callable[..., Any])


class CommandGroup(TyperGroup):
    """Command group that prints an error once, without a traceback, and maps it to an exit code."""

    def invoke(self, ctx: Any) -> Any:
        """Run the command."""
        try:
            return super().invoke(ctx)
        except SpeciateError as error:
            print_error(error)
            raise typer.Exit(exit_code(error)) from None
        except UnicodeEncodeError as error:
            print_error(InvalidInputError(f"{error.object!r} is not UTF-8 text."))
            raise typer.Exit(ExitCode.INVALID) from None
        except KeyboardInterrupt:
            raise typer.Exit(ExitCode.INTERRUPTED) from None


def command_group() -> typer.Typer:
    return typer.Typer(no_args_is_help=True, rich_markup_mode="markdown", add_completion=False)


def command(
    app: typer.Typer, name: str, *usages: str, has_json: bool = True, **options: Any
) -> Callable[[Command], Command]:
    """Return a decorator that adds a command to an app; its help shows the usages as examples.

    ``context`` and, with ``has_json``, the option --json, which ``output.wants_json`` returns, are no parameters of its
    function.
    """

    def add(function: Command) -> Command:
        @wraps(function)
        def run(ctx: typer.Context, *, as_json: bool = False, **arguments: Any) -> None:
            _context.set(ctx)
            request_json(wanted=as_json)
            function(**arguments)

        signature = inspect.signature(function, eval_str=True)
        parameters = [_CTX, *signature.parameters.values(), *([_AS_JSON] if has_json else [])]
        run.__signature__ = signature.replace(parameters=parameters)  # type: ignore[attr-defined]
        run.__annotations__ = {parameter.name: parameter.annotation for parameter in parameters}
        app.command(name, epilog=examples(*usages), **options)(run)
        return function

    return add


def context() -> typer.Context:
    """Return the context of the command in progress."""
    return _context.get()


def examples(*lines: str) -> str:
    return "\n\n".join(("Examples:", *lines))


def global_options() -> dict[str, Any]:
    """Return the values of ``URL_FLAG`` and ``PROJECT_FLAG``, each None unless it is given."""
    return dict(context().find_root().obj or {})


def client() -> Client:
    """Return a client for the service at ``--url`` or in the settings, or for this process; see ``runs_locally``.

    It is closed when the command ends.
    """
    ctx = context()
    if _CLIENT not in ctx.meta:
        ctx.meta[_CLIENT] = ctx.with_resource(_open_client())
    opened: Client = ctx.meta[_CLIENT]
    return opened


@contextmanager
def _open_client() -> Iterator[Client]:
    # Half of the processor time of a command is its imports. These two are of no use to it: httpx's own command line,
    # which httpx does without, and plugins of pydantic, found by a scan of all installed packages.
    sys.modules.setdefault("httpx._main", None)  # type: ignore[arg-type]
    os.environ.setdefault("PYDANTIC_DISABLE_PLUGINS", "1")
    flags = global_options()
    project = flags.get(PROJECT_FLAG)
    if runs_locally():
        from speciate.local.engine import local_client

        with local_client(project=project, warm=context().find_root().invoked_subcommand in _LOCAL_WRITERS) as service:
            yield service
        return
    from speciate.client import Client

    with Client(flags.get(URL_FLAG), project=project) as service:
        yield service


def runs_locally() -> bool:
    """Return True if a command is to work without a service: none runs, and it needs no more than this process.

    Commands that only read do so if the data directory has a database.
    """
    command = context().find_root().invoked_subcommand
    if global_options().get(URL_FLAG) is not None or command not in _LOCAL | _LOCAL_WRITERS:
        return False
    from speciate.service_address import service_url
    from speciate.settings import load_settings

    settings = load_settings()
    has_database = settings.database_url is not None or os.path.lexists(settings.data_dir / "postgres")
    return (has_database or command in _LOCAL_WRITERS) and service_url(settings) is None


def retry_unavailable(read: Callable[[], T]) -> T:
    """Call ``read``, retrying with backoff for up to ``RETRY_LIMIT_S`` while the service is unavailable.

    A restart of the service must not end a command that has been watching for days.
    """
    deadline, delay_s = time.monotonic() + RETRY_LIMIT_S, _FIRST_DELAY_S
    while True:
        try:
            return read()
        except UnavailableError:
            if time.monotonic() + delay_s > deadline:
                raise
        time.sleep(delay_s)
        delay_s = min(2 * delay_s, _MAX_DELAY_S)


@contextmanager
def note_on_interrupt(noun: str, name: object, *, in_process: bool = False) -> Iterator[None]:
    """On Ctrl-C while watching, note what becomes of the work, and how to watch, cancel or resume it."""
    try:
        yield
    except KeyboardInterrupt:
        if in_process:
            print_note(f"The {noun} is paused. Resume it with: {command_line(f'{noun}s resume', name)}")
            raise
        verbs = (("Watch it again", "watch"), ("Stop it", "cancel"))
        hints = "\n".join(f"{what} with: {command_line(f'{noun}s {verb}', name)}" for what, verb in verbs)
        print_note(f"The {noun} goes on in the service.\n{hints}")
        raise


def confirm(question: str, *, yes: bool, remedy: str = "Pass --yes to confirm.") -> None:
    """Ask for a confirmation unless ``yes``; a refusal ends the command with code 1."""
    if yes:
        return
    if not sys.stdout.isatty():
        raise InvalidInputError(f"{question} Not a terminal.", remedy=remedy)
    if not typer.confirm(question, err=wants_json()):
        raise typer.Exit(ExitCode.FAILED)


def confirm_budget(limits: Mapping[str, object], *, yes: bool) -> None:
    """Ask for a confirmation of a budget beyond reason; see ``confirm``."""
    from speciate.domain.budget import beyond_reason

    if large := beyond_reason(limits):
        confirm(f"A budget of {large} is unusually large. Start anyway?", yes=yes)


def first_records(records: Iterable[T], limit: int) -> list[T]:
    """Return at most ``limit`` records; if there are more, the command prints a note when it ends."""
    page = list(islice(records, limit + 1))
    if len(page) > limit:
        context().call_on_close(partial(print_note, f"… and more: --limit {10 * limit}"))
    return page[:limit]


def drop_none(**values: Any) -> dict[str, Any]:
    return {name: value for name, value in values.items() if value is not None}


def parse_key_values(pairs: list[str] | None, option: str) -> dict[str, Any]:
    """Parse ``key=value`` pairs. A value that is not JSON is a string."""
    values: dict[str, Any] = {}
    for pair in pairs or []:
        key, equals, text = pair.partition("=")
        if not equals or not key:
            raise invalid_argument(option, f"is {pair!r}: expected key=value")
        try:
            values[key] = json.loads(text, parse_constant=_reject_constant)
        except json.JSONDecodeError:
            values[key] = text
        except ValueError:
            raise invalid_argument(option, f"{key} is {text}: expected a finite number") from None
    return values


def _reject_constant(text: str) -> Any:
    raise ValueError(text)


def invalid_argument(option: str, message: str) -> InvalidInputError:
    field_error = FieldError(message, where=option)
    return InvalidInputError(f"Invalid argument: {field_error}", field_errors=(field_error,))
