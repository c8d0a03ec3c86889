"""The asyncio client."""

from __future__ import annotations

from typing import TYPE_CHECKING

from speciate.domain.lazy import lazy_submodules

if TYPE_CHECKING:
    from speciate.client.aio import administration, catalog, declarations, engines, evaluations, runs

    __all__ = ["administration", "catalog", "declarations", "engines", "evaluations", "runs"]

__getattr__ = lazy_submodules(__name__)
