"""Login with a token, protection from other sites, and the end of a session."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

import httpx
import pytest
from playwright.sync_api import Browser, BrowserContext, Page, expect
from pydantic import SecretStr
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import HTMLResponse
from starlette.routing import Route

from service.app import create_app
from speciate.domain.access import Scope
from speciate.domain.run import RunState
from speciate.storage.tables.columns import DEFAULT_PROJECT_ID
from tests.dashboard.conftest import Site, assert_accessible
from tests.support.http_server import WAIT_S, serve_app

pytestmark = pytest.mark.servers

_PATIENCE_MS = 30_000
_EVIL = """<!doctype html><form method="post" action="{target}"><button name="reason" value="evil">x</button></form>
<script>
fetch('{target}', {{method: 'POST', mode: 'no-cors', credentials: 'include', body: new URLSearchParams('reason=evil')}})
  .then(() => document.title = 'sent', () => document.title = 'refused')
</script>"""


@dataclass
class Guarded:
    """Two replicas that require a token, on the site's data, and a foreign site on the same machine."""

    url: str
    other: str
    evil: str


@pytest.fixture(scope="module")
def guarded(site: Site) -> Iterator[Guarded]:
    settings = site.settings.model_copy(update={"token": SecretStr("0perat0r"), "rate_limit": 0.0})

    def evil(request: Request) -> HTMLResponse:
        target = request.query_params["target"]
        return HTMLResponse(_EVIL.format(target=target))

    with (
        serve_app(create_app(settings)) as url,
        serve_app(create_app(settings)) as other,
        serve_app(Starlette(routes=[Route("/", evil)])) as foreign,
    ):
        yield Guarded(url, other, foreign)


@pytest.fixture
def visitor_context(browser: Browser) -> Iterator[BrowserContext]:
    context = browser.new_context(reduced_motion="reduce")
    context.set_default_timeout(_PATIENCE_MS)
    expect.set_options(timeout=_PATIENCE_MS)
    yield context
    context.close()


def log_in(page: Page, url: str, token: str) -> None:
    page.goto(url)
    page.get_by_label("Token").fill(token)
    page.get_by_role("button", name="Log in").click()


def test_login_with_a_token_holds_on_every_replica(
    guarded: Guarded, visitor_context: BrowserContext, site: Site
) -> None:
    page = visitor_context.new_page()
    log_in(page, f"{guarded.url}/runs?state=completed", "spc_wrong")
    expect(page.get_by_role("alert")).to_contain_text("unknown, expired or revoked")
    assert_accessible(page)
    made = site.stores.tokens.create(DEFAULT_PROJECT_ID, "browser", Scope.READ, created_by="test")
    log_in(page, f"{guarded.url}/runs?state=completed", made.token)
    expect(page).to_have_url(f"{guarded.url}/runs?state=completed")
    (cookie,) = visitor_context.cookies()
    assert (cookie["name"], cookie["httpOnly"], cookie["sameSite"]) == ("speciate_session", True, "Lax")
    assert made.token not in cookie["value"]
    # Cookies ignore ports: the browser sends the other replica the same one.
    page.goto(f"{guarded.other}/")
    expect(page.locator("#link")).to_have_text("live")
    page.goto(f"{guarded.other}/access")
    expect(page.locator("main")).to_contain_text("Scope admin is required to create and revoke tokens.")
    site.stores.tokens.revoke(DEFAULT_PROJECT_ID, made.id)
    page.goto(f"{guarded.url}/runs")
    expect(page).to_have_url(f"{guarded.url}/login?next=%2Fruns")


def test_a_page_with_an_ended_session_stops_reconnecting(
    guarded: Guarded, visitor_context: BrowserContext, site: Site
) -> None:
    page = visitor_context.new_page()
    made = site.stores.tokens.create(DEFAULT_PROJECT_ID, "watcher", Scope.READ, created_by="test")
    log_in(page, f"{guarded.url}/", made.token)
    expect(page.locator("#link")).to_have_text("live")
    site.stores.tokens.revoke(DEFAULT_PROJECT_ID, made.id)
    expect(page.locator("#link")).to_have_text("logged out: reload the page")
    asked: list[str] = []
    page.on("request", lambda request: asked.append(request.url))
    page.wait_for_timeout(3000)
    assert not asked


