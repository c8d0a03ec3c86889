"""Test, register and ping a policy in a browser, with and without JavaScript."""

from __future__ import annotations

import re

import pytest
from playwright.sync_api import Route, expect

from tests.dashboard.conftest import Site, Visitor, assert_accessible
from tests.support.openai_endpoint import serve as openai_endpoint

pytestmark = pytest.mark.servers

KEY = "sk-first-0123456789abcdef"


def test_a_policy_is_tested_registered_and_pinged(visitor: Visitor, site: Site) -> None:
    page = visitor.page
    visitor.go("/policies")
    page.get_by_role("link", name="Register a policy").click()
    with openai_endpoint() as endpoint:
        endpoint.key = KEY
        page.locator("[name=slug]").fill("From A Form")
        page.locator("[name=base_url]").fill(endpoint.url)
        page.locator("[name=model]").fill("m")
        page.locator("[name=api_key]").fill(KEY)
        page.get_by_role("button", name="Test").click()
        expect(page.locator("#wrong-slug")).to_contain_text("lower-case")
        expect(page.get_by_role("alert")).to_be_focused()
        assert_accessible(page)
        # The page stays, and the typed key too, though no response contains it.
        expect(page.locator("[name=api_key]")).to_have_value(KEY)
        page.locator("[name=slug]").fill("from-a-form")
        page.get_by_role("button", name="Test").click()
        expect(page.get_by_role("status")).to_contain_text("The policy answers.")
        expect(page.get_by_role("status")).to_contain_text("Nothing is registered yet.")
        assert site.stores.catalog.policies(slug="from-a-form").items == ()
        assert KEY not in page.content()
        page.get_by_role("button", name="Register policy").click()
        expect(page).to_have_url(re.compile(r"/policies/from-a-form@1$"))
        page.get_by_role("button", name="Ping").click()
        expect(page.get_by_role("status")).to_contain_text("The policy answers.")
        assert_accessible(page)
    page.get_by_role("button", name="Ping").click()
    expect(page.get_by_role("alert")).to_contain_text("The policy endpoint cannot be used.")
    visitor.errors = [each for each in visitor.errors if "422" not in each]


def test_the_kind_of_a_policy_can_be_changed_after_a_test(visitor: Visitor) -> None:
    page = visitor.page
    visitor.go("/policies/new")
    page.locator("[name=slug]").fill("No Slug")
    page.get_by_role("button", name="Test").click()
    expect(page.locator("#wrong-slug")).to_be_visible()
    page.locator("[name=kind]").select_option("program_mutator")
    expect(page.locator("[name='options.sigma_low']")).to_have_count(1)
    visitor.errors = [each for each in visitor.errors if "422" not in each]


def test_a_refused_test_of_a_policy_keeps_the_form(visitor: Visitor) -> None:
    page = visitor.page
    visitor.go("/policies/new")
    page.locator("[name=slug]").fill("typed-slug")
    page.locator("[name=api_key]").fill(KEY)
    error_page = "<main><h1>Too many requests</h1><section class=panel><p>Wait 3 s.</p></section></main>"
    for status, body, message in (
        (429, error_page, "Too many requests. Wait 3 s."),
        (502, "<h1>Bad Gateway</h1>", "The service answered with status 502: try again."),
    ):

        def refuse(route: Route, *, status: int = status, body: str = body) -> None:
            route.fulfill(status=status, content_type="text/html", body=body)

        page.route("**/policies/test", refuse, times=1)
        page.get_by_role("button", name="Test").click()
        expect(page.get_by_role("alert")).to_have_text(message)
        expect(page.get_by_role("alert")).to_be_focused()
        assert page.locator("[name=slug]").input_value() == "typed-slug"
        assert page.locator("[name=api_key]").input_value() == KEY
    # The form works again.
    page.locator("[name=slug]").fill("No Slug")
    page.get_by_role("button", name="Test").click()
    expect(page.locator("#wrong-slug")).to_contain_text("lower-case")
    visitor.errors = [each for each in visitor.errors if not re.search("422|429|502", each)]


def test_a_policy_is_registered_without_javascript(plain_visitor: Visitor, site: Site) -> None:
    page = plain_visitor.page
    plain_visitor.go("/policies/new?kind=program_mutator")
    page.locator("[name=slug]").fill("plainly")
    expect(page.locator("[name=base_url], [name=api_key], [name='sampling.temperature']")).to_have_count(0)
    page.get_by_role("heading", name="Advanced").click()
    page.locator("[name='options.sigma_low']").fill("much")
    page.get_by_role("button", name="Test").click()
    expect(page.locator("[id='wrong-options.sigma_low']")).to_contain_text("number")
    page.locator("[name='options.sigma_low']").fill("0.1")
    page.get_by_role("button", name="Test").click()
    expect(page.get_by_role("status")).to_contain_text("program_mutator needs no endpoint")
    expect(page.locator("[name='options.sigma_low']")).to_have_value("0.1")
    page.get_by_role("button", name="Register policy").click()
    expect(page).to_have_url(re.compile(r"/policies/plainly@1$"))
    page.get_by_role("button", name="Ping").click()
    expect(page.get_by_role("status")).to_contain_text("The policy answers.")
    assert site.stores.catalog.policy("plainly").definition.options == {"sigma_low": 0.1}
    plain_visitor.errors = [each for each in plain_visitor.errors if "422" not in each]
