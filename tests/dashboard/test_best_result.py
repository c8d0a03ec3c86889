"""The answer at the top of a run's page."""

from __future__ import annotations

import httpx
import pytest
from playwright.sync_api import Browser, Route, expect

from speciate.domain.target import ClaimState
from tests.dashboard import samples
from tests.dashboard.conftest import Site, Visitor, visiting
from tests.dashboard.samples import HOSTILE

pytestmark = pytest.mark.servers


def test_a_run_opens_with_its_best_program(visitor: Visitor, site: Site) -> None:
    best = site.stores.runs.get(site.done).best
    assert best is not None
    visitor.go(f"/runs/{site.done}")
    answer = visitor.page.locator("#answer")
    link = answer.get_by_role("heading").get_by_role("link", name=f"candidate {best.number}")
    expect(link).to_have_attribute("href", f"/runs/{site.done}/candidates/{best.number}")
    below = visitor.page.locator(".tiles").bounding_box()
    top = answer.bounding_box()
    assert below is not None
    assert top is not None
    assert top["y"] + top["height"] <= below["y"]
    expect(visitor.page.locator("[data-part=program] pre .k").first).to_have_text("def")
    best_values = answer.get_by_role("region", name="Best candidate and seed, table")
    expect(best_values).to_contain_text("gain\xa0↑")
    expect(best_values).to_contain_text("overlap\xa0↓ constraint")
    expect(best_values.locator(".state").first).to_contain_text("better")


def test_a_target_says_what_is_missing_and_links_to_its_candidate(visitor: Visitor, site: Site) -> None:
    (claim,) = site.stores.unlocks.list(run_id=site.done, state=ClaimState.CONFIRMED).items
    visitor.go(f"/runs/{site.done}")
    row = visitor.page.locator("#answer tr").filter(has_text=claim.target)
    expect(row.get_by_role("link", name="confirmed")).to_have_attribute(
        "href", f"/runs/{site.done}/candidates/{claim.number}"
    )
    missing = visitor.page.locator("#answer tr").filter(has_text="record")
    expect(missing).to_contain_text("sidelobe must be <= 2.5, is ")
    expect(missing).to_contain_text("not reached")


def test_the_program_is_copied_and_downloaded(browser: Browser, site: Site) -> None:
    best = site.stores.runs.get(site.done).best
    assert best is not None
    program = site.stores.queries.candidate_of(site.done, best.number).program
    context = browser.new_context()
    context.grant_permissions(["clipboard-read", "clipboard-write"], origin=site.url)
    with visiting(context, site.url) as visitor:
        visitor.go(f"/runs/{site.done}")
        visitor.page.get_by_role("button", name="Copy").click()
        expect(visitor.page.get_by_role("button", name="Copied")).to_be_visible()
        assert visitor.page.evaluate("navigator.clipboard.readText()") == program
        with visitor.page.expect_download() as started:
            visitor.page.get_by_role("link", name="Download", exact=True).click()
        assert started.value.suggested_filename == f"candidate-{best.number}.py"
    served = httpx.get(f"{site.url}/runs/{site.done}/candidates/{best.number}/program.txt")
    assert served.text == program
    assert served.headers["content-type"].startswith("text/plain")
    assert served.headers["content-disposition"].startswith("attachment")
    assert served.headers["x-content-type-options"] == "nosniff"


def test_the_program_is_copied_without_a_clipboard_api(browser: Browser, site: Site) -> None:
    context = browser.new_context()
    context.add_init_script("Object.defineProperty(navigator, 'clipboard', { value: undefined })")
    context.add_init_script("document.addEventListener('copy', () => { window.copied = String(getSelection()); })")
    with visiting(context, site.url) as visitor:
        visitor.go(f"/runs/{site.done}")
        visitor.page.get_by_role("button", name="Copy").click()
        expect(visitor.page.get_by_role("button", name="Copied")).to_be_visible()
        assert "def solve(n):" in visitor.page.evaluate("window.copied")