def test_the_docs_send_requests_by_session_or_by_token(
    guarded: Guarded, visitor_context: BrowserContext, site: Site
) -> None:
    page = visitor_context.new_page()
    made = {
        scope: site.stores.tokens.create(DEFAULT_PROJECT_ID, scope.value, scope, created_by="test").token
        for scope in (Scope.READ, Scope.SUBMIT)
    }
    log_in(page, f"{guarded.url}/docs/api", made[Scope.SUBMIT])
    expect(page).to_have_url(f"{guarded.url}/docs/api")
    operation = page.locator(".opblock-post").filter(has=page.locator('[data-path="/v1/problem-sets"]'))
    expect(operation).to_contain_text("Freeze a list of problem versions under a name")
    operation.locator(".opblock-summary-control").click()
    operation.get_by_role("button", name="Try it out").click()
    operation.locator("textarea").fill('{"slug": "from-the-docs", "problems": ["antenna-array"]}')
    status = operation.locator(".live-responses-table .response-col_status")
    operation.get_by_role("button", name="Execute").click()
    expect(status.last).to_contain_text("201")
    assert site.stores.catalog.problem_set("from-the-docs").problems
    page.get_by_role("button", name="Authorize").first.click()
    page.locator(".modal-ux input").fill(made[Scope.READ])
    page.locator(".modal-ux").get_by_role("button", name="Apply credentials").click()
    page.locator(".modal-ux").get_by_role("button", name="Close", exact=True).first.click()
    operation.get_by_role("button", name="Execute").click()
    expect(status.last).to_contain_text("403")


def test_a_form_of_an_ended_session_links_to_the_login(guarded: Guarded, site: Site) -> None:
    with httpx.Client(base_url=guarded.url, headers={"Accept": "text/html"}, trust_env=False, timeout=WAIT_S) as http:
        answer = http.post(f"/runs/{site.running}/pause", data={"reason": ""})
    assert answer.status_code == 401
    assert 'href="/login"' in answer.text
    assert "cannot send" not in answer.text


def test_actions_are_hidden_from_a_read_only_token(
    guarded: Guarded, visitor_context: BrowserContext, site: Site
) -> None:
    run = f"/runs/{site.running}"
    paths = (
        "/", "/runs", run, "/runs/new", f"/runs/new?like={site.running}", "/problems", "/problems/new",
        "/tournaments", "/tournaments/new", f"/tournaments/{site.open}", f"/campaigns/{site.campaign}",
        "/campaigns", "/campaigns/new", "/policies", "/policies/new", "/policies/maze-vpo",
        f"{run}/candidates/1", "/access",
    )  # fmt: skip
    page = visitor_context.new_page()
    shown: dict[Scope, dict[str, int]] = {}
    changing = "main form[method=post] button, main [popovertarget], main .button[href*='/new']"
    for scope in (Scope.READ, Scope.PROPOSE, Scope.SUBMIT):
        made = site.stores.tokens.create(DEFAULT_PROJECT_ID, scope.value, scope, created_by="test")
        page.context.clear_cookies()
        log_in(page, f"{guarded.url}/access", made.token)
        expect(page.get_by_role("heading", name="Access")).to_be_visible()
        shown[scope] = {}
        for path in paths:
            page.goto(guarded.url + path)
            shown[scope][path] = page.locator(changing).locator("visible=true").count()
            assert page.get_by_text("Read-only token").is_visible() == (scope is Scope.READ)
            needs = page.get_by_text("This page needs a token with scope submit").count()
            assert bool(needs) == (scope is not Scope.SUBMIT and page.url.split("?")[0].endswith("/new"))
    # Every page but the last has actions to hide.
    assert {path for path, count in shown[Scope.SUBMIT].items() if not count} == {"/access"}
    assert not {path: count for path, count in shown[Scope.READ].items() if count}
    assert {path for path, count in shown[Scope.PROPOSE].items() if count} <= {run, f"{run}/candidates/1"}
    # Filters stay visible.
    page.context.clear_cookies()
    log_in(
        page,
        f"{guarded.url}/runs",
        site.stores.tokens.create(DEFAULT_PROJECT_ID, "again", Scope.READ, created_by="test").token,
    )
    expect(page.get_by_role("button", name="Filter")).to_be_visible()


