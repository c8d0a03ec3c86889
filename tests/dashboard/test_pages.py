"""Every page in a real browser: loads, draws its charts, is accessible in both themes, and asks nobody else."""

from __future__ import annotations

import gzip
import re

import httpx
import pytest
from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import Browser, expect

from speciate.testing.http_server import WAIT_S
from tests.dashboard.conftest import Exhibition, Visitor, visiting
from tests.dashboard.exhibits import HOSTILE

pytestmark = [pytest.mark.servers, pytest.mark.xdist_group("dashboard")]

PAGES = {
    "activity": "/",
    "runs": "/runs",
    "run-done": "/runs/{done}",
    "run-axes": "/runs/{done}?x=cost&y=bandwidth",
    "run-running": "/runs/{running}",
    "run-single": "/runs/{single}",
    "run-cases": "/runs/{cases}",
    "run-doomed": "/runs/{doomed}",
    "run-empty": "/runs/{empty}",
    "candidates": "/runs/{done}/candidates",
    "candidate": "/runs/{done}/candidates/9",
    "candidate-failed": "/runs/{doomed}/candidates/2",
    "lineage": "/runs/{done}/lineage?y=generation",
    "events": "/runs/{done}/events",
    "compare": "/compare?run={done}&run={running}",
    "new-run": "/runs/new",
    "problems": "/problems",
    "problem": "/problems/antenna-array@1",
    "problem-hostile": "/problems/doomed",
    "new-problem": "/problems/new",
    "policies": "/policies",
    "policy": "/policies/maze-vpo",
    "unlocks": "/unlocks?a=mutator@1&b=maze-vpo@1",
    "tournaments": "/tournaments",
    "tournament": "/tournaments/{tournament}",
    "pair": "/tournaments/{tournament}/pair",
    "new-tournament": "/tournaments/new",
    "workers": "/workers",
    "access": "/access",
}
SERIOUS = {"serious", "critical"}


def path_of(name: str, exhibition: Exhibition) -> str:
    return PAGES[name].format(**vars(exhibition))


@pytest.mark.parametrize("name", PAGES)
def test_a_page_works_and_is_accessible_in_both_themes(name: str, visitor: Visitor, exhibition: Exhibition) -> None:
    assert visitor.go(path_of(name, exhibition)) == 200
    visitor.drawn()
    wide = visitor.page.evaluate("document.documentElement.scrollWidth > innerWidth")
    assert not wide, "the page is wider than the window"
    axe = Axe()
    for theme, options in (("light", {}), ("dark", {"runOnly": ["color-contrast"]})):
        visitor.page.evaluate("theme => document.documentElement.dataset.theme = theme", theme)
        # A chart is an image with a description; what is in it stands in the table below.
        found = axe.run(visitor.page, context={"exclude": [[".plot"]]}, options=options).response["violations"]
        told = [(v["id"], v["nodes"][0]["html"][:200]) for v in found if v["impact"] in SERIOUS]
        assert not told, (theme, told)
    assert "owned" not in visitor.page.title()


def test_pages_fit_a_telephone(browser: Browser, exhibition: Exhibition) -> None:
    context = browser.new_context(viewport={"width": 360, "height": 740}, color_scheme="dark")
    with visiting(context, exhibition.url) as visitor:
        for name in PAGES:
            visitor.page.goto(exhibition.url + path_of(name, exhibition), wait_until="domcontentloaded")
            assert not visitor.page.evaluate("document.documentElement.scrollWidth > innerWidth"), name


def test_what_is_needed_to_paint_is_small(exhibition: Exhibition) -> None:
    with httpx.Client(
        base_url=exhibition.url, headers={"Accept": "text/html"}, trust_env=False, timeout=WAIT_S
    ) as http:
        html = http.get(f"/runs/{exhibition.running}").text
        total = len(gzip.compress(html.encode(), 5))
        for path in set(re.findall(r'(?:href|src)="(/static/[^"]+)"', html)):
            answer = http.get(path)
            assert answer.headers["content-encoding"] == "gzip"
            assert "immutable" in answer.headers["cache-control"]
            total += int(answer.headers["content-length"])
    assert "plotly.js" in html
    assert total <= 30_000


def test_hostile_texts_are_shown_and_do_nothing(visitor: Visitor, exhibition: Exhibition) -> None:
    for path in ("/problems/doomed", f"/runs/{exhibition.doomed}/candidates/2", f"/runs/{exhibition.empty}"):
        visitor.go(path)
        assert HOSTILE in visitor.page.content().replace("&lt;", "<").replace("&gt;", ">").replace("&quot;", '"')
        assert visitor.page.locator("main script, main img").count() == 0
        assert "owned" not in visitor.page.title()


def test_without_javascript_pages_are_complete(plain_visitor: Visitor, exhibition: Exhibition) -> None:
    page = plain_visitor.page
    plain_visitor.go(f"/runs/{exhibition.done}")
    assert page.locator(".plot:visible").count() == 0
    for figure in page.locator("figure").all():
        figure.locator("summary").click()
        assert figure.locator("tbody tr").count() > 0
    page.get_by_role("button", name="Show", exact=True).click()
    expect(page).to_have_url(re.compile(r"\?x=gain&y=sidelobe"))
    plain_visitor.go(f"/runs/{exhibition.done}/candidates/9")
    assert page.locator(".diff .add").count() > 0
    plain_visitor.go("/unlocks?a=mutator@1&b=maze-vpo@1")
    assert page.locator(".matrix tbody tr").count() >= 3
    plain_visitor.go(f"/tournaments/{exhibition.tournament}")
    expect(page.get_by_role("heading", name="Differences")).to_be_visible()
    page.get_by_role("button", name="Dark theme").click()
    expect(page.locator("html")).to_have_attribute("data-theme", "dark")


def test_what_is_not_there_is_said_with_a_way_back(visitor: Visitor, exhibition: Exhibition) -> None:
    unknown = "00000000-0000-7000-8000-000000000000"
    for path in (
        f"/runs/{unknown}",
        "/runs/<script>",
        f"/runs/{exhibition.done}/candidates/99999",
        f"/runs/{exhibition.done}/candidates/{'9' * 40}",
        "/candidates/nothing",
        "/problems/nothing",
        "/policies/%00",
        f"/compare?run={unknown}",
        "/tournaments/nothing",
        "/nowhere",
        f"/runs/{exhibition.done}/figures/nothing.json",
    ):
        assert visitor.go(path) == 404, path
        assert visitor.page.locator("main a.button").count() >= 1
    # The browser reports each of these pages as a failed load, and nothing else.
    assert all("404" in told for told in visitor.trouble)
    visitor.trouble.clear()


def test_programs_are_told_in_json(exhibition: Exhibition) -> None:
    with httpx.Client(base_url=exhibition.url, trust_env=False, timeout=WAIT_S) as http:
        answer = http.get("/runs/nothing")
        assert (answer.status_code, answer.headers["content-type"]) == (404, "application/problem+json")
        assert http.get("/v1/runs/nothing", headers={"Accept": "text/html"}).json()["status"] == 422
        page = http.get("/", headers={"Accept": "text/html"})
        policy = page.headers["content-security-policy"]
        assert "script-src 'self';" in policy
        assert "unsafe-eval" not in policy
