"""``speciate up`` and ``speciate migrate``: the service on this machine until Ctrl-C."""

from __future__ import annotations

import signal
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console

from speciate.cli.output import console, sanitize

if TYPE_CHECKING:
    from speciate.cli.stack import Stack

_WATCH_S = 1.0
_RETRY_S = 10.0


class Stopped(KeyboardInterrupt):
    """Somebody asked this process to end: Ctrl-C, SIGTERM or SIGHUP."""


def up_command(
    host: Annotated[str | None, typer.Option(help="Address to listen on; others than loopback need a token.")] = None,
    port: Annotated[int | None, typer.Option(help="Port to listen on; 0 takes a free one.", min=0, max=65535)] = None,
    data_dir: Annotated[Path | None, typer.Option(help="Where embedded servers keep data, logs, passwords.")] = None,
    evaluate_slots: Annotated[int | None, typer.Option(help="Evaluations at once; 0: one per core.", min=0)] = None,
    generate_slots: Annotated[int | None, typer.Option(help="Policy requests at once.", min=1)] = None,
) -> None:
    """Run the service until Ctrl-C: database, cache, API and workers, with everything stopped again at the end.

    Embedded PostgreSQL and Valkey are used unless SPECIATE_DATABASE_URL and SPECIATE_REDIS_URL name others.
    """
    with stopping_on_signals():
        # Imported inside, so that a signal during the imports ends the command quietly too.
        from speciate.cli.stack import Stack
        from speciate.settings import load_settings

        flags = {
            "host": host,
            "port": port,
            "data_dir": data_dir,
            "evaluate_slots": evaluate_slots,
            "generate_slots": generate_slots,
        }
        out = console(stderr=True)
        with Stack(load_settings(**flags)) as stack:
            try:
                begin(stack, out)
                out.print(f"Speciate is up at {stack.url} (Ctrl-C stops it).", soft_wrap=True)
                out.print(f"Dashboards: {stack.url}/", soft_wrap=True)
                if stack.settings.url:
                    out.print(f"Links lead to {sanitize(stack.settings.base_url)} (SPECIATE_URL).", soft_wrap=True)
                _tell_containment(stack, out)
                out.print(f"Data and logs are in {sanitize(stack.settings.data_dir)}.", soft_wrap=True)
                _watch(stack, out)
            except Stopped:
                out.print("Stopping …")


def _tell_containment(stack: Stack, out: Console) -> None:
    from evaluators.choose import UNSAFE_WARNING
    from speciate.settings import UNSAFE

    if UNSAFE in stack.tiers:
        out.print(UNSAFE_WARNING, style="bold red", soft_wrap=True)
    elif stack.tiers:
        out.print(f"Candidates are contained in tier {', '.join(stack.tiers)}.", soft_wrap=True)


def _watch(stack: Stack, out: Console) -> None:
    from speciate.embedded import EmbeddedServerError

    while True:
        time.sleep(_WATCH_S)
        try:
            revived = stack.revive()
        except EmbeddedServerError as error:
            # A full disk, for one, can be mended while we wait; then the next attempt succeeds.
            out.print(f"{sanitize(error)} Trying again …", soft_wrap=True)
            time.sleep(_RETRY_S)
            continue
        for name in revived:
            out.print(f"{name} had ended and was started again; see {sanitize(stack.log_of(name))}", soft_wrap=True)


def migrate_command() -> None:
    """Bring the schema of SPECIATE_DATABASE_URL up to date; `speciate up` does it for its own server."""
    from speciate.domain.errors import ConfigurationError
    from speciate.settings import load_settings
    from speciate.storage.database import check_version, connect
    from speciate.storage.migrate import current, upgrade

    settings = load_settings()
    # Its locks belong to a session: past a pooler, where there is one.
    url = settings.database_direct_url or settings.database_url
    if url is None:
        raise ConfigurationError("SPECIATE_DATABASE_URL is not set.", remedy="`speciate up` migrates its own server.")
    engine = connect(url.get_secret_value())
    version = check_version(engine)
    upgrade(engine)
    console(stderr=True).print(f"PostgreSQL {version} has schema {current(engine)}.")


def begin(stack: Stack, out: Console) -> None:
    """Start a stack while showing what is being waited for."""
    with out.status("Starting …") as status:

        def tell(text: str) -> None:
            status.update(text)
            if not out.is_terminal:  # nothing is drawn there, and a first start may take half a minute
                out.print(text)

        seconds = 0.0
        for step in stack.start():
            seconds = step.seconds
            if step.name in _NEXT:
                tell(_NEXT[step.name])
    out.print(f"Started in {seconds:.1f} s.")


_NEXT = {
    "checks": "Starting the servers …",
    "servers": "Starting API and workers, bringing the schema up to date …",
    "schema": "Waiting for the API …",
    "api": "Waiting for workers and policies …",
}


@contextmanager
def stopping_on_signals() -> Iterator[None]:
    """Turn SIGINT, SIGTERM and SIGHUP into one ``Stopped``; while things are stopped, further ones are ignored."""

    def stop(*_: object) -> None:
        for each in signals:
            signal.signal(each, signal.SIG_IGN)
        raise Stopped

    signals = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
    before: dict[signal.Signals, Any] = {each: signal.signal(each, stop) for each in signals}
    try:
        yield
    finally:
        for each, handler in before.items():
            signal.signal(each, handler)
