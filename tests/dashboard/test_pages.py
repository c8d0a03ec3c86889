"""Every page in a real browser: status, charts, accessibility in both themes, no off-origin request."""

from __future__ import annotations

import csv
import gzip
import io
import re
from uuid import UUID

import httpx
import pytest
from playwright.sync_api import Browser, expect

from service.dashboard.formatting import number
from speciate.storage.candidates.listing import CandidateFilter
from tests.dashboard import samples
from tests.dashboard.conftest import Site, Visitor, assert_accessible, visiting
from tests.dashboard.samples import HOSTILE
from tests.support.http_server import WAIT_S

pytestmark = pytest.mark.servers

PAGES = {
    "activity": "/",
    "runs": "/runs",
    "run-done": "/runs/{done}",
    "run-running": "/runs/{running}",
    "run-single": "/runs/{single}",
    "run-cases": "/runs/{cases}",
    "run-doomed": "/runs/{doomed}",
    "run-empty": "/runs/{empty}",
    "run-infeasible": "/runs/{infeasible}",
    "run-advised": "/runs/{advised}",
    "run-broken": "/runs/{broken}",
    "run-unread": "/runs/{unread}",
    "candidates": "/runs/{done}/candidates",
    "candidates-sorted": "/runs/{done}/candidates?sort=sidelobe&rule=gain+%3E+1&elite=1&show=cost",
    "candidate": "/runs/{done}/candidates/9",
    "candidate-failed": "/runs/{doomed}/candidates/2",
    "candidate-waiting": "/runs/{empty}/candidates/1",
    "lineage": "/runs/{done}/lineage",
    "population": "/runs/{done}/population",
    "prompts": "/runs/{advised}/prompts",
    "configuration": "/runs/{done}/configuration",
    "events": "/runs/{done}/events",
    "compare": "/compare?run={done}&run={running}",
    "new-run": "/runs/new",
    "problems": "/problems",
    "problem": "/problems/antenna-array@1",
    "problem-hostile": "/problems/doomed",
    "new-problem": "/problems/new",
    "policies": "/policies",
    "policy": "/policies/maze-vpo",
    "new-policy": "/policies/new",
    "unlocks": "/unlocks?a=mutator@1&b=maze-vpo@1",
    "tournaments": "/tournaments",
    "tournament": "/tournaments/{tournament}",
    "tournament-comparisons": "/tournaments/{tournament}?tab=comparisons",
    "tournament-problems": "/tournaments/{tournament}?tab=problems",
    "tournament-budget": "/tournaments/{tournament}?tab=budget",
    "tournament-policies": "/tournaments/{tournament}?tab=policies",
    "tournament-design": "/tournaments/{tournament}?tab=design",
    "tournament-methods": "/tournaments/{methods}",
    "pair": "/tournaments/{tournament}/pair?a=islands&b=sampling",
    "tournament-open": "/tournaments/{open}",
    "new-tournament": "/tournaments/new",
    "campaigns": "/campaigns",
    "new-campaign": "/campaigns/new",
    "campaign": "/campaigns/{campaign}",
    "workers": "/workers",
    "access": "/access",
    "docs": "/docs/api",
    "guides": "/docs",
    "guide": "/docs/concepts/how-a-run-ends",
    "guide-reference": "/docs/reference/cli",
}
# Interactive elements that the keyboard does not reach or that show no focus.
_WITHOUT_FOCUS = """() => [
    ...document.querySelectorAll("a[href], button, input, select, textarea, summary, .scroll, pre")]
  .filter(e => e.checkVisibility() && e.type !== "hidden")
  .filter(e => { e.focus(); return document.activeElement !== e || getComputedStyle(e).outlineStyle === "none"; })
  .map(e => e.outerHTML.slice(0, 200))"""

# Tables that a phone cannot scroll, or that do not show it: shades at the edges lie under covers that scroll.
_WITHOUT_HINT = """() => [...document.querySelectorAll("main table:not(#swagger *)")].filter(table => {
  const region = table.closest(".scroll[role=region][tabindex='0'][aria-label]");
  const attachments = region && getComputedStyle(region).backgroundAttachment;
  return attachments !== "local, local, scroll, scroll";
}).map(table => table.outerHTML.slice(0, 200))"""


