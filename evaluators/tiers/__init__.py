"""What contains a process. A tier is one file here plus one line in ``TIERS``.

A tier starts one contained process and stops it with everything it left behind; what is said over the channel is none
of its business, so the broker does not change when a stronger tier is added.
"""

from __future__ import annotations

from collections.abc import Callable

from evaluators.tiers.process import ProcessSandbox
from evaluators.tiers.sandbox import Contained, Role, Sandbox, Usage

TIERS: dict[str, Callable[[], Sandbox]] = {
    ProcessSandbox.name: ProcessSandbox,
}
"""Every tier by name, weakest first."""

__all__ = ["TIERS", "Contained", "Role", "Sandbox", "Usage"]
