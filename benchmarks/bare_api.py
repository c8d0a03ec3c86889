"""The least that reading a row costs with FastAPI and SQLAlchemy: one route, no middleware, no authentication."""

from __future__ import annotations

import os
from uuid import UUID

import sqlalchemy as sa
from fastapi import FastAPI, Response

app = FastAPI()
_engine = sa.create_engine(os.environ["BARE_DATABASE_URL"], pool_size=20, isolation_level="AUTOCOMMIT")
_GET = sa.text("SELECT cast(row_to_json(r) AS text) FROM runs r WHERE id = :id")


@app.get("/v1/runs/{run_id}")
def get_run(run_id: UUID) -> Response:
    """Return the row of a run."""
    with _engine.connect() as connection:
        return Response(connection.execute(_GET, {"id": run_id}).scalar_one(), media_type="application/json")
