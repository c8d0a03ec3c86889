"""``speciate campaigns``: search many problems with one budget, and show how it was spent."""

from __future__ import annotations

from itertools import islice
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from speciate.cli import lifecycle, output
from speciate.cli.common import Yes, client, command, command_group, confirm_budget
from speciate.cli.model_options import add_options
from speciate.cli.runs.start import IdempotencyKey, Mutators, Policies, Watch, complete_learning, parse_policies
from speciate.domain.campaign import AllocationMode, Campaign, waits_for_grant
from speciate.domain.errors import InvalidInputError
from speciate.domain.run import RunState

if TYPE_CHECKING:
    from speciate.schema.declarations import CampaignProblem, CampaignRecord

app = command_group()

Rows = Annotated[int, typer.Option("--rows", "-n", help="Maximum number of problems and of decisions.", min=1)]


@command(
    app,
    "create",
    "speciate campaigns create sweep --set maze-test --policy maze-vpo --budget 5000",
    "speciate campaigns create two --problem a --problem b -p big=1 -p small=3 --choice ucb -b 2000 --slice 64 -w",
    "speciate campaigns create fair --set maze-test -p maze-vpo -b 5000 --mode fixed --json",
    "speciate campaigns create taught --set maze-test -p maze-base -b 20000 --learn vector_max_at_k --slice 64 -w",
)
@add_options(Campaign, without={"slug", "problems", "policy", "mutator"})
def create(
    *,
    slug: Annotated[str, typer.Argument(metavar="NAME", help="Name; it cannot be used again.")],
    policy: Policies,
    options: dict[str, Any],
    problem: lifecycle.Problems = None,
    problem_set: lifecycle.ProblemSets = None,
    mutator: Mutators = None,
    idempotency_key: IdempotencyKey = None,
    yes: Yes = False,
    watch: Watch = False,
) -> None:
    """Declare a campaign. It starts at once and is immutable.

    Each slice of the budget goes to the problem whose next evaluation is likeliest to reach a new target. A problem
    whose unlock is confirmed receives no more evaluations.
    """
    problems = lifecycle.problem_names(problem, problem_set)
    if "learning_scope" in options and "learning" not in options:
        raise InvalidInputError("--learn-scope needs --learn.", remedy="Add --learn vector_max_at_k.")
    if not problems:
        raise InvalidInputError("the campaign has no problems.", remedy="Add --problem NAME or --set NAME.")
    declaration = {
        "slug": slug,
        "problems": problems,
        "policy": parse_policies(policy, "--policy"),
        **({"mutator": parse_policies(mutator, "--mutator")} if mutator else {}),
        **complete_learning(options),
    }
    confirm_budget(declaration, yes=yes)
    service = client()
    created = service.campaigns.create(declaration, idempotency_key=idempotency_key)
    if output.wants_json():
        output.print_json(created)
    elif not watch:
        output.print_line(f"{created.slug}: {created.declaration.evaluations:,} evaluations for {_problems(created)}")
        output.print_note(f"Watch it with: {output.command_line('campaigns watch', created.slug)}")
    if watch:
        raise typer.Exit(_VIEW.follow(service, created.slug))


@command(app, "show", "speciate campaigns show sweep", "speciate campaigns show sweep --json")
def show(name: lifecycle.Name, rows: Rows = 20) -> None:
    """Show the declaration, the progress of every problem, and the latest decisions with their reasons."""
    service = client()
    campaign = service.campaigns.get(name)
    latest = [] if output.wants_json() else list(islice(service.campaigns.slices(name), rows))
    output.exit_with_json(campaign)
    declared = campaign.declaration
    adaptive = declared.mode is AllocationMode.ADAPTIVE
    shares = f"slices of {declared.slice:,}" if adaptive else "equal shares"
    output.print_fields(
        ("campaign", campaign.slug),
        ("id", campaign.id),
        ("title", declared.title),
        ("state", lifecycle.state_of(campaign)),
        ("policy", _names(declared.policy)),
        ("mutator", _names(declared.mutator or {})),
        ("strategy", declared.strategy),
        ("mode", f"{declared.mode.value}: {shares}, {declared.parallel:,} problems at once"),
        ("seed", str(declared.seed)),
        ("spent", f"{campaign.spent:,} of {declared.evaluations:,} evaluations in {campaign.slices:,} slices"),
        ("unlocked", f"{campaign.unlocked:,} of {_problems(campaign)}"),
        *output.learning_fields(campaign.learning, over=campaign.state.ended),
        ("declaration", f"sha256 {campaign.digest}"),
        ("created", output.format_time(campaign.created_at)),
        ("finished", output.format_time(campaign.finished_at)),
    )
    output.print_line()
    output.print_table(
        ("problem", "status", ">spent", ">slices", ">since target", ">chance", "reached", "run"),
        [(p.problem, status(p), f"{p.spent:,}", p.slices, f"{p.gap:,}", percent(adaptive and p.chance),
          ", ".join(p.reached), p.run_id) for p in campaign.problems[:rows]],
    )  # fmt: skip
    if len(campaign.problems) > rows:
        output.print_line(f"… and {len(campaign.problems) - rows:,} more: --rows {len(campaign.problems)}")
    output.print_line()
    output.print_table(
        (">slice", "problem", ">evaluations", ">since target", ">chance", ">spent", "reached", "then"),
        [(s.ord, s.problem, f"{s.evaluations:,}", f"{s.gap:,}", percent(adaptive and s.chance), s.spent,
          ", ".join(s.reached), s.closed) for s in latest],
        empty="No slice has been granted yet.",
    )  # fmt: skip
    if campaign.slices > len(latest):
        output.print_line(f"… and {campaign.slices - len(latest):,} more: --rows {campaign.slices}")


def status(problem: CampaignProblem) -> str:
    """Return the status of a problem in a word or two, with the reason if it needs attention."""
    match problem.state:
        case _ if problem.unlocked:
            return "unlocked"
        case None | RunState.CREATED:
            return "not started"
        case RunState.PAUSED if waits_for_grant(problem.reason):
            return "waiting"
        case RunState.PAUSED | RunState.FAILED | RunState.CANCELLED:
            return output.format_state(problem.state.value, problem.reason)
        case RunState.COMPLETED:
            return "not unlocked"
        case _:
            return "running"


def percent(chance: float) -> str:
    return f"{100 * chance:.2g} %" if chance else "–"


def _problems(record: CampaignRecord) -> str:
    return output.pluralize(len(record.declaration.problems), "problem")


def _names(weights: dict[str, float]) -> str:
    single = len(weights) == 1
    return ", ".join(name if single else f"{name}={weight:g}" for name, weight in weights.items())


def _row(record: CampaignRecord) -> tuple[object, ...]:
    declared = record.declaration
    unlocked = f"{record.unlocked:,} of {len(declared.problems):,}"
    spent = f"{record.spent:,} of {declared.evaluations:,}"
    return record.slug, lifecycle.state_of(record), declared.mode.value, unlocked, spent, declared.title


def _progress(record: CampaignRecord) -> str:
    spent = f"{record.spent:,} of {record.declaration.evaluations:,} evaluations"
    return f"{spent}, {record.unlocked:,} of {_problems(record)} unlocked"


_VIEW: Final = lifecycle.DeclarationView["CampaignRecord"](
    noun="campaign",
    results="campaigns show",
    columns=("campaign", "state", "mode", ">unlocked", ">evaluations", "title"),
    row=_row,
    progress=_progress,
    milestone=lambda record: sum(len(problem.reached) for problem in record.problems),
)

lifecycle.add_lifecycle_commands(app, _VIEW, "sweep")