def test_the_changes_to_the_seed_program(visitor: Visitor, site: Site) -> None:
    visitor.go(f"/runs/{site.done}")
    visitor.page.get_by_text("Changes to the seed program").click()
    changes = visitor.page.get_by_role("region", name="Changes to the seed program")
    expect(changes.locator(".cut").first).to_contain_text("a = 0.2")


def test_without_a_feasible_candidate_the_nearest_is_shown(plain_visitor: Visitor, site: Site) -> None:
    assert site.stores.runs.get(site.infeasible).best is None
    plain_visitor.go(f"/runs/{site.infeasible}")
    answer = plain_visitor.page.locator("#answer")
    expect(answer.get_by_role("heading").first).to_contain_text("No feasible candidate; the nearest is candidate")
    expect(answer.locator(".notice")).to_contain_text("overlap must be <= -0.5, is ")
    expect(plain_visitor.page.get_by_role("region", name="Program, text")).to_contain_text(HOSTILE)
    assert "owned" not in plain_visitor.page.title()


@pytest.mark.parametrize(("name", "text"), [("doomed", "No candidate has rewards"), ("empty", "No candidate has been")])
def test_a_run_without_rewards_has_no_answer(plain_visitor: Visitor, site: Site, name: str, text: str) -> None:
    plain_visitor.go(f"/runs/{getattr(site, name)}")
    expect(plain_visitor.page.locator("#answer")).to_contain_text(text)
    expect(plain_visitor.page.get_by_role("region", name="Targets, table").locator("tbody tr")).to_have_count(1)
    expect(plain_visitor.page.get_by_role("heading", name="Program")).to_have_count(0)


def test_a_new_best_program_replaces_the_shown_one(visitor: Visitor, site: Site) -> None:
    run_id = samples.start(site.stores, samples.antenna(), samples.mutator(), 400, seed=9)
    visitor.go(f"/runs/{run_id}")
    expect(visitor.page.locator("#answer")).to_contain_text("No answer yet")
    samples.work(site.stores, run_id, 6)
    best = site.stores.runs.get(run_id).best
    assert best is not None
    answer, program = visitor.page.locator("#answer"), visitor.page.locator("[data-part=program]")
    expect(answer.get_by_role("link", name=f"candidate {best.number}").first).to_be_visible()
    expect(program.get_by_role("link", name="Download", exact=True)).to_have_attribute(
        "href", f"/runs/{run_id}/candidates/{best.number}/program.txt"
    )
    site.stores.runs.cancel(run_id)


def test_the_shown_program_belongs_to_the_latest_of_overlapping_updates(visitor: Visitor, site: Site) -> None:
    run_id = samples.start(site.stores, samples.antenna(), samples.mutator(), 400, seed=9)
    numbers: list[int] = []
    held: list[Route] = []

    def hold(route: Route) -> None:
        held.append(route)

    visitor.page.route("**/candidates/*/program", hold)
    visitor.go(f"/runs/{run_id}")
    expect(visitor.page.locator("#link")).to_have_text("live")
    while len(numbers) < 2:
        samples.work(site.stores, run_id, 6)
        best = site.stores.runs.get(run_id).best
        assert best is not None
        if best.number in numbers:
            continue
        with visitor.page.expect_request(f"**/candidates/{best.number}/program"):
            numbers.append(best.number)
    for route in held:
        with visitor.page.expect_response(route.request.url):
            route.continue_()
    expect(
        visitor.page.locator("[data-part=program]").get_by_role("link", name="Download", exact=True)
    ).to_have_attribute("href", f"/runs/{run_id}/candidates/{numbers[-1]}/program.txt")
    site.stores.runs.cancel(run_id)


def test_the_stream_does_not_repeat_the_program(site: Site) -> None:
    best = site.stores.runs.get(site.done).best
    assert best is not None
    with httpx.stream("GET", f"{site.url}/runs/{site.done}/live") as stream:
        lines = next(line for line in stream.iter_lines() if line.startswith("data: {"))
    assert f"/candidates/{best.number}/program" in lines
    assert "solve" not in lines
