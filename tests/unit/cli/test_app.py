"""Properties of all commands."""

from __future__ import annotations

import inspect
import json
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
import typer

from speciate import __version__
from speciate.cli.app import COMMANDS as LAZY
from speciate.cli.app import app
from speciate.cli.errors import ExitCode, exit_code
from speciate.cli.evaluate import _read as read_rewards
from speciate.client import Rewards
from speciate.domain import errors
from tests.unit.cli.conftest import MAIN, Cli
from tests.unit.client.fake_service import RUN, FakeService, event, page, problem, run_json, say, serve_best, stream

ROOT = Path(__file__).parents[3]


def _commands(group: object, path: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], object]]:
    for name, found in getattr(group, "commands", {}).items():
        command = getattr(found, "command", found)  # a LazyCommand
        if hasattr(command, "commands"):
            yield from _commands(command, (*path, name))
        else:
            yield (*path, name), command


def _parameters(command: object) -> set[str]:
    return {parameter.name for parameter in command.params}  # type: ignore[attr-defined]


COMMANDS = dict(_commands(typer.main.get_command(app)))
SILENT = {
    ("runs", "export"),
    ("tournaments", "export"),
    ("up",),
    ("demo",),
    ("migrate",),
    ("serve",),
    ("mcp",),
    ("docs",),
}
SILENT |= {
    ("engines", "install"),
    ("problems", "schema"),
    ("models", "get"),
    ("models", "remove"),
    ("policies", "export"),
}
"""Commands without --json: they write JSON Lines, or write or remove files, or run a service."""


@pytest.mark.parametrize("path", COMMANDS, ids=" ".join)
def test_every_command_has_help_with_examples_and_json(path: tuple[str, ...], cli: Cli) -> None:
    outcome = cli(*path, "--help")
    assert outcome.code == ExitCode.OK
    assert "Example" in outcome.out
    assert f"speciate {' '.join(path)}" in outcome.out
    assert "--json" in outcome.out or path in SILENT


def test_a_busy_port_of_mcp_is_refused_with_the_option_that_names_another(cli: Cli) -> None:
    with socket.create_server(("127.0.0.1", 0)) as busy:
        outcome = cli("mcp", "--http", busy.getsockname()[1])
    assert outcome.code == ExitCode.CONFLICT
    assert "another port with --http" in " ".join(outcome.err.split())
    assert "Serving" not in outcome.err


def test_no_command_takes_a_token() -> None:
    for path, command in COMMANDS.items():
        options = {name for parameter in command.params for name in parameter.opts}  # type: ignore[attr-defined]
        assert not {"--token", "--api-key", "--password"} & options, path


def test_every_list_notes_omitted_items() -> None:
    lists = {path: command for path, command in COMMANDS.items() if "limit" in _parameters(command)}
    lists.pop(("evolve",))  # its --limit is one of the evaluator
    assert lists
    for path, command in lists.items():
        code = inspect.getsource(inspect.unwrap(command.callback))  # type: ignore[attr-defined]
        assert "first_records(" in code, path
        assert "limit]" not in code, path


NOUNS = sorted({path[0] for path in COMMANDS if len(path) > 1})


@pytest.mark.parametrize("path", [path for path in COMMANDS if len(path) == 1], ids=" ".join)
def test_the_summary_of_a_command_begins_its_help(path: tuple[str, ...]) -> None:
    _, summary = LAZY[path[0]]
    assert inspect.cleandoc(COMMANDS[path].help).split("\n\n")[0].replace("\n", " ") == summary  # type: ignore[attr-defined]


def test_nouns_are_plural() -> None:
    assert "tournaments" in NOUNS
    assert [noun for noun in NOUNS if not noun.endswith("s")] == []


@pytest.mark.parametrize("noun", [noun for noun in NOUNS if noun != "runs"])
def test_the_singular_of_a_noun_is_an_alias(noun: str, cli: Cli) -> None:
    singular = noun.removesuffix("ies") + "y" if noun.endswith("ies") else noun.removesuffix("s")
    assert cli(singular, "--help").out == cli(noun, "--help").out


