"""``speciate doctor``: check the installation and print a fix for each problem found."""

from dataclasses import asdict
from typing import Annotated, Final
from urllib.parse import urlsplit

import typer
from rich.text import Text

from speciate.cli import output
from speciate.cli.common import URL_FLAG, command, command_group, global_options
from speciate.cli.doctor import machine
from speciate.cli.doctor.findings import Finding, Status, run_check
from speciate.cli.doctor.machine import effective_settings
from speciate.cli.doctor.service import check_service
from speciate.cli.errors import ExitCode
from speciate.client.connection import START_REMEDY
from speciate.service_address import has_server_announcement
from speciate.settings import Settings, is_loopback, load_settings

app = command_group()

_MARKS: Final = {"good": ("ok", "green"), "warning": ("warn", "yellow"), "bad": ("FAIL", "bold red")}


ServiceOnly = Annotated[
    bool, typer.Option("--service-only", help="Check only the service; the default for a remote --url.")
]


@command(app, "doctor", "speciate doctor", "speciate doctor --json | jq .checks")
def doctor_command(service_only: ServiceOnly = False) -> None:
    """Check the installation and print a fix for each problem found.

    Checks Python, settings, servers, sandbox, service and policies, and exits with 1 if a check fails. --json includes
    the settings that have their defaults. For a service on
    another machine (--url), checks that service and skips the servers and sandbox of this machine.
    """
    flags = global_options()
    settings = load_settings(**flags)
    effective = effective_settings(settings, flags)
    with output.console(stderr=True).status("Checking …"):
        findings = _run_checks(settings, flags.get(URL_FLAG), service_only=service_only)
    if output.wants_json():
        output.print_json({"settings": effective, "checks": [asdict(finding) for finding in findings]})
    else:
        rows = [tuple(each.values()) for each in effective if each["source"] != "default"]
        output.print_table(("setting", "value", "source"), rows, empty="All settings have their defaults.")
        output.print_line()
        _print_findings(findings)
    failed, warned = (sum(finding.status is status for finding in findings) for status in (Status.BAD, Status.WARNING))
    if not output.wants_json():
        warnings = f" with {output.pluralize(warned, 'warning')}" if warned else ""
        output.print_line(f"{output.pluralize(failed, 'check')} failed." if failed else f"Ready{warnings}.")
    if failed:
        raise typer.Exit(ExitCode.FAILED)


def _run_checks(settings: Settings, url: str | None, *, service_only: bool) -> list[Finding]:
    findings, tier = [machine.python(), machine.environment()], None
    remote = service_only or not is_loopback(urlsplit(settings.base_url).hostname or "")
    if not remote:
        findings += [machine.data_dir(settings), run_check("postgres", machine.postgres, settings)]
        findings.append(run_check("redis", machine.redis, settings))
        sandbox, tier = machine.sandbox(settings)
        findings += [*sandbox, machine.languages(settings, tier), machine.engines(), *machine.training()]
    service = list(check_service(url, tier))
    if service[-1].name == "api" and not remote and all(each.status is not Status.BAD for each in findings):
        findings += machine.secret_key(settings)  # no service tells of its own
    absent = service[-1].remedy == START_REMEDY and not has_server_announcement(settings)
    if absent and not remote and settings.url is None:
        service = [Finding("api", Status.GOOD, "no service runs on this machine yet: `speciate up` starts one")]
    return findings + service


def _print_findings(findings: list[Finding]) -> None:
    out = output.console()
    for finding in findings:
        mark, style = _MARKS[finding.status.value]
        line = Text(f"{mark:<6}", style=style)
        line.append(f"{finding.name}: {output.sanitize(finding.detail)}", style="default")
        out.print(line, soft_wrap=True)
        if finding.remedy:
            output.print_line(f"      fix: {finding.remedy}")
