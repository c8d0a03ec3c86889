"""Messages of work units: which are sent."""

from __future__ import annotations

from types import SimpleNamespace
from uuid import uuid4

import pytest

from speciate.messaging.signals import _MOST_WAITING, RedisSignals
from speciate.ports.work import Commit, WorkKind, WorkRef


@pytest.mark.parametrize(("waiting", "sent"), [(_MOST_WAITING - 1, 2), (_MOST_WAITING, 1)])
def test_a_long_queue_gets_new_messages_and_no_repeated_ones(waiting: int, sent: int) -> None:
    messages: list[WorkRef] = []
    client = SimpleNamespace(llen=lambda _: waiting, publish=lambda *_: None)
    signals = RedisSignals(client, send=messages.append)  # type: ignore[arg-type]
    ref = WorkRef(uuid4(), WorkKind.EVALUATE)
    signals.committed(Commit(uuid4(), dispatch=(ref,)))
    signals.committed(Commit(uuid4(), dispatch=(ref,), last_event=1))
    assert len(messages) == sent
