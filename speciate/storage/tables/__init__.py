"""The tables that queries in Python refer to; the migrations create these and the others,
with indexes and constraints.

Ids are UUIDv7; vectors are ``float8[]`` in the problem's declared order.
"""

from speciate.storage.tables import access, candidates, catalog, declarations, runs, webhooks
from speciate.storage.tables.columns import metadata

__all__ = ["access", "candidates", "catalog", "declarations", "metadata", "runs", "webhooks"]
