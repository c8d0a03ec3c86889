"""Types and columns that tables share."""

from __future__ import annotations

from typing import Final
from uuid import UUID

import sqlalchemy as sa
from sqlalchemy.dialects import postgresql as pg

metadata = sa.MetaData(
    naming_convention={
        "ix": "ix_%(column_0_N_label)s",
        "uq": "uq_%(table_name)s_%(column_0_N_name)s",
        "ck": "ck_%(table_name)s_%(constraint_name)s",
        "fk": "fk_%(table_name)s_%(column_0_N_name)s",
        "pk": "pk_%(table_name)s",
    }
)

Id = pg.UUID(as_uuid=True)
Time = sa.DateTime(timezone=True)
Floats = pg.ARRAY(pg.DOUBLE_PRECISION)
Ints = pg.ARRAY(sa.BigInteger)
NOW = sa.text("now()")

DEFAULT_PROJECT_ID: Final = UUID(int=0)
"""Project of rows stored without one."""


def created() -> sa.Column[object]:
    return sa.Column("created_at", Time, nullable=False, server_default=NOW)


def hidden() -> tuple[sa.Column[object], sa.Column[object]]:
    return sa.Column("archived_at", Time), sa.Column("deleted_at", Time)


def project() -> sa.Column[object]:
    default = sa.text(f"'{DEFAULT_PROJECT_ID}'")
    return sa.Column("project_id", Id, sa.ForeignKey("projects.id"), nullable=False, server_default=default)