def test_the_operator_creates_tokens_and_selects_projects(
    guarded: Guarded, visitor_context: BrowserContext, site: Site
) -> None:
    site.stores.projects.create("elsewhere", "Where nothing is")
    page = visitor_context.new_page()
    log_in(page, f"{guarded.url}/access", "0perat0r")
    page.get_by_label("Owner").fill("<b>dora</b>")
    page.get_by_role("button", name="Create token").click()
    token = page.locator("input[readonly]").input_value()
    bearer = site.stores.tokens.bearer(token)
    assert bearer is not None
    assert bearer.scope is Scope.READ
    page.goto(f"{guarded.url}/access")
    assert token not in page.content()
    row = page.get_by_role("row", name="<b>dora</b>")
    row.get_by_role("button", name="Revoke").click()
    page.get_by_role("button", name="Revoke token").click()
    expect(row).to_contain_text("revoked")
    assert site.stores.tokens.bearer(token) is None
    page.get_by_role("row", name="elsewhere").get_by_role("button", name="Quota").click()
    page.locator("form:popover-open").get_by_label("Concurrent runs").fill("3")
    page.get_by_role("button", name="Save quota").click()
    expect(page.get_by_role("row", name="elsewhere")).to_contain_text("0 of 3")
    page.get_by_role("row", name="elsewhere").get_by_role("button", name="Select").click()
    expect(page.locator(".side")).to_contain_text("Project elsewhere")
    page.goto(f"{guarded.url}/runs/{site.done}")
    expect(page.locator("main")).to_contain_text("there is no run")
    page.get_by_role("button", name="Log out").click()
    expect(page).to_have_url(f"{guarded.url}/login")
    page.goto(f"{guarded.other}/runs")
    expect(page).to_have_url(f"{guarded.other}/login?next=%2Fruns")


def test_other_sites_cannot_use_a_session(guarded: Guarded, visitor_context: BrowserContext, site: Site) -> None:
    page = visitor_context.new_page()
    log_in(page, f"{guarded.url}/access", "0perat0r")
    expect(page.get_by_role("heading", name="Access")).to_be_visible()
    before = site.stores.tokens.list(DEFAULT_PROJECT_ID).items
    steps = (f"/runs/{site.running}/cancel", f"/v1/runs/{site.running}:cancel", "/access/tokens", "/logout")
    # Another port is the same site, which gets the cookie; another host name is another site.
    for origin in (guarded.evil, guarded.evil.replace("127.0.0.1", "localhost")):
        for step in steps:
            page.goto(f"{origin}/?target={guarded.url}{step}")
            expect(page).to_have_title(re.compile("sent|refused"))
            page.get_by_role("button").click(no_wait_after=True)
            page.wait_for_url(f"{guarded.url}{step}")
    tried = site.stores.audit.list(project=None, limit=4 * len(steps)).items
    assert {(entry.action.partition(" ")[0], entry.status) for entry in tried} <= {("POST", 401), ("POST", 403)}
    assert site.stores.runs.get(site.running).state is RunState.RUNNING
    assert site.stores.tokens.list(DEFAULT_PROJECT_ID).items == before
    page.goto(f"{guarded.url}/access")
    expect(page.get_by_role("heading", name="Access")).to_be_visible()
