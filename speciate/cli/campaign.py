"""``speciate campaign``: search many problems with one budget, and see where it went."""

from __future__ import annotations

from itertools import islice
from typing import TYPE_CHECKING, Annotated, Final

import typer

from speciate.cli import output
from speciate.cli.common import AsJson, Limit, client, command_group, examples, first_records, parse_key_values
from speciate.cli.runs.start import parse_policies
from speciate.domain.errors import InvalidInputError

if TYPE_CHECKING:
    from speciate.domain.campaign import Campaign
    from speciate.ports.records.declarations import CampaignProblem, CampaignRecord

app = command_group("Campaigns: many problems, one budget, spent where a new target is likeliest.")

Name = Annotated[str, typer.Argument(metavar="CAMPAIGN", help="Name or id.")]
Reason = Annotated[str | None, typer.Option(help="Why; it is kept with the campaign.")]
Rows = Annotated[int, typer.Option("--rows", "-n", help="Show at most this many problems and decisions.", min=1)]

# The defaults are those of ``Campaign``, which takes too long to load for a help text; a test compares them.
_CAST: Final = "NAME[=WEIGHT]"
_STRATEGY, _CHOICE, _MODE = "islands_map_elites", "weights", "adaptive"
_BATCH, _SAMPLES, _SLICE, _PARALLEL, _SEED = "16", "4", "32", "8", "0"


@app.command(
    "create",
    epilog=examples(
        "speciate campaign create sweep --set maze-test --policy maze-vpo --budget 5000",
        "speciate campaign create two --problem a --problem b -p big=1 -p small=3 --choice ucb -b 2000 --slice 64 -w",
        "speciate campaign create fair --set maze-test -p maze-vpo -b 5000 --mode fixed --json",
    ),
)
def create(
    ctx: typer.Context,
    slug: Annotated[str, typer.Argument(metavar="NAME", help="Name; it can never be used again.")],
    policy: Annotated[
        list[str],
        typer.Option("--policy", "-p", metavar=_CAST, help="Who is asked: name, name@version or id; repeatable."),
    ],
    budget: Annotated[
        int, typer.Option("--budget", "--evaluations", "-b", help="Evaluations of all problems together.")
    ],
    problem: Annotated[list[str] | None, typer.Option(help="A problem; repeatable.")] = None,
    problem_set: Annotated[list[str] | None, typer.Option("--set", help="All problems of a set; repeatable.")] = None,
    mutator: Annotated[
        list[str] | None, typer.Option(metavar=_CAST, help="Who changes parents instead; repeatable.")
    ] = None,
    choice: Annotated[
        str | None, typer.Option(help="How one of several is chosen: weights or ucb.", show_default=_CHOICE)
    ] = None,
    mode: Annotated[
        str | None,
        typer.Option(help="adaptive, or fixed: the same share for every problem.", show_default=_MODE),
    ] = None,
    slice_: Annotated[
        int | None,
        typer.Option("--slice", help="Evaluations that a problem is given at a time.", show_default=_SLICE),
    ] = None,
    parallel: Annotated[
        int | None, typer.Option(help="Problems that are given some at once.", show_default=_PARALLEL)
    ] = None,
    strategy: Annotated[
        str | None, typer.Option("--strategy", "-s", help="See `speciate strategies`.", show_default=_STRATEGY)
    ] = None,
    option: Annotated[
        list[str] | None,
        typer.Option("--option", "-o", metavar="KEY=VALUE", help="Option of the strategy; repeatable."),
    ] = None,
    seed: Annotated[int | None, typer.Option(help="Seed of every random choice.", show_default=_SEED)] = None,
    batch: Annotated[
        int | None, typer.Option(help="Answers asked for in one unit of work.", show_default=_BATCH)
    ] = None,
    samples_per_prompt: Annotated[
        int | None, typer.Option(help="Answers drawn for one prompt.", show_default=_SAMPLES)
    ] = None,
    title: Annotated[str | None, typer.Option(help="One line for people.")] = None,
    idempotency_key: Annotated[
        str | None, typer.Option(help="The same request with the same key again is the same campaign.")
    ] = None,
    watch: Annotated[bool, typer.Option("--watch", "-w", help="Watch until it ends or is paused.")] = False,
    as_json: AsJson = False,
) -> None:
    """Declare a campaign; it begins at once and can never be declared otherwise.

    Slice by slice the budget goes to the problem where the next evaluation reaches a new target with the highest
    probability. A problem whose unlock is confirmed takes no more.
    """
    problems = [*(problem or []), *(f"set:{name}" for name in problem_set or [])]
    if not problems:
        raise InvalidInputError("the campaign has no problems.", remedy="Name some: --problem NAME or --set NAME.")
    given = {
        "mutator": parse_policies(mutator, "--mutator") if mutator else None,
        "policy_choice": choice,
        "mode": mode,
        "slice": slice_,
        "parallel": parallel,
        "strategy": strategy,
        "strategy_options": parse_key_values(option, "--option") or None,
        "seed": seed,
        "batch": batch,
        "samples_per_prompt": samples_per_prompt,
        "title": title,
    }
    declaration = {
        "slug": slug,
        "problems": problems,
        "policy": parse_policies(policy, "--policy"),
        "evaluations": budget,
        **{name: value for name, value in given.items() if value is not None},
    }
    with client(ctx) as service:
        made = service.campaigns.create(declaration, idempotency_key=idempotency_key)
        if as_json:
            output.print_json(made)
        elif not watch:
            output.print_line(f"{made.slug}: {made.declaration.evaluations:,} evaluations for {_problems(made)}")
            output.print_note(f"Watch it with: speciate campaign watch {made.slug}")
        if watch:
            from speciate.cli.campaign_watching import follow

            raise typer.Exit(follow(service, made.slug, as_json=as_json))


