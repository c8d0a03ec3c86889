"""Hostile name servers, asked by the resolver of the C library over UDP."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[3]
_ISOLATED = ["--dev-bind", "/", "/", "--unshare-user", "--unshare-net", "--uid", "0", "--gid", "0"]


def test_hostile_name_servers(tmp_path: Path) -> None:
    bwrap = shutil.which("bwrap")
    settings = tmp_path / "resolv.conf"
    settings.write_text("nameserver 127.0.0.1\noptions timeout:30\n")
    isolated = [*_ISOLATED, "--cap-add", "CAP_NET_BIND_SERVICE", "--ro-bind", str(settings), "/etc/resolv.conf"]
    if bwrap is None or subprocess.run([bwrap, *isolated, "true"], capture_output=True).returncode:
        pytest.skip("not tried here: a network with its own name server needs bubblewrap and user namespaces")
    command = [bwrap, *isolated, "--die-with-parent", sys.executable, "-m", "tests.unit.egress.behind_resolver"]
    result = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=50)
    assert result.returncode == 0, result.stderr
    found = json.loads(result.stdout)

    # Public when registered and refused when it leads here: neither a policy's request nor a webhook arrives.
    assert found["check"] == "None"
    assert found["rebinding"] == ["ForbiddenAddressError"]
    assert found["webhook"][0].startswith("the connection failed")  # there is no way to a public address here
    assert "loopback" in found["webhook"][1]
    assert found["reached"] == 0
    # The checked address is the one that is used, and is asked for once.
    assert found["pinned"] == ["200", "ForbiddenAddressError", "ForbiddenAddressError"]
    assert found["mixed"] == ["200"]
    assert found["asked"] == {"rebinding": 2, "webhook": 2, "pinned": 3, "mixed": 1}
    # A name server that never answers ends the request, and lets a registration pass, which is checked again on use.
    assert found["silent"] == ["ConnectError", "None"]
