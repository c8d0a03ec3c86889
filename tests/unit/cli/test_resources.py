"""Policies, candidates, unlocks, projects and strategies."""

from __future__ import annotations

import hashlib
import json
import shlex
import time
from collections.abc import Iterator
from pathlib import Path
from uuid import UUID

import pytest

from speciate.cli.errors import ExitCode
from speciate.domain.policy import Policy
from speciate.policies.inline import agent_policy
from tests.unit.cli.conftest import Cli
from tests.unit.client.fake_service import (
    AT,
    RUN,
    FakeService,
    best,
    candidate_json,
    page,
    problem,
    problem_json,
    run_json,
    say,
    serve_best,
)


def policy_json(**values: object) -> dict[str, object]:
    definition = Policy.model_validate({"slug": "qwen", "kind": "openai_compatible", **values}).model_dump(mode="json")
    return {"id": str(UUID(int=2)), "version": 1, "digest": "d", "created_at": AT.isoformat(), "definition": definition}


def test_policy_is_registered_with_all_options(cli: Cli, service: FakeService) -> None:
    service.on("POST", "/v1/policies", say(policy_json()))
    args = ["--kind", "openai_compatible", "--base-url", "http://h/v1", "--model", "m", "--sampling", "temperature=0.5"]
    assert cli("policies", "add", "qwen", *args, "--option", "retries=3", "--option", "name=x y").code == ExitCode.OK
    assert service.requests[0].body == {
        "definition": {
            "slug": "qwen",
            "kind": "openai_compatible",
            "base_url": "http://h/v1",
            "model": "m",
            "sampling": {"temperature": 0.5},
            "options": {"retries": 3, "name": "x y"},
        },
        "check": True,
    }


def test_given_fields_are_merged_with_those_of_a_preset(
    cli: Cli, service: FakeService, monkeypatch: pytest.MonkeyPatch
) -> None:
    service.on("POST", "/v1/policies", say(policy_json()))
    monkeypatch.setenv("OPENAI_API_KEY", "k")
    args = ["--provider", "openai", "--model", "gpt-5.4", "--price", "input=2", "--option", 'fields={"seed": null}']
    assert cli("policies", "add", "gpt", *args).code == ExitCode.OK
    definition = service.requests[0].body["definition"]
    assert definition["price"]["input"] == 2
    assert definition["price"]["output"] > 0
    expected = {"max_tokens": "max_completion_tokens", "temperature": None, "top_p": None, "seed": None}
    assert definition["options"]["fields"] == expected
    refused = cli("policies", "add", "own", "--kind", "openai_compatible", "--model", "m", "--price", "input=2")
    assert refused.code == ExitCode.INVALID
    assert "--price output=… is missing" in refused.err


def test_a_remedy_registers_a_policy_again_with_nothing_else_changed(cli: Cli, service: FakeService) -> None:
    service.on("POST", "/v1/policies", say(policy_json()))
    served = {"slug": "p", "kind": "openai_compatible", "base_url": "http://h/v1", "model": "my model"}
    policies = [
        Policy.model_validate(served | each)
        for each in (
            {},
            {"description": "it's mine", "edit_format": "diff", "answers_per_rollout": 4, "prompt_tokens": 50_000},
            {
                "prompt_style": "compact",
                "api_key_env": "POLICY_KEY_A",
                "training_method": "vpo",
                "timeout_s": 0.1234567,
            },
            {"codec": "maze", "prompt_format": "completion", "checkpoint_digest": "d", "served": {"root": "/m"}},
            {"price": {"output": 2}, "sampling": {"top_p": 0.5, "logprobs": True}, "api_key_id": str(UUID(int=9))},
            {"price": {}, "options": {"backoff_s": 0.5, "fields": {"n": None}, "user": "3", "stream": True}},
        )
    ]
    policies.append(agent_policy("claude -p 'be brief'"))
    for policy in policies:
        command = policy.command_with("--sampling", "temperature=0").replace(" --api-key-file FILE", "")
        assert cli(*shlex.split(command)[1:]).code == ExitCode.OK, command
        registered = Policy.model_validate(service.requests[-1].body["definition"])
        sampling = policy.sampling.model_copy(update={"temperature": 0.0})
        unset = {"sampling": sampling, "served": None, "api_key_id": None}
        assert registered == policy.model_copy(update=unset), command
    assert " --api-key-file FILE" in policies[4].command_with("--prompt-format", "completion")
    assert policies[3].command_with("--prompt-format", "chat").count("--prompt-format") == 1
    probe = {"prompts": ["x"], "trained": [[{"a": -0.1}]], "base": [[{"a": -1.0}]]}
    probed = Policy.model_validate(served | {"probe": probe})
    assert probed.command_with("--price", "input=1").endswith(" --checkpoint DIR")


