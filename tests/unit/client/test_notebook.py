from __future__ import annotations

import sys
from collections.abc import Iterator
from typing import Any

import pytest

from speciate.client import Client
from speciate.domain.errors import ConfigurationError
from speciate.domain.target import Target
from speciate.schema.candidates import CandidateDetail
from tests.unit.client.fake_service import RUN, FakeService, best, candidate_json, page, run_json, say, serve_best


@pytest.fixture
def client(service: FakeService) -> Iterator[Client]:
    with Client(service.url) as made:
        yield made


def _run(client: Client, service: FakeService, **values: Any) -> Any:
    service.on("GET", f"/v1/runs/{RUN}", say(run_json(**values)))
    return client.runs.get(RUN)


def test_html_is_escaped(client: Client, service: FakeService) -> None:
    html = _run(
        client, service, alarm="<script>alert(1)</script>", best=best(**{"<b>": 1.0}).model_dump(mode="json")
    )._repr_html_()
    assert "<script>" not in html
    assert "&lt;script&gt;" in html
    assert "best &lt;b&gt;" in html
    assert "40 of 100 evaluations" in html


def test_repr_shows_progress(client: Client, service: FakeService) -> None:
    assert repr(_run(client, service)) == f"<run {RUN} running: 40 of 100 evaluations>"


def test_missing_pandas_has_a_remedy(client: Client, service: FakeService, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pandas", None)  # as if it were not installed
    service.on("GET", f"/v1/runs/{RUN}/candidates", page())
    with pytest.raises(ConfigurationError, match="pip install pandas"):
        _run(client, service).to_pandas()


def test_frame_has_a_row_per_candidate(client: Client, service: FakeService) -> None:
    service.on("GET", f"/v1/runs/{RUN}/candidates", page(candidate_json(2), candidate_json(1)))
    frame = _run(client, service).to_pandas()
    assert list(frame["number"]) == [1, 2]
    assert list(frame["reward.radius"]) == [1.0, 2.0]


HOSTILE = "<script>alert(1)</script>"


def test_best_is_the_candidate_of_the_record_read_now(client: Client, service: FakeService) -> None:
    serve_best(service, program="def solve():\n    return 1\n", targets=("first", "refuted"))
    later = run_json(best=best("first", radius=2.5).model_dump(mode="json"))
    service.on("GET", f"/v1/runs/{RUN}", say(run_json(best=None)), say(run_json(best=None)), say(later))
    run = client.runs.get(RUN)
    assert run.best() is None
    found = run.best()
    assert found is not None
    assert (found.number, found.targets, found.program) == (9, ("first",), "def solve():\n    return 1\n")
    assert isinstance(found, CandidateDetail)
    assert CandidateDetail.model_validate_json(found.model_dump_json()).rewards == {"radius": 9.0}


def test_notebooks_show_the_best_program_and_its_rewards_against_the_targets(
    client: Client, service: FakeService
) -> None:
    text = f"def solve():\n    return '{HOSTILE}'\n"
    targets = (
        Target(name="first", rule="radius >= 2", unlock=True),
        Target(name="second", rule="radius >= 20 or radius < 1"),
    )
    serve_best(service, program=text, definition={"targets": targets})
    run = _run(client, service, best=best("first", radius=9.0).model_dump(mode="json"))
    html = run.best()._repr_html_()
    assert "<script>" not in html
    assert "&lt;script&gt;" in html
    assert "<td>radius ↑</td><td>9</td>" in html
    assert "<td>first (unlocks)</td><td>radius &gt;= 2</td><td>met</td>" in html
    assert "<td>radius must be &lt; 1, is 9</td>" in html


@pytest.mark.parametrize("text", [HOSTILE, f"# === file: a.unknown ===\n{HOSTILE}"])
def test_programs_are_escaped(client: Client, service: FakeService, text: str) -> None:
    serve_best(service, program=text, definition={"many_files": True, "seed_program": ""})
    html = _run(client, service).best()._repr_html_()
    assert "<script>" not in html
    assert "&lt;script&gt;" in html


def test_notebooks_show_the_front_as_a_table(client: Client, service: FakeService) -> None:
    ranked = best(HOSTILE, radius=2.5).model_dump(mode="json")
    service.on("GET", f"/v1/runs/{RUN}/front", page(), page(ranked), page(*[ranked] * 101))
    run = _run(client, service)
    assert "<td>" not in run.front()._repr_html_()
    front = run.front()
    assert [each.number for each in front] == [9]
    assert front._repr_html_().count("<td>") == 3
    assert "<td>2.5</td><td>&lt;script&gt;" in front._repr_html_()
    assert "The first 100 of 101." in run.front()._repr_html_()
