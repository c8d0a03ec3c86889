"""The package ``redis``, imported at its first use: a command that executes a run without a service has none.

Its import, with that of OpenTelemetry, takes a twentieth of the start of such a command.
"""

from typing import TYPE_CHECKING

from speciate.domain.lazy import LazyModule

if TYPE_CHECKING:
    import redis as redis
else:
    redis = LazyModule("redis")
