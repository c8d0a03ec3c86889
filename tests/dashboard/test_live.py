"""Live pages and forms: updates, reconnection after a restart, actions and declarations."""

from __future__ import annotations

import os
import re
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace

import httpx
import pytest
import uvicorn
from playwright.sync_api import Browser, expect

from service.app import create_app
from speciate.domain.candidate import Evaluation
from speciate.domain.declaration import DeclarationState
from speciate.domain.run import RunState
from tests.dashboard import samples
from tests.dashboard.conftest import Site, Visitor, assert_accessible, visiting
from tests.dashboard.round_robin import round_robin
from tests.support.http_server import WAIT_S, wait_for
from workers import tasks
from workers.composition import UnitWorker

PATIENCE = 3
"""Factor on promised times for a busy machine."""

pytestmark = pytest.mark.servers


@contextmanager
def serving(site: Site, port: int) -> Iterator[None]:
    """Serve another replica at a port; end its streams before it stops."""
    app = create_app(site.settings)
    config = uvicorn.Config(app, "127.0.0.1", port, log_level="error", ws="none", timeout_graceful_shutdown=1)
    server = uvicorn.Server(config)
    thread = threading.Thread(target=server.run)
    thread.start()
    wait_for(lambda: server.started)
    try:
        yield
    finally:
        app.state.dashboard.live.close_streams()
        server.should_exit = True
        thread.join(WAIT_S)


@contextmanager
def process(site: Site) -> Iterator[tuple[subprocess.Popen[bytes], int]]:
    """Serve another replica in a process that can be killed."""
    port = _free_port()
    command = [sys.executable, "-m", "service", "--port", str(port)]
    settings = site.settings
    assert settings.database_url is not None
    assert settings.redis_url is not None
    variables = {
        "SPECIATE_DATABASE_URL": settings.database_url.get_secret_value(),
        "SPECIATE_REDIS_URL": settings.redis_url.get_secret_value(),
        "PYTHONPATH": str(Path(__file__).parents[2]),
    }
    with subprocess.Popen([*command, "--log-level", "error"], env=os.environ | variables) as made:
        try:
            wait_for(lambda: _listens(port))
            yield made, port
        finally:
            made.kill()


