"""The asyncio client.

Generated from ``aio/__init__.py`` by ``make client``: do not edit.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from speciate.domain.lazy import lazy_submodules

if TYPE_CHECKING:
    from speciate.client.sync import administration, catalog, declarations, evaluations, runs

    __all__ = ["administration", "catalog", "declarations", "evaluations", "runs"]

__getattr__ = lazy_submodules(__name__)