def path_of(name: str, site: Site) -> str:
    return PAGES[name].format(**vars(site))


@pytest.mark.parametrize("name", [name for name in PAGES if name != "docs"])
def test_a_page_works_and_is_accessible_in_both_themes(name: str, visitor: Visitor, site: Site) -> None:
    assert visitor.go(path_of(name, site)) == 200
    visitor.drawn()
    wide = visitor.page.evaluate("document.documentElement.scrollWidth > innerWidth")
    assert not wide, "the page is wider than the window"
    assert_accessible(visitor.page)
    visitor.page.keyboard.press("Tab")
    assert visitor.page.evaluate(_WITHOUT_FOCUS) == []
    assert "owned" not in visitor.page.title()


def test_swagger_ui_renders_with_our_colours_and_is_accessible(visitor: Visitor) -> None:
    assert visitor.go("/docs/api") == 200
    visitor.page.locator(".opblock").last.wait_for()
    assert not visitor.page.evaluate("document.documentElement.scrollWidth > innerWidth")
    assert_accessible(visitor.page)
    visitor.page.keyboard.press("Tab")
    assert visitor.page.evaluate(_WITHOUT_FOCUS) == []
    expect(visitor.page.get_by_role("link", name="REST API")).to_have_attribute("href", "/docs/api")


def test_pages_link_their_guide_and_guides_link_each_other(site: Site) -> None:
    with httpx.Client(base_url=site.url, trust_env=False, timeout=WAIT_S) as http:
        for name in PAGES:
            text = http.get(path_of(name, site)).text
            for guide in set(re.findall(r'href="(/docs[^"#]*)', text)):
                assert http.get(guide).status_code == 200, (name, guide)
        assert 'href="/docs/concepts/tournaments">About this page' in http.get("/tournaments").text
        tutorial = http.get("/docs/tutorial").text
    assert 'href="/docs/glossary"' in tutorial
    assert ".md" not in "".join(re.findall(r'href="[^"]*"', tutorial))


def test_all_entries_of_the_menu_are_reached_on_a_phone(browser: Browser, site: Site) -> None:
    with visiting(browser.new_context(viewport={"width": 390, "height": 844}), site.url) as phone:
        phone.go("/runs")
        phone.page.get_by_role("button", name="Menu").click()
        entries = phone.page.get_by_role("navigation", name="Main").get_by_role("link")
        assert entries.all_inner_texts()[-1] == "Access"
        for entry in entries.all():
            expect(entry).to_be_in_viewport()
        assert_accessible(phone.page)
        entries.get_by_text("Tournaments").click()
        expect(phone.page).to_have_url(f"{site.url}/tournaments")


def test_activity_tables_and_run_filters_fit_a_small_screen(visitor: Visitor, site: Site) -> None:
    visitor.go("/")
    for table in ("Needs attention, table", "Latest targets, table", "Latest results, table"):
        region = visitor.page.get_by_role("region", name=table)
        assert not region.evaluate("table => table.scrollWidth > table.clientWidth"), table
    visitor.go("/runs")
    assert not visitor.page.locator(".scroll").first.evaluate("table => table.scrollWidth > table.clientWidth")
    fields = visitor.page.locator("form.bar > *")
    assert len({round(box["y"] + box["height"]) for field in fields.all() if (box := field.bounding_box())}) == 1


def test_descenders_of_axis_titles_are_visible(visitor: Visitor, site: Site) -> None:
    visitor.go(f"/runs/{site.done}")
    visitor.drawn()
    # The title's box ends with the picture, so that descenders need a margin.
    margin = "picture => [getComputedStyle(picture).overflow, getComputedStyle(picture).overflowClipMargin]"
    assert visitor.page.locator(".main-svg").first.evaluate(margin) == ["clip", "4px"]


