"""One exhibition for all browser tests of a worker: a database with runs to look at, a server, and one Chromium."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from uuid import UUID

import psycopg
import pytest
import sqlalchemy as sa
from playwright.sync_api import Browser, BrowserContext, Page, expect, sync_playwright
from pydantic import SecretStr

from service.app import create_app
from speciate.domain.guidance import Guidance
from speciate.embedded import Endpoints
from speciate.settings import Settings
from speciate.storage.stores import Stores, open_stores
from speciate.testing.http_server import serve_app
from tests.dashboard import exhibits
from tests.dashboard.round_robin import one_request, round_robin

_DATABASE = "exhibition"
GUIDANCE = Guidance(every=2, most=2)
_PATIENCE_S = 30
"""A loaded machine is no failure."""


@dataclass
class Exhibition:
    """What there is to look at.

    Attributes:
        url: Address of the service.
        stores: The stores behind it.
        done: A run that has ended, with five rewards.
        running: One like it that goes on when a test works on it.
        single: A run with one reward.
        cases: A run with as many rewards as test cases.
        doomed: A run in which nothing is ever scored, with hostile texts.
        empty: A run without a candidate.
        advised: A run that writes advice for its own prompts.
        tournament: Name of a tournament that has ended.
        open: Name of one like it that has only begun, and stays so.
        campaign: Name of a campaign that goes on when a test works on it.
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
    advised: UUID
    tournament: str
    open: str
    campaign: str


@pytest.fixture(scope="package")
def exhibition(servers: Endpoints, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Exhibition]:
    """The exhibition, made once for the tests of this package that follow each other in a worker."""
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
        # Two replicas and no stickiness, for all tests: whatever a page needs, any replica can answer.
        with (
            serve_app(one_request(create_app(settings))) as first,
            serve_app(one_request(create_app(settings))) as second,
            round_robin([_port(first), _port(second)]) as proxy,
        ):
            yield _filled(stores, settings, f"http://127.0.0.1:{proxy.port}")
            # Connections take turns: two are enough for both replicas, a test that runs alone may make fewer.
            assert len(proxy.served) == min(2, proxy.served.total()), proxy.served
    finally:
        stores.close()
        with _admin(servers) as connection:
            connection.execute(f"DROP DATABASE {_DATABASE} WITH (FORCE)")


def _port(address: str) -> int:
    return int(address.rpartition(":")[2])


def _filled(stores: Stores, settings: Settings, url: str) -> Exhibition:
    antenna, plain = exhibits.antenna(), exhibits.mutator()
    vpo = exhibits.mutator("maze-vpo", training_method="vpo")
    done = exhibits.start(stores, antenna, plain, 80)
    exhibits.work(stores, done)
    running = exhibits.start(stores, antenna, vpo, 5000, seed=3)
    exhibits.work(stores, running, 8)
    single = exhibits.start(stores, exhibits.single(), vpo, 20)
    exhibits.work(stores, single)
    cases = exhibits.start(stores, exhibits.cases(), plain, 20, strategy="vector_evolution")
    exhibits.work(stores, cases)
    doomed = exhibits.start(stores, exhibits.doomed(), plain, 16)
    exhibits.work(stores, doomed)
    empty = exhibits.start(stores, exhibits.cases(), vpo, 30)
    stores.runs.pause(empty, exhibits.HOSTILE)
    advised = exhibits.start(stores, exhibits.single(), exhibits.adviser(), 40, guidance=GUIDANCE, lanes=1, batch=4)
    exhibits.work(stores, advised)
    tournament = exhibits.tournament(stores, problems=2, seeds=1)
    opened = exhibits.tournament(stores, "open", problems=2, seeds=1, play=False)
    campaign = exhibits.campaign(stores)
    runs = (done, running, single, cases, doomed, empty, advised)
    return Exhibition(url, settings, stores, *runs, tournament, opened, campaign)


def _admin(endpoints: Endpoints) -> psycopg.Connection:
    url = sa.make_url(endpoints.database_url).set(drivername="postgresql", database="postgres")
    return psycopg.connect(url.render_as_string(hide_password=False), autocommit=True)


def chromium_path() -> str | None:
    """Return where Debian's Chromium is, or whichever is installed; None where there is none."""
    return next(
        (found for name in ("chromium", "chromium-browser", "google-chrome") if (found := shutil.which(name))), None
    )


@pytest.fixture(scope="package")
def browser() -> Iterator[Browser]:
    """Chromium.

    Not for the session: as long as Playwright runs, no other test of this process can start an event loop.
    """
    path = chromium_path()
    if path is None:
        pytest.skip("no Chromium is installed: the dashboard is not tried in a browser (apt-get install chromium)")
    with sync_playwright() as playwright:
        launched = playwright.chromium.launch(executable_path=path, args=["--no-sandbox", "--disable-gpu"])
        yield launched
        launched.close()


@dataclass
class Visitor:
    """A page of a browser that writes down what should not happen.

    Attributes:
        page: The page.
        trouble: Console errors, failed scripts and requests to elsewhere.
    """

    page: Page
    url: str
    trouble: list[str] = field(default_factory=list)

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
        plots = self.page.locator(".plot:not([hidden])")
        for i in range(plots.count()):
            plots.nth(i).scroll_into_view_if_needed()
            plots.nth(i).locator(".main-svg").first.wait_for()

    def _note(self, kind: str, text: str) -> None:
        self.trouble.append(f"{kind}: {text[:300]}")

    def _elsewhere(self, url: str) -> None:
        if not url.startswith((self.url, "data:")):
            self._note("off-origin", url)


@contextmanager
def visiting(context: BrowserContext, url: str) -> Iterator[Visitor]:
    """Yield a page that is closed at the end, and fail when something was wrong with it."""
    context.set_default_timeout(_PATIENCE_S * 1000)
    expect.set_options(timeout=_PATIENCE_S * 1000)
    visitor = Visitor(context.new_page(), url)
    try:
        yield visitor
    finally:
        visitor.page.close()
    assert not visitor.trouble, visitor.trouble


@pytest.fixture(scope="package")
def window(browser: Browser) -> BrowserContext:
    """One window for all: what it keeps, such as Plotly, need not be loaded again for every test."""
    return browser.new_context(viewport={"width": 1280, "height": 900}, reduced_motion="reduce")


@pytest.fixture
def visitor(window: BrowserContext, exhibition: Exhibition) -> Iterator[Visitor]:
    """A tab on the exhibition."""
    with visiting(window, exhibition.url) as found:
        yield found


@pytest.fixture
def plain_visitor(browser: Browser, exhibition: Exhibition) -> Iterator[Visitor]:
    """A browser window without JavaScript."""
    with visiting(browser.new_context(java_script_enabled=False), exhibition.url) as found:
        yield found
