"""Reads need one round trip, and PostgreSQL plans a query once per connection."""

from __future__ import annotations

from datetime import timedelta

import pytest
import sqlalchemy as sa

from speciate.storage.database import connect, reading

_ASKED = sa.text("SELECT count(*) FROM pg_class WHERE relpages >= :pages")
_PREPARED = sa.text(
    "SELECT count(*) FROM pg_prepared_statements WHERE statement LIKE '%relpages%' AND from_sql = false"
)


@pytest.mark.servers
def test_frequent_queries_stay_prepared(database_url: str) -> None:
    engine = connect(database_url, pool_size=1)
    try:
        for _ in range(8):
            with reading(engine) as connection:
                connection.execute(_ASKED, {"pages": 1}).scalar_one()
        with reading(engine) as connection:
            assert connection.execute(_PREPARED).scalar_one() == 1
        with engine.begin() as connection:  # another borrower of the connection uses a transaction
            first, second = (connection.execute(sa.text("SELECT txid_current()")).scalar_one() for _ in range(2))
        assert first == second
    finally:
        engine.dispose()


@pytest.mark.servers
def test_times_are_utc_in_any_time_zone_of_the_server(database_url: str) -> None:
    ours = connect(database_url)
    with ours.begin() as connection:
        connection.exec_driver_sql(f"ALTER DATABASE {ours.url.database} SET timezone = 'Asia/Tokyo'")
    ours.dispose()
    reopened = connect(database_url)
    with reading(reopened) as connection:
        now = connection.execute(sa.text("SELECT clock_timestamp()")).scalar_one()
    reopened.dispose()
    assert now.utcoffset() == timedelta(0)