def test_a_paused_run_shows_what_failed_and_what_to_do(visitor: Visitor, site: Site) -> None:
    visitor.go(f"/runs/{site.broken}")
    panel = visitor.page.locator("#diagnosis")
    expect(panel.get_by_role("heading", name="The evaluator failed")).to_be_visible()
    expect(panel.get_by_role("region", name="Reason")).to_contain_text("No module named 'shapely'")
    expect(panel).to_contain_text("speciate problems check DIR")
    expect(panel.get_by_role("link", name="candidate 1")).to_have_attribute("href", f"/runs/{site.broken}/candidates/1")
    visitor.go(f"/runs/{site.unread}")
    panel = visitor.page.locator("#diagnosis")
    regions = panel.get_by_role("region", name=re.compile("^(Prompt|Completion)"))
    expect(regions).to_have_count(2)
    # At one moment: charts above may still move the panel.
    left, right = regions.evaluate_all("parts => parts.map(part => part.getBoundingClientRect().toJSON())")
    assert (abs(left["y"] - right["y"]) < 2, left["x"] < right["x"]) == (True, True)
    expect(panel.get_by_role("region", name="Completion")).to_contain_text("I cannot change this program")
    expect(panel).to_contain_text("no_code_block")
    panel.get_by_role("link", name=re.compile("^candidate ")).first.click()
    expect(visitor.page.locator("main")).to_contain_text("The answer held no program.")


def test_the_description_of_a_target_is_not_monospaced(visitor: Visitor, site: Site) -> None:
    visitor.go("/problems/doomed")
    description = visitor.page.get_by_role("region", name="Targets, table").locator("td .muted").first
    body = visitor.page.locator("body").evaluate("body => getComputedStyle(body).fontFamily")
    assert description.evaluate("words => getComputedStyle(words).fontFamily") == body


def test_pages_fit_a_phone(browser: Browser, site: Site) -> None:
    context = browser.new_context(viewport={"width": 360, "height": 740}, color_scheme="dark")
    with visiting(context, site.url) as visitor:
        for name in PAGES:
            visitor.page.goto(site.url + path_of(name, site), wait_until="domcontentloaded")
            assert not visitor.page.evaluate("document.documentElement.scrollWidth > innerWidth"), name
            assert visitor.page.evaluate("document.querySelector('.side').offsetHeight") < 80, name
            assert visitor.page.evaluate(_WITHOUT_HINT) == [], name
        visitor.go(f"/tournaments/{site.tournament}?tab=comparisons")
        differences = visitor.page.get_by_role("region", name="Differences, table")
        assert differences.locator("tbody td:last-child").first.evaluate("verdict => verdict.offsetWidth") > 250
        assert differences.locator("td.num").evaluate_all(
            "cells => cells.every(cell => getComputedStyle(cell).textAlign == 'right')"
        )
        visitor.go("/runs")
        assert visitor.page.evaluate("document.querySelector('.scroll').scrollWidth") > 360
        visitor.go(f"/runs/{site.done}")
        values = visitor.page.get_by_role("region", name="Best candidate and seed, table")
        assert not values.evaluate("table => table.scrollWidth > table.clientWidth")
        visitor.drawn()
        for plot in visitor.page.locator("[data-figure*='/progress.json']").all():  # no name of a target is cut off
            assert plot.evaluate("plot => plot.layout.annotations[0].text") == "<b>gain ↑</b> · usable 5, record 9"
            low, high = plot.evaluate("plot => plot.layout.yaxis.range")
            assert low < 5 < 9 < high


def test_the_critical_path_is_small(site: Site) -> None:
    with httpx.Client(base_url=site.url, headers={"Accept": "text/html"}, trust_env=False, timeout=WAIT_S) as http:
        html = http.get(f"/runs/{site.running}").text
        total = len(gzip.compress(html.encode(), 5))
        # Preloaded files are fetched after the first part of the page and delay nothing.
        needed = re.sub(r'<link rel="preload"[^>]+>', "", html)
        for path in set(re.findall(r'(?:href|src)="(/static/[^"]+)"', needed)):
            answer = http.get(path)
            assert answer.headers["content-encoding"] == "gzip"
            assert "immutable" in answer.headers["cache-control"]
            total += int(answer.headers["content-length"])
    assert "plotly.js" in html
    assert total <= 30_000


