"""Run the migrations on a connection that the caller passes."""

from alembic import context

from speciate.storage.tables import metadata

_UNDECLARED = {"index", "unique_constraint"}

connection = context.config.attributes["connection"]
context.configure(
    connection=connection,
    target_metadata=metadata,
    include_name=lambda name, kind, _: name in metadata.tables if kind == "table" else kind not in _UNDECLARED,
    compare_server_default=False,
    transaction_per_migration=True,
)
with context.begin_transaction():
    context.run_migrations()
