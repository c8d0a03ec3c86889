"""``speciate up`` and ``speciate migrate``: run the service until Ctrl-C; upgrade a database schema."""

from __future__ import annotations

import signal
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Annotated, Any
from urllib.parse import urlsplit

import typer
from rich.console import Console

from speciate.cli.common import command, command_group
from speciate.cli.model_options import add_options
from speciate.cli.output import console, sanitize
from speciate.domain.errors import ConfigurationError
from speciate.settings import UNSAFE, Settings, load_settings

if TYPE_CHECKING:
    from speciate.cli.local_service import LocalService

app = command_group()

_POLL_S = 1.0
_RETRY_S = 10.0


class StopRequested(KeyboardInterrupt):
    """Ctrl-C, SIGTERM or SIGHUP was received."""


@command(
    app,
    "up",
    "speciate up",
    "speciate up --port 9000 --data-dir ./data",
    "SPECIATE_TOKEN=… speciate up --host 0.0.0.0",
    has_json=False,
)
@add_options(Settings, only=("host", "port", "data_dir", "evaluate_slots", "generate_slots"))
def up_command(
    *,
    options: dict[str, Any],
    learn: Annotated[
        bool, typer.Option("--learn", help="Also start a learn worker, for runs with --learn (needs speciate[train]).")
    ] = False,
    model: Annotated[
        list[str] | None, typer.Option(help="Downloaded model to serve beside the bundled policies; repeatable.")
    ] = None,
) -> None:
    """Run the whole service until Ctrl-C: database, cache, API and workers.

    Uses embedded PostgreSQL and Valkey unless SPECIATE_DATABASE_URL and SPECIATE_REDIS_URL are set.
    """
    with stop_on_signals():
        # Imported here so that a signal during the imports also stops the command cleanly.
        from evaluators.evaluator_factory import UNSAFE_WARNING
        from speciate.cli.local_service import LocalService
        from speciate.embedded.errors import DataDirectoryBusyError
        from speciate.inference.downloads.catalogue import folder_of
        from speciate.service_address import announced_url

        out = console(stderr=True)
        if learn:
            from speciate.training.installed import require_training

            require_training()
        settings = load_settings(**options)
        models = {name: folder_of(name, settings.data_dir) for name in model or []}
        with LocalService(settings, models, learns=learn) as service:
            try:
                start_service(service, out)
                out.print(f"Speciate is up at {service.url} (Ctrl-C stops it).", soft_wrap=True)
                out.print(f"Dashboard: {service.url}/", soft_wrap=True)
                if service.settings.url:
                    out.print(f"Links point to {sanitize(service.settings.base_url)} (SPECIATE_URL).", soft_wrap=True)
                if UNSAFE in service.tiers:
                    out.print(UNSAFE_WARNING, style="bold red", soft_wrap=True)
                elif service.tiers:
                    out.print(f"Candidates run in sandbox tier {', '.join(service.tiers)}.", soft_wrap=True)
                out.print(f"Data and logs are in {sanitize(service.settings.data_dir)}.", soft_wrap=True)
                _supervise(service, out)
            except StopRequested:
                out.print("Stopping …")
            except DataDirectoryBusyError as error:
                url = announced_url(settings)
                at = urlsplit(url or "")
                same = {"host": at.hostname, "port": at.port, "data_dir": options.get("data_dir")}
                if url is None or learn or model or not options.items() <= same.items():
                    raise  # only a restart would give what the options ask for
                out.print(f"Speciate is already up at {sanitize(url)} (process {error.pid}).", soft_wrap=True)


def _supervise(service: LocalService, out: Console) -> None:
    from speciate.embedded.errors import EmbeddedServerError, GuardEndedError

    while True:
        time.sleep(_POLL_S)
        try:
            restarted = service.restart_ended()
        except GuardEndedError:
            raise  # everything under it has ended, too
        except EmbeddedServerError as error:
            # The cause may be temporary, such as a full disk: the next attempt can succeed.
            out.print(f"{sanitize(error)} Retrying …", soft_wrap=True)
            time.sleep(_RETRY_S)
            continue
        for name in restarted:
            out.print(f"{name} exited and was restarted. See {sanitize(service.log_of(name))}", soft_wrap=True)


@command(app, "migrate", "SPECIATE_DATABASE_URL=postgresql://… speciate migrate", has_json=False)
def migrate_command() -> None:
    """Upgrade the schema of the database at SPECIATE_DATABASE_URL.

    `speciate up` does this for its embedded server.
    """
    from speciate.storage.catalog import Catalog
    from speciate.storage.database import check_version, connect
    from speciate.storage.migrate import SchemaState, current_revision, schema_state, upgrade

    settings = load_settings()
    # Migration locks belong to a session: bypass a connection pooler.
    url = settings.database_direct_url or settings.database_url
    if url is None:
        raise ConfigurationError(
            "SPECIATE_DATABASE_URL is not set.",
            remedy="Set it, or use `speciate up`, which upgrades its embedded server.",
        )
    engine = connect(url.get_secret_value())
    version = check_version(engine)
    if schema_state(current_revision(engine)) is not SchemaState.NEWER:  # with which this version works
        upgrade(engine)
    Catalog(engine).add_built_in()
    console(stderr=True).print(f"PostgreSQL {version} has schema {current_revision(engine)}.")


def start_service(service: LocalService, out: Console) -> None:
    started = time.monotonic()
    with out.status("Starting …") as status:
        for step in service.start():
            status.update(step)
            if not out.is_terminal:  # no spinner there, and a first start may take half a minute
                out.print(step)
    out.print(f"Started in {time.monotonic() - started:.1f} s.")


@contextmanager
def stop_on_signals() -> Iterator[None]:
    """Raise ``StopRequested`` at the first SIGINT, SIGTERM or SIGHUP, and ignore further ones during shutdown.

    A signal that the caller has this process ignore, as ``nohup`` does, stays ignored.
    """

    def stop(*_: object) -> None:
        for each in signals:
            signal.signal(each, signal.SIG_IGN)
        raise StopRequested

    catchable = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
    signals = [each for each in catchable if signal.getsignal(each) is not signal.SIG_IGN]
    before: dict[signal.Signals, Any] = {each: signal.signal(each, stop) for each in signals}
    try:
        yield
    finally:
        for each, handler in before.items():
            signal.signal(each, handler)