def test_hostile_texts_are_escaped(visitor: Visitor, site: Site) -> None:
    for path in ("/problems/doomed", f"/runs/{site.doomed}/candidates/2", f"/runs/{site.empty}"):
        visitor.go(path)
        assert HOSTILE in visitor.page.content().replace("&lt;", "<").replace("&gt;", ">").replace("&quot;", '"')
        assert visitor.page.locator("main script, main img").count() == 0
        assert "owned" not in visitor.page.title()


def test_charts_diffs_and_matrices_work_without_javascript(plain_visitor: Visitor, site: Site) -> None:
    page = plain_visitor.page
    plain_visitor.go(f"/runs/{site.done}")
    assert page.locator(".plot:visible").count() == 0
    for figure in page.locator("figure").all():
        figure.locator("summary").click()
        assert figure.locator("tbody tr").count() > 0
    plain_visitor.go(f"/runs/{site.done}/population")
    page.get_by_role("button", name="Show", exact=True).click()
    expect(page).to_have_url(re.compile(r"\?x=gain&y=sidelobe"))
    plain_visitor.go(f"/runs/{site.done}/candidates/9")
    assert page.locator(".diff .add").count() > 0
    plain_visitor.go("/unlocks?a=mutator@1&b=maze-vpo@1")
    assert page.locator(".matrix tbody tr").count() >= 3
    plain_visitor.go(f"/tournaments/{site.tournament}")
    expect(page.get_by_role("heading", name="Differences")).to_be_visible()
    plain_visitor.go(f"/tournaments/{site.methods}")
    few = "2 paired training seeds cannot show a difference between methods: p is at least 0.5"
    expect(page.locator(".lead")).to_contain_text(f"Methods vpo and grpo: undecided, {few}")
    expect(page.get_by_role("region", name="Methods, table").get_by_role("row")).to_have_count(2)
    page.get_by_role("button", name="Dark theme").click()
    expect(page.locator("html")).to_have_attribute("data-theme", "dark")


def test_candidates_are_sorted_and_filtered_without_javascript(plain_visitor: Visitor, site: Site) -> None:
    page, listed = plain_visitor.page, site.stores.queries.candidates

    def shown() -> list[int]:
        return [int(number) for number in page.locator("tbody td:first-child").all_inner_texts()]

    plain_visitor.go(f"/runs/{site.done}/candidates")
    page.get_by_role("link", name="sidelobe ↓").click()
    expect(page).to_have_url(re.compile(r"/candidates\?sort=sidelobe$"))
    expect(page.locator("th[aria-sort]")).to_have_attribute("aria-sort", "ascending")
    first = shown()
    page.get_by_role("link", name="Next").click()
    every = listed(site.done, CandidateFilter(sort="sidelobe"), limit=500).items
    assert first + shown() == [candidate.number for candidate in every]

    page.get_by_label("Rule", exact=True).fill("gain >= 3 and cost < 40")
    page.get_by_label("Elites only").check()
    page.get_by_role("button", name="Filter").click()
    found = listed(site.done, CandidateFilter(sort="sidelobe", rule="gain >= 3 and cost < 40", elite=True)).items
    assert shown() == [candidate.number for candidate in found]
    assert 0 < len(found) < len(every)

    page.get_by_text("Columns: 5 of 5 objectives").click()
    for box in page.locator("input[name=show]:visible").all():
        box.set_checked(box.get_attribute("value") == "cost")
    page.get_by_role("button", name="Apply").click()
    heads = page.locator("thead th").all_inner_texts()
    assert [head for head in heads if "↑" in head or "↓" in head] == ["sidelobe ↓", "cost ↓"]
    assert shown() == [candidate.number for candidate in found]
    page.get_by_label("Outcome").select_option("failed")
    page.get_by_role("button", name="Filter").click()
    expect(page).to_have_url(re.compile(r"show=cost.*sort=sidelobe.*status=failed"))
    expect(page.get_by_text("No candidates match the filter")).to_be_visible()


