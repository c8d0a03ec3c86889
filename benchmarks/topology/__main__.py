"""Start the processes of ``docker-compose.yml`` on this machine and have a run done through the proxy."""

from __future__ import annotations

import sys
import time

from benchmarks.topology.processes import topology
from benchmarks.topology.try_out import try_out

begun = time.monotonic()
with topology() as graph:
    sys.stdout.write(f"{len(graph.processes.poll())} processes are well after {time.monotonic() - begun:.1f} s\n")
    for line in try_out(graph):
        sys.stdout.write(line + "\n")
