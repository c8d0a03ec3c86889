"""The process graph of the compose file works as a whole."""

from __future__ import annotations

import pytest

from benchmarks.topology.processes import has_nginx, topology
from benchmarks.topology.try_out import try_out

pytestmark = pytest.mark.servers


@pytest.mark.skipif(not has_nginx(), reason="nginx is not installed (package nginx-light)")
def test_a_run_completes_through_the_proxy_and_two_replicas() -> None:
    with topology() as graph:
        assert len(list(try_out(graph))) == 3
        assert graph.log("proxy-1").count("[emerg]") == 0