def test_tables_are_sorted_by_the_values_of_numbers(visitor: Visitor) -> None:
    visitor.go("/policies")
    head = visitor.page.get_by_role("columnheader").nth(4)
    cells = visitor.page.locator("table[data-sortable] tbody td:nth-child(5)")
    for values in ([0.25, 0.5, 987.0, 1234.0], [-1234.5, -5.0, -1.0, 2.0]):
        texts = list(map(number, values))
        cells.evaluate_all(
            "(cells, texts) => cells.forEach((cell, i) => { cell.textContent = texts[i] ?? '–'; })", texts
        )
        for order, shown in (("descending", texts[::-1]), ("ascending", texts)):
            head.get_by_role("button").click()
            expect(head).to_have_attribute("aria-sort", order)
            assert [text for text in cells.all_inner_texts() if text != "–"] == shown


def test_every_page_is_complete_without_javascript(plain_visitor: Visitor, site: Site) -> None:
    for name in PAGES:
        assert plain_visitor.go(path_of(name, site)) == 200
        page = plain_visitor.page
        expect(page.locator("main h1")).to_have_count(1)
        assert page.locator(".needs-script:visible, .plot:visible").count() == 0, name
        for figure in page.locator("figure").all():
            assert figure.locator("details").count() == 1, name
        for form in page.locator("form").all():
            assert form.locator("button").count() >= 1, name


def _declared(site: Site) -> UUID:
    """Return a run of the tournament."""
    return site.stores.runs.list(group=site.tournament, limit=1).items[0].id


def test_lists_show_the_best_rewards_beside_the_seed(site: Site) -> None:
    problem = samples.antenna().model_copy(update={"slug": "array-of-lists"})  # with runs of no other test
    runs = [samples.start(site.stores, problem, samples.mutator("lister"), 40, seed=seed) for seed in (1, 2)]
    for run in runs:
        samples.work(site.stores, run)
    best, latest = (
        stored.items[0].result
        for stored in (
            site.stores.overview.problem_results(site.stores.catalog.problems(slug=problem.slug)),
            site.stores.overview.policy_results(site.stores.catalog.policies(slug="lister")),
        )
    )
    assert best is not None
    assert latest == site.stores.runs.get(runs[1]).result
    assert [each.objective for each in best.rewards] == ["gain", "sidelobe", "overlap", "bandwidth", "cost"]
    first = best.rewards[0]
    assert first.seed is not None
    assert first.value - first.seed > 0
    assert first.verdict == "better"
    with httpx.Client(base_url=site.url, trust_env=False, timeout=WAIT_S) as http:
        for path in ("/runs?problem=array-of-lists", "/problems?name=ARRAY-OF", "/"):
            assert first.change in http.get(path).text, path
        for path in ("/v1/problems", f"/v1/problems/{problem.slug}/versions"):
            listed = next(each for each in http.get(path).json()["items"] if each["slug"] == problem.slug)
            assert listed["result"] == best.model_dump(mode="json")
        listed = http.get("/v1/policies", params={"slug": "lister"}).json()["items"]
        assert [each["result"] for each in listed] == [latest.model_dump(mode="json")]
        assert "on array-of-lists@1" in http.get("/policies?name=lister").text
        matching = http.get("/problems?name=ARRAY-OF").text
    assert f"/problems/{problem.slug}@1" in matching
    assert "/problems/one-number@1" not in matching


def test_activity_opens_with_what_needs_attention(site: Site) -> None:
    with httpx.Client(base_url=site.url, trust_env=False, timeout=WAIT_S) as http:
        attention, _, rest = http.get("/").text.partition('id="h-running"')
    for run in (site.empty, site.broken, site.doomed):
        assert f"/runs/{run}" in attention
    assert f"/runs/{site.done}" not in attention
    assert f"/runs/{site.done}" in rest
    assert f"/runs/{_declared(site)}" not in attention + rest


