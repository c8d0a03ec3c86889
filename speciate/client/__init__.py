"""The Python SDK: ``Client`` and, with the same methods, ``AsyncClient``.

    from speciate.client import Client

    with Client() as client:
        run = client.runs.create("circle-packing-26", "program-mutator", budget=2000, seed=1)
        for event in run.watch():
            ...
        best = run.front()[0]

Methods return the records of ``speciate.ports.records`` and raise the errors of ``speciate.domain.errors`` with the
messages of the service.
"""

from __future__ import annotations

from speciate.client.aio.client import AsyncClient
from speciate.client.aio.run import AsyncRunHandle
from speciate.client.sync.client import Client
from speciate.client.sync.run import RunHandle
from speciate.client.webhook_signature import verify_webhook

__all__ = ["AsyncClient", "AsyncRunHandle", "Client", "RunHandle", "verify_webhook"]
