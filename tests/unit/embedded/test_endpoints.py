"""Addresses: how they are spelled for each library, and that they never print a password."""

import pytest

from speciate.embedded.servers import Endpoints
from speciate.messaging.broker import broker_url


def test_repr_hides_the_passwords() -> None:
    endpoints = Endpoints("postgresql+psycopg://me:hidden@/db?host=/run/x", "unix://:secret@/run/x/valkey.sock")
    assert repr(endpoints) == str(endpoints)
    assert "hidden" not in repr(endpoints)
    assert "secret" not in repr(endpoints)


@pytest.mark.parametrize(
    ("redis_url", "expected"),
    [
        ("unix://:pw@/run/x/valkey.sock", "redis+socket://:pw@/run/x/valkey.sock?virtual_host=0"),
        ("unix:///run/x/valkey.sock", "redis+socket:///run/x/valkey.sock?virtual_host=0"),
        ("unix://al:pw@/run/x.sock?db=2", "redis+socket://al:pw@/run/x.sock?virtual_host=2"),
        ("redis://:pw@host:6379/2", "redis://:pw@host:6379/2"),
        ("rediss://host/0", "rediss://host/0"),
    ],
)
def test_broker_url(redis_url: str, expected: str) -> None:
    assert broker_url(redis_url) == expected