def test_lists_apply_the_filters_of_their_url(site: Site) -> None:
    shown = {
        "state=completed": (site.done, site.running),
        "problem=one-number": (site.single, site.done),
        "policy=maze-vpo": (site.running, site.done),
        "name=": (site.done, _declared(site)),
        f"group={site.tournament}": (_declared(site), site.done),
        "state=paused&problem=many-cases&policy=maze-vpo": (site.empty, site.cases),
    }
    with httpx.Client(base_url=site.url, trust_env=False, timeout=WAIT_S) as http:
        for query, (listed, left_out) in shown.items():
            text = http.get(f"/runs?{query}").text
            assert f"/runs/{listed}" in text, query
            assert f"/runs/{left_out}" not in text, query


def test_a_policy_without_a_run_has_not_failed_the_problem(site: Site) -> None:
    with httpx.Client(base_url=site.url, trust_env=False, timeout=WAIT_S) as http:
        table = http.get("/unlocks/matrix.csv?a=maze-vpo@1&b=adviser@1").text
        page = http.get("/unlocks?a=maze-vpo@1&b=adviser@1&show=not-tried").text
    kinds = {row["problem"]: row for row in csv.DictReader(io.StringIO(table))}
    alone, both = kinds["many-cases@1"], kinds["one-number@1"]
    assert (alone["adviser@1"], alone["compared"]) == ("", "not-tried")
    assert "" not in (both["adviser@1"], both["maze-vpo@1"])
    assert both["compared"] in {"only-a", "only-b", "both", "neither"}
    assert "/problems/many-cases@1" in page
    assert "/problems/one-number@1" not in page


def test_objectives_in_tables_mark_their_better_end(site: Site) -> None:
    with httpx.Client(base_url=site.url, trust_env=False, timeout=WAIT_S) as http:
        listed, one = (http.get(f"/runs/{site.done}/candidates{number}").text for number in ("", "/9"))
        many = http.get(f"/runs/{site.cases}/candidates").text
    for name in ("gain ↑", "sidelobe ↓"):
        assert f">{name}</a></th>" in listed
        assert f">{name}</th>" in one
    assert "Columns: 6 of 120 objectives" in many


def test_the_lineage_leads_from_the_seed_to_the_best_candidate_of_the_run(site: Site) -> None:
    best = site.stores.runs.get(site.done).best
    assert best is not None
    with httpx.Client(base_url=site.url, trust_env=False, timeout=WAIT_S) as http:
        shown, other, missing = (http.get(f"/runs/{site.done}/lineage{of}") for of in ("", "?of=9", "?of=9999"))
        candidate = http.get(f"/runs/{site.done}/candidates/{best.number}").text
    steps = [int(number) for number in re.findall(r">Candidate (\d+)</a></h2>", shown.text)]
    path = [best.number]
    while parents := site.stores.queries.candidate_of(site.done, path[0]).parents:
        path.insert(0, parents[0])
    assert steps == path
    assert "Lineage of the best candidate" in shown.text
    assert 'class="add"' in shown.text
    assert f"Best candidate {best.number}" in other.text
    assert missing.status_code == 404
    assert f"Changes to parent {path[-2]}" in candidate
    assert candidate.count('aria-label="Program, text"') == 1


def test_times_have_day_and_zone_and_ended_runs_say_not_reached(site: Site) -> None:
    with httpx.Client(base_url=site.url, trust_env=False, timeout=WAIT_S) as http:
        events = http.get(f"/runs/{site.done}/events").text
        ended, waiting = (http.get(f"/runs/{run}").text for run in (site.single, site.empty))
    assert "Times are UTC" in events
    assert re.search(r">\d+ [A-Z][a-z]{2} \d\d:\d\d:\d\d</time>", events)
    assert ("not reached" in ended, "not yet" in ended) == (True, False)
    assert ("not reached" in waiting, "not yet" in waiting) == (False, True)


