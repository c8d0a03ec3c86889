"""Names, tags and notes of runs: forms, hostile texts, filters and groups."""

from __future__ import annotations

import re
from collections.abc import Iterator

import httpx
import pytest
from playwright.sync_api import expect

from speciate.domain.labels import Labels, Relabelling
from tests.dashboard.conftest import Site, Visitor, assert_accessible
from tests.dashboard.samples import HOSTILE
from tests.support.http_server import WAIT_S

pytestmark = pytest.mark.servers


@pytest.fixture
def labelled(site: Site) -> Iterator[Site]:
    """The site with two runs that share a tag during the test."""
    runs = site.stores.runs
    runs.label(site.done, Relabelling(name=HOSTILE, tags=("arm:a", "x" * 40), note=f"{HOSTILE}\nsecond line"))
    runs.label(site.running, Relabelling(name="%{x} goes on", tags=("arm:a",)))
    yield site
    for run_id in (site.done, site.running, site.single):
        runs.label(run_id, Relabelling(name="", tags=(), note=""))


def test_labels_are_saved_without_javascript(plain_visitor: Visitor, labelled: Site) -> None:
    page, run_id = plain_visitor.page, labelled.single
    plain_visitor.go(f"/runs/{run_id}/configuration")
    page.get_by_label("Name", exact=True).fill("my run")
    page.get_by_label(re.compile("^Tags")).fill("arm:a,  sweep:3 arm:a")
    page.get_by_label("Note", exact=True).fill("first\nsecond")
    page.get_by_role("button", name="Save labels").click()
    expect(page).to_have_url(f"{plain_visitor.url}/runs/{run_id}/configuration#labels")
    expect(page.locator(".crumbs")).to_contain_text("my run")
    record = labelled.stores.runs.get(run_id)
    assert Labels(name=record.name, tags=record.tags, note=record.note) == Labels(
        name="my run", tags=("arm:a", "sweep:3"), note="first\nsecond"
    )
    page.get_by_label(re.compile("^Tags")).fill("fine no,<b>")
    page.get_by_role("button", name="Save labels").click()
    expect(page.get_by_role("alert")).to_contain_text("Invalid values")
    expect(page.get_by_label(re.compile("^Tags"))).to_have_value("fine no,<b>")
    assert labelled.stores.runs.get(run_id).tags == ("arm:a", "sweep:3")
    # The browser reports the 422 as a failed load.
    assert all("422" in each for each in plain_visitor.errors)
    plain_visitor.errors.clear()
    plain_visitor.go(f"/runs/{run_id}")
    page.get_by_role("link", name="Start a similar run").click()
    expect(page.get_by_label(re.compile("^Tags"))).to_have_value("arm:a sweep:3")
    expect(page.get_by_label("Name", exact=True)).to_have_value("")


def test_saving_labels_keeps_the_changes_of_another_person(plain_visitor: Visitor, labelled: Site) -> None:
    page, runs, run_id = plain_visitor.page, labelled.stores.runs, labelled.single
    runs.label(run_id, Relabelling(name="before", tags=("arm:a",), note="one\ntwo"))
    plain_visitor.go(f"/runs/{run_id}/configuration")
    runs.label(run_id, Relabelling(name="theirs", note="their\nnote"))
    for tags, saved in (("no,<b>", ("arm:a",)), ("arm:b", ("arm:b",))):
        page.get_by_label(re.compile("^Tags")).fill(tags)
        page.get_by_role("button", name="Save labels").click()
        expect(page.get_by_role("alert")).to_have_count(int(saved == ("arm:a",)))
        record = runs.get(run_id)
        assert (record.name, record.tags, record.note) == ("theirs", saved, "their\nnote")
    plain_visitor.errors = [each for each in plain_visitor.errors if "422" not in each]


def test_labelled_runs_are_accessible_and_their_texts_are_inert(visitor: Visitor, labelled: Site) -> None:
    pages = (
        f"/runs/{labelled.done}",
        f"/runs/{labelled.done}/configuration",
        "/runs",
        f"/compare?run={labelled.done}&run={labelled.running}",
        f"/compare?run={labelled.done}&run={labelled.running}&group=tag",
    )
    for path in pages:
        assert visitor.go(path) == 200
        visitor.drawn()
        assert not visitor.page.evaluate("document.documentElement.scrollWidth > innerWidth"), path
        assert visitor.page.locator("main script, main img").count() == 0
        assert_accessible(visitor.page, path)
        assert visitor.page.title() != "owned"


def test_runs_are_filtered_by_labels(labelled: Site) -> None:
    shown = {
        "tag=arm:a": ({labelled.done, labelled.running}, {labelled.single}),
        f"tag=arm:a,{'x' * 40}": ({labelled.done}, {labelled.running}),
        "name=GOES+on": ({labelled.running}, {labelled.done}),
        "name=%00": (set(), {labelled.done}),
        "tag=%00": (set(), {labelled.done}),
    }
    with httpx.Client(base_url=labelled.url, trust_env=False, timeout=WAIT_S) as http:
        for query, (listed, left_out) in shown.items():
            text = http.get(f"/runs?{query}").text
            assert all(f"/runs/{run_id}" in text for run_id in listed), query
            assert not any(f"/runs/{run_id}" in text for run_id in left_out), query


def test_runs_form_groups(labelled: Site) -> None:
    runs = f"run={labelled.done}&run={labelled.running}"
    with httpx.Client(base_url=labelled.url, trust_env=False, timeout=WAIT_S) as http:
        apart, together, by_tag = (
            http.get(f"/compare/curves.json?{runs}{group}").json()["data"]
            for group in ("", "&group=strategy", "&group=tag")
        )
        table = http.get(f"/compare/curves.csv?{runs}&group=strategy").text
    names = [trace["name"] for trace in apart]
    assert "&lt;script&gt;" in names[0]
    assert "%{x} goes on" in names[1]
    assert "%{x} goes on" not in apart[1]["hovertemplate"]
    (mean,) = (trace["name"] for trace in together if trace.get("showlegend", True))
    assert mean == "islands_map_elites (2)"
    assert table.startswith("runs,number of runs,at evaluations,mean best gain,lowest,highest\nislands_map_elites,2,")
    # A tag that all have makes no group.
    assert [trace["name"] for trace in by_tag] == ["x" * 40, names[1]]
