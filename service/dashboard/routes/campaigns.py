"""Pages of campaigns: progress of the problems, decisions and their results, and the form."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from fastapi import Request, Response

from service.dashboard.charts import Chart
from service.dashboard.context import DashboardContext, DashboardDep
from service.dashboard.fields import number_fields, parse_number, read_strategy, strategy_context
from service.dashboard.figures.campaign import allocation_chart, campaign_progress_chart
from service.dashboard.figures.learning import learning_charts
from service.dashboard.forms import FormDep
from service.dashboard.learning_fields import learning_fields, read_learning
from service.dashboard.routes.declarations import DeclarationPages
from speciate.domain.campaign import MAX_SLICES, AllocationMode, Campaign
from speciate.domain.learning import LearningScope
from speciate.runs.declarations import pin_campaign
from speciate.runs.lanes import WAITING
from speciate.schema.declarations import CampaignRecord

_MAX_DECISIONS: Final = 40
_MAX_PROBLEMS: Final = 300
_COUNTS: Final = {
    "evaluations": "Budget of all problems together.",
    "slice": "Evaluations granted to a problem at a time; best a multiple of the batch.",
    "parallel": "Problems with an open slice at the same time.",
    "batch": "Candidates per batch.",
    "samples_per_prompt": "Completions per prompt.",
    "seed": "Seed of every run and of tie-breaking.",
}
_TEXTS: Final = ("title", "policy", "mutator", "mode", "learning_scope")


class CampaignPages(DeclarationPages[Campaign, CampaignRecord]):
    """Pages of campaigns."""

    def context(self, dashboard: DashboardContext, record: CampaignRecord) -> dict[str, Any]:
        """Return the problems, likeliest next first, and the latest decisions."""
        problems = sorted(record.problems, key=lambda p: (-p.chance, -p.spent, p.problem))
        return {
            "problems": problems[:_MAX_PROBLEMS],
            "waiting": WAITING,
            "targets": sum(len(problem.reached) for problem in record.problems),
            "decisions": dashboard.stores.campaigns.decisions(record.id, limit=_MAX_DECISIONS).items,
        }

    def revision(self, record: CampaignRecord) -> str:
        """Return a text that changes with the decisions and their results."""
        return f"{record.state}-{record.slices}-{record.spent}-{record.unlocked}"

    def live_key(self, record: CampaignRecord) -> object:  # noqa: ARG002
        """Return a value that differs each time: decisions change independently of the record."""
        return object()

    def charts(self, dashboard: DashboardContext, record: CampaignRecord, *, narrow: bool = False) -> Sequence[Chart]:  # noqa: ARG002
        """Return the allocation and the progress."""
        slices = dashboard.stores.campaigns.decisions(record.id, limit=MAX_SLICES).items[::-1]
        found = [allocation_chart(slices), campaign_progress_chart(slices)]
        if record.declaration.shares_learner:
            found += learning_charts(dashboard.stores.campaigns.learning_steps(record.id))
        return found

    def read_form(self, values: Mapping[str, str]) -> dict[str, Any]:
        """Return the fields of a campaign from the form, unvalidated."""
        text = {name: value.strip() for name, value in values.items()}
        # A default is left out, because it depends on other fields: a shared learner serves one problem at a time.
        counts = [field.name for field in number_fields(Campaign, _COUNTS, values) if field.changed]
        return {
            "slug": text.get("slug", ""),
            "problems": text.get("problems", "").split(),
            **read_strategy(values),
            "learning": read_learning(values),
            **{name: text[name] for name in _TEXTS if text.get(name)},
            **{name: parse_number("integer", text[name]) for name in counts if text.get(name)},
        }

    def form_context(self, values: Mapping[str, str]) -> dict[str, Any]:
        """Return the number fields with their defaults, the modes and the strategy's options."""
        counts = number_fields(Campaign, _COUNTS, values)
        learning = learning_fields(values)
        return {
            "counts": counts,
            "modes": [mode.value for mode in AllocationMode],
            "learning": learning,
            "learns": any(field.changed for field in learning),
            "scopes": [scope.value for scope in LearningScope],
            **strategy_context(values),
        }


_PAGES: Final = CampaignPages(Campaign, lambda stores: stores.campaigns, pin_campaign)
router: Final = _PAGES.router()


@router.post("/new")
def update_form(request: Request, form: FormDep, dashboard: DashboardDep) -> Response:
    """Show the form with the options of another strategy; its problems may not fit in a URL."""
    return _PAGES.form_page(request, dashboard, form.fields, None)
