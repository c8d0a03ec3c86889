"""One sandbox for all trainings of a plan: the command `run` serves it on a socket, each training asks it."""

from __future__ import annotations

import os
import pickle
import shutil
import socket
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass
from functools import cached_property
from socketserver import StreamRequestHandler, ThreadingUnixStreamServer
from threading import Semaphore, Thread
from typing import Any, Final, cast

from evaluators.evaluator_factory import open_evaluator
from speciate.domain.candidate import Evaluation
from speciate.domain.errors import EvaluatorUnavailableError, SpeciateError
from speciate.domain.problem import Problem
from speciate.embedded.placement import make_private_dir, make_runtime_dir
from speciate.ports.evaluator import EvaluatorClient

_ADDRESS: Final = "REAL_MODEL_SANDBOX"
"""Environment variable with the path of the socket."""


@dataclass(frozen=True)
class SharedSandbox:
    """The sandbox that another process serves on the socket ``path``."""

    path: str

    @cached_property
    def tier(self) -> str:
        return str(self._ask("tier"))

    def evaluate(
        self, problem: Problem, programs: Sequence[str], *, seeds: Sequence[int], timeout_s: float | None = None
    ) -> list[Evaluation]:
        return cast("list[Evaluation]", self._ask("evaluate", problem, [*programs], [*seeds], timeout_s))

    def _ask(self, name: str, *arguments: object) -> object:
        try:
            with socket.socket(socket.AF_UNIX) as connection:
                connection.connect(self.path)
                with connection.makefile("rwb") as stream:
                    pickle.dump((name, *arguments), stream)
                    stream.flush()
                    answer: object = pickle.load(stream)  # noqa: S301 - the folder of the socket is this user's alone
        except (OSError, EOFError, pickle.UnpicklingError) as error:
            raise EvaluatorUnavailableError(
                f"the command that serves the sandbox does not answer: {error}", remedy="Start `run` again."
            ) from error
        if isinstance(answer, SpeciateError):
            raise answer
        return answer


class _Server(ThreadingUnixStreamServer):
    """Evaluates two problems at once for each core, as one often waits; the others wait for their turn."""

    daemon_threads = True
    request_queue_size = 256

    def __init__(self, path: str, sandbox: EvaluatorClient) -> None:
        super().__init__(path, _Handler)
        self.sandbox, self.turns = sandbox, Semaphore(2 * (os.cpu_count() or 1))


class _Handler(StreamRequestHandler):
    def handle(self) -> None:
        name, *arguments = pickle.load(self.rfile)  # noqa: S301 - the folder of the socket is this user's alone
        pickle.dump(self._answer(name, arguments), self.wfile)

    def _answer(self, name: str, arguments: list[Any]) -> object:
        server = cast("_Server", self.server)
        try:
            if name == "tier":
                return server.sandbox.tier
            problem, programs, seeds, timeout_s = arguments
            with server.turns:
                return server.sandbox.evaluate(problem, programs, seeds=seeds, timeout_s=timeout_s)
        except SpeciateError as error:
            return error
        except Exception as error:  # noqa: BLE001 - the training is told
            return EvaluatorUnavailableError(f"{type(error).__name__}: {error}")


@contextmanager
def opened_sandbox() -> Iterator[EvaluatorClient]:
    """Yield the sandbox that the command serves; without one, such as for a step started by hand, an own one."""
    if path := os.environ.get(_ADDRESS):
        yield SharedSandbox(path)
        return
    with closing(open_evaluator()) as sandbox:
        yield sandbox


@contextmanager
def served_sandbox() -> Iterator[dict[str, str]]:
    """Serve a sandbox; yield the environment in which :func:`opened_sandbox` finds it."""
    folder = make_runtime_dir()  # where the path of a socket is short enough
    path = str(make_private_dir(folder / "own", None) / "sandbox")
    try:
        with closing(open_evaluator()) as sandbox, _Server(path, sandbox) as server:
            Thread(target=server.serve_forever, daemon=True).start()
            try:
                yield {_ADDRESS: path}
            finally:
                server.shutdown()
    finally:
        shutil.rmtree(folder)
