"""Configure Celery over Redis: the application of all processes, and its transport."""

from typing import Final
from urllib.parse import parse_qs, quote, unquote, urlsplit

import redis
from celery import Celery
from kombu.transport import TRANSPORT_ALIASES
from kombu.transport import redis as kombu_redis

from speciate.ports.work import Queue, WorkKind, WorkRef

TASKS: Final = {kind: f"speciate.{kind.value}" for kind in WorkKind}
"""Task name of each kind of work."""


def broker_url(redis_url: str) -> str:
    """Return a Redis URL in Celery's form, which spells unix sockets differently."""
    parts = urlsplit(redis_url)
    if parts.scheme != "unix":
        return redis_url
    secret = f"{parts.username or ''}:{quote(unquote(parts.password), safe='')}@" if parts.password else ""
    return f"redis+socket://{secret}{parts.path}?virtual_host={parse_qs(parts.query).get('db', ['0'])[0]}"


def make_celery(redis_url: str) -> Celery:
    """Return the Celery application.

    It keeps no results and acknowledges messages early: a message holds only the id of a work unit, and leases in
    PostgreSQL recover lost ones.
    """
    # Registered under the alias, because the URL of a unix socket selects the transport by it.
    TRANSPORT_ALIASES["redis"] = "speciate.messaging.broker:RedisTransport"
    app = Celery("speciate", broker=broker_url(redis_url))
    app.conf.update(
        task_ignore_result=True,
        task_acks_late=False,
        worker_prefetch_multiplier=1,
        worker_send_task_events=False,
        task_send_sent_event=False,
        worker_enable_remote_control=False,
        broker_connection_retry_on_startup=True,
        broker_connection_max_retries=None,
        broker_transport_options={
            "socket_timeout": 5,
            "socket_connect_timeout": 5,
            "socket_keepalive": True,
            "retry_on_timeout": True,
            # The reconciler sends a message again that cannot be sent at once.
            "max_retries": 1,
            "interval_start": 0,
            "interval_step": 0.05,
            "interval_max": 0.05,
        },
        task_publish_retry=False,
        task_create_missing_queues=True,
        task_default_queue=Queue.CONTROL.value,
        worker_hijack_root_logger=False,
        worker_cancel_long_running_tasks_on_connection_loss=False,
        task_serializer="json",
        accept_content=["json"],
    )
    return app


def send_work(app: Celery, ref: WorkRef) -> None:
    app.send_task(TASKS[ref.kind], args=[str(ref.id)], queue=ref.queue.value, ignore_result=True)


class RedisTransport(kombu_redis.Transport):
    """Kombu's Redis transport, for which a server that is out of memory is unavailable: a worker waits for it."""

    connection_errors = (*kombu_redis.Transport.connection_errors, redis.exceptions.OutOfMemoryError)
