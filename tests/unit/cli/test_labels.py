from __future__ import annotations

from speciate.cli.errors import ExitCode
from tests.unit.cli.conftest import Cli
from tests.unit.client.fake_service import END, RUN, FakeService, page, run_json, say, serve_best, stream

LABELS = {"name": "four \x1b[2Jislands", "tags": ["baseline", "arm:a"], "note": "first\nsecond"}


def test_run_is_created_with_labels(cli: Cli, service: FakeService) -> None:
    service.on("POST", "/v1/runs", say(run_json(), 202))
    given = ["--name", "n", "--tag", "a", "--tag", "b", "--note", "why"]
    assert cli("run", "packing", "-p", "m", "--budget", 5, *given).code == ExitCode.OK
    body = service.requests[0].body
    assert (body["name"], body["tags"], body["note"]) == ("n", ["a", "b"], "why")


def test_label_changes_and_shows_labels(cli: Cli, service: FakeService) -> None:
    service.on("GET", f"/v1/runs/{RUN}", say(run_json()))
    service.on("PATCH", f"/v1/runs/{RUN}", say(run_json(**LABELS)))
    outcome = cli("runs", "label", RUN, "--name", "", "--tag", "a", "--untag", "b", "--untag", "c")
    assert service.requests[-1].body == {"name": "", "add_tags": ["a"], "remove_tags": ["b", "c"]}
    assert outcome.lines == [
        f"run   {RUN}",
        "name  four \ufffd[2Jislands",
        "tags  baseline arm:a",
        "note  first",
        "      second",
    ]
    nothing = cli("runs", "label", RUN)
    assert (nothing.code, "--untag" in nothing.err) == (ExitCode.INVALID, True)


def test_labels_appear_in_list_and_show(cli: Cli, service: FakeService) -> None:
    service.on("GET", "/v1/runs", page(run_json(**LABELS), run_json()))
    listed = cli("runs", "list", "--tag", "baseline", "--tag", "arm:a", "--name", "four")
    assert listed.lines[0].split()[-2:] == ["name", "tags"]
    assert listed.lines[1].endswith("four \ufffd[2Jislands  baseline arm:a")
    assert (service.requests[0].query["tag"], service.requests[0].query["name"]) == (["baseline", "arm:a"], ["four"])
    service.on("GET", f"/v1/runs/{RUN}", say(run_json(**LABELS, state="completed")))
    service.on("GET", f"/v1/runs/{RUN}/unlocks", page())
    serve_best(service)
    service.on("GET", f"/v1/runs/{RUN}/events", stream(END))
    shown = [line.split() for line in cli("runs", "show", RUN).lines]
    assert ["tags", "baseline", "arm:a"] in shown
    assert ["note", "first"] in shown
    assert cli("runs", "watch", RUN).lines[1].startswith("four \ufffd[2Jislands: 40 of 100 evaluations")
