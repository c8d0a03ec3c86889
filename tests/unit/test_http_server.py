"""The HTTP server keeps its ``Date`` header right and stops at a signal."""

from __future__ import annotations

import signal
import subprocess
import sys
import textwrap
import time
from email.utils import parsedate_to_datetime

import httpx

_PROGRAM = textwrap.dedent(
    """
    import uvicorn
    from speciate.http_server import HttpServer

    async def app(scope, receive, send):
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body", "body": b""})

    HttpServer(uvicorn.Config(app, port=0, lifespan="off")).run()
    """
)


def test_dates_are_current_and_a_signal_ends_the_server() -> None:
    command = [sys.executable, "-c", _PROGRAM]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as server:
        assert server.stderr is not None
        url = next(line.split()[4] for line in server.stderr if "running on" in line)
        dates = []
        for _ in range(2):
            dates.append(parsedate_to_datetime(httpx.get(url, trust_env=False).headers["Date"]))
            time.sleep(2.1)
        assert dates[1] > dates[0]
        server.send_signal(signal.SIGTERM)
        server.communicate(timeout=30)
    assert server.returncode == -signal.SIGTERM
