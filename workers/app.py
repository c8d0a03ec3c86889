"""The Celery application: ``celery -A workers.app worker -Q evaluate …``."""

from __future__ import annotations

from typing import Any

from celery import signals

from speciate.domain.errors import ConfigurationError, SpeciateError
from speciate.ports.work import Queue
from speciate.priority import lower_priority
from speciate.storage.broker import make_celery
from speciate.telemetry import tracing
from speciate.telemetry.setup import configure_telemetry
from workers.composition import counters, evaluator, settings, stores
from workers.control import start_reconciler
from workers.drain import lifeline
from workers.presence import Presence, describe
from workers.schema import wait_for_schema
from workers.tasks import register
from workers.webhooks import Courier

if (_redis_url := settings().redis_url) is None:
    raise ConfigurationError("workers need SPECIATE_REDIS_URL.", remedy="`speciate up` sets it for its own workers.")

app = make_celery(_redis_url.get_secret_value())
register(app)


@signals.celeryd_after_setup.connect
def _contain(**_: object) -> None:
    """Let answers go first, and try the sandbox: a worker that cannot contain candidates does not start.

    Nor does one before the schema has what it needs.
    """
    queues = app.amqp.queues.consume_from
    if not {Queue.RETRY.value, Queue.CONTROL.value} & queues.keys():  # these are short, and others wait for them
        lower_priority(settings().work_nice)
    wait_for_schema(settings())
    if Queue.EVALUATE.value not in queues:
        return
    try:
        evaluator()
    except SpeciateError as error:
        raise SystemExit(str(error)) from None


# Before anything is said, and again where Celery would set up its own: that somebody listens keeps it from that.
@signals.celeryd_init.connect
@signals.setup_logging.connect
def _log_our_way(**_: object) -> None:
    """Log and trace as the settings say."""
    configure_telemetry(settings(), "speciate-worker")


@signals.worker_process_shutdown.connect
@signals.worker_shutdown.connect
def _say_the_last(**_: object) -> None:
    """Send counts and spans that wait to be sent: a process of a pool ends without further notice."""
    counters().close()
    tracing.shutdown()


@signals.worker_process_init.connect
def _join(**_: object) -> None:
    """Tie a process of the pool to the main process of its worker."""
    lifeline.join()


@signals.worker_shutting_down.connect
def _drain(**_: object) -> None:
    """Finish in time or hand back."""
    lifeline.drain(settings().drain_s)


@signals.worker_ready.connect
def _ready(sender: Any, **_: object) -> None:
    """Announce this worker; whoever consumes the control queue tries to become the one reconciler."""
    queues = tuple(sorted(app.amqp.queues.consume_from))
    presence = Presence(stores(), describe(sender, queues))
    presence.start()
    signals.worker_shutting_down.connect(lambda **_: presence.stop(), weak=False)
    if Queue.CONTROL.value in queues:
        start_reconciler()
        courier = Courier(stores(), settings().network, settings().base_url)
        courier.start()
