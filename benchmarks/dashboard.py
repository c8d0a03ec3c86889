"""The dashboards: what a browser waits for, and what viewers cost while a run goes on. Needs Chromium."""

from __future__ import annotations

import asyncio
import os
import socket
import statistics
import subprocess
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from uuid import UUID

import httpx
import psutil
import sqlalchemy as sa
from playwright.sync_api import Page, sync_playwright
from pydantic import SecretStr

from benchmarks.figures import Figure, record
from benchmarks.parts import show
from speciate.embedded.servers import EmbeddedServers
from speciate.settings import Settings
from speciate.storage.database import connect
from speciate.storage.migrate import upgrade
from speciate.storage.stores import Stores, open_stores
from tests.dashboard import samples
from tests.dashboard.conftest import chromium_path

ROOT = Path(__file__).parents[1]
SIZES = (5_000, 50_000)
# Playwright records the source of each request, for which V8 parses the charting library three more times. Users do not
# pay this cost; with this flag V8 keeps the positions from the first parse.
NOT_OURS = "--js-flags=--no-enable-lazy-source-positions"
VIEWERS = 100
COMMITS = 30
_FILL = sa.text(
    "INSERT INTO candidates (id, run_id, number, work_id, ord, role, island, parents, inspirations, program,"
    " program_hash, status, rewards, targets, spent_evaluations, spent_tokens, spent_seconds, tier, wall_s, cpu_s,"
    " memory_bytes, artifacts, created_at) SELECT gen_random_uuid(), :run, n, gen_random_uuid(), n, 'mutate', n % 4,"
    " ARRAY[greatest(1, (n * random())::bigint)], '{}', 'x = ' || n, md5(n::text), 'evaluated',"
    " ARRAY[12 * random(), 10 * random(), random(), 30 * random(), 0], 0, n, n * 100, n * 0.01, 'A', 0.01, 0.01,"
    " 1000000, '{}', now() + n * interval '10 ms' FROM generate_series(2, :n) AS n"
)


def run(settings: Settings) -> None:
    """Measure and print the tables."""
    path = chromium_path()
    if path is None:
        print("no Chromium is installed: the dashboards are not measured")  # noqa: T201
        return
    servers = EmbeddedServers(settings.data_dir)
    endpoints = servers.start()
    engine = connect(endpoints.database_url)
    upgrade(engine)
    engine.dispose()
    given = {"database_url": SecretStr(endpoints.database_url), "redis_url": SecretStr(endpoints.redis_url)}
    stores = open_stores(settings.model_copy(update=given))
    try:
        with _api(endpoints.database_url, endpoints.redis_url) as (url, process), sync_playwright() as playwright:
            browser = playwright.chromium.launch(executable_path=path, args=["--no-sandbox", NOT_OURS])
            _pages(stores, url, browser.new_page())
            _viewers(stores, url, process, browser.new_page())
            browser.close()
    finally:
        stores.close()
        servers.stop()


def _pages(stores: Stores, url: str, page: Page) -> None:
    rows = []
    for size in SIZES:
        run_id = samples.start(stores, samples.antenna(), samples.mutator(), 10**6)
        samples.work(stores, run_id, 1)
        with stores.engine.begin() as connection:
            connection.execute(_FILL, {"run": run_id, "n": size})
        for name, path in (("run", f"/runs/{run_id}"), ("population", f"/runs/{run_id}/population")):
            found = _opened(page, url + path)
            rows.append((f"{name}, {size:,} candidates", *(f"{value:.2f}" for value in found)))
            if name == "run":
                title = f"dashboard: run page with {size:,} candidates"
                record(f"{title}, first paint", Figure(found[0], "s", 0.5))
                record(f"{title}, all charts", Figure(found[2], "s", 3))
    show(
        "Dashboards: seconds from the click, browser's cache empty, nothing else cached",
        ["page", "first paint", "first chart", "all charts"],
        rows,
    )


def _opened(page: Page, address: str) -> tuple[float, float, float]:
    """Return when something was painted, when the first chart was drawn, and when all of them were."""
    page.context.new_cdp_session(page).send("Network.setCacheDisabled", {"cacheDisabled": True})
    begun = time.perf_counter()
    page.goto(address, wait_until="domcontentloaded")
    page.locator(".plot[data-drawn]").first.wait_for(timeout=60_000)
    first = time.perf_counter() - begun
    for plot in page.locator(".plot:not([hidden])").all():
        plot.scroll_into_view_if_needed()
        plot.locator(".main-svg").first.wait_for(timeout=60_000)
    whole = time.perf_counter() - begun
    paint = page.evaluate("performance.getEntriesByName('first-contentful-paint')[0].startTime / 1000")
    return float(paint), first, whole


def _viewers(stores: Stores, url: str, process: psutil.Process, page: Page) -> None:
    run_id = samples.start(stores, samples.antenna(), samples.mutator(), 10**6, seed=9)
    samples.work(stores, run_id, 2)
    page.goto(f"{url}/runs/{run_id}")
    page.locator("#link[data-is=live]").wait_for()
    with ThreadPoolExecutor(1) as pool:
        watching = pool.submit(asyncio.run, _watch(url, run_id))
        time.sleep(2.0)
        before, begun = sum(process.cpu_times()[:2]), time.perf_counter()
        delays = [_delay(stores, run_id, page) for _ in range(COMMITS)]
        seconds, cost = time.perf_counter() - begun, sum(process.cpu_times()[:2]) - before
        stores.runs.cancel(run_id)
        frames = watching.result()
    row = (VIEWERS, COMMITS, f"{statistics.quantiles(delays, n=20)[-1]:.2f}", f"{cost / seconds:.1%}", f"{frames:,}")
    show(
        "Dashboards: a run with viewers, commits as fast as one worker makes them",
        ["viewers", "commits", "commit to pixel, p95 s", "of a core", "frames sent"],
        [row],
    )


def _delay(stores: Stores, run_id: UUID, page: Page) -> float:
    samples.work(stores, run_id, 2)
    spent = f"{stores.runs.get(run_id).spent.evaluations:,}".replace(",", "\u202f")
    begun = time.perf_counter()
    page.locator("[data-part=tiles] dd", has_text=spent).first.wait_for(timeout=30_000)
    return time.perf_counter() - begun


async def _watch(url: str, run_id: UUID) -> int:
    """Return the frames that viewers were sent until the run ended."""
    limits = httpx.Limits(max_connections=VIEWERS)

    async def one(client: httpx.AsyncClient) -> int:
        frames = 0
        async with client.stream("GET", f"{url}/runs/{run_id}/live") as answer:
            async for line in answer.aiter_lines():
                frames += line == "event: part"
        return frames

    async with httpx.AsyncClient(limits=limits, timeout=None, trust_env=False) as client:
        return sum(await asyncio.gather(*(one(client) for _ in range(VIEWERS))))


@contextmanager
def _api(database_url: str, redis_url: str) -> Iterator[tuple[str, psutil.Process]]:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    command = [sys.executable, "-m", "service", "--port", str(port)]
    ours = {"SPECIATE_DATABASE_URL": database_url, "SPECIATE_REDIS_URL": redis_url, "PYTHONPATH": str(ROOT)}
    with subprocess.Popen([*command, "--log-level", "warning"], env=os.environ | ours) as process:
        try:
            url = f"http://127.0.0.1:{port}"
            for _ in range(600):
                try:
                    httpx.get(url + "/healthz", trust_env=False)
                    break
                except httpx.TransportError:
                    time.sleep(0.1)
            yield url, psutil.Process(process.pid)
        finally:
            process.terminate()