@pytest.mark.parametrize(
    "arguments",
    [
        ("policies", "add", "--bundled", "--timeout-s", 600),
        ("problems", "list", "--bundled", "--limit", 3),
        ("problems", "import", "openevolve:.", "--count", 5),
        ("engines", "run", "gepa", "--version", "1.2"),
    ],
)
def test_options_that_would_do_nothing_are_refused(
    cli: Cli, service: FakeService, arguments: tuple[object, ...]
) -> None:
    assert cli(*arguments).code == ExitCode.INVALID
    assert service.requests == []


def test_downloaded_models_are_listed_with_their_folder(cli: Cli, tmp_path: Path) -> None:
    (tmp_path / "models" / "smollm2-135m").mkdir(parents=True)
    (tmp_path / "models" / "smollm2-135m" / "manifest.json").write_text("{}")
    rows = [json.loads(line) for line in cli("models", "list", "--data-dir", tmp_path, "--json").lines]
    assert [row["folder"] for row in rows if row["name"] == "smollm2-135m"] == [
        str(tmp_path / "models" / "smollm2-135m")
    ]


def test_the_documented_agent_is_the_one_of_the_option_agent(cli: Cli, service: FakeService) -> None:
    service.on("POST", "/v1/policies", say(policy_json()))
    page = Path(__file__).parents[3] / "docs" / "howto" / "drive-from-your-agent.md"
    (line,) = (each for each in page.read_text().splitlines() if "--kind command" in each)
    assert cli(*shlex.split(line)[1:]).code == ExitCode.OK
    documented = Policy.model_validate(service.requests[0].body["definition"])
    inline = agent_policy("claude -p")
    assert documented.asks_model
    assert documented == inline.model_copy(update={"slug": "claude", "model": None})


def test_adapter_name_contains_the_digest_of_readable_weights(cli: Cli, service: FakeService, tmp_path: Path) -> None:
    service.on("POST", "/v1/policies", say(policy_json()))
    (tmp_path / "adapter_model.safetensors").write_bytes(b"weights")
    digest = hashlib.sha256(b"weights").hexdigest()
    options = ["--kind", "openai_compatible", "--base-url", "http://h/v1", "--base", "big", "--unchecked"]
    for adapter in (str(tmp_path), "/elsewhere/lora", "served"):
        assert cli("policies", "add", "vpo", *options, "--adapter", adapter).code == ExitCode.OK
    here, elsewhere, by_name = (request.body["definition"] for request in service.requests)
    assert (here["model"], here["checkpoint_digest"]) == (f"vpo-{digest[:12]}", digest)
    assert here["options"] == {"adapter_path": str(tmp_path), "base_model": "big"}
    assert (elsewhere["model"], elsewhere["options"]["adapter_path"]) == ("vpo", "/elsewhere/lora")
    assert (by_name["model"], by_name["options"]) == ("served", {"base_model": "big"})
    assert service.requests[0].body["check"] is False


