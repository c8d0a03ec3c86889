"""Tests of tournament reports: measures of the policies, incremental reads, and exports."""

from __future__ import annotations

import json
from io import BytesIO
from typing import Any
from uuid import UUID

import numpy as np
import pytest

from speciate.storage.declarations.results import TournamentResults
from speciate.tournaments.bundle import verify
from speciate.tournaments.rendering.html import page
from tests.conformance.test_noisy_runs import NoisyToy
from tests.integration.service import tournament_lab
from tests.integration.service.conftest import Lab, refused
from tests.integration.service.tournament_lab import BAD, GOOD, body, declare, fair, play, report_of, rows_of
from tests.support.runs import toy_policy, toy_problem
from tests.unit.tournaments.bundles import files_of

__all__ = ["fair"]

pytestmark = pytest.mark.servers


def _some(lab: Lab) -> None:
    """Work until the first runs have ended."""
    while lab.stores.tournaments.get("first").ended == 0:
        play(lab, passes=1, units=6)


def test_health_quality_and_curves_match_the_candidates(fair: Lab) -> None:
    # One answer in four is unreadable, and one is repeated.
    talk = [
        "```python\nx = 1\ny = 1\n```",
        "no program",
        "```python\nx = 9\ny = 0\n```",
        "```python\nx = 1\ny = 1\n```",
    ]
    fair.stores.catalog.add_policy(toy_policy(slug="good", options={"completions": talk}))
    declare(fair, budget={"evaluations": 9}, seeds=[0, 1])
    play(fair)
    report = report_of(fair)
    (bad, good) = report["health"]
    assert (good["entrant"], good["policy"]) == ("good", "good@2")
    assert good["rollouts"] == 6 * 8  # the seed program is the ninth
    (shares,) = rows_of(
        fair,
        "SELECT avg(unreadable) AS unreadable, avg(failed) AS failed, avg(twins) AS twins FROM ("
        "SELECT avg((coalesce(failure_reason, '') = 'no_code_block')::int) AS unreadable,"
        " avg((rewards IS NULL)::int) AS failed, avg((duplicate_of IS NOT NULL)::int) AS twins"
        " FROM candidates c JOIN runs r ON r.id = c.run_id JOIN policies p ON p.id = r.policy_id"
        " WHERE p.slug = 'good' AND c.role <> 'seed' GROUP BY r.id) runs",
    )
    assert good["unreadable"]["value"] == pytest.approx(float(shares.unreadable))
    assert good["failed"]["value"] == pytest.approx(float(shares.failed))
    assert good["duplicates"]["value"] == pytest.approx(float(shares.twins))
    assert min(shares) > 0
    assert good["unreadable"]["problems"] == 3
    assert "fewer than 30" in good["unreadable"]["note"]
    # Scripted policies have no log-probabilities, and every completion holds one answer.
    assert (good["entropy"]["value"], good["within"]["value"]) == (None, None)
    assert "log-probabilities" in good["entropy"]["note"]
    # Scored answers of a run are (1, 1) and (9, 0): their distance is 0.8 + 0.1.
    assert 0 < good["across"]["value"] < 0.9
    assert bad["unreadable"]["value"] == 0
    volumes = {each["entrant"]: each["hypervolume"]["value"] for each in report["qualities"]}
    assert volumes["good"] == pytest.approx((0.9 + 0.1) * (1.0 + 0.1) / 1.1**2)
    assert volumes["bad"] < volumes["good"]
    (draws,) = [each for each in report["draws"] if each["entrant"] == "good"]
    assert draws["k"] == [1, 2]
    assert draws["pass_at"][1]["value"] == report["standings"]["standings"][1]["pass_k"]["value"]
    assert report["score_laws"][1]["measured"][-1] == report["standings"]["standings"][1]["best_1"]["value"]


def test_answers_of_one_completion_are_grouped(fair: Lab) -> None:
    near = "```python\nx = 2\ny = 5\n```\n```python\nx = 3\ny = 5\n```"
    far = "```python\nx = 8\ny = 5\n```\n```python\nx = 9\ny = 5\n```"
    several = toy_policy(slug="good", answers_per_rollout=2, options={"completions": [near, far]})
    fair.stores.catalog.add_policy(several)
    declare(fair, budget={"evaluations": 9}, seeds=[0, 1])
    play(fair)
    good = report_of(fair)["health"][1]
    assert good["within"]["value"] == pytest.approx(0.1)
    assert good["across"]["value"] == pytest.approx(np.mean([0.6, 0.7, 0.5, 0.6]), abs=0.3)
    assert good["across"]["value"] > good["within"]["value"]


