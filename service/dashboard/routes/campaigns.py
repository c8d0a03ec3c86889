"""Campaigns: the list, and one with who was given what and why."""

from __future__ import annotations

from typing import Annotated, Final

from anyio import to_thread
from fastapi import APIRouter, Query, Request, Response
from fastapi.responses import RedirectResponse, StreamingResponse

from service.dashboard.charts import Chart, download
from service.dashboard.deck import Deck, DeckDep
from service.dashboard.figures.campaign import allocation, reached
from service.dashboard.forms import FormDep
from service.dashboard.live import Part
from service.dashboard.pages import address, fragment, page
from speciate.domain.campaign import MOST_SLICES, CampaignState
from speciate.domain.errors import NotFoundError
from speciate.ports.records.campaigns import CampaignRecord, SliceRecord
from speciate.runs.lanes import WAITING

router = APIRouter(include_in_schema=False, prefix="/campaigns")

_LIMIT: Final = 60
_DECISIONS: Final = 40
_PROBLEMS: Final = 300
_GOALS: Final = {
    "pause": CampaignState.PAUSED,
    "resume": CampaignState.RUNNING,
    "cancel": CampaignState.CANCELLED,
}
_ENDED: Final = frozenset({CampaignState.COMPLETED, CampaignState.CANCELLED})


@router.get("")
def list_campaigns(request: Request, deck: DeckDep, cursor: Annotated[str, Query(max_length=2000)] = "") -> Response:
    """Show campaigns, newest first."""
    found = deck.stores.campaigns.list(limit=_LIMIT, cursor=cursor or None)
    older = found.next_cursor and address("/campaigns", cursor=found.next_cursor)
    return page(request, "campaigns.html", campaigns=found.items, older=older)


@router.get("/{name}")
def show_campaign(request: Request, name: str, deck: DeckDep) -> Response:
    """Show a campaign: how every problem stands, what was decided and why, and what came of it."""
    record = _record(deck, name)
    charts = _charts(deck, record)
    return page(request, "campaign.html", **_shown(deck, record), charts=charts.values(), revision=_revision(record))


@router.get("/{name}/live")
async def watch_campaign(name: str, deck: DeckDep, seen: str = Query("", max_length=100)) -> StreamingResponse:
    """Send how it stands whenever that changes."""
    await to_thread.run_sync(_record, deck, name)  # an unknown one is refused before the answer begins

    def render() -> Part:
        record = _record(deck, name)
        text = fragment("campaign_live.html", **_shown(deck, record))
        return Part(text, _revision(record), final=record.state in _ENDED)

    return deck.watch(f"campaign {name}", render, run_id=None, seen=seen)


@router.get("/{name}/figures/{figure}.json")
def get_figure(request: Request, name: str, figure: str, deck: DeckDep) -> Response:
    """Send a figure of a campaign as Plotly's JSON."""
    record = _record(deck, name)
    key = ("campaign", record.id, _revision(record), figure)
    return deck.charts.answer(request, key, lambda: _chart(deck, record, figure))


@router.get("/{name}/figures/{figure}.csv")
def get_figure_data(name: str, figure: str, deck: DeckDep) -> Response:
    """Send what a figure shows as a file."""
    record = _record(deck, name)
    return download(_chart(deck, record, figure).table, f"campaign-{record.slug}-{figure}")


@router.post("/{name}/{verb}")
def steer(name: str, verb: str, form: FormDep, deck: DeckDep) -> Response:
    """Pause, resume or cancel it."""
    if verb not in _GOALS:
        raise NotFoundError(f"a campaign cannot be asked to {verb[:40]!r}.")
    record = _record(deck, name)
    deck.stores.campaigns.move(record.id, _GOALS[verb], form.text("reason")[:2000] or None)
    return RedirectResponse(f"/campaigns/{record.slug}", 303)


def _record(deck: Deck, name: str) -> CampaignRecord:
    if "\x00" in name or len(name) > 200:
        raise NotFoundError("no campaign has such a name.")
    return deck.stores.campaigns.get(name)


def _revision(record: CampaignRecord) -> str:
    return f"{record.state.value}-{record.slices}-{record.spent}-{record.unlocked}"


def _shown(deck: Deck, record: CampaignRecord) -> dict[str, object]:
    # Whoever gets evaluations next, or got most, stands on top.
    problems = sorted(record.problems, key=lambda p: (-p.chance, -p.spent, p.problem))
    return {
        "c": record,
        "problems": problems[:_PROBLEMS],
        "waiting": WAITING,
        "targets": sum(len(problem.reached) for problem in record.problems),
        "decisions": deck.stores.campaigns.decisions(record.id, limit=_DECISIONS).items,
    }


def _charts(deck: Deck, record: CampaignRecord) -> dict[str, Chart]:
    newest: tuple[SliceRecord, ...] = deck.stores.campaigns.decisions(record.id, limit=MOST_SLICES).items
    found = (allocation(newest[::-1]), reached(newest[::-1]))
    return {chart.name: chart for chart in found}


def _chart(deck: Deck, record: CampaignRecord, name: str) -> Chart:
    charts = _charts(deck, record)
    if name not in charts:
        raise NotFoundError(f"a campaign has no figure {name[:60]!r}.", remedy=f"It has {', '.join(charts)}.")
    return charts[name]
