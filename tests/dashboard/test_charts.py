"""The tools of charts in a browser: logarithmic axes, zoom and pictures, under the page's content security policy."""

from __future__ import annotations

import csv
import io
import re
import xml.etree.ElementTree as ET
from pathlib import Path

import httpx
import pytest
from playwright.sync_api import Browser, Locator, expect

from tests.dashboard import samples
from tests.dashboard.conftest import Site, Visitor, visiting
from tests.support.http_server import WAIT_S

pytestmark = pytest.mark.servers

_RANGE = "plot => [plot.layout.xaxis.range, plot._fullLayout.xaxis.type].flat()"


def _figure(visitor: Visitor, path: str, name: str) -> tuple[Locator, Locator]:
    visitor.go(path)
    visitor.drawn()
    figure = visitor.page.locator(f"figure:has([data-figure*='/{name}.json'])")
    if not figure.locator(".tools").is_visible():
        figure.locator("summary").click()
    return figure, figure.locator(".plot")


def test_an_axis_becomes_logarithmic_and_linear_again(visitor: Visitor, site: Site) -> None:
    figure, plot = _figure(visitor, f"/runs/{site.done}", "progress")
    switch = figure.get_by_role("button", name="Log x")
    expect(switch).to_have_attribute("aria-pressed", "false")
    for pressed, kind in (("true", "log"), ("false", "linear")):
        switch.click()
        expect(switch).to_have_attribute("aria-pressed", pressed)
        assert plot.evaluate(_RANGE)[-1] == kind
    expect(figure.get_by_role("button", name="Log y")).to_be_hidden()


def test_zoom_is_reset(visitor: Visitor, site: Site) -> None:
    figure, plot = _figure(visitor, f"/runs/{site.done}/population", "population")
    whole = plot.evaluate(_RANGE)
    figure.get_by_role("button", name="Fit to data").click()
    near = plot.evaluate(_RANGE)
    assert near != whole
    figure.get_by_role("button", name="Reset zoom").click()
    expect(figure.get_by_role("button", name="Reset zoom")).to_be_visible()
    visitor.page.wait_for_function(
        "([plot, end]) => plot.layout.xaxis.range[1] === end", arg=[plot.element_handle(), whole[1]]
    )


def test_a_chart_is_saved_as_png_and_svg(visitor: Visitor, site: Site, tmp_path: Path) -> None:
    figure, _ = _figure(visitor, f"/runs/{site.done}", "tradeoffs")
    for kind in ("png", "svg"):
        with visitor.page.expect_download() as saved:
            figure.get_by_role("button", name=kind.upper()).click()
        assert saved.value.suggested_filename == f"tradeoffs.{kind}"
        saved.value.save_as(tmp_path / kind)
    assert (tmp_path / "png").read_bytes().startswith(b"\x89PNG")
    assert (tmp_path / "png").stat().st_size > 5000
    assert ET.fromstring((tmp_path / "svg").read_text()).tag.endswith("svg")


def test_the_table_of_progress_leads_to_candidates(visitor: Visitor, site: Site) -> None:
    figure, _ = _figure(visitor, f"/runs/{site.done}", "progress")
    number = figure.locator("tbody a").first.inner_text()
    figure.locator("tbody a").first.click()
    expect(visitor.page).to_have_url(f"{site.url}/runs/{site.done}/candidates/{number}")


