"""The Python SDK: ``Client`` and, with the same methods, ``AsyncClient``.

    from speciate.client import Client

    with Client() as client:
        run = client.runs.create("circle-packing-26", "mutator", budget=2000, seed=1)
        for event in run.watch():
            ...
        best = run.best()

Methods return the records of ``speciate.schema`` and raise the errors of ``speciate.domain.errors`` with the
messages of the service.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from speciate.client.aio.client import AsyncClient as AsyncClient
    from speciate.client.aio.run import AsyncRunHandle as AsyncRunHandle
    from speciate.client.evaluation_worker import BrokenEvaluatorError as BrokenEvaluatorError
    from speciate.client.evaluation_worker import CandidateFailedError as CandidateFailedError
    from speciate.client.evaluation_worker import EvaluationWorker as EvaluationWorker
    from speciate.client.evaluation_worker import Rewards as Rewards
    from speciate.client.sync.client import Client as Client
    from speciate.client.sync.run import RunHandle as RunHandle
    from speciate.client.webhook_signature import verify_webhook as verify_webhook

_MODULES: Final = {
    "AsyncClient": "aio.client",
    "AsyncRunHandle": "aio.run",
    "BrokenEvaluatorError": "evaluation_worker",
    "CandidateFailedError": "evaluation_worker",
    "Client": "sync.client",
    "EvaluationWorker": "evaluation_worker",
    "Rewards": "evaluation_worker",
    "RunHandle": "sync.run",
    "verify_webhook": "webhook_signature",
}


def __getattr__(name: str) -> Any:
    """Import a public name at its first use: a program that needs one client does not load both."""
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(import_module(f"{__name__}.{_MODULES[name]}"), name)
    globals()[name] = value
    return value