@app.command("list", epilog=examples("speciate campaign list", "speciate campaign list --state running --json"))
def list_(
    ctx: typer.Context,
    state: Annotated[str | None, typer.Option(help="Only running, paused, completed or cancelled ones.")] = None,
    limit: Limit = 20,
    as_json: AsJson = False,
) -> None:
    """List campaigns, newest first."""
    with client(ctx) as service:
        found = first_records(ctx, service.campaigns.list(state=state), limit)
    if as_json:
        for record in found:
            output.print_json(record)
        return
    rows = [
        (c.slug, c.state.value, c.declaration.mode.value, f"{c.unlocked:,} of {len(c.declaration.problems):,}",
         f"{c.spent:,} of {c.declaration.evaluations:,}", c.declaration.title)
        for c in found
    ]  # fmt: skip
    empty = output.empty_message("campaigns", "speciate campaign create --help", state=state)
    output.print_table(("campaign", "state", "mode", ">unlocked", ">evaluations", "title"), rows, empty=empty)


@app.command("show", epilog=examples("speciate campaign show sweep", "speciate campaign show sweep --json"))
def show(ctx: typer.Context, name: Name, rows: Rows = 20, as_json: AsJson = False) -> None:
    """Show what was declared, how every problem stands, and the latest decisions with their reasons."""
    with client(ctx) as service:
        found = service.campaigns.get(name)
        latest = [] if as_json else list(islice(service.campaigns.slices(name), rows))
    if as_json:
        output.print_json(found)
        return
    declared = found.declaration
    output.print_fields(
        (
            ("campaign", found.slug),
            ("id", found.id),
            ("title", declared.title),
            ("state", state_of(found)),
            ("policy", _names(declared.policy)),
            ("mutator", _names(declared.mutator or {})),
            ("strategy", declared.strategy),
            ("mode", _mode(declared)),
            ("seed", str(declared.seed)),
            ("spent", f"{found.spent:,} of {declared.evaluations:,} evaluations in {found.slices:,} slices"),
            ("unlocked", f"{found.unlocked:,} of {_problems(found)}"),
            ("declaration", f"sha256 {found.digest}"),
            ("created", output.format_time(found.created_at)),
            ("finished", output.format_time(found.finished_at)),
        )
    )
    output.print_line()
    output.print_table(
        ("problem", "stands", ">spent", ">slices", ">since target", ">chance", "reached", "run"),
        [(p.problem, stands(p), f"{p.spent:,}", p.slices, f"{p.gap:,}", percent(p.chance), ", ".join(p.reached),
          p.run_id) for p in found.problems[:rows]],
        empty="",
    )  # fmt: skip
    if len(found.problems) > rows:
        output.print_line(f"… and {len(found.problems) - rows:,} more: --rows {len(found.problems)}")
    output.print_line()
    output.print_table(
        (">slice", "problem", ">evaluations", ">since target", ">chance", ">spent", "reached", "then"),
        [(s.ord, s.problem, f"{s.evaluations:,}", f"{s.gap:,}", percent(s.chance), s.spent, ", ".join(s.reached),
          s.closed) for s in latest],
        empty="No slice was handed out yet.",
    )  # fmt: skip
    if found.slices > len(latest):
        output.print_line(f"… and {found.slices - len(latest):,} more: --rows {found.slices}")


