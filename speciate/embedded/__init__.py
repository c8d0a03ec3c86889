"""PostgreSQL and Valkey from wheels, without Docker or set-up; they end with the process that started them."""

from speciate.embedded.endpoints import Endpoints
from speciate.embedded.errors import EmbeddedServerError
from speciate.embedded.placement import make_data_dir
from speciate.embedded.processes import ChildCommand, ChildStatus, GuardedProcesses, Preload
from speciate.embedded.servers import EmbeddedServers

__all__ = [
    "ChildCommand",
    "ChildStatus",
    "EmbeddedServerError",
    "EmbeddedServers",
    "Endpoints",
    "GuardedProcesses",
    "Preload",
    "make_data_dir",
]
