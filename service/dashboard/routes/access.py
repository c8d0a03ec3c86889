"""Access: the project's tokens, and the projects with their quotas."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from typing import Any, Final
from uuid import UUID

from fastapi import APIRouter, Request, Response
from fastapi.responses import RedirectResponse
from pydantic import ValidationError

from service.api.projects import ProjectRequest
from service.api.tokens import TokenRequest
from service.dashboard.deck import Deck, DeckDep
from service.dashboard.fields import number_or_text
from service.dashboard.forms import FormDep
from service.dashboard.pages import page
from service.dashboard.refusals import Refusal, refusal
from service.principal import NeedsAdmin, NeedsOperator, Principal, PrincipalDep
from speciate.domain.access import Quota
from speciate.domain.errors import Flaw, InvalidInputError, NotFoundError, SpeciateError
from speciate.domain.scope import Scope
from speciate.ports.access import NewToken, ProjectUsage

router = APIRouter(include_in_schema=False, prefix="/access")

_MOST: Final = 200
_MOST_DAYS: Final = 36_500


@router.get("")
def show_access(request: Request, deck: DeckDep, principal: PrincipalDep) -> Response:
    """Show who you are, and what you may see of tokens and projects."""
    return _page(request, deck, principal)


@router.post("/tokens", dependencies=[NeedsAdmin])
def create_token(request: Request, form: FormDep, deck: DeckDep, principal: PrincipalDep) -> Response:
    """Make a token and show it, once."""
    try:
        body = TokenRequest(
            name=form.text("name"), scope=Scope(form.text("scope") or "read"), expires_at=_end(form.text("days"))
        )
        made = deck.stores.access.create(
            principal.project_id, body.name, body.scope, created_by=principal.who, expires_at=body.expires_at
        )
    except (SpeciateError, ValidationError, ValueError) as error:
        return _page(request, deck, principal, given=form.fields, told=_told(error))
    answer = _page(request, deck, principal, made=made)
    answer.headers["Cache-Control"] = "no-store"
    return answer


@router.post("/tokens/{token_id}/revoke", dependencies=[NeedsAdmin])
def revoke_token(token_id: str, form: FormDep, deck: DeckDep, principal: PrincipalDep) -> Response:  # noqa: ARG001 - read to see where it comes from
    """Revoke a token."""
    try:
        found = UUID(token_id)
    except ValueError:
        raise NotFoundError(f"there is no token {token_id[:60]!r}.") from None
    deck.stores.access.revoke(principal.project_id, found)
    return RedirectResponse("/access", 303)


@router.post("/projects", dependencies=[NeedsOperator])
def create_project(request: Request, form: FormDep, deck: DeckDep, principal: PrincipalDep) -> Response:
    """Make a project."""
    try:
        body = ProjectRequest(slug=form.text("slug"), title=form.text("title"))
        deck.stores.projects.create(body.slug, body.title)
    except (SpeciateError, ValidationError) as error:
        return _page(request, deck, principal, given=form.fields, told=refusal(error))
    return RedirectResponse("/access", 303)


@router.post("/projects/{name}/quota", dependencies=[NeedsOperator])
def set_quota(request: Request, name: str, form: FormDep, deck: DeckDep, principal: PrincipalDep) -> Response:
    """Set a project's quotas; what is empty is no limit."""
    if "\x00" in name:
        raise NotFoundError("no project has such a name.")
    limits = {each: form.text(each) for each in Quota.model_fields}
    try:
        quota = Quota.model_validate({k: number_or_text("integer", v) if v else None for k, v in limits.items()})
        deck.stores.projects.limit(name, quota)
    except ValidationError as error:
        return _page(request, deck, principal, told=refusal(error))
    return RedirectResponse("/access", 303)


def _page(
    request: Request,
    deck: Deck,
    principal: Principal,
    *,
    made: NewToken | None = None,
    given: Mapping[str, str] | None = None,
    told: Refusal | None = None,
) -> Response:
    admin = principal.scope.includes(Scope.ADMIN)
    context: dict[str, Any] = {
        "tokens": deck.stores.access.tokens(principal.project_id, limit=_MOST).items if admin else None,
        "projects": _projects(deck, principal),
        "scopes": [scope.value for scope in Scope],
        "made": made,
        "given": given or {},
        "told": told,
    }
    return page(request, "access.html", 200 if told is None else 422, **context)


def _projects(deck: Deck, principal: Principal) -> list[ProjectUsage]:
    only = None if principal.all_projects else principal.project_id
    return [deck.stores.projects.usage(p.slug) for p in deck.stores.projects.list(only=only, limit=_MOST).items]


def _end(days: str) -> datetime | None:
    if not days:
        return None
    if not (days.isascii() and days.isdecimal() and 0 < int(days[:9]) <= _MOST_DAYS):
        flaw = Flaw(f"is {days[:20]!r}: expected a number of days", where="days")
        raise InvalidInputError(f"The token is not valid: {flaw}", flaws=(flaw,))
    return datetime.now(UTC) + timedelta(days=int(days))


def _told(error: Exception) -> Refusal:
    if isinstance(error, SpeciateError | ValidationError):
        return refusal(error)
    return Refusal("This token cannot be made", "Its scope is none of read, submit and admin.", ())
