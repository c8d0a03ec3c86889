"""Records of stored objects, as the REST API returns them, the SDK parses them and the CLI prints them."""

from typing import TYPE_CHECKING

from speciate.domain.lazy import lazy_submodules

if TYPE_CHECKING:
    from speciate.schema import candidates, projects, runs, unlocks

    __all__ = ["candidates", "projects", "runs", "unlocks"]

__getattr__ = lazy_submodules(__name__)
