"""The HTTP server keeps its ``Date`` header right and stops at a signal."""

from __future__ import annotations

import signal
import subprocess
import sys
import textwrap
import time
from datetime import datetime
from email.utils import parsedate_to_datetime

import httpx

_PROGRAM = textwrap.dedent(
    """
    import sys
    import uvicorn
    from speciate import http_server

    async def app(scope, receive, send):
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body", "body": b""})

    http_server._TICK_S = float(sys.argv[1])
    http_server.HttpServer(uvicorn.Config(app, port=0, lifespan="off")).run()
    """
)


def _serve(tick_s: int) -> subprocess.Popen[str]:
    return subprocess.Popen([sys.executable, "-c", _PROGRAM, str(tick_s)], stderr=subprocess.PIPE, text=True)


def _url(server: subprocess.Popen[str]) -> str:
    assert server.stderr is not None
    return next(line.split()[4] for line in server.stderr if "running on" in line)


def _date(url: str) -> datetime:
    return parsedate_to_datetime(httpx.get(url, trust_env=False).headers["Date"])


def test_a_signal_wakes_the_server() -> None:
    with _serve(tick_s=3600) as server:
        assert httpx.get(_url(server), trust_env=False).is_success
        server.send_signal(signal.SIGTERM)
        server.communicate(timeout=60)
    assert server.returncode == -signal.SIGTERM


def test_dates_are_current() -> None:
    with _serve(tick_s=1) as server:
        url = _url(server)
        first = _date(url)
        time.sleep(2.1)
        assert _date(url) > first
        server.kill()