def test_names_of_ten_thousand_characters_are_refused_with_a_short_page(site: Site) -> None:
    name = "<b>x" * 2500
    toml = f'slug = "long"\ntitle = "{name}"\nkind = "cases"\n'
    forms = {
        "/problems": {"toml": toml},
        "/runs": {"problem": name, "policy": name, "budget.evaluations": name},
        "/policies": {"slug": name, "base_url": name, "model": name, "kind": name, "timeout_s": name},
        "/tournaments": {"slug": name, "problems": name, "policies": name, "seeds": name},
    }
    headers = {"Accept": "text/html", "Origin": site.url}
    with httpx.Client(base_url=site.url, headers=headers, trust_env=False, timeout=WAIT_S) as http:
        answers = [http.post(path, data=form) for path, form in forms.items()]
        answers += [
            http.get(f"/{path}/{name.replace('<b>', 'b')}")
            for path in ("problems", "policies", "tournaments", "campaigns")
        ]
        answers.append(http.get("/runs", params={"problem": name}))
    for answer in answers:
        assert answer.status_code in {404, 422}, answer.url
        assert "text/html" in answer.headers["content-type"]
        assert "<b>x" not in answer.text
        assert 'class="button' in answer.text
    # Lists of names and a pasted file are returned in full, once; everything else is clipped.
    assert max(answer.text.count("&lt;b&gt;x") for answer in answers) < 3 * 2500


def test_missing_pages_are_404_with_a_link_back(visitor: Visitor, site: Site) -> None:
    unknown = "00000000-0000-7000-8000-000000000000"
    for path in (
        f"/runs/{unknown}",
        "/runs/<script>",
        f"/runs/{site.done}/candidates/99999",
        f"/runs/{site.done}/candidates/{'9' * 40}",
        "/candidates/nothing",
        "/problems/nothing",
        "/policies/%00",
        f"/compare?run={unknown}",
        "/tournaments/nothing",
        f"/tournaments/{site.tournament}/pair?a=islands&b=revision",
        "/campaigns/nothing",
        "/nowhere",
        f"/runs/{site.done}/figures/nothing.json",
    ):
        assert visitor.go(path) == 404, path
        assert visitor.page.locator("main a.button").count() >= 1
    # The browser reports only the failed loads.
    assert all("404" in each for each in visitor.errors)
    visitor.errors.clear()


def test_clients_without_html_get_json_errors(site: Site) -> None:
    with httpx.Client(base_url=site.url, trust_env=False, timeout=WAIT_S) as http:
        answer = http.get("/runs/nothing")
        assert (answer.status_code, answer.headers["content-type"]) == (404, "application/problem+json")
        assert http.get("/v1/runs/nothing", headers={"Accept": "text/html"}).json()["status"] == 422
        page = http.get("/", headers={"Accept": "text/html"})
        policy = page.headers["content-security-policy"]
        assert "script-src 'self';" in policy
        assert "unsafe-eval" not in policy


def test_filters_match_the_list_after_going_back(visitor: Visitor) -> None:
    visitor.go("/problems")
    with visitor.page.expect_navigation():
        visitor.page.get_by_label("Show").select_option("archived")
    visitor.page.go_back()
    expect(visitor.page.get_by_label("Show")).to_have_value("")


def test_a_long_lineage_says_which_changes_it_counts(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("service.dashboard.routes.lineage._MAX_STEPS", 1)
    with httpx.Client(base_url=site.url, trust_env=False, timeout=WAIT_S) as http:
        assert "; 0 of those below improved an objective." in http.get(f"/runs/{site.done}/lineage").text


def test_nothing_moves_if_less_motion_is_asked_for(visitor: Visitor) -> None:
    visitor.go("/runs")
    mark = '<span class="state running">running</span>'
    visitor.page.locator("main").evaluate("(main, mark) => main.insertAdjacentHTML('beforeend', mark)", mark)
    assert visitor.page.evaluate("document.getAnimations().length") == 0
