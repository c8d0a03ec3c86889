"""Which errors of PostgreSQL end in ``UnavailableError``."""

from __future__ import annotations

import pytest
import sqlalchemy as sa
from sqlalchemy.exc import OperationalError

from speciate.domain.errors import UnavailableError
from speciate.storage.database import with_retries


class _RefusedError(Exception):
    sqlstate: str | None = None


class _Store:
    retry_for_s = 0.0
    _engine: sa.Engine

    @with_retries
    def fail(self, error: Exception) -> None:
        raise error


@pytest.mark.parametrize(
    ("state", "raised"),
    [(None, UnavailableError), ("57P03", UnavailableError), ("40001", UnavailableError), ("53300", OperationalError)],
)
def test_a_server_that_does_not_return_is_unavailable(state: str | None, raised: type[Exception]) -> None:
    refused = _RefusedError("no")
    refused.sqlstate = state
    with pytest.raises(raised):
        _Store().fail(OperationalError("SELECT 1", {}, refused))