def test_policies_list_and_show(cli: Cli, service: FakeService) -> None:
    reward = {"objective": "radius", "value": 2.5, "seed": 1.0, "verdict": "better"}
    result = {"run_id": str(UUID(int=1)), "problem": "packing@1", "number": 7, "rewards": [reward]}
    service.on("GET", "/v1/policies", page({**policy_json(model="[b]m"), "result": result}))
    service.on("GET", "/v1/policies/qwen", say(policy_json(model="m")))
    assert "radius 2.5 (seed 1, 1.5 better)  packing@1  " in (listed := cli("policies", "list", "qwen").out)
    assert "[b]m" in listed
    assert service.requests[0].query["slug"] == ["qwen"]
    assert "temperature          1.0" in cli("policies", "show", "qwen").lines


def test_the_newest_of_the_versions_that_a_run_learned_is_listed(cli: Cli, service: FakeService) -> None:
    lineage = {"base": "b@1", "parent": "b@1", "run": "r", "estimator": "grpo", "groups": 2}
    learned = [
        {**policy_json(slug="b-12", model=f"m{step}", lineage={**lineage, "step": step}), "version": step}
        for step in (3, 2, 1)
    ]
    service.on("GET", "/v1/policies", page(*learned, policy_json(model="other")))
    assert [line.split()[0] for line in cli("policies", "list").lines[1:]] == ["b-12@3", "qwen@1"]
    assert len(cli("policies", "list", "--json").lines) == 4


