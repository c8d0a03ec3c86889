"""What contains a process. A tier is one file in ``contained``, one function in ``launch`` and one line in each table.

A tier starts contained processes and stops them with everything they left behind; what is said over the channel is none
of its business, so the broker does not change when a tier is added.
"""

from evaluators.contained.unsafe import NAME as UNSAFE
from evaluators.tiers.launch import TIERS
from evaluators.tiers.pool import ZygotePool
from evaluators.tiers.sandbox import ProcessRole, ProcessSpec, ResourceUsage, Sandbox, SandboxedProcess

__all__ = [
    "TIERS",
    "UNSAFE",
    "ProcessRole",
    "ProcessSpec",
    "ResourceUsage",
    "Sandbox",
    "SandboxedProcess",
    "ZygotePool",
]
