"""``speciate candidates``: list, show and compare the candidates of a run."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Annotated, Any

import typer

from speciate.cli import output
from speciate.cli.common import Limit, RunId, client, command, command_group, first_records, invalid_argument
from speciate.client.run_names import is_whole_id
from speciate.domain.errors import NotFoundError

if TYPE_CHECKING:
    from speciate.client import Client
    from speciate.schema.candidates import CandidateDetail, CandidateRecord

app = command_group()

CandidateName = Annotated[str, typer.Argument(metavar="CANDIDATE", help="Candidate id, or RUN/NUMBER.")]


@command(
    app,
    "list",
    "speciate candidates list RUN",
    "speciate candidates list RUN --status failed",
    "speciate candidates list RUN --sort gain --rule 'gain >= 5 and overlap <= 0'",
    "speciate candidates list RUN --elite --role mutate --policy qwen@2",
)
def list_(
    run_id: RunId,
    status: Annotated[str | None, typer.Option(help="Only candidates with this status: evaluated or failed.")] = None,
    island: Annotated[int | None, typer.Option(help="Only candidates of this island.", min=0)] = None,
    role: Annotated[
        str | None, typer.Option(help="Only candidates of this role: propose, mutate, polish, repeat or seed.")
    ] = None,
    policy: Annotated[str | None, typer.Option(help="Only candidates of this policy.")] = None,
    target: Annotated[
        str | None, typer.Option(help="Only candidates that meet this target; 'any' means at least one.")
    ] = None,
    rule: Annotated[
        str | None, typer.Option(help="Only candidates whose rewards satisfy this rule, such as 'gain >= 5'.")
    ] = None,
    elite: Annotated[bool, typer.Option("--elite", help="Only current elites of the archive.")] = False,
    sort: Annotated[
        str | None, typer.Option(help="Sort by this reward, or by scalar (the weighted sum), best first.")
    ] = None,
    limit: Limit = 50,
) -> None:
    """List the candidates of a run, newest first."""
    filters: dict[str, Any] = {"status": status, "island": island, "role": role, "policy": policy}
    filters |= {"target": target, "rule": rule}
    candidates = first_records(client().runs.get(run_id).candidates(**filters, elite=elite, sort=sort), limit)
    output.print_records(
        candidates,
        (">number", ">island", "role", "parents", "rewards", "meets"),
        lambda c: (c.number, c.island, c.role.value, _numbers(c.parents), _result(c), ", ".join(c.targets)),
        empty=output.empty_message("candidates", "speciate runs watch RUN", **filters, elite="only" if elite else None),
    )


@command(app, "top", "speciate candidates top RUN", "speciate candidates top RUN --json")
def top(run_id: RunId, limit: Limit = 20) -> None:
    """List the Pareto front, best candidate first: what no other candidate dominates."""
    run = client().runs.get(run_id)
    candidates = first_records(run.front(), limit)
    objectives = run.problem().definition.objectives if candidates and not output.wants_json() else ()
    output.print_records(
        candidates,
        (">number", *(f">{o.directed}" for o in objectives), "meets"),
        lambda c: (c.number, *(output.format_number(c.rewards[o.name]) for o in objectives), ", ".join(c.targets)),
        empty="No candidate has rewards yet.",
    )


@command(app, "show", "speciate candidates show RUN/17", "speciate candidates show ID --json")
def show(name: CandidateName) -> None:
    """Show a candidate, its program and its evaluator artifacts."""
    candidate = resolve_candidate(client(), name)
    output.exit_with_json(candidate)
    near = "near-" if candidate.failure_reason == "near_duplicate" else ""
    used = f"{candidate.wall_s:.3f} s wall, {candidate.cpu_s:.3f} s CPU"
    output.print_fields(
        ("candidate", f"{candidate.run_id}/{candidate.number}"),
        ("id", candidate.id),
        ("status", candidate.status.value),
        ("role", candidate.role.value),
        ("island", str(candidate.island)),
        ("parents", _numbers(candidate.parents)),
        ("inspirations", _numbers(candidate.inspirations)),
        (f"{near}duplicate of", candidate.duplicate_of),
        ("seed from", candidate.origin),
        ("reused from", candidate.reused_from),
        ("rewards", output.format_rewards(candidate.measured)),
        ("weighted sum", output.format_number(candidate.scalar)),
        ("meets", ", ".join(candidate.targets)),
        *((f"target {name}", measured) for name, measured in candidate.refuted.items()),
        ("failure", f"{candidate.failure.value} ({candidate.failure_reason})" if candidate.failure else None),
        ("detail", candidate.failure_detail),
        ("stopped at", candidate.stopped_at),
        ("tier", candidate.tier),
        ("attested by", candidate.attested_by),
        ("environment", candidate.environment),
        ("output from", candidate.carried_from),
        ("resources", f"{used}, {candidate.memory_bytes / 2**20:.0f} MiB"),
    )
    rationale = [("rationale", candidate.rationale)] if candidate.rationale else []
    output.print_sections((*rationale, *candidate.artifacts.items(), ("program", candidate.program)))


@command(app, "rollout", "speciate candidates rollout RUN/17")
def rollout(name: CandidateName) -> None:
    """Show the prompt and completion of a candidate, and why the completion could not be read."""
    service = client()
    candidate = resolve_candidate(service, name)
    if candidate.rollout_id is None:
        raise NotFoundError(f"candidate {candidate.number} has role {candidate.role.value}: no policy wrote it.")
    record = service.rollout(candidate.rollout_id)
    output.exit_with_json(record)
    reasoning = f" ({record.reasoning_tokens:,} of reasoning)" if record.reasoning_tokens else ""
    output.print_fields(
        ("candidate", f"{candidate.run_id}/{candidate.number}"),
        ("rollout", record.id),
        ("finish reason", record.finish_reason),
        ("tokens", f"{record.prompt_tokens:,} prompt, {record.completion_tokens:,} completion{reasoning}"),
        ("answers", f"{record.answers:,}"),
    )
    failure = (
        f"{candidate.failure_reason}: {candidate.failure_detail}" if candidate.failure else "The answer could be read."
    )
    prompts = (("system prompt", record.system), ("prompt", record.user), ("completion", record.completion))
    output.print_sections((*prompts, ("result", failure)))


@command(app, "diff", "speciate candidates diff RUN/17")
def diff(name: CandidateName) -> None:
    """Show the diff from the first parent to a candidate."""
    service = client()
    difference = service.candidates.diff(resolve_candidate(service, name).id)
    output.exit_with_json(difference)
    output.print_text(str(difference["diff"] or "No difference."))


@command(app, "lineage", "speciate candidates lineage RUN/17")
def lineage(name: CandidateName) -> None:
    """List the ancestors of a candidate."""
    service = client()
    ancestors = service.candidates.lineage(resolve_candidate(service, name).id)
    output.print_records(
        ancestors,
        (">number", "role", "parents", "rewards"),
        lambda c: (c.number, c.role.value, _numbers(c.parents), _result(c)),
        empty="The candidate has no ancestors.",
    )


def resolve_candidate(service: Client, name: str) -> CandidateDetail:
    """Return a candidate by its id or by ``RUN/NUMBER``."""
    run_id, slash, number = name.rpartition("/")
    if not slash:
        if not is_whole_id(name):
            raise NotFoundError(f"there is no candidate {name!r}: expected an id, or RUN/NUMBER.")
        return service.candidates.get(name)
    if not re.fullmatch(r"[1-9][0-9]{0,17}", number):
        raise invalid_argument("CANDIDATE", f"is {name!r}: expected an id, or RUN/NUMBER with a number from 1")
    run = service.runs.get(run_id)
    try:
        return run.candidate(int(number))
    except NotFoundError:
        if any(first <= int(number) <= last for first, last in (each.candidates for each in run.evaluations())):
            raise NotFoundError(
                f"candidate {number} of run {run.id} is still being evaluated.",
                remedy=f"See `{output.command_line('runs evaluations', run_id)}` for its progress.",
            ) from None
        raise


def _numbers(values: tuple[int, ...]) -> str:
    return ", ".join(map(str, values))


def _result(candidate: CandidateRecord) -> str:
    if candidate.failure is None:
        return output.format_rewards(candidate.measured)
    return f"{candidate.failure.value} ({candidate.failure_reason})"