def _listens(port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def _spent(site: Site) -> str:
    return f"{site.stores.runs.get(site.running).spent.evaluations:,}".replace(",", "\u202f")


def test_commits_update_the_page(visitor: Visitor, site: Site) -> None:
    visitor.go(f"/runs/{site.running}")
    visitor.drawn()
    expect(visitor.page.locator("#link")).to_have_text("live")
    before = visitor.page.locator("[data-figure*=progress]").evaluate("plot => plot.dataset.revision")
    samples.work(site.stores, site.running, 6)
    expect(visitor.page.locator("[data-part=tiles]")).to_contain_text(_spent(site))
    best = visitor.page.locator("[data-figure*=progress]")
    best.scroll_into_view_if_needed()
    expect(best).not_to_have_attribute("data-revision", before)
    visitor.go("/")
    samples.work(site.stores, site.running, 4)
    expect(visitor.page.locator("[data-part=running]")).to_contain_text(_spent(site))


def test_empty_charts_are_drawn_once_data_arrives(visitor: Visitor, site: Site) -> None:
    run_id = samples.start(site.stores, samples.single(), samples.mutator(), 24)
    visitor.go(f"/runs/{run_id}")
    figure = visitor.page.locator("figure:has([data-figure*=progress])")
    expect(figure).to_contain_text("No data yet.")
    expect(visitor.page.locator("#link")).to_have_text("live")
    samples.work(site.stores, run_id)
    figure.scroll_into_view_if_needed()
    expect(figure.locator(".main-svg").first).to_be_visible()
    expect(figure.locator(".empty")).to_be_hidden()


def test_a_chart_recovers_from_a_failed_load(visitor: Visitor, site: Site) -> None:
    visitor.page.route("**/figures/progress.json*", lambda route: route.abort(), times=1)
    visitor.go(f"/runs/{site.running}")
    plot = visitor.page.locator("[data-figure*=progress]")
    plot.scroll_into_view_if_needed()
    expect(plot).to_contain_text("could not be loaded")
    samples.work(site.stores, site.running, 4)
    expect(plot.locator(".main-svg").first).to_be_visible()
    expect(plot).not_to_contain_text("could not be loaded")
    visitor.errors = [each for each in visitor.errors if "ERR_FAILED" not in each]


def test_checkboxes_and_focus_survive_an_update(visitor: Visitor, site: Site) -> None:
    page = visitor.page
    visitor.go("/runs")
    expect(page.locator("#link")).to_have_text("live")
    ticked = [page.locator("input[name=run]").nth(i) for i in (0, 2)]
    chosen = [box.get_attribute("value") for box in ticked]
    for box in ticked:
        box.check()
    page.get_by_role("region", name="Runs, table").focus()
    samples.work(site.stores, site.running, 4)
    row = page.locator(f"tr:has(a[href='/runs/{site.running}'])")
    expect(row).to_contain_text(f"{_spent(site)} / 5\u202f000")
    assert page.evaluate("document.activeElement.ariaLabel") == "Runs, table"
    page.get_by_role("button", name="Compare selected").click()
    expect(page.get_by_role("heading", name="Compare runs")).to_be_visible()
    assert re.findall("run=([0-9a-f-]{36})", page.url) == chosen


def test_an_update_waits_until_the_open_dialog_is_closed(visitor: Visitor, site: Site) -> None:
    page = visitor.page
    run_id = samples.start(site.stores, samples.single(), samples.mutator(), 24)
    visitor.go(f"/runs/{run_id}")
    expect(page.locator("#link")).to_have_text("live")
    page.get_by_role("button", name="Cancel …").click()
    page.locator("#cancel").get_by_label("Reason").fill("it takes too long")
    samples.work(site.stores, run_id)
    expect(page.locator("#link")).to_have_text("ended")
    expect(page.locator("#cancel")).to_be_visible()
    page.get_by_role("button", name="Keep run", exact=True).click()
    expect(page.locator("[role=status]")).to_have_text("completed")
    expect(page.get_by_role("button", name="Cancel …")).to_have_count(0)


def test_the_table_of_a_chart_is_updated_with_it(visitor: Visitor, site: Site) -> None:
    visitor.go(f"/runs/{site.running}/population")
    figure = visitor.page.locator("figure:has([data-figure*='figures/population'])")
    figure.scroll_into_view_if_needed()
    expect(figure.locator("[data-drawn]")).to_be_visible()
    figure.locator("summary").click()
    rows = figure.locator("[data-rows]")
    before = rows.inner_text()
    assert figure.locator("tbody tr").count() > 0
    samples.work(site.stores, site.running, 6)
    expect(rows).not_to_have_text(before, use_inner_text=True)
    with visitor.page.context.new_page() as fresh:
        fresh.goto(visitor.page.url)
        again = fresh.locator("figure:has([data-figure*='figures/population'])")
        again.locator("summary").click()
        text = again.locator("[data-rows]").inner_text()
    expect(rows).to_have_text(text, use_inner_text=True)


def test_a_page_reconnects_to_a_restarted_server(browser: Browser, site: Site) -> None:
    port = _free_port()
    with visiting(browser.new_context(), f"http://127.0.0.1:{port}") as visitor:
        with serving(site, port):
            visitor.go(f"/runs/{site.running}/events")
            expect(visitor.page.locator("#link")).to_have_text("live")
        expect(visitor.page.locator("#link")).to_have_text("connecting …")
        samples.work(site.stores, site.running, 3)
        with serving(site, port):
            last = site.stores.runs.get(site.running).last_event
            expect(visitor.page.locator(f"#event-{last}")).to_be_visible(timeout=10_000)
            numbers = [int(cell) for cell in visitor.page.locator("tbody td:first-child").all_inner_texts()]
            assert numbers == list(range(last, last - len(numbers), -1))
            visitor.page.goto("about:blank")
        visitor.errors = [each for each in visitor.errors if "ERR_" not in each and "about:blank" not in each]


def test_a_stream_continues_on_another_replica(browser: Browser, site: Site) -> None:
    stores, run_id = site.stores, site.running
    ours = int(site.url.rpartition(":")[2])
    with process(site) as (killed, port), round_robin([port]) as proxy:
        address = f"http://127.0.0.1:{proxy.port}"
        with visiting(browser.new_context(), address) as visitor:
            visitor.go(f"/runs/{run_id}/events")
            expect(visitor.page.locator("#link")).to_have_text("live")
            visitor.page.evaluate(
                "new MutationObserver(found => window.added = [...(window.added || []),"
                " ...found.flatMap(f => [...f.addedNodes]).map(n => n.dataset && n.dataset.part)])"
                ".observe(document.querySelector('[data-stream]'), { childList: true, subtree: true })"
            )
            proxy.ports = [port, ours]
            killed.kill()
            begun = time.monotonic()
            expect(visitor.page.locator("#link")).to_have_text("connecting …")
            samples.work(stores, run_id, 3)
            last = stores.runs.get(run_id).last_event
            expect(visitor.page.locator(f"#event-{last}")).to_be_visible()
            # 1.4 s on a quiet machine.
            assert time.monotonic() - begun < 3 * PATIENCE
            numbers = [int(cell) for cell in visitor.page.locator("tbody td:first-child").all_inner_texts()]
            assert numbers == list(range(last, last - len(numbers), -1))
            # No frame is repeated: at most one per state since then.
            assert 1 <= len(visitor.page.evaluate("window.added")) <= 3
            visitor.page.goto("about:blank")
            visitor.errors = [each for each in visitor.errors if "ERR_" not in each and "about:blank" not in each]


def test_tournament_and_campaign_pages_are_live(visitor: Visitor, site: Site) -> None:
    stores, page = site.stores, visitor.page
    opened = samples.tournament(stores, "live", problems=2, seeds=1, play=False)
    visitor.go(f"/tournaments/{opened}?tab=problems")
    with visiting(page.context, site.url) as other:
        other.go(f"/tournaments/{opened}")
        for looking in (visitor, other):
            expect(looking.page.locator("#link")).to_have_text("live")
        expect(page.locator("[data-part=tables]")).to_contain_text("0 of 0")
        expect(other.page.locator(".lead")).to_have_text(re.compile("^Undecided: 0 of 6 runs have ended"))
        while stores.tournaments.get(opened).state is DeclarationState.RUNNING:
            samples.play_on(stores, opened)
        expect(page.locator("[data-part=tables]")).not_to_contain_text("0 of 0")
        expect(other.page.locator("[role=status]")).to_have_text("completed")
        expect(other.page.locator(".lead")).to_have_text(re.compile("^Undecided: 2 problems cannot decide"))
        other.drawn()
        other.page.get_by_role("link", name="Comparisons").click()
        expect(other.page).to_have_url(f"{site.url}/tournaments/{opened}?tab=comparisons")
        other.drawn()
        other.page.get_by_role("link", name="Side by side").first.click()
        expect(other.page.get_by_role("region", name="Problem by problem, table")).to_contain_text("variant-0@1")
    visitor.go(f"/campaigns/{site.campaign}")
    expect(page.locator("#link")).to_have_text("live")
    before = page.locator("[data-part=decisions] tbody tr").count()
    samples.sweep(stores, site.campaign)
    samples.sweep(stores, site.campaign)
    expect(page.locator("[data-part=decisions] tbody tr")).not_to_have_count(before)
    page.get_by_role("button", name="Pause").click()
    expect(page.locator("[role=status]")).to_have_text("paused")


def test_the_outcome_of_a_replay_appears_without_reload(
    visitor: Visitor, site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    stores, page = site.stores, visitor.page
    scored = next(c for c in stores.queries.candidates(site.done, limit=50).items if c.rewards)
    visitor.go(f"/runs/{site.done}/candidates/{scored.number}")
    page.get_by_role("button", name="Replay …").press("Enter")
    page.get_by_role("button", name="Replay candidate").click()
    expect(page.locator("[data-part=replay]")).to_contain_text("waiting for a worker")
    monkeypatch.setattr(tasks, "stores", lambda: stores)
    monkeypatch.setattr(tasks, "evaluator", lambda: SimpleNamespace(can_evaluate=lambda _: True))
    replayer = UnitWorker(site.settings, stores, samples.Landscape())
    monkeypatch.setattr(tasks, "worker", lambda: replayer)
    tasks.replay(str(scored.id))
    expect(page.locator("[data-part=replay]")).to_contain_text("Same result as the first evaluation")
    monkeypatch.setattr(samples.Landscape, "evaluate", lambda *_, **__: [Evaluation(rewards=(1.0, 2.0, 3.0, 4.0, 5.0))])
    tasks.replay(str(scored.id))
    page.reload()
    expect(page.locator("[data-part=replay] table")).to_contain_text("gain")


def test_a_run_is_paused_resumed_and_cancelled_from_its_page(visitor: Visitor, site: Site) -> None:
    stores, page = site.stores, visitor.page
    run_id = samples.start(stores, samples.single(), samples.mutator(), 50)
    visitor.go(f"/runs/{run_id}")
    page.get_by_role("button", name="Pause …").press("Enter")
    page.get_by_label("Reason").first.fill(samples.HOSTILE)
    page.get_by_role("button", name="Pause run").click()
    expect(page.locator("[role=status]")).to_have_text("paused")
    assert stores.runs.get(run_id).reason == samples.HOSTILE
    page.get_by_role("button", name="Resume").click()
    expect(page.locator("[role=status]")).to_have_text("running")
    page.get_by_role("button", name="Cancel …").click()
    page.get_by_role("button", name="Keep run", exact=True).click()
    assert stores.runs.get(run_id).state is RunState.RUNNING
    page.get_by_role("button", name="Cancel …").click()
    page.get_by_role("button", name="Cancel run").click()
    expect(page.locator("[role=status]")).to_have_text("cancelled")


def test_the_run_form_keeps_its_values_and_starts_a_run(visitor: Visitor, site: Site) -> None:
    page = visitor.page
    visitor.go("/runs/new?problem=one-number&policy=mutator")
    expect(page.locator("[name=seed]")).to_be_hidden()
    page.get_by_role("heading", name="Advanced").click()
    page.locator("[name=seed]").fill("77")
    with page.expect_navigation():
        page.locator("[name=strategy]").select_option("sequential_revision")
    expect(page.locator("[name=seed]")).to_have_value("77")
    page.locator("[name='strategy_options.chains']").fill("many")
    page.locator("[name='budget.evaluations']").fill("30")
    page.get_by_role("button", name="Start run").click()
    expect(page.get_by_role("alert")).to_contain_text("chains")
    expect(page.locator("[name='strategy_options.chains']")).to_have_value("many")
    page.locator("[name='strategy_options.chains']").fill("3")
    page.get_by_role("button", name="Start run").click()
    expect(page).to_have_url(re.compile(r"/runs/[0-9a-f-]{36}$"))
    spec = site.stores.runs.list(limit=1).items[0].spec
    assert (spec.seed, spec.strategy_options, spec.budget.evaluations) == (77, {"chains": 3}, 30)
    visitor.errors = [each for each in visitor.errors if "422" not in each]


def test_the_problem_form_shows_errors_with_lines(visitor: Visitor, site: Site) -> None:
    page = visitor.page
    text = (
        'slug = "from-a-page"\ntitle = "From a page"\nkind = "evaluator"\nevaluator = "score.py"\n\n[[objectives]]\n'
        'name = "x"\ndirection = "upwards"\n\n[[targets]]\nname = "t"\nrule = "x >= 1"\nunlock = true\n'
    )
    visitor.go("/problems/new")
    page.locator("[name=toml]").fill(text)
    upload = {"name": "score.py", "mimeType": "text/plain", "buffer": b"def evaluate(candidate, context):\n    pass\n"}
    page.get_by_label("Upload").set_input_files(upload)
    page.get_by_role("button", name="Submit problem").click()
    expect(page.get_by_role("alert")).to_contain_text("problem.toml:8")
    expect(page.locator(".diff .cut")).to_contain_text('direction = "upwards"')
    expect(page.locator("[name='file:score.py']")).to_have_value(re.compile("def evaluate"))
    page.locator("[name=toml]").fill(text.replace("upwards", "maximize"))
    page.get_by_role("button", name="Submit problem").click()
    expect(page).to_have_url(re.compile(r"/problems/from-a-page@1$"))
    visitor.errors = [each for each in visitor.errors if "422" not in each]


def test_a_tournament_is_declared_from_a_form(visitor: Visitor, site: Site) -> None:
    page = visitor.page
    visitor.go("/tournaments/new")
    page.locator("[name=slug]").fill("No Slug")
    page.locator("[name=problems]").fill("variant-0")
    page.get_by_role("button", name="Review tournament").click()
    expect(page.locator("#wrong-slug")).to_contain_text("lower-case")
    visitor.errors = [each for each in visitor.errors if "422" not in each]
    page.locator("[name=slug]").fill("from-a-page")
    page.locator("[name=problems]").fill("variant-0\nvariant-1")
    page.locator("[name=policies]").fill("left right")
    page.locator("[name='budget.evaluations']").fill("12")
    page.locator("[name=seeds]").fill("2")
    page.get_by_role("button", name="Review tournament").click()
    expect(page.locator("main")).to_contain_text("2 problems cannot decide any comparison")
    assert_accessible(page)
    page.get_by_role("button", name="Start 16 runs").click()
    expect(page).to_have_url(re.compile(r"/tournaments/from-a-page$"))
    assert site.stores.tournaments.get("from-a-page").planned == 16
    page.get_by_role("button", name="Pause").click()
    expect(page.locator("[role=status]")).to_have_text("paused")


def test_a_campaign_is_declared_from_a_form(visitor: Visitor, site: Site) -> None:
    page = visitor.page
    visitor.go("/campaigns")
    page.get_by_role("link", name="Declare a campaign").click()
    page.locator("[name=slug]").fill("from-a-form")
    page.locator("[name=policy]").fill("left")
    page.locator("[name=problems]").fill("variant-0\nvariant-1")
    page.locator("[name=evaluations]").fill("63")
    page.get_by_role("button", name="Start campaign").click()
    expect(page.locator("#wrong-evaluations")).to_contain_text("expected at least 64")
    visitor.errors = [each for each in visitor.errors if "422" not in each]
    expect(page.locator("[name=problems]")).to_have_value(re.compile("variant-0\\s+variant-1"))
    page.locator("[name=evaluations]").fill("64")
    page.get_by_role("heading", name="Advanced").click()
    with page.expect_navigation():
        page.locator("[name=strategy]").select_option("vector_evolution")
    page.locator("[name='strategy_options.min_elites']").fill("5")
    page.get_by_role("button", name="Start campaign").click()
    expect(page).to_have_url(re.compile(r"/campaigns/from-a-form$"))
    declared = site.stores.campaigns.get("from-a-form").declaration
    assert (declared.evaluations, declared.strategy, len(declared.problems)) == (64, "vector_evolution", 2)
    assert declared.strategy_options == {"min_elites": 5}
    page.get_by_role("button", name="Cancel").click()
    page.get_by_role("button", name="Cancel campaign").click()
    expect(page.locator("[role=status]")).to_have_text("cancelled")


def test_forms_of_other_sites_are_refused(site: Site) -> None:
    path = f"/runs/{site.running}/cancel"
    own = {"Origin": site.url}
    with httpx.Client(base_url=site.url, trust_env=False, timeout=WAIT_S) as http:
        for headers in (
            {},
            {"Origin": "https://evil.example"},
            {"Origin": "null"},
            own | {"Sec-Fetch-Site": "cross-site"},
        ):
            assert http.post(path, data={"reason": "x"}, headers=headers).status_code == 403
        assert http.post(path, content=b"{}", headers=own | {"Content-Type": "application/json"}).status_code == 415
    assert site.stores.runs.get(site.running).state is RunState.RUNNING


def test_a_form_sent_twice_starts_one_run(site: Site) -> None:
    form = {"problem": "one-number", "policy": "mutator", "budget.evaluations": "5", "key": "twice"}
    with httpx.Client(base_url=site.url, headers={"Origin": site.url}, trust_env=False, timeout=WAIT_S) as http:
        first, second = (http.post("/runs", data=form).headers["location"] for _ in range(2))
    assert first == second