def test_run_without_a_policy_is_an_alias_of_runs(cli: Cli, service: FakeService) -> None:
    service.on("GET", "/v1/runs", page(run_json()))
    assert cli("run", "list", "--json").out == cli("runs", "list", "--json").out != ""
    assert "no budget" in cli("run", "list", "-p", "m").err  # a problem may have any name


@pytest.mark.parametrize(
    ("args", "suggested"),
    [(["tournment", "list"], "tournaments"), (["runs", "lst"], "list"), (["runs", "list", "--stat", "x"], "--state")],
)
def test_a_mistyped_command_or_option_is_answered_with_the_nearest(cli: Cli, args: list[str], suggested: str) -> None:
    outcome = cli(*args)
    assert outcome.code == ExitCode.USAGE
    assert suggested in outcome.err


def test_version(cli: Cli) -> None:
    assert cli("--version").out == f"speciate {__version__}\n"


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (errors.SpeciateError("x"), 1),
        (errors.PolicyUnavailableError("x"), 3),
        (errors.RuleError("x", column=1), 4),
        (errors.TooLargeError("x"), 4),
        (errors.NotFoundError("x"), 5),
        (errors.PreconditionFailedError("x"), 6),
        (errors.ReplayError("x"), 6),
        (errors.NotAllowedError("x"), 7),
        (errors.ConfigurationError("x"), 8),
    ],
)
def test_exit_codes_of_errors(error: errors.SpeciateError, code: int) -> None:
    assert exit_code(error) == code


def test_exit_codes_are_documented() -> None:
    text = (ROOT / "docs" / "reference" / "cli.md").read_text()
    assert all(f"| {code.value} | " in text for code in ExitCode)


def test_every_command_is_documented() -> None:
    text = (ROOT / "docs" / "reference" / "cli.md").read_text()
    assert [path for path in COMMANDS if f"`{' '.join(path)}" not in text] == []


def test_a_refused_connection(cli: Cli) -> None:
    outcome = cli("--url", "http://127.0.0.1:1", "runs", "list")
    assert (outcome.code, outcome.out) == (ExitCode.UNREACHABLE, "")
    assert outcome.err.startswith("error: cannot reach the service at http://127.0.0.1:1")
    assert "speciate up" in outcome.err


@pytest.mark.parametrize("args", [["runs", "lst"], ["run"], ["run", "p", "-p", "m", "--budget", "many"], ["--tokn"]])
def test_invalid_command_line(cli: Cli, args: list[str]) -> None:
    assert cli(*args).code == ExitCode.USAGE


def test_an_error_is_printed_once_with_every_field_error(cli: Cli, service: FakeService) -> None:
    field_errors = [
        {
            "message": "unknown name",
            "where": "targets.0.rule",
            "label": "target 'good', rule",
            "file": "problem.toml",
            "line": 12,
            "column": 9,
        },
        {"message": "is missing", "where": "title", "file": "problem.toml", "line": 1},
    ]
    first = "problem.toml:12:9 target 'good', rule: unknown name"
    service.on(
        "POST",
        "/v1/problems",
        problem(422, "invalid-input", f"It is not valid: {first} (and 1 more)", errors=field_errors),
    )
    outcome = cli("problems", "add", "circle-packing-26")
    assert outcome.code == ExitCode.INVALID
    assert outcome.err.splitlines() == ["error: It is not valid:", f"  {first}", "  problem.toml:1 title: is missing"]


def test_hostile_text_cannot_control_the_terminal(cli: Cli, service: FakeService) -> None:
    hostile = "\x1b[2J[bold red]x[/bold red]\u202e\r\x07"
    service.on(
        "GET", f"/v1/runs/{RUN}", problem(404, "not-found", hostile), say(run_json(reason=hostile, alarm=hostile))
    )
    service.on("GET", f"/v1/runs/{RUN}/unlocks", page())
    service.on("GET", "/v1/runs", page(run_json(problem=hostile)))
    serve_best(service)
    said = [cli("runs", "show", RUN), cli("runs", "show", RUN), cli("runs", "list")]
    for outcome in said:
        text = outcome.out + outcome.err
        assert "[bold red]x[/bold red]" in text
        assert not set("\x1b\u202e\r\x07") & set(text)


