"""Deliver webhooks from a thread of every control worker, so that a slow receiver never delays a run."""

import json
import logging
import random
import threading
import time
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from typing import Any, Final

from sqlalchemy.exc import DBAPIError

from speciate import __version__
from speciate.domain.errors import SpeciateError
from speciate.domain.webhook import retry_delay_s
from speciate.egress.delivery import SIGNATURE_HEADER, DeliveryResponse, send, signature
from speciate.egress.network import AllowedNetworks
from speciate.prompts.text import printable
from speciate.schema.webhooks import DueDelivery
from speciate.storage.stores import Stores

MAX_IN_FLIGHT: Final = 16
POLL_S: Final = 1.0
_PRUNE_INTERVAL_S: Final = 3600.0
_log = logging.getLogger(__name__)


class WebhookDispatcher:
    """Sends due deliveries until it is stopped. Several dispatchers may run concurrently."""

    def __init__(self, stores: Stores, network: AllowedNetworks, base_url: str) -> None:
        self._webhooks = stores.webhooks
        self._network = network
        self._base_url = base_url
        self._stopping = threading.Event()
        self._thread: threading.Thread | None = None

    def start(self) -> None:
        self._thread = threading.Thread(target=self._loop, name="webhooks", daemon=True)
        self._thread.start()

    def _loop(self) -> None:
        pruned_at = time.monotonic()
        in_flight: set[Future[None]] = set()
        with ThreadPoolExecutor(MAX_IN_FLIGHT, thread_name_prefix="webhooks") as pool:
            while not self._stopping.is_set():
                try:
                    if len(in_flight) < MAX_IN_FLIGHT:
                        claimed = self._webhooks.claim(MAX_IN_FLIGHT - len(in_flight))
                        in_flight |= {pool.submit(self._deliver, delivery) for delivery in claimed}
                    if time.monotonic() - pruned_at > _PRUNE_INTERVAL_S:
                        pruned_at = time.monotonic()
                        self._webhooks.delete_old()
                except (DBAPIError, SpeciateError) as error:
                    _log.warning("the webhook dispatcher retries: %s", error)
                except Exception:  # noqa: BLE001 - later deliveries must still be sent
                    _log.exception("the webhook dispatcher failed unexpectedly and retries")
                if in_flight:
                    in_flight = wait(in_flight, POLL_S, FIRST_COMPLETED).not_done
                else:
                    self._stopping.wait(POLL_S)

    def _deliver(self, delivery: DueDelivery) -> None:
        """Attempt a delivery and record the result; an unrecorded one is sent again when its lease expires."""
        try:
            answer = self._attempt(delivery)
            if answer.taken and answer.status is not None:
                self._webhooks.delivered(delivery, answer.status)
                return
            wait_s = retry_delay_s(delivery.attempts, random.random())  # noqa: S311 - jitter, not a secret
            self._webhooks.postpone(delivery, answer.status, printable(answer.error).replace("\n", " "), wait_s)
        except (DBAPIError, SpeciateError) as error:
            _log.warning("cannot record delivery %s: %s", delivery.id, error)
        except Exception:  # noqa: BLE001 - one delivery must not stop the others
            _log.exception("delivery %s failed unexpectedly", delivery.id)

    def _attempt(self, delivery: DueDelivery) -> DeliveryResponse:
        try:
            secret = self._webhooks.secret_of(delivery)
        except SpeciateError as error:
            _log.warning("webhook %s: %s", delivery.webhook_id, error)
            return DeliveryResponse(False, error=str(error))
        # Receivers refuse old and future signatures; this process's clock may be wrong.
        body, now = body_of(delivery, self._base_url), int(delivery.claimed_at.timestamp())
        headers = {
            "Content-Type": "application/json",
            "User-Agent": f"speciate/{__version__}",
            "Speciate-Event": delivery.event.value,
            "Speciate-Delivery": str(delivery.id),
            SIGNATURE_HEADER: signature(secret, now, body),
        }
        return send(delivery.url, body, headers, self._network)


def body_of(delivery: DueDelivery, base_url: str) -> bytes:
    """Return the request body; it is the same at every attempt."""
    value: dict[str, Any] = {
        "id": str(delivery.id),
        "event": delivery.event.value,
        "created_at": delivery.created_at.isoformat(),
        "data": delivery.data,
        "links": _links(delivery.data, base_url),
    }
    return json.dumps(value, ensure_ascii=False, separators=(",", ":")).encode()


def _links(data: dict[str, Any], base_url: str) -> dict[str, str]:
    for noun in ("tournament", "campaign"):
        if (slug := data.get(noun)) is not None:
            return {noun: f"{base_url}/v1/{noun}s/{slug}", "page": f"{base_url}/{noun}s/{slug}"}
    run = data.get("run_id")
    if run is None:
        return {}
    links = {"run": f"{base_url}/v1/runs/{run}", "page": f"{base_url}/runs/{run}"}
    if (number := data.get("candidate")) is not None:
        links["candidate"] = f"{base_url}/runs/{run}/candidates/{number}"
    return links
