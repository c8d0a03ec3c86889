"""A request knows if one of its calls gave up on the server."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from contextvars import copy_context
from typing import Any

import pytest
import sqlalchemy as sa
from sqlalchemy.exc import OperationalError
from sqlalchemy.exc import TimeoutError as PoolTimeoutError

from speciate.domain.errors import UnavailableError
from speciate.storage.database import track_outage, with_retries


class _RefusedError(Exception):
    sqlstate: str | None = None


class _Store:
    retry_for_s = 0.0
    _engine: sa.Engine

    @with_retries
    def fail(self, error: Exception) -> None:
        raise error


def _operational(state: str | None) -> OperationalError:
    refused = _RefusedError("no")
    refused.sqlstate = state
    return OperationalError("SELECT 1", {}, refused)


@pytest.mark.parametrize(
    ("error", "raised", "occurred"),
    [
        (_operational(None), UnavailableError, True),
        (_operational("57P03"), UnavailableError, True),
        (PoolTimeoutError("every connection is in use"), PoolTimeoutError, True),
        (_operational("40001"), UnavailableError, False),
        (_operational("53300"), OperationalError, False),
    ],
)
def test_an_outage_is_recorded(error: Exception, raised: type[Exception], occurred: bool) -> None:
    def call(*_: Any) -> None:
        with pytest.raises(raised):
            _Store().fail(error)

    call()  # outside of a request
    with track_outage() as outage, ThreadPoolExecutor(1) as pool:
        with track_outage() as inner:
            pass
        # As the service starts a route's thread.
        pool.submit(copy_context().run, call).result()
        assert (outage.occurred, inner.occurred) == (occurred, False)
    with track_outage() as next_one:
        assert not next_one.occurred
