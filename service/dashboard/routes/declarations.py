"""What the pages of tournaments and campaigns share: lists, the choice of a figure, and the actions."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from fastapi import Request, Response

from service.dashboard.charts import Chart
from service.dashboard.pages import address, page
from speciate.domain.declaration import VERBS, DeclarationState
from speciate.domain.errors import NotFoundError
from speciate.schema.base import Page
from speciate.schema.declarations import DeclarationRecord

PAGE_SIZE: Final = 60
MAX_REASON_LENGTH: Final = 2000


def list_page(request: Request, kind: str, records: Page[Any]) -> Response:
    older = records.next_cursor and address(f"/{kind}s", cursor=records.next_cursor)
    return page(request, f"{kind}s.html", records=records.items, older=older)


def shown_charts(charts: Sequence[Chart], record: DeclarationRecord[Any]) -> list[Chart]:
    """Leave out empty charts of ended declarations; a running one may soon fill them."""
    return [chart for chart in charts if not (chart.empty and record.state.ended)]


def chart_named(charts: Sequence[Chart], kind: str, name: str) -> Chart:
    by_name = {chart.name: chart for chart in charts}
    if name not in by_name:
        raise NotFoundError(f"a {kind} has no figure {name[:60]!r}.", remedy=f"It has {', '.join(by_name)}.")
    return by_name[name]


def goal_of(verb: str, kind: str) -> DeclarationState:
    """Return the state that a button leads to; raises ``NotFoundError`` for an unknown verb."""
    if verb not in VERBS:
        raise NotFoundError(f"{verb[:40]!r} is not an action of a {kind}: expected {', '.join(VERBS)}.")
    return VERBS[verb]