def test_runs_are_compared_by_hypervolume_and_fronts(visitor: Visitor, site: Site) -> None:
    runs = f"run={site.done}&run={site.running}"
    _, plot = _figure(visitor, f"/compare?{runs}", "fronts")
    assert plot.evaluate("plot => [plot.layout.xaxis, plot.layout.yaxis].map(axis => axis.title.text)") == [
        "gain ↑",
        "sidelobe ↓",
    ]
    visitor.page.get_by_label("Second axis").select_option("cost")
    expect(visitor.page).to_have_url(re.compile(r"y=cost"))
    with httpx.Client(base_url=site.url, trust_env=False, timeout=WAIT_S) as http:
        fronts = list(csv.DictReader(io.StringIO(http.get(f"/compare/fronts.csv?{runs}&y=cost").text)))
        volumes = list(csv.DictReader(io.StringIO(http.get(f"/compare/curves.csv?{runs}&by=hypervolume").text)))
        apart = http.get(f"/compare/curves.json?run={site.single}&run={site.done}")
        grouped = list(csv.DictReader(io.StringIO(http.get(f"/compare/curves.csv?{runs}&group=seed").text)))
        latest = http.get(f"/compare?run={site.done}").text
    assert list(fronts[0]) == ["run", "candidate", "gain", "cost"]
    mine = [row for row in fronts if row["run"].startswith(str(site.done)[-8:])]
    assert {int(row["candidate"]) for row in mine} == {each.number for each in site.stores.queries.front(site.done)}
    assert {row["runs"] for row in volumes} == {row["run"] for row in fronts}
    assert {row["runs"] for row in grouped} == {"seed 0", "seed 3"}
    assert apart.status_code == 404
    assert f'value="{site.running}"' in latest, "the latest runs on its problem are added to a single one"
    assert "Choose runs on the same problem" in apart.text


def test_the_chart_at_the_top_survives_updates(visitor: Visitor, site: Site) -> None:
    _, plot = _figure(visitor, f"/runs/{site.running}", "progress")
    expect(visitor.page.locator("#link")).to_have_text("live")
    before = plot.get_attribute("data-revision") or ""
    samples.work(site.stores, site.running, 4)
    plot.scroll_into_view_if_needed()
    expect(plot).not_to_have_attribute("data-revision", before)
    expect(plot.locator(".main-svg").first).to_be_visible()


def test_a_saved_page_contains_its_charts(browser: Browser, site: Site, tmp_path: Path) -> None:
    with visiting(browser.new_context(), site.url) as visitor:
        visitor.go(f"/runs/{site.running}")
        visitor.drawn()
        # A page in one file runs no script; one with files beside it runs those of the page again.
        snapshot = visitor.page.context.new_cdp_session(visitor.page).send("Page.captureSnapshot", {"format": "mhtml"})
        (tmp_path / "saved.mhtml").write_bytes(snapshot["data"].encode())
        text = visitor.page.content()
        for path in re.findall(r'(?:href|src)="(/static/[^"]+)"', text):
            (tmp_path / Path(path).name).write_bytes(visitor.page.request.get(site.url + path).body())
            text = text.replace(path, Path(path).name)
        (tmp_path / "saved.html").write_text(text)
    for name in ("saved.mhtml", "saved.html"):
        errors: list[str] = []
        with browser.new_context(offline=True) as context:
            page = context.new_page()
            page.on("pageerror", lambda error, errors=errors: errors.append(str(error)))
            page.goto(f"file://{tmp_path}/{name}")
            for plot in ("tradeoffs", "progress"):
                expect(page.locator(f"[data-figure*='/{plot}.json'] .main-svg").first).to_be_visible()
            expect(page.locator("#link")).to_be_hidden()
        assert not errors


def test_a_printed_page_contains_its_charts_in_light_colours(browser: Browser, site: Site) -> None:
    with visiting(browser.new_context(color_scheme="dark"), site.url) as visitor:
        visitor.go(f"/runs/{site.done}")
        # Also charts that were never in view.
        expect(visitor.page.locator(".plot[data-drawn]:visible")).to_have_count(2)
        pdf = visitor.page.pdf(format="A4")
        assert pdf.startswith(b"%PDF")
        visitor.page.emulate_media(media="print")
        visitor.page.evaluate("dispatchEvent(new Event('beforeprint'))")
        expect(visitor.page.locator("html")).to_have_attribute("data-theme", "light")
        for picture in visitor.page.locator(".plot .main-svg:first-child").all():
            assert picture.evaluate("picture => picture.clientWidth") == 620
        visitor.page.evaluate("dispatchEvent(new Event('afterprint'))")
        assert visitor.page.locator("html").get_attribute("data-theme") is None
