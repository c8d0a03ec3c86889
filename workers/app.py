"""Celery application: ``celery -A workers.app worker -Q evaluate …``."""

from typing import Any

from celery import signals

from speciate.domain.errors import ConfigurationError, SpeciateError
from speciate.messaging.broker import make_celery
from speciate.ports.work import Queue
from speciate.priority import lower_priority
from speciate.settings import secret_variables
from speciate.telemetry import configure_telemetry, tracing
from speciate.training.installed import require_training
from workers.composition import core_slots, evaluator, leave_connections, remove_files, settings, stores, worker
from workers.drain import drain_coordinator
from workers.environment import erase
from workers.idle_exit import idle_exit
from workers.reconciler import start_reconciler
from workers.startup import Presence, describe, wait_for_schema
from workers.tasks import register
from workers.webhooks import WebhookDispatcher

if (_redis_url := settings().redis_url) is None:
    raise ConfigurationError("workers need SPECIATE_REDIS_URL.", remedy="`speciate up` sets it for its own workers.")

app = make_celery(_redis_url.get_secret_value())
register(app)


@signals.celeryd_after_setup.connect
def _prepare(**_: object) -> None:
    """Lower the priority, wait for the schema, and open the sandbox; without it an evaluating worker does not start."""
    queues = app.amqp.queues.consume_from
    # Retry and control tasks are short, and other work waits for them.
    if not {Queue.RETRY.value, Queue.CONTROL.value} & queues.keys():
        lower_priority(settings().work_nice)
    if Queue.LEARN.value in queues:
        try:
            require_training()
        except SpeciateError as error:
            raise SystemExit(str(error)) from None
    wait_for_schema(settings())
    if Queue.EVALUATE.value not in queues:
        return
    try:
        core_slots()
        evaluator()
    except SpeciateError as error:
        raise SystemExit(str(error)) from None
    erase(secret_variables())  # this process and its children hold the settings, and candidates run beside them


# At the start, and again where Celery would configure logging: a connected handler prevents that.
@signals.celeryd_init.connect
@signals.setup_logging.connect
def _configure_telemetry(**_: object) -> None:
    configure_telemetry(settings(), "speciate-worker")


@signals.worker_process_shutdown.connect
@signals.worker_shutdown.connect
def _clean(**_: object) -> None:
    remove_files()


@signals.worker_process_shutdown.connect
@signals.worker_shutdown.connect
def _flush_telemetry(**_: object) -> None:
    """Send buffered counters and spans: a pool process exits without further notice."""
    worker().counters.close()
    tracing.shutdown()


@signals.worker_process_init.connect
def _join(**_: object) -> None:
    """Let a pool process have connections of its own, and exit when it is idle or its main process ends."""
    leave_connections()
    drain_coordinator.join()
    signals.task_prerun.connect(idle_exit.task_began)
    signals.task_postrun.connect(idle_exit.task_ended)
    idle_exit.watch(settings().rest_s)


@signals.worker_shutting_down.connect
def _drain(**_: object) -> None:
    drain_coordinator.drain(settings().drain_s)


@signals.worker_ready.connect
def _ready(sender: Any, **_: object) -> None:
    """Announce this worker; a control worker also runs the reconciler loop and the webhook dispatcher."""
    queues = tuple(sorted(app.amqp.queues.consume_from))
    presence = Presence(stores(), describe(sender, queues))
    presence.start()
    signals.worker_shutting_down.connect(lambda **_: presence.stop(), weak=False)
    if Queue.CONTROL.value in queues:
        start_reconciler()
        WebhookDispatcher(stores(), settings().network, settings().base_url).start()
