"""``speciate doctor``: whether everything that is needed is there, and how to mend what is not."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import TYPE_CHECKING, Annotated, Final
from urllib.parse import urlsplit

import typer
from rich.text import Text

from speciate.cli import output
from speciate.cli.exits import Exit
from speciate.cli.session import URL_FLAG, AsJson

if TYPE_CHECKING:
    from speciate.cli.checks import Finding
    from speciate.settings import Settings

_MARKS: Final = {"good": ("ok", "green"), "warning": ("warn", "yellow"), "bad": ("BAD", "bold red")}


ServiceOnly = Annotated[
    bool, typer.Option("--service-only", help="Look at the service alone, as is done when it is on another machine.")
]


def doctor_command(ctx: typer.Context, as_json: AsJson = False, service_only: ServiceOnly = False) -> None:
    """Look at Python, settings, servers, sandbox, service and policies. The exit code is 1 when something is bad.

    Of a service on another machine (--url) its servers, clock, workers, queues and tiers are looked at, not this
    machine's servers and sandbox.
    """
    from speciate.cli import checks
    from speciate.cli.deployment_checks import deployment
    from speciate.cli.secret_checks import of_this_machine
    from speciate.settings import is_loopback, load_settings

    flags = dict(ctx.find_root().obj or {})
    settings = load_settings(**flags)
    effective = checks.effective_settings(settings, flags)
    elsewhere = service_only or not is_loopback(urlsplit(settings.base_url).hostname or "")
    findings = []
    with output.console(stderr=True).status("Looking …"):
        findings += [checks.python(), checks.environment()]
        if not elsewhere:
            findings += [checks.data_dir(settings)]
            findings += [checks.database(settings), checks.cache(settings)]
            findings += of_this_machine(settings)
            findings += _sandbox(settings)
        asked = list(deployment(flags.get(URL_FLAG)))
        if elsewhere and asked[-1].name == "api":
            # Nothing else was to be looked at.
            asked = [replace(asked[-1], status=checks.Status.BAD)]
        findings += asked
    if as_json:
        settings_json = [{"name": each.name, "value": each.value, "source": each.source} for each in effective]
        output.json_line({"settings": settings_json, "checks": [finding.as_json() for finding in findings]})
    else:
        rows = [(each.name, each.value, each.source) for each in effective]
        output.table(("setting", "value", "source"), rows, empty="no settings")
        output.say()
        _show(findings)
    if any(finding.status is checks.Status.BAD for finding in findings):
        raise typer.Exit(Exit.FAILED)


def _sandbox(settings: Settings) -> Iterable[Finding]:
    from speciate.cli.sandbox_checks import sandbox

    return sandbox(settings)


def _show(findings: list[Finding]) -> None:
    out = output.console()
    width = max(len(finding.name) for finding in findings)
    for finding in findings:
        mark, style = _MARKS[finding.status.value]
        line = Text(f"{mark:<5}", style=style).append(
            f"{finding.name:<{width}}  {output.clean(finding.detail)}", style="default"
        )
        out.print(line, soft_wrap=True)
        if finding.remedy:
            output.say(f"     {'':<{width}}  {finding.remedy}")
