"""Run all engines in one thread, and pass them the requests of many connections."""

import logging
import threading
from collections.abc import Mapping
from concurrent.futures import Future, InvalidStateError
from contextlib import suppress
from typing import Final

from speciate.domain.errors import UnavailableError
from speciate.inference.engine import Engine, GenerationRequest

MAX_WAITING: Final = 4096
"""Sequences that may wait for one model; further requests are refused with 503."""

_log = logging.getLogger(__name__)


class Scheduler:
    """Owner of the thread that runs the engines; no other thread touches them. The caller closes it."""

    def __init__(self, engines: Mapping[str, Engine]) -> None:
        self._engines = dict(engines)
        self._change = threading.Condition()
        self._arrived: list[tuple[str, GenerationRequest, Future[GenerationRequest]]] = []
        self._futures: dict[str, dict[GenerationRequest, Future[GenerationRequest]]] = {name: {} for name in engines}
        self._closed = False
        # One thread for all models: several would wait for each other's interpreter lock.
        self._thread = threading.Thread(target=self._run, name="sampling", daemon=True)
        self._thread.start()

    @property
    def alive(self) -> bool:
        return self._thread.is_alive()

    def add(self, name: str, engine: Engine) -> None:
        with self._change:
            self._futures[name] = {}
            self._engines[name] = engine

    def remove(self, name: str) -> bool:
        """Stop serving a model and free its memory; return False if it has requests."""
        with self._change:
            if self._futures[name] or any(model == name for model, _, _ in self._arrived):
                return False
            del self._engines[name], self._futures[name]
            return True

    def submit(self, name: str, request: GenerationRequest) -> Future[GenerationRequest]:
        """Queue a request; the result of its future is the completed request. Cancelling the future cancels it.

        ``UnavailableError``: too many sequences wait.
        """
        self._engines[name].check(request)
        future: Future[GenerationRequest] = Future()
        with self._change:
            waiting = self._engines[name].waiting
            waiting += sum(arrived.params.n for model, arrived, _ in self._arrived if model == name)
            if waiting + request.params.n > MAX_WAITING:
                raise UnavailableError(f"{waiting} completions of {name} are waiting.", remedy="Try again in a moment.")
            if self._closed:
                raise UnavailableError("the server is stopping.")
            self._arrived.append((name, request, future))
            self._change.notify()
        return future

    def close(self) -> None:
        """Stop the thread; incomplete requests fail."""
        with self._change:
            self._closed = True
            self._change.notify()
        self._thread.join()

    def _run(self) -> None:
        while self._admit():
            self._step_busy()
        for name in self._engines:
            self._fail(name, UnavailableError("the server is stopping."))

    def _admit(self) -> bool:
        """Wait for work, and pass new requests to their engines; return False to stop."""
        with self._change:
            self._change.wait_for(lambda: self._closed or self._arrived or any(self._futures.values()))
            arrived, self._arrived = self._arrived, []
            for name, request, future in arrived:
                self._futures[name][request] = future
                self._engines[name].add(request)
        return not self._closed

    def _step_busy(self) -> None:
        # A function: while this thread waits, it must not hold a model that was removed.
        with self._change:
            busy = [(name, engine) for name, engine in self._engines.items() if self._futures[name]]
        for name, engine in busy:
            self._step(name, engine)

    def _step(self, name: str, engine: Engine) -> None:
        futures = self._futures[name]
        for request in [request for request, future in futures.items() if future.cancelled()]:
            request.cancelled = True  # the next step frees its rows
            del futures[request]
        try:
            complete = engine.step()
        except UnavailableError as error:
            self._fail(name, error)
        except Exception as error:  # noqa: BLE001
            # A defect that one request triggers must not end the server for all others.
            _log.exception("model %s failed", name)
            engine.drop_all()
            self._fail(name, error)
        else:
            for request in complete:
                if (future := futures.pop(request, None)) is not None:
                    with suppress(InvalidStateError):  # cancelled meanwhile
                        future.set_result(request)

    def _fail(self, name: str, error: Exception) -> None:
        for future in self._futures[name].values():
            with suppress(InvalidStateError):
                future.set_exception(error)
        self._futures[name].clear()
