"""The Python SDK: ``Client`` and, with the same methods, ``AsyncClient``.

    from speciate.client import Client

    with Client() as client:
        run = client.runs.create("circle-packing-26", "program-mutator", budget=2000, seed=1)
        for event in run.watch():
            ...
        best = run.front()[0]

What comes back are the records of ``speciate.ports.records``; what goes wrong are the errors of
``speciate.domain.errors``, with the messages that the service gave.
"""

from __future__ import annotations

from speciate.client.aio import AsyncClient
from speciate.client.async_run import AsyncRunHandle
from speciate.client.run import RunHandle
from speciate.client.sync import Client
from speciate.client.webhooks import verify_webhook

__all__ = ["AsyncClient", "AsyncRunHandle", "Client", "RunHandle", "verify_webhook"]
