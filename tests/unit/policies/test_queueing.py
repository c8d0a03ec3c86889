"""The queue gate: queues stay short, and endpoints without metrics are never waited for."""

from __future__ import annotations

import threading
from contextlib import ExitStack

import pytest

from speciate.policies.queueing import QueueGate, waiting_sequences


class Server:
    """A queue with a clock that advances only during sleeps."""

    def __init__(self, waiting: int | None = 0) -> None:
        self.waiting, self.now, self.readings = waiting, 0.0, 0
        self.answers = True
        self.drains = 0

    def read(self) -> str | None:
        self.readings += 1
        if not self.answers:
            return None
        return "" if self.waiting is None else f'vllm:num_requests_waiting{{engine="0"}} {self.waiting}.0\n'

    def pause(self, _: threading.Condition) -> None:
        self.now += 0.25
        if self.waiting is not None:
            self.waiting = max(0, self.waiting - self.drains)

    def gate(self, bound: int) -> QueueGate:
        return QueueGate(self.read, bound, pause=self.pause, clock=lambda: self.now)


def enter(gate: QueueGate, size: int, stack: ExitStack, longest_s: float = 5.0, give_up: bool = False) -> bool:
    return stack.enter_context(gate.slot(size, give_up=lambda: give_up, longest_s=longest_s))


def test_metrics_of_vllm_and_of_our_server_are_parsed() -> None:
    engines = '# HELP x\nvllm:num_requests_waiting{engine="0"} 3.0\nvllm:num_requests_waiting{engine="1"} 1e1\n'
    assert waiting_sequences(engines + 'vllm:num_requests_waiting_by_reason{engine="0"} 9.0\n') == 13
    assert waiting_sequences('speciate_serve_num_requests_waiting{model_name="a b"} 7\n') == 7
    assert waiting_sequences("nothing 1\n") is None


def test_unanswered_requests_since_the_last_reading_count() -> None:
    server = Server()
    gate = server.gate(8)
    with ExitStack() as first, ExitStack() as rest:
        assert enter(gate, 4, first)
        assert enter(gate, 4, rest)
        assert not enter(gate, 1, rest, longest_s=0)
        first.close()
        assert enter(gate, 4, rest, longest_s=0)
        assert server.readings == 1


def test_a_long_queue_is_waited_for_up_to_the_limit() -> None:
    server = Server(waiting=20)
    server.drains = 2
    with ExitStack() as stack:
        assert enter(server.gate(8), 2, stack, longest_s=60)
    assert server.now >= 1.75  # until at most 6 wait
    server.waiting, server.drains = 20, 0
    gate = server.gate(8)
    with ExitStack() as stack:
        began = server.now
        assert not enter(gate, 2, stack)
        assert server.now - began == pytest.approx(5.0)
        assert not enter(gate, 2, stack, give_up=True)


def test_a_request_larger_than_the_bound_is_admitted_alone() -> None:
    gate = Server().gate(8)
    with ExitStack() as stack:
        assert enter(gate, 100, stack, longest_s=0)
        assert not enter(gate, 1, stack, longest_s=0)


def test_without_metrics_requests_pass_and_polling_is_rare() -> None:
    server = Server(waiting=None)
    gate = server.gate(1)
    with ExitStack() as stack:
        for _ in range(50):
            assert enter(gate, 10, stack, longest_s=0)
            server.now += 0.5
    assert server.readings == 1


def test_a_failed_reading_keeps_the_last_one() -> None:
    server = Server(waiting=50)
    gate = server.gate(8)
    with ExitStack() as stack:
        assert not enter(gate, 1, stack, longest_s=0)
        server.answers, server.now = False, 10.0
        assert not enter(gate, 1, stack, longest_s=0)
        server.answers, server.waiting, server.now = True, 0, 20.0
        assert enter(gate, 1, stack, longest_s=0)


def test_threads_together_keep_the_bound() -> None:
    gate = QueueGate(lambda: "vllm:num_requests_waiting 0\n", 10, clock=lambda: 0.0)
    held, most, lock = 0, 0, threading.Lock()

    def ask() -> None:
        nonlocal held, most
        for _ in range(200):
            with gate.slot(3, give_up=lambda: False, longest_s=60) as passed:
                assert passed
                with lock:
                    held += 3
                    most = max(most, held)
                with lock:
                    held -= 3

    threads = [threading.Thread(target=ask) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert 0 < most <= 10
    assert held == 0
