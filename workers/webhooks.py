"""Telling webhooks: a thread of every control worker, beside the reconciler, so that no receiver ever delays a run."""

from __future__ import annotations

import asyncio
import json
import logging
import random
import threading
import time
from typing import Any, Final

from sqlalchemy.exc import DBAPIError

from speciate import __version__
from speciate.domain.errors import SpeciateError
from speciate.domain.webhook import wait_s
from speciate.egress.delivery import SIGNATURE_HEADER, Answer, send, signature
from speciate.egress.network import Network
from speciate.ports.webhooks import DueDelivery
from speciate.prompts.text import printable
from speciate.storage.stores import Stores

AT_ONCE: Final = 16
POLL_S: Final = 1.0
_FORGET_S: Final = 3600.0
_log = logging.getLogger(__name__)


class Courier:
    """Sends what is due until it is stopped. Several may work side by side.

    Args:
        stores: The stores.
        network: What may be asked.
        base_url: Where clients find the service, for links.
    """

    def __init__(self, stores: Stores, network: Network, base_url: str) -> None:
        self._webhooks = stores.webhooks
        self._network = network
        self._base_url = base_url
        self._stopping = threading.Event()
        self._thread: threading.Thread | None = None

    def start(self) -> None:
        """Begin, in a thread of this process."""
        self._thread = threading.Thread(target=lambda: asyncio.run(self._work()), name="webhooks", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """Take nothing more, and wait until what is under way has ended."""
        self._stopping.set()
        if self._thread is not None:
            self._thread.join()

    async def _work(self) -> None:
        under_way: set[asyncio.Task[None]] = set()
        forgot_at = time.monotonic()
        while not self._stopping.is_set():
            claimed: tuple[DueDelivery, ...] = ()
            try:
                if len(under_way) < AT_ONCE:
                    claimed = await asyncio.to_thread(self._webhooks.claim, AT_ONCE - len(under_way))
                if time.monotonic() - forgot_at > _FORGET_S:
                    forgot_at = time.monotonic()
                    await asyncio.to_thread(self._webhooks.forget_old)
            except (DBAPIError, SpeciateError) as error:
                _log.warning("webhooks wait: %s", error)
            except Exception:  # noqa: BLE001 - whatever happened, later events are to be told
                _log.exception("the sender of webhooks met a defect and goes on")
            under_way |= {asyncio.create_task(self._deliver(parcel)) for parcel in claimed}
            pause = asyncio.create_task(asyncio.sleep(POLL_S))
            await asyncio.wait({*under_way, pause}, return_when=asyncio.FIRST_COMPLETED)
            pause.cancel()
            under_way = {task for task in under_way if not task.done()}
        await asyncio.gather(*under_way, return_exceptions=True)

    async def _deliver(self, parcel: DueDelivery) -> None:
        """Try once, and note what came of it. What cannot be noted is sent again when its lease has run out."""
        try:
            answer = await self._attempt(parcel)
            if answer.taken and answer.status is not None:
                await asyncio.to_thread(self._webhooks.delivered, parcel, answer.status)
                return
            wait = wait_s(parcel.attempts, random.random())  # noqa: S311 - when to try again is no secret
            error = printable(answer.error).replace("\n", " ")
            await asyncio.to_thread(self._webhooks.postpone, parcel, answer.status, error, wait)
        except (DBAPIError, SpeciateError) as error:
            _log.warning("delivery %s is not noted: %s", parcel.id, error)
        except Exception:  # noqa: BLE001 - one delivery must not end the others
            _log.exception("delivery %s met a defect", parcel.id)

    async def _attempt(self, parcel: DueDelivery) -> Answer:
        try:
            secret = self._webhooks.secret_of(parcel)
        except SpeciateError as error:
            _log.warning("webhook %s: %s", parcel.webhook_id, error)
            return Answer(False, error=str(error))
        body, now = body_of(parcel, self._base_url), int(time.time())
        headers = {
            "Content-Type": "application/json",
            "User-Agent": f"speciate/{__version__}",
            "Speciate-Event": parcel.event.value,
            "Speciate-Delivery": str(parcel.id),
            SIGNATURE_HEADER: signature(secret, now, body),
        }
        return await send(parcel.url, body, headers, self._network)


def body_of(parcel: DueDelivery, base_url: str) -> bytes:
    """Return what is sent: the same at every attempt."""
    value: dict[str, Any] = {
        "id": str(parcel.id),
        "event": parcel.event.value,
        "created_at": parcel.created_at.isoformat(),
        "data": parcel.data,
        "links": _links(parcel.data, base_url),
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
