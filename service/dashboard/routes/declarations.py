"""What the pages of tournaments and campaigns share: lists, the choice of a figure, the actions, and the forms."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final
from uuid import uuid4

from fastapi import Request, Response

from service.dashboard.charts import Chart
from service.dashboard.context import DashboardContext
from service.dashboard.forms import FormErrors
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


def idempotency_key(values: Mapping[str, str]) -> str | None:
    """Return the key by which a form that is sent twice creates one declaration."""
    return f"form:{values['key'][:100]}" if values.get("key") else None


def form_page(
    request: Request,
    dashboard: DashboardContext,
    kind: str,
    values: Mapping[str, str],
    errors: FormErrors | None,
    **choices: Any,
) -> Response:
    catalog = dashboard.stores.catalog
    policies = [version.definition for version in catalog.policies(limit=500).items]
    context = {
        "values": values,
        "errors": errors,
        "policies": list(dict.fromkeys(policy.slug for policy in policies)),
        "methods": sorted({policy.training_method for policy in policies if policy.training_method}),
        "sets": [problem_set.slug for problem_set in catalog.problem_sets(limit=100).items],
        "key": values.get("key") or uuid4().hex,
        **choices,
    }
    return page(request, f"new_{kind}.html", 200 if errors is None else 422, **context)