def test_ctrl_c_is_quiet(tmp_path: Path, service: FakeService) -> None:
    waiting, over = threading.Event(), threading.Event()

    def hang(handler: object) -> None:
        waiting.set()
        over.wait(30)

    service.on("GET", "/v1/runs", hang)
    command = [sys.executable, "-c", MAIN, "runs", "list"]
    environment = {"SPECIATE_URL": service.url, "PYTHONPATH": str(ROOT)}
    with subprocess.Popen(command, env=environment, stdout=-1, stderr=-1, text=True) as process:
        assert waiting.wait(30)
        process.send_signal(signal.SIGINT)
        out, err = process.communicate(timeout=30)
        over.set()
    assert (process.returncode, out, err) == (130, "", "")


@pytest.mark.parametrize("command", [["runs", "list"], ["runs", "list", "--json"], ["--help"]])
def test_full_disk_is_reported_without_traceback(service: FakeService, command: list[str]) -> None:
    service.on("GET", "/v1/runs", page(run_json()))
    arguments = [sys.executable, "-c", "from speciate.cli import main; main()", *command]
    environment = {"SPECIATE_URL": service.url, "PYTHONPATH": str(ROOT)}
    with Path("/dev/full").open("w") as full:
        done = subprocess.run(arguments, env=environment, stdout=full, stderr=subprocess.PIPE, text=True)
    message = (
        "error: the output cannot be written: No space left on device. Free disk space, or write to another location.\n"
    )
    assert (done.returncode, done.stderr) == (ExitCode.FAILED, message)


def test_closed_output_and_arguments_that_are_no_text(service: FakeService) -> None:
    service.on("GET", "/v1/runs", page(run_json()))
    environment = {"SPECIATE_URL": service.url, "PYTHONPATH": str(ROOT)}
    command = f"{sys.executable} -c 'from speciate.cli import main; main()' runs"
    done = subprocess.run(f"{command} list >&-", shell=True, env=environment, capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (ExitCode.OK, "")
    for arguments in (b"list --name \xff", b"show x\xff"):
        done = subprocess.run(
            command.encode() + b" " + arguments, shell=True, env=environment, capture_output=True, text=True
        )
        assert (done.returncode, done.stderr.count("\n")) == (ExitCode.INVALID, 1)
        assert "is not UTF-8 text" in done.stderr


def test_closed_pipe_is_quiet(service: FakeService) -> None:
    service.on("GET", f"/v1/runs/{RUN}", say(run_json()))
    service.on("GET", f"/v1/runs/{RUN}/events", stream(*(event(n) for n in range(1, 5000))))
    watch = f"{sys.executable} -c 'from speciate.cli import main; main()' runs watch {RUN} --json | head -n 1"
    environment = {"SPECIATE_URL": service.url, "PYTHONPATH": str(ROOT), "PATH": "/usr/bin:/bin"}
    done = subprocess.run(watch, shell=True, env=environment, capture_output=True, text=True)
    assert json.loads(done.stdout)["seq"] == 1
    assert done.stderr == ""


def test_an_evaluator_needs_the_service_at_its_start(cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SPECIATE_URL", "http://127.0.0.1:1")
    told = cli("evaluate", "true", "--idle", "0")
    assert told.code != 0
    assert "cannot reach the service at http://127.0.0.1:1" in told.err


@pytest.mark.parametrize(
    "printed", ['{"rewards": {"x": 1}, "failure": null, "feedback": null}', '{"x": 1, "failure": null}']
)
def test_a_failure_of_an_evaluation_that_is_null_is_none(printed: str) -> None:
    assert read_rewards(printed) == Rewards({"x": 1}, {})
