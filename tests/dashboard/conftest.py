"""Fixtures of the browser tests: a service with sample runs, and one Chromium per test worker."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from uuid import UUID

import psycopg
import pytest
import sqlalchemy as sa
from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import Browser, BrowserContext, Page, expect, sync_playwright
from pydantic import SecretStr

from service.app import create_app
from speciate.domain.guidance import Guidance
from speciate.embedded.servers import Endpoints
from speciate.settings import Settings
from speciate.storage.stores import Stores, open_stores
from tests.dashboard import samples
from tests.dashboard.round_robin import one_request, round_robin
from tests.support.http_server import serve_app

_DATABASE = "site"
GUIDANCE = Guidance(every=2, most=2)
_BROWSERS = ("chromium-headless-shell", "chromium", "chromium-browser", "google-chrome")
_PATIENCE_S = 30
"""Long enough for a busy machine."""


@dataclass
class Site:
    """A service with sample data.

    Attributes:
        url: URL of the service.
        settings: Its settings.
        stores: Its stores.
        done: A completed run with five objectives.
        running: A similar run that continues when a test works on it.
        single: A run with one objective.
        cases: A run with one objective per test case.
        doomed: A run without a scored candidate, with hostile texts.
        empty: A run without candidates.
        infeasible: A run without a feasible candidate, with hostile programs.
        advised: A run with guidance.
        broken: A run that paused because its evaluator raises.
        unread: A run that paused because its answers cannot be read.
        tournament: Name of a completed tournament.
        open: Name of a similar tournament that stays at its start.
        methods: Name of a completed tournament of training methods.
        campaign: Name of a campaign that continues when a test works on it.
    """

    url: str
    settings: Settings
    stores: Stores
    done: UUID
    running: UUID
    single: UUID
    cases: UUID
    doomed: UUID
    empty: UUID
    infeasible: UUID
    advised: UUID
    broken: UUID
    unread: UUID
    tournament: str
    open: str
    methods: str
    campaign: str


@pytest.fixture(scope="package")
def site(servers: Endpoints, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    """The service, started once per test worker for this package."""
    with _admin(servers) as connection:
        connection.execute(f"CREATE DATABASE {_DATABASE} TEMPLATE migrated STRATEGY file_copy")
    url = sa.make_url(servers.database_url).set(database=_DATABASE).render_as_string(hide_password=False)
    settings = Settings(
        database_url=SecretStr(url),
        redis_url=SecretStr(servers.redis_url),
        data_dir=tmp_path_factory.mktemp("data"),
        secret_key=SecretStr("s" * 32),
        allowed_networks=("loopback",),
    )
    stores = open_stores(settings)
    try:
        # All tests use two replicas without stickiness: any replica can answer any request.
        with (
            serve_app(one_request(create_app(settings))) as first,
            serve_app(one_request(create_app(settings))) as second,
            round_robin([_port(first), _port(second)]) as proxy,
        ):
            yield _filled(stores, settings, f"http://127.0.0.1:{proxy.port}")
            # Connections alternate: two reach both replicas; a single test may make fewer.
            assert len(proxy.served) == min(2, proxy.served.total()), proxy.served
    finally:
        stores.close()
        with _admin(servers) as connection:
            connection.execute(f"DROP DATABASE {_DATABASE} WITH (FORCE)")


def _port(address: str) -> int:
    return int(address.rpartition(":")[2])


def _filled(stores: Stores, settings: Settings, url: str) -> Site:
    antenna, plain = samples.antenna(), samples.mutator()
    vpo = samples.mutator("maze-vpo", training_method="vpo")
    done = samples.start(stores, antenna, plain, 80)
    samples.work(stores, done)
    running = samples.start(stores, antenna, vpo, 5000, seed=3)
    samples.work(stores, running, 8)
    single = samples.start(stores, samples.single(), vpo, 20)
    samples.work(stores, single)
    cases = samples.start(stores, samples.cases(), plain, 20, strategy="vector_evolution")
    samples.work(stores, cases)
    doomed = samples.start(stores, samples.doomed(), plain, 16)
    samples.work(stores, doomed)
    empty = samples.start(stores, samples.cases(), vpo, 30)
    stores.runs.pause(empty, samples.HOSTILE)
    infeasible = samples.start(stores, samples.infeasible(), plain, 24)
    samples.work(stores, infeasible)
    advised = samples.start(stores, samples.single(), samples.adviser(), 40, guidance=GUIDANCE, lanes=1, batch=4)
    samples.work(stores, advised)
    broken = samples.start(stores, samples.broken(), plain, 200)
    samples.work(stores, broken)
    unread = samples.start(stores, samples.single(), samples.prose(), 200, lanes=1, batch=16)
    samples.work(stores, unread)
    tournament = samples.tournament(stores, problems=2, seeds=1)
    opened = samples.tournament(stores, "open", problems=2, seeds=1, play=False)
    methods = samples.methods(stores, training_seeds=2, problems=1)
    campaign = samples.campaign(stores)
    runs = (done, running, single, cases, doomed, empty, infeasible, advised, broken, unread)
    return Site(url, settings, stores, *runs, tournament, opened, methods, campaign)


def _admin(endpoints: Endpoints) -> psycopg.Connection:
    url = sa.make_url(endpoints.database_url).set(drivername="postgresql", database="postgres")
    return psycopg.connect(url.render_as_string(hide_password=False), autocommit=True)


def chromium_path() -> str | None:
    """Return the path of an installed Chromium, or None. The one without windows takes 0.6 of the processor time."""
    return next(filter(None, map(shutil.which, _BROWSERS)), None)


@pytest.fixture(scope="package")
def browser() -> Iterator[Browser]:
    """Chromium.

    Package scope, since no other test of the process can start an event loop while Playwright runs.
    """
    path = chromium_path()
    if path is None:
        pytest.skip("Chromium is not installed: apt-get install chromium-headless-shell")
    with sync_playwright() as playwright:
        launched = playwright.chromium.launch(executable_path=path, args=["--no-sandbox", "--disable-gpu"])
        yield launched
        launched.close()


_AXE = Axe().axe_script
# A chart is an image with a description; its data is in the table below.
_FLAWS = """([theme, options]) => {
  document.documentElement.dataset.theme = theme;
  return axe.run({ exclude: [[".plot"]] }, { resultTypes: ["violations"], ...options })
    .then(found => found.violations.map(v => [v.id, v.impact, v.nodes[0].html.slice(0, 200)]));
}"""
_RULES: dict[str, dict[str, object]] = {
    "light": {},
    "dark": {"runOnly": {"type": "rule", "values": ["color-contrast", "link-in-text-block"]}, "preload": False},
}
"""Themes differ in colours alone: the second one is checked for these."""


def assert_accessible(page: Page, about: str = "") -> None:
    """Fail if axe finds a flaw of the page in either theme."""
    page.evaluate(_AXE)
    for theme, options in _RULES.items():
        assert page.evaluate(_FLAWS, [theme, options]) == [], (about, theme)


@dataclass
class Visitor:
    """A browser page that records errors.

    Attributes:
        page: The page.
        url: URL of the service.
        errors: Console errors, script errors and off-origin requests.
    """

    page: Page
    url: str
    errors: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.page.on(
            "console", lambda message: self._note("console", message.text) if message.type == "error" else None
        )
        self.page.on("pageerror", lambda error: self._note("script", str(error)))
        self.page.on("request", lambda request: self._elsewhere(request.url))

    def go(self, path: str) -> int:
        """Open a page of the service; return its status."""
        answer = self.page.goto(self.url + path)
        assert answer is not None
        return answer.status

    def drawn(self) -> None:
        """Scroll through the page until every chart is drawn."""
        plots = self.page.locator(".plot:visible")
        for i in range(plots.count()):
            plots.nth(i).scroll_into_view_if_needed()
            plots.nth(i).locator(".main-svg").first.wait_for()

    def _note(self, kind: str, text: str) -> None:
        self.errors.append(f"{kind}: {text[:300]}")

    def _elsewhere(self, url: str) -> None:
        if not url.startswith((self.url, "data:")):
            self._note("off-origin", url)


@contextmanager
def visiting(context: BrowserContext, url: str) -> Iterator[Visitor]:
    """Yield a page, close it at the end, and fail if it recorded an error."""
    context.set_default_timeout(_PATIENCE_S * 1000)
    expect.set_options(timeout=_PATIENCE_S * 1000)
    visitor = Visitor(context.new_page(), url)
    try:
        yield visitor
    finally:
        visitor.page.close()
    assert not visitor.errors, visitor.errors


@pytest.fixture(scope="package")
def window(browser: Browser) -> BrowserContext:
    """One window for all tests, so that Plotly is loaded once."""
    return browser.new_context(viewport={"width": 1280, "height": 900}, reduced_motion="reduce")


@pytest.fixture
def visitor(window: BrowserContext, site: Site) -> Iterator[Visitor]:
    """A tab of the shared window."""
    with visiting(window, site.url) as found:
        yield found


@pytest.fixture
def plain_visitor(browser: Browser, site: Site) -> Iterator[Visitor]:
    """A browser window without JavaScript."""
    with visiting(browser.new_context(java_script_enabled=False), site.url) as found:
        yield found