@app.command("watch", epilog=examples("speciate campaign watch sweep", "speciate campaign watch sweep --json"))
def watch_(ctx: typer.Context, name: Name, as_json: AsJson = False) -> None:
    """Watch until it ends or is paused; the exit code is 1 when it was cancelled or paused."""
    from speciate.cli.campaign_watching import follow

    with client(ctx) as service:
        raise typer.Exit(follow(service, name, as_json=as_json))


@app.command("pause", epilog=examples("speciate campaign pause sweep --reason 'the endpoint moves'"))
def pause(ctx: typer.Context, name: Name, reason: Reason = None, as_json: AsJson = False) -> None:
    """Hand out no more evaluations, and pause the runs under way."""
    with client(ctx) as service:
        _tell(service.campaigns.pause(name, reason), as_json=as_json)


@app.command("resume", epilog=examples("speciate campaign resume sweep"))
def resume(ctx: typer.Context, name: Name, as_json: AsJson = False) -> None:
    """Go on."""
    with client(ctx) as service:
        _tell(service.campaigns.resume(name), as_json=as_json)


@app.command("cancel", epilog=examples("speciate campaign cancel sweep"))
def cancel(ctx: typer.Context, name: Name, reason: Reason = None, as_json: AsJson = False) -> None:
    """End it; its runs are cancelled, what was committed stays."""
    with client(ctx) as service:
        _tell(service.campaigns.cancel(name, reason), as_json=as_json)


def state_of(found: CampaignRecord) -> str:
    """Return the state with its reason."""
    return found.state.value + (f": {found.reason}" if found.reason else "")


def stands(problem: CampaignProblem) -> str:
    """Return in a word or two how a problem stands, with the reason where somebody should look."""
    from speciate.domain.run import RunState
    from speciate.runs.lanes import WAITING

    match problem.state:
        case _ if problem.unlocked:
            return "unlocked"
        case None | RunState.CREATED:
            return "not begun"
        case RunState.PAUSED if problem.reason == WAITING:
            return "waits"
        case RunState.PAUSED | RunState.FAILED | RunState.CANCELLED:
            return problem.state.value + (f": {problem.reason}" if problem.reason else "")
        case RunState.COMPLETED:
            return "not unlocked"
        case _:
            return "searches"


def percent(chance: float) -> str:
    """Return a probability for people."""
    return f"{100 * chance:.2g} %"


def _mode(declared: Campaign) -> str:
    shares = f"slices of {declared.slice:,}" if declared.mode.value == _MODE else "equal shares"
    return f"{declared.mode.value}: {shares}, {declared.parallel:,} problems at once"


def _problems(found: CampaignRecord) -> str:
    return output.pluralize(len(found.declaration.problems), "problem")


def _names(cast_: dict[str, float]) -> str:
    return ", ".join(cast_) if len(cast_) == 1 else ", ".join(f"{name}={weight:g}" for name, weight in cast_.items())


def _tell(found: CampaignRecord, *, as_json: bool) -> None:
    if as_json:
        output.print_json(found)
    else:
        spent = f"{found.spent:,} of {found.declaration.evaluations:,} evaluations spent"
        output.print_line(f"{found.slug} is {state_of(found)} ({spent})")
