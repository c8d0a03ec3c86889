"""The form that starts a run: few fields, and the others folded until they matter."""

from __future__ import annotations

import json
import re
from html import escape

import pytest

from service.dashboard.fields import Field, build_fields
from speciate.domain.run import RunSpec
from speciate.ports.runs import NewRun
from speciate.schema.policies import RunPolicies
from tests.integration.service.conftest import Lab, scripted
from tests.support.runs import EVERY_OPTION, toy_problem
from tests.unit.runs.test_learning import BASE

pytestmark = pytest.mark.servers


def _advanced(page: str) -> tuple[bool, str]:
    """Return whether the advanced fields are shown, and the page outside them."""
    found = re.search(r'<details class="panel"( open)?>.*?</details>', page, re.DOTALL)
    assert found is not None
    return found[1] is not None, page.replace(found[0], "")


def test_the_form_shows_name_problem_policy_and_budget_first(lab: Lab) -> None:
    text = lab.api.get("/runs/new").text
    opened, rest = _advanced(text)
    assert not opened
    names = re.findall(r'<(?:input|select)[^>]* name="([\w.]+)"', rest.partition("<main")[2])
    limits = [f"budget.{limit}" for limit in ("evaluations", "tokens", "seconds", "dollars")]
    assert names == ["key", "name", "problem", "policy", *limits]
    for field in build_fields(RunSpec, "", {}):
        assert f'name="{field.name}"' in text or field.name == "strategy_options"
    for default in ("<option selected>adaptive_evolution</option>", "Default 16."):
        assert default in text


ADVANCED: list[str] = [
    "lanes=2",
    "strategy=best_of_n",
    "strategy_options.population=9",
    "mutator=scripted",
    "tags=a",
    "novelty.near=0.9",
    "guidance.every=3",
    "learning.estimator=entropic",
    "reuse_results=on",
    "shown=1",
]


def test_values_other_than_the_defaults_unfold_the_form(lab: Lab) -> None:
    for query in ADVANCED:
        assert _advanced(lab.api.get(f"/runs/new?{query}").text)[0], query


def test_defaults_and_shown_fields_leave_it_folded(lab: Lab) -> None:
    query = "problem=toy&policy=scripted&budget.evaluations=7&lanes=4&strategy=adaptive_evolution&guidance.every="
    assert not _advanced(lab.api.get(f"/runs/new?{query}").text)[0]
    defaults = {"strategy": "adaptive_evolution", "lanes": 4, "batch": 16}
    assert not _advanced(lab.api.get(f"/runs/new?like={lab.start(**defaults)}").text)[0]
    assert _advanced(lab.api.get(f"/runs/new?like={lab.start(**defaults, seed=3)}").text)[0]


ERRORS: list[tuple[dict[str, str], bool]] = [
    ({"budget.evaluations": "-1"}, False),
    ({"problem": "missing"}, False),
    ({"batch": "0"}, True),
    ({"name": "a\nb"}, False),
]


def test_an_error_in_an_advanced_field_unfolds_the_form(lab: Lab) -> None:
    for given, unfolded in ERRORS:
        form = {"problem": "toy", "policy": "scripted", "budget.evaluations": "5", **given}
        answer = lab.send_form("/runs", form)
        assert answer.status_code == 422, answer.text
        assert _advanced(answer.text)[0] is unfolded, given


def test_a_run_of_the_form_learns_and_is_repeated(lab: Lab) -> None:
    lab.stores.catalog.add_policy(BASE)
    form = {"problem": "toy", "policy": "base", "budget.evaluations": "64", "learning.estimator": "entropic"}
    answer = lab.send_form("/runs", form)
    assert answer.status_code == 422
    assert "samples_per_prompt" in answer.text
    given = {**form, "samples_per_prompt": "8", "learning.groups": "2", "learning.kl": "0.5"}
    answer = lab.send_form("/runs", given)
    assert answer.status_code == 303, answer.text
    run = answer.headers["location"].rpartition("/")[2]
    learning = lab.api.get(f"/v1/runs/{run}").json()["spec"]["learning"]
    assert (learning["estimator"], learning["groups"], learning["kl"], learning["steps"]) == ("entropic", 2, 0.5, 1000)
    repeated = lab.api.get(f"/runs/new?like={run}").text
    assert "<option selected>entropic</option>" in repeated
    assert 'name="learning.kl" value="0.5"' in repeated