def test_ensemble_as_an_entrant(fair: Lab) -> None:
    entrants = body()["entrants"]
    mixed = {**entrants[1], "name": "mixed", "policy": {"good": 3, "bad": 1}, "choice": "weights"}
    made = declare(fair, entrants=[entrants[0], mixed])
    declared = made["declaration"]["entrants"][1]
    assert declared["policy"] == "good@1"
    assert declared["policies"] == [{"policy": "good@1", "weight": 3.0}, {"policy": "bad@1", "weight": 1.0}]
    play(fair)
    report = report_of(fair)
    assert [policy["name"] for policy in report["design"]["policies"]] == ["bad@1", "good@1"]
    assert all(len(policy["digest"]) == 64 for policy in report["design"]["policies"])
    assert report["standings"]["standings"][1]["policy"] == "good@1=3 + bad@1=1"
    asked = {(each["entrant"], each["policy"]): each["rollouts"] for each in report["health"]}
    assert asked["mixed", "good@1"] > asked["mixed", "bad@1"] > 0
    assert asked["mixed", "good@1"] + asked["mixed", "bad@1"] == asked["bad", "bad@1"]
    # An unlock of an ensemble is not credited to a single policy.
    assert fair.api.get("/v1/unlocks", params={"policy": "good"}).json()["items"] == []
    twice = {**mixed, "policy": {"good": 1, "good@1": 1}}
    details = refused(
        fair.api.post("/v1/tournaments", body(slug="x", entrants=[entrants[0], twice])), 422, "invalid-input"
    )
    assert "twice" in details["detail"]
    alone = {**entrants[1], "choice": "ucb"}
    refused(fair.api.post("/v1/tournaments", body(slug="x", entrants=[entrants[0], alone])), 422, "invalid-input")


def test_export_has_a_line_for_every_planned_run(fair: Lab) -> None:
    declare(fair)
    _some(fair)
    lines = [json.loads(line) for line in fair.api.get("/v1/tournaments/first/export").text.splitlines()]
    assert [line["number"] for line in lines] == [*range(1, 13)]
    states = {line["state"] for line in lines}
    assert "completed" in states
    assert states <= {"planned", "started", "completed"}
    assert all((line["score"] is None) == (line["state"] != "completed") for line in lines)
    assert all(line["area"] is None for line in lines if line["score"] is None)
    play(fair)
    lines = [json.loads(line) for line in fair.api.get("/v1/tournaments/first/export").text.splitlines()]
    for standing in report_of(fair)["standings"]["standings"]:
        areas = [line["area"] for line in lines if line["entrant"] == standing["entrant"]]
        assert sum(areas) / len(areas) == pytest.approx(standing["area"]["value"])
    matrix = report_of(fair)["matrix"]["rows"]
    for row in matrix:
        mine = [line for line in lines if line["problem"] == row["problem"]]
        assert [sum(line["reached"] for line in mine if line["entrant"] == name) for name in ("bad", "good")] == row[
            "successes"
        ]
    refused(fair.api.get("/v1/tournaments/none/export"), 404, "not-found")
    offered = fair.api.get("/tournaments/first").text
    for file, part in (
        ("/tournaments/first/report.html", "<title>first"),
        ("/tournaments/first/matrix.csv", "problem,bad"),
    ):
        assert f'href="{file}"' in offered
        assert part in fair.api.get(file).text


def test_unrecorded_runs_are_summarized_again(fair: Lab) -> None:
    declare(fair)
    play(fair)
    report = report_of(fair)
    with fair.stores.engine.begin() as connection:
        connection.exec_driver_sql(
            "UPDATE tournament_runs SET ended = false, revision = NULL, state = NULL, numbers = NULL"
        )
    play(fair)
    assert (
        json.loads(TournamentResults(fair.stores.engine).report(fair.stores.tournaments.get("first")).model_dump_json())
        == report
    )


