"""Campaigns: the list, and one with who was given what and why."""

from __future__ import annotations

from typing import Annotated, Final

from anyio import to_thread
from fastapi import APIRouter, Query, Request, Response
from fastapi.responses import RedirectResponse, StreamingResponse

from service.dashboard.charts import Chart, download
from service.dashboard.context import DashboardContext, DashboardDep
from service.dashboard.figures.campaign import allocation_chart, campaign_progress_chart
from service.dashboard.forms import FormDep
from service.dashboard.live import LivePart
from service.dashboard.pages import address, fragment, page
from speciate.domain.campaign import MAX_SLICES
from speciate.domain.declaration import DeclarationState
from speciate.domain.errors import NotFoundError
from speciate.ports.records.declarations import CampaignRecord, SliceRecord
from speciate.runs.lanes import WAITING

router = APIRouter(include_in_schema=False, prefix="/campaigns")

_LIMIT: Final = 60
_DECISIONS: Final = 40
_PROBLEMS: Final = 300
_GOALS: Final = {
    "pause": DeclarationState.PAUSED,
    "resume": DeclarationState.RUNNING,
    "cancel": DeclarationState.CANCELLED,
}
_ENDED: Final = frozenset({DeclarationState.COMPLETED, DeclarationState.CANCELLED})


@router.get("")
def list_campaigns(
    request: Request, dashboard: DashboardDep, cursor: Annotated[str, Query(max_length=2000)] = ""
) -> Response:
    """Show campaigns, newest first."""
    found = dashboard.stores.campaigns.list(limit=_LIMIT, cursor=cursor or None)
    older = found.next_cursor and address("/campaigns", cursor=found.next_cursor)
    return page(request, "campaigns.html", campaigns=found.items, older=older)


@router.get("/{name}")
def show_campaign(request: Request, name: str, dashboard: DashboardDep) -> Response:
    """Show a campaign: how every problem stands, what was decided and why, and what came of it."""
    record = _record(dashboard, name)
    charts = _charts(dashboard, record)
    return page(
        request, "campaign.html", **_shown(dashboard, record), charts=charts.values(), revision=_revision(record)
    )


@router.get("/{name}/live")
async def watch_campaign(
    name: str, dashboard: DashboardDep, seen: str = Query("", max_length=100)
) -> StreamingResponse:
    """Send how it stands whenever that changes."""
    await to_thread.run_sync(_record, dashboard, name)  # an unknown one is refused before the answer begins

    def render() -> LivePart:
        record = _record(dashboard, name)
        text = fragment("campaign_live.html", **_shown(dashboard, record))
        return LivePart(text, _revision(record), final=record.state in _ENDED)

    return dashboard.watch(f"campaign {name}", render, run_id=None, seen=seen)


@router.get("/{name}/figures/{figure}.json")
def get_figure(request: Request, name: str, figure: str, dashboard: DashboardDep) -> Response:
    """Send a figure of a campaign as Plotly's JSON."""
    record = _record(dashboard, name)
    key = ("campaign", record.id, _revision(record), figure)
    return dashboard.charts.respond(request, key, lambda: _chart(dashboard, record, figure))


@router.get("/{name}/figures/{figure}.csv")
def get_figure_data(name: str, figure: str, dashboard: DashboardDep) -> Response:
    """Send what a figure shows as a file."""
    record = _record(dashboard, name)
    return download(_chart(dashboard, record, figure).table, f"campaign-{record.slug}-{figure}")


@router.post("/{name}/{verb}")
def steer(name: str, verb: str, form: FormDep, dashboard: DashboardDep) -> Response:
    """Pause, resume or cancel it."""
    if verb not in _GOALS:
        raise NotFoundError(f"a campaign cannot be asked to {verb[:40]!r}.")
    record = _record(dashboard, name)
    dashboard.stores.campaigns.move(record.id, _GOALS[verb], form.text("reason")[:2000] or None)
    return RedirectResponse(f"/campaigns/{record.slug}", 303)


def _record(dashboard: DashboardContext, name: str) -> CampaignRecord:
    if "\x00" in name or len(name) > 200:
        raise NotFoundError("no campaign has such a name.")
    return dashboard.stores.campaigns.get(name)


def _revision(record: CampaignRecord) -> str:
    return f"{record.state.value}-{record.slices}-{record.spent}-{record.unlocked}"


def _shown(dashboard: DashboardContext, record: CampaignRecord) -> dict[str, object]:
    # Whoever gets evaluations next, or got most, stands on top.
    problems = sorted(record.problems, key=lambda p: (-p.chance, -p.spent, p.problem))
    return {
        "c": record,
        "problems": problems[:_PROBLEMS],
        "waiting": WAITING,
        "targets": sum(len(problem.reached) for problem in record.problems),
        "decisions": dashboard.stores.campaigns.decisions(record.id, limit=_DECISIONS).items,
    }


def _charts(dashboard: DashboardContext, record: CampaignRecord) -> dict[str, Chart]:
    newest: tuple[SliceRecord, ...] = dashboard.stores.campaigns.decisions(record.id, limit=MAX_SLICES).items
    found = (allocation_chart(newest[::-1]), campaign_progress_chart(newest[::-1]))
    return {chart.name: chart for chart in found}


def _chart(dashboard: DashboardContext, record: CampaignRecord, name: str) -> Chart:
    charts = _charts(dashboard, record)
    if name not in charts:
        raise NotFoundError(f"a campaign has no figure {name[:60]!r}.", remedy=f"It has {', '.join(charts)}.")
    return charts[name]