NAMED = {"problems": "toy", "budget.evaluations": "9", "evaluations": "9", "mode": "fixed"}


@pytest.mark.parametrize(
    ("path", "fields", "changed"),
    [
        ("/runs", {"problem": "toy", "policy": "scripted", "budget.evaluations": "5"}, {"seed": "2"}),
        ("/campaigns", {"slug": "a", "policy": "scripted", **NAMED}, {"slug": "b"}),
        ("/tournaments", {"slug": "a", "policies": "scripted other", "seeds": "1", **NAMED}, {"slug": "b"}),
    ],
)
def test_a_form_sent_twice_starts_once_and_changed_after_back_again(
    lab: Lab, path: str, fields: dict[str, str], changed: dict[str, str]
) -> None:
    lab.stores.catalog.add_policy(scripted(slug="other"))
    key = re.search(r'name="key" value="(\w+)"', lab.api.get(f"{path}/new").text)
    assert key is not None
    started = []
    for given in (fields, fields, fields | changed):
        answer = lab.send_form(path, given | {"key": key[1]})
        if plan := re.search(r'name="confirmed" value="(\w+)"', answer.text):
            answer = lab.send_form(path, given | {"key": key[1], "confirmed": plan[1]})
        assert answer.status_code == 303, answer.text
        started.append(answer.headers["location"])
    assert started[0] == started[1] != started[2]


def test_a_form_keeps_long_lists(lab: Lab) -> None:
    names = " ".join(f"qwen2-5-coder-7b-instruct-step-{step:04d}" for step in range(60))
    page = lab.send_form("/tournaments/new", {"policies": names}).text
    assert f'name="policies" value="{names}"' in page


def test_numbers_for_names_are_refused(lab: Lab) -> None:
    for path, policies in (("/tournaments", {"policies": "scripted external"}), ("/campaigns", {"policy": "scripted"})):
        answer = lab.send_form(path, NAMED | policies | {"slug": "a", "problems": '[1, ["b"]]'})
        assert (answer.status_code, "valid string" in answer.text) == (422, True)


def test_days_of_a_token_are_a_number_of_days(lab: Lab) -> None:
    for days in ("0", "-1", "1.5", "36501", "0000000019999999999", "9" * 5000):
        answer = lab.send_form("/access/tokens", {"name": "x", "scope": "read", "days": days})
        assert (answer.status_code, "expected a number of days" in answer.text) == (422, True), days


def test_every_wrong_field_is_reported_at_once(lab: Lab) -> None:
    page = lab.send_form("/runs", {"problem": "toi", "policy": "script", "budget.evaluations": ""}).text
    for expected in ("there is no problem &#39;toi&#39;", "there is no policy &#39;script&#39;", "budget"):
        assert expected in page
    body = {"problem": "toi", "policy": "script", "budget": {"evaluations": 5}}
    detail = lab.api.post("/v1/runs", body).json()["detail"]
    assert "there is no problem 'toi'" in detail
    assert "there is no policy 'script'" in detail


def test_a_started_run_shows_every_option_that_differs_from_its_default(lab: Lab) -> None:
    problem, policy = lab.stores.catalog.add_problem(toy_problem())[0], lab.stores.catalog.add_policy(scripted())[0]
    run, _ = lab.stores.runs.create(NewRun(problem, RunPolicies(policy), EVERY_OPTION))
    text = lab.api.get(f"/runs/{run}/configuration").text
    assert "<dt>Strategy</dt><dd>engine:gepa</dd>" in text
    for path, value in EVERY_OPTION.changed_options.items():
        shown = "yes" if value is True else value if isinstance(value, str) else json.dumps(value)
        assert path == "strategy" or f"<dt>{escape(Field(path, 'text', '').label)}</dt><dd>{shown}</dd>" in text, path