def test_scores_of_noisy_problems_are_those_after_the_end(fair: Lab, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tournament_lab, "ToyEvaluator", lambda: NoisyToy(0.5))
    fair.stores.catalog.add_problem(toy_problem().model_copy(update={"slug": "toy-b", "stochastic": True}))
    declare(fair, budget={"evaluations": 14})
    play(fair)
    lines = [json.loads(line) for line in fair.api.get("/v1/tournaments/first/export").text.splitlines()]
    for line in lines:
        noisy = line["problem"] == "toy-b@2"
        assert (line["score_margin"] is not None) == noisy
        if noisy:
            best = fair.api.get(f"/v1/runs/{line['run_id']}").json()["best"]
            # The weights are equal, and y is minimized.
            assert line["score"] == pytest.approx((best["rewards"]["x"] + 10 - best["rewards"]["y"]) / 20)
            assert line["score_margin"] == pytest.approx(sum(best["margin"].values()) / 20)
            candidates = fair.api.get(f"/v1/runs/{line['run_id']}/candidates").json()["items"]
            for again in (each for each in candidates if each["role"] == "repeat"):
                shown = fair.api.get(f"/runs/{line['run_id']}/candidates/{again['number']}").text
                assert "evaluated again by the service" in shown
                assert "Another evaluation of the program of" in shown
    report = report_of(fair)
    assert [(each["problem"], each["entrant"], each["runs"]) for each in report["noisy"]] == [
        ("toy-b@2", "bad", 2),
        ("toy-b@2", "good", 2),
    ]
    for law, standing in zip(report["score_laws"], report["standings"]["standings"], strict=True):
        assert law["measured"][-1] <= standing["best_1"]["value"] + 1e-9, "a lucky evaluation of a run counts no more"
    good = [line for line in lines if (line["problem"], line["entrant"]) == ("toy-b@2", "good")]
    assert report["noisy"][1]["score"] == pytest.approx(np.mean([line["score"] for line in good]))
    margin = np.sqrt(np.sum([line["score_margin"] ** 2 for line in good])) / 2
    assert report["noisy"][1]["margin"] == pytest.approx(margin)
    shown = f"{report['noisy'][1]['score']:.3g} ± {margin:.2g} n=2"
    assert shown in page(fair.stores.tournaments.results.report(fair.stores.tournaments.get("first")))
    assert shown in fair.api.get("/tournaments/first?tab=problems").text


def test_runs_summarized_by_an_earlier_version_are_read(fair: Lab) -> None:
    declare(fair)
    play(fair)
    report = report_of(fair)
    with fair.stores.engine.begin() as connection:
        trimmed = "UPDATE tournament_runs SET numbers = trim_array(numbers, 1) WHERE mod(ord, 2) = 0"
        connection.exec_driver_sql(trimmed)
    results = TournamentResults(fair.stores.engine)
    assert json.loads(results.report(fair.stores.tournaments.get("first")).model_dump_json()) == report
    assert verify(BytesIO(fair.api.get("/v1/tournaments/first/bundle").content)).passed


def test_bundle_verifies_without_the_service_and_names_what_was_changed(fair: Lab) -> None:
    options = {"completions": BAD, "order": "seed", "tokens_per_completion": 5}
    fair.stores.catalog.add_policy(toy_policy(slug="bad", api_key_id=str(UUID(int=5)), options=options))
    declare(fair)
    assert "is running" in refused(fair.api.get("/v1/tournaments/first/bundle"), 409, "conflict")["detail"]
    play(fair)
    assert fair.api.post("/v1/tournaments/first:extend", {"reason": "more", "seeds": [9]}).status_code == 200
    play(fair)
    answer = fair.api.get("/v1/tournaments/first/bundle")
    assert answer.headers["Content-Type"] == "application/zip"
    assert answer.content == fair.api.get("/v1/tournaments/first/bundle").content
    public = fair.api.get("/v1/signing-key").json()["public_key"]
    verification = verify(BytesIO(answer.content), public)
    assert {name: faults for name, faults in verification.faults.items() if faults} == {}
    files = files_of(answer.content)
    assert json.loads(files["report.json"]) == report_of(fair)
    assert len(files["runs.csv"].splitlines()) == 1 + 18
    declared = fair.api.get("/v1/tournaments/first").json()
    assert json.loads(files["declaration.json"])["digest"] == declared["digest"] == verification.manifest.declaration
    assert str(UUID(int=5)) not in files["versions.json"].decode()


def test_html_has_every_section(fair: Lab) -> None:
    def titles(found: str) -> list[Any]:
        return [part.partition("</h2>")[0] for part in found.split("<h2>")[1:]]

    declare(fair)
    play(fair)
    found = titles(page(fair.stores.tournaments.results.report(fair.stores.tournaments.get("first"))))
    assert found.index("Standings") < found.index("Hypervolume and diversity")
    assert (
        found.index("Hypervolume and diversity")
        < found.index("Health of the policies")
        < found.index("Failures and cost")
    )


def test_entrants_with_prices_show_what_they_spent(fair: Lab) -> None:
    options = {"completions": GOOD, "order": "seed", "tokens_per_completion": 5}
    priced = toy_policy(slug="good", options=options, price={"input": 0.0, "output": 2_000.0})
    fair.stores.catalog.add_policy(priced)
    declare(fair)
    play(fair)
    free, paid = report_of(fair)["costs"]
    assert free["dollars"] == 0
    assert paid["dollars"] == pytest.approx(paid["tokens"] * 2_000 / 1e6)
    shown = page(fair.stores.tournaments.results.report(fair.stores.tournaments.get("first")))
    assert f"${paid['dollars']:,.2f}" in shown