@pytest.fixture
def in_new_york(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Set a time zone other than UTC."""
    with monkeypatch.context() as changed:
        changed.setenv("TZ", "EST5EDT")
        time.tzset()
        yield
    time.tzset()


@pytest.mark.usefixtures("in_new_york")
def test_times_are_local_with_the_time_zone(cli: Cli, service: FakeService) -> None:
    token = {
        "id": str(UUID(int=4)),
        "project": "default",
        "name": "bob",
        "prefix": "spc_12345678",
        "scope": "read",
        "created_by": "local",
        "created_at": AT.isoformat(),
        "expires_at": AT.isoformat(),
        "last_used_at": None,
        "revoked_at": None,
    }
    service.on("GET", "/v1/tokens", page(token))
    service.on("GET", f"/v1/runs/{RUN}", say(run_json()))
    service.on("GET", f"/v1/runs/{RUN}/unlocks", page())
    there = "2026-01-01 22:04:05 EST"
    serve_best(service)
    assert f"created      {there}" in cli("runs", "show", RUN).lines
    listed = cli("tokens", "list").lines[1]
    assert f"expired {there}" in listed
    assert listed.endswith(f"never      {there}")


def test_ping_of_an_unreachable_policy(cli: Cli, service: FakeService) -> None:
    down = problem(503, "policy-unavailable", "http://h/v1 refused the connection.")
    service.on("POST", "/v1/policies/qwen:ping", say({"seconds": 0.5}), down)
    assert cli("policies", "ping", "qwen").lines[0] == "qwen responds."
    outcome = cli("policies", "ping", "qwen")
    assert (outcome.code, outcome.err) == (ExitCode.UNREACHABLE, "error: http://h/v1 refused the connection.\n")


@pytest.mark.parametrize(
    ("verdict", "code"), [("ok", ExitCode.OK), ("unchanged", ExitCode.FAILED), (None, ExitCode.UNREACHABLE)]
)
def test_a_policy_is_verified_only_if_its_weights_were_compared(
    cli: Cli, service: FakeService, verdict: str | None, code: int
) -> None:
    probe = {"prompts": ["x"], "trained": [[{"a": -0.1}]], "base": [[{"a": -1.0}]]}
    service.on("GET", "/v1/policies/qwen", say(policy_json(model="m", probe=probe)))
    service.on("POST", "/v1/policies/qwen:ping", say({"message": "http://h/v1 serves m", "verdict": verdict}))
    outcome = cli("policies", "verify", "qwen")
    assert (outcome.code, "http://h/v1 serves m." in outcome.out + outcome.err) == (code, True)
    assert cli("policies", "verify", "qwen", "--checkpoint", ".").code == ExitCode.INVALID


def test_candidate_is_found_by_id_and_by_number(cli: Cli, service: FakeService) -> None:
    made = candidate_json(17, program="print('[bold]\x1b[31m')", artifacts={"stderr": "\x1b[2Joops"})
    service.on("GET", f"/v1/candidates/{UUID(int=117)}", say(made))
    service.on("GET", f"/v1/runs/{RUN}", say(run_json()))
    service.on("GET", f"/v1/runs/{RUN}/candidates/17", say(made))
    for name in (UUID(int=117), f"{RUN}/17"):
        outcome = cli("candidates", "show", name)
        assert "print('[bold]\ufffd[31m')" in outcome.lines
        assert "\x1b" not in outcome.out
    assert json.loads(cli("candidates", "show", f"{RUN}/17", "--json").out)["number"] == 17


def test_rollout_of_a_candidate(cli: Cli, service: FakeService) -> None:
    asked = UUID(int=7)
    why = {"failure": "rejected", "failure_reason": "no_code_block", "failure_detail": "expected a fenced block"}
    made = candidate_json(17, status="failed", rewards=None, rollout_id=str(asked), **why)
    service.on("GET", f"/v1/runs/{RUN}", say(run_json()))
    service.on("GET", f"/v1/runs/{RUN}/candidates/17", say(made))
    service.on("GET", f"/v1/runs/{RUN}/candidates/1", say(candidate_json(1)))
    texts = {"system": "You are a programmer.", "user": "Improve it.", "completion": "No,\x1b[2J sorry."}
    record = {
        "id": str(asked), "run_id": str(RUN), "policy_id": str(asked), "batch": 1, "role": "mutate", "seed": 1,
        "prompt_digest": "0" * 64, "prompt_tokens": 10, "completion_tokens": 3, "latency_s": 0.1, "answers": 0,
        "finish_reason": "stop", "mean_logprob": None, "reason": "no_code_block", "advice": None,
        "created_at": made["created_at"],
    }  # fmt: skip
    service.on("GET", f"/v1/rollouts/{asked}", say(record | texts))
    lines = cli("candidates", "rollout", f"{RUN}/17").lines
    assert lines[lines.index("--- prompt") :][:2] == ["--- prompt", "Improve it."]
    assert lines[lines.index("--- completion") :][:2] == ["--- completion", "No,\ufffd[2J sorry."]
    assert lines[-1] == "no_code_block: expected a fenced block"
    assert cli("candidates", "rollout", f"{RUN}/1").code == ExitCode.NOT_FOUND


@pytest.mark.parametrize("name", [f"{RUN}/0", f"{RUN}/x", f"{RUN}/", f"{RUN}/1e3"])
def test_invalid_candidate_number(cli: Cli, service: FakeService, name: str) -> None:
    assert cli("candidates", "show", name).code == ExitCode.INVALID
    assert service.requests == []


def test_candidates_list(cli: Cli, service: FakeService) -> None:
    failed = candidate_json(2, status="failed", rewards=None, failure="crashed", failure_reason="exited", parents=[1])
    service.on("GET", f"/v1/runs/{RUN}", say(run_json()))
    service.on("GET", f"/v1/runs/{RUN}/candidates", page(failed, candidate_json(1, unmeasured=["radius"])))
    service.on("GET", f"/v1/runs/{RUN}/front", page(best("first", radius=2.5).model_dump(mode="json")))
    outcome = cli("candidates", "list", RUN, "--status", "failed", "--island", 0)
    assert "crashed (exited)" in outcome.lines[1]
    assert "radius=–" in outcome.lines[2]
    assert service.requests[-1].query["status"] == ["failed"]
    assert set(service.requests[-1].query) == {"limit", "status", "island"}
    given = {"sort": "radius", "rule": "radius >= 2", "role": "mutate", "policy": "qwen@2", "target": "first"}
    cli("candidates", "list", RUN, "--elite", *(word for name, value in given.items() for word in (f"--{name}", value)))
    query = {name: values[0] for name, values in service.requests[-1].query.items()}
    assert query == {"limit": "100", "elite": "true", **given}
    service.on("GET", f"/v1/problems/{UUID(int=1)}", say(problem_json()))
    assert [line.split() for line in cli("candidates", "top", RUN).lines] == [
        ["number", "radius", "↑", "meets"],
        ["9", "2.5", "first"],
    ]


def test_unlocks(cli: Cli, service: FakeService, tmp_path: Path) -> None:
    record = {
        "run_id": str(RUN), "problem_id": str(UUID(int=1)), "problem": "packing", "problem_version": 1,
        "policy_id": str(UUID(int=2)), "policy": "m", "policy_version": 3, "strategy": "best_of_n", "seed": 5,
        "target": "first", "unlock": True, "state": "confirmed", "number": 9, "candidate_id": str(UUID(int=9)),
        "forgeable": True, "evaluations": 1234, "tokens": 0, "seconds": 2.5, "at": AT.isoformat(),
        "mutator": "changer", "mutator_version": 2,
    }  # fmt: skip
    service.on("GET", "/v1/unlocks", page(record, record | {"by_seed": True}))
    _, shown, by_seed = cli("unlocks", "--policy", "m").lines
    assert "first (forgeable) (by the seed program)" in by_seed
    assert shown.split()[3:6] == ["m@3", "changer@2", "best_of_n"]
    assert "1,234" in shown
    assert "first (forgeable) " in shown
    assert service.requests[0].query["unlocks_only"] == ["true"]
    assert json.loads(cli("unlocks", "--every-target", "--json").lines[0])["evaluations"] == 1234
    assert "unlocks_only" not in service.requests[1].query
    out = tmp_path / "u.csv"
    assert json.loads(cli("unlocks", "--out", out, "--json").out) == {"file": str(out)}
    assert cli("unlocks", "--out", out).lines == [str(out)]


def test_records_of_forgeable_evaluators_are_marked(cli: Cli, service: FakeService) -> None:
    record = {
        "objective": "radius", "value": 2.5, "forgeable": True, "run_id": str(RUN), "number": 9,
        "candidate_id": str(UUID(int=9)), "policy": "m@3", "strategy": "best_of_n", "seed": 5, "evaluations": 40,
        "at": AT.isoformat(),
    }  # fmt: skip
    service.on("GET", "/v1/problems/packing/records", page(record))
    assert cli("unlocks", "--problem", "packing", "--records").lines[1].split()[:4] == [
        "radius",
        "(forgeable)",
        "2.5",
        "m@3",
    ]


@pytest.mark.parametrize(("role", "shown"), [("polish", "polished numbers"), ("seed", "seed program")])
def test_records_that_no_policy_wrote_name_their_origin(cli: Cli, service: FakeService, role: str, shown: str) -> None:
    record = {
        "objective": "radius", "value": 2.5, "run_id": str(RUN), "number": 9, "candidate_id": str(UUID(int=9)),
        "role": role, "policy": None, "strategy": "best_of_n", "seed": 5, "evaluations": 40, "at": AT.isoformat(),
    }  # fmt: skip
    service.on("GET", "/v1/problems/packing/records", page(record))
    assert f"  {shown}  " in cli("unlocks", "--problem", "packing", "--records").lines[1]


def test_a_limited_history_notes_that_there_is_more(cli: Cli, service: FakeService) -> None:
    def record(objective: str, number: int) -> dict[str, object]:
        return {
            "objective": objective, "value": 0.5, "run_id": str(RUN), "number": number,
            "candidate_id": str(UUID(int=number)), "policy": None, "strategy": "best_of_n", "seed": 5,
            "evaluations": 40, "at": AT.isoformat(),
        }  # fmt: skip

    history = [record(name, number) for name, most in (("a", 60), ("b", 2), ("c", 1)) for number in range(most, 0, -1)]
    service.on("GET", "/v1/problems/packing/records", page(*history))
    command = ("unlocks", "--problem", "packing", "--records")
    outcome = cli(*command)
    assert len(outcome.lines) == 51
    assert outcome.lines[1].endswith(f"{RUN}/60")
    assert outcome.err == "… and more: --limit 500\n"
    assert len(cli(*command, "--json").lines) == 63
    assert cli(*command, "--limit", 63).err == ""


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--by-policy"], "--problem: is missing: --by-policy requires it"),
        (["--problem", "p", "--by-policy", "--records"], "--records: does not apply to --by-policy"),
        (["--problem", "p", "--records", "--policy", "m"], "--policy: does not apply to --records"),
        (["--problem", "p", "--by-policy", "--out", "u.csv"], "--out: does not apply to --by-policy"),
    ],
)
def test_tables_of_one_problem_reject_other_options(cli: Cli, options: list[str], message: str) -> None:
    outcome = cli("unlocks", *options)
    assert outcome.code == 4
    assert message in outcome.err


@pytest.mark.parametrize("args", [["create", "lab"], ["quota", "lab"]])
def test_too_large_quota_is_rejected(cli: Cli, service: FakeService, args: list[str]) -> None:
    outcome = cli("projects", *args, "--runs", 10**20)
    assert outcome.code == ExitCode.INVALID
    assert outcome.err.startswith("error: The quota is not valid: concurrent_runs: ")
    assert service.requests == []


def test_quota_is_not_set_and_removed_at_once(cli: Cli, service: FakeService) -> None:
    outcome = cli("projects", "quota", "lab", "--tokens", 5, "--unlimited", "tokens")
    assert (outcome.code, service.requests) == (ExitCode.INVALID, [])
    assert outcome.err.startswith("error: --tokens and --unlimited tokens exclude each other.")


@pytest.mark.parametrize("key", ["é", "a\nb"])
def test_api_key_invalid_in_a_header_is_rejected(cli: Cli, service: FakeService, key: str) -> None:
    outcome = cli("run", "packing", "-p", "m", "-b", 9, "--idempotency-key", key)
    assert outcome.code == ExitCode.INVALID
    assert "Idempotency-Key: is" in outcome.err
    assert service.requests == []


def test_an_unknown_event_of_a_webhook_is_answered_with_those_that_it_can_receive(
    cli: Cli, service: FakeService
) -> None:
    outcome = cli("webhooks", "add", "https://hooks.example", "--event", "nope")
    assert outcome.code == ExitCode.INVALID
    assert "--event: is 'nope': expected unlock, run.finished, alarm" in outcome.err


def test_strategies(cli: Cli, service: FakeService) -> None:
    options = {"properties": {"islands": {"default": 4, "description": "Islands"}}}
    service.on("GET", "/v1/strategies", page({"name": "best_of_n", "description": "The floor.", "options": options}))
    assert cli("strategies").lines == ["best_of_n", "  The floor.", "  --option islands=4  Islands"]


@pytest.mark.parametrize("option", ["--older-than", "--audit-older-than"])
def test_prune_rejects_ages_beyond_the_calendar(cli: Cli, option: str) -> None:
    assert cli("prune", option, "1e6").code == ExitCode.USAGE


def test_bundled_policies_that_a_user_archived_are_not_restored(cli: Cli, service: FakeService) -> None:
    from speciate.policies.bundled import bundled_policies

    archived, *others = [policy.slug for policy in bundled_policies()]
    service.on("GET", f"/v1/policies/{archived}", say(policy_json() | {"archived_at": "2026-11-01T00:00:00Z"}))
    service.on("POST", "/v1/policies", say(policy_json()))
    outcome = cli("policies", "add", "--bundled")
    assert outcome.code == ExitCode.OK
    assert f"speciate policies restore {archived}" in outcome.err
    added = [request.body["definition"]["slug"] for request in service.requests if request.method == "POST"]
    assert added == others
