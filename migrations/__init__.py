"""The history of the schema (Alembic)."""
