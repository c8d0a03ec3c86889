"""Archive, delete and restore from the pages; lists with the filter."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from playwright.sync_api import expect

from speciate.domain.visibility import Visibility, VisibilityChange, visibility_of
from tests.dashboard.conftest import Site, Visitor, assert_accessible
from tests.dashboard.samples import single

pytestmark = pytest.mark.servers


@pytest.fixture
def site_again(site: Site) -> Iterator[Site]:
    """The site, with everything visible again after the test."""
    yield site
    for _ in range(2):
        site.stores.runs.change_visibility(site.single, VisibilityChange.RESTORE)
        for problem in site.stores.catalog.problems(visibility=Visibility.ALL).items:
            site.stores.catalog.change_problem(problem.id, VisibilityChange.RESTORE)
        for policy in site.stores.catalog.policies(visibility=Visibility.ALL).items:
            site.stores.catalog.change_policy(policy.id, VisibilityChange.RESTORE)


def test_run_is_archived_deleted_and_restored_without_javascript(plain_visitor: Visitor, site_again: Site) -> None:
    page, run_id = plain_visitor.page, site_again.single
    path = f"/runs/{run_id}"

    def state() -> Visibility:
        return visibility_of(site_again.stores.runs.get(run_id))

    plain_visitor.go(path)
    page.get_by_role("button", name="Archive").click()
    expect(page).to_have_url(plain_visitor.url + path)
    expect(page.get_by_text("Lists hide this run; records count it.")).to_be_visible()
    assert state() is Visibility.ARCHIVED
    plain_visitor.go("/runs")
    expect(page.locator(f'a[href="{path}"]')).to_have_count(0)
    plain_visitor.go("/runs?state=archived")
    page.get_by_role("button", name=f"Restore /runs/{run_id}").click()
    expect(page).to_have_url(f"{plain_visitor.url}/runs?state=archived")
    assert state() is Visibility.VISIBLE

    plain_visitor.go(path)
    page.get_by_role("button", name="Delete …").click()
    dialog = page.get_by_role("dialog")
    expect(dialog).to_contain_text("It can be restored")
    dialog.get_by_role("button", name="Keep run").click()
    assert state() is Visibility.VISIBLE
    page.get_by_role("button", name="Delete …").click()
    dialog.get_by_role("button", name="Delete run").click()
    expect(page.get_by_text("counts in no list")).to_be_visible()
    assert state() is Visibility.DELETED
    page.get_by_role("button", name="Restore").click()
    expect(page.get_by_role("button", name="Archive")).to_be_visible()
    assert state() is Visibility.VISIBLE


def test_running_run_offers_no_deletion(visitor: Visitor, site: Site) -> None:
    visitor.go(f"/runs/{site.running}")
    expect(visitor.page.get_by_role("button", name="Cancel …")).to_be_visible()
    expect(visitor.page.get_by_role("button", name="Delete …")).to_have_count(0)


def test_version_in_use_is_not_deleted(visitor: Visitor, site_again: Site) -> None:
    page = visitor.page
    name = f"{single().slug}@1"
    visitor.go(f"/problems/{name}")
    page.get_by_role("button", name="Delete …").click()
    page.get_by_role("dialog").get_by_role("button", name="Delete problem version").click()
    expect(page.get_by_role("main")).to_contain_text(f"problem {name} cannot be deleted")
    expect(page.get_by_role("main")).to_contain_text("archive it instead")
    visitor.errors.clear()  # the browser reports the 409 as a failed load
    assert site_again.stores.catalog.problem(name).deleted_at is None


@pytest.mark.parametrize("kind", ["problems", "policies"])
def test_versions_are_archived_and_restored(visitor: Visitor, site_again: Site, kind: str) -> None:
    page, catalog = visitor.page, site_again.stores.catalog
    if kind == "problems":
        name = f"{single().slug}@1"
    else:
        policy = catalog.policies().items[0]
        name = policy.name
    visitor.go(f"/{kind}/{name}")
    page.get_by_role("button", name="Archive").click()
    expect(page.get_by_text("new runs cannot use it")).to_be_visible()
    expect(page.get_by_role("link", name="Start a run")).to_have_count(0)
    visitor.go(f"/{kind}")
    expect(page.locator(f'table a[href="/{kind}/{name}"]')).to_have_count(0)
    page.get_by_label("Show").select_option("archived")
    expect(page.locator(f'table a[href="/{kind}/{name}"]')).to_have_count(1)
    page.get_by_role("button", name=f"Restore /{kind}/{name}").click()
    expect(page.get_by_text("Show the visible ones")).to_be_visible()
    visitor.go(f"/{kind}")
    expect(page.locator(f'table a[href="/{kind}/{name}"]')).to_have_count(1)


def test_hidden_objects_are_accessible(visitor: Visitor, site_again: Site) -> None:
    catalog, page = site_again.stores.catalog, visitor.page
    policy = catalog.policies().items[0].name
    site_again.stores.runs.change_visibility(site_again.single, VisibilityChange.DELETE)
    catalog.change_problem(f"{single().slug}@1", VisibilityChange.ARCHIVE)
    catalog.change_policy(policy, VisibilityChange.ARCHIVE)
    paths = (
        f"/runs/{site_again.single}",
        "/runs?state=deleted",
        "/problems?visibility=all",
        "/policies?visibility=archived",
        f"/problems/{single().slug}@1",
        f"/policies/{policy}",
    )
    try:
        for path in paths:
            for width in (360, 1280):
                page.set_viewport_size({"width": width, "height": 900})
                assert visitor.go(path) == 200
                visitor.drawn()
                assert not page.evaluate("document.documentElement.scrollWidth > innerWidth"), path
            assert_accessible(page, path)
    finally:
        page.set_viewport_size({"width": 1280, "height": 900})
