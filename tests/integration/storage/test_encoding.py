"""A database without Unicode is refused with its encoding."""

from collections.abc import Iterator

import pytest
import sqlalchemy as sa

from speciate.domain.errors import ConfigurationError
from speciate.storage.database import check_version, connect

pytestmark = pytest.mark.servers


@pytest.fixture
def without_encoding(database_url: str) -> Iterator[str]:
    """Return the URL of an empty database without encoding, as ``initdb`` creates it without a locale."""
    ours = connect(database_url)
    url = sa.make_url(database_url)
    name = f"{url.database}_ascii"
    with ours.connect().execution_options(isolation_level="AUTOCOMMIT") as connection:
        connection.exec_driver_sql(f"CREATE DATABASE {name} ENCODING 'SQL_ASCII' LOCALE 'C' TEMPLATE template0")
        yield url.set(database=name).render_as_string(hide_password=False)
        connection.exec_driver_sql(f"DROP DATABASE {name} WITH (FORCE)")
    ours.dispose()


def test_a_database_without_unicode_is_refused(without_encoding: str) -> None:
    engine = connect(without_encoding)
    try:
        with pytest.raises(ConfigurationError, match="encoding is SQL_ASCII") as refused:
            check_version(engine)
    finally:
        engine.dispose()
    assert "ENCODING 'UTF8'" in (refused.value.remedy or "")
