"""Policies: the registration form, the list, and the page of a version with statistics, unlocks and a ping."""

import json
from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from typing import Any, Final

from anyio import to_thread
from fastapi import APIRouter, Request, Response
from fastapi.responses import RedirectResponse
from pydantic import ValidationError

from service import policy_registration
from service.api.schemas import PolicySubmission
from service.dashboard.context import DashboardContext, DashboardDep
from service.dashboard.fields import form_values, read_values
from service.dashboard.forms import Form, FormDep, FormErrors, SubmittedForm, form_errors
from service.dashboard.model_form import ModelForm, PlugIn, PlugIns, add_form_routes
from service.dashboard.pages import page
from service.dashboard.parameters import Text
from service.dashboard.routes.visibility import listed
from service.dependencies import AppStateDep
from service.policy_registration import PingResult
from service.principal import PrincipalDep
from speciate.domain.errors import SpeciateError
from speciate.domain.policy import Policy, Price
from speciate.domain.visibility import Visibility
from speciate.policies import DEFAULT_KIND, KINDS, policy_kind
from speciate.policies.kind import ENDPOINT
from speciate.policies.providers import PROVIDERS
from speciate.prompts.codecs import CODECS
from speciate.schema.policies import PolicyVersion

router = APIRouter(include_in_schema=False, prefix="/policies")

_KEY: Final = "api_key"


def _kind(name: str) -> PlugIn:
    kind = policy_kind(name)
    keyless = frozenset() if kind.takes_key else frozenset({_KEY})
    return PlugIn(kind.summary, kind.options, keyless | ENDPOINT - kind.fields)


FORM: Final = ModelForm(
    path="/policies",
    title="Register a policy",
    button="Register policy",
    lead="An equal definition is the same version; any change, also of the weights, makes the next one.",
    models=(Policy, PolicySubmission),
    first=("slug", "kind", "base_url", "model", _KEY, "description"),
    plug_ins=PlugIns("kind", "options", tuple(KINDS), DEFAULT_KIND, _kind),
    omitted=frozenset({"definition", "lineage", "training", "served", "probe", "api_key_id"}),
    choices={"codec": ("", *CODECS)},
)


def _prepare(_: DashboardContext, values: dict[str, str]) -> dict[str, str]:
    """Fill in the preset that the query names as ``provider``."""
    preset = PROVIDERS.get(values.pop("provider", ""))
    if preset is None:
        return values
    filled: dict[str, Any] = preset.policy_fields({})
    options = {
        name: text if isinstance(text, str) else json.dumps(text) for name, text in filled.pop("options", {}).items()
    }
    return form_values(filled) | {f"options.{name}": text for name, text in options.items()} | values


def _context(request: Request) -> dict[str, Any]:
    principal = request.state.principal
    return {
        "hidden": frozenset() if principal.all_projects else frozenset({"api_key_env"}),
        "providers": PROVIDERS,
        "provider": PROVIDERS.get(request.query_params.get("provider", "")),
        "ping": None,
    }


add_form_routes(router, FORM, _prepare, _context)


@router.post("/test")
async def try_out(
    request: Request, form: FormDep, dashboard: DashboardDep, app_state: AppStateDep, principal: PrincipalDep
) -> Response:
    """Ping the endpoint and show the form again with the result; nothing is stored."""
    try:
        ping = await policy_registration.try_out(read_submission(form.fields), app_state, principal)
    except (SpeciateError, ValidationError) as error:
        return await to_thread.run_sync(_refuse, request, dashboard, form, error)
    more = _context(request) | {"ping": ping}
    return await to_thread.run_sync(partial(FORM.page, request, dashboard, form.fields, **more))


@router.post("")
async def register(
    request: Request, form: FormDep, dashboard: DashboardDep, app_state: AppStateDep, principal: PrincipalDep
) -> Response:
    """Register the policy and redirect to its page, or show the form again with the errors."""
    try:
        version, _ = await policy_registration.register(
            read_submission(form.fields), app_state, dashboard.stores, principal
        )
    except (SpeciateError, ValidationError) as error:
        return await to_thread.run_sync(_refuse, request, dashboard, form, error)
    return RedirectResponse(f"/policies/{version.name}", 303)


def _refuse(
    request: Request, dashboard: DashboardContext, form: Form, error: SpeciateError | ValidationError
) -> Response:
    return FORM.page(request, dashboard, form.fields, policy_form_errors(error), **_context(request))


@router.get("")
def list_policies(
    request: Request, dashboard: DashboardDep, name: Text = "", visibility: Text = "", cursor: Text = ""
) -> Response:
    versions, filters = listed(dashboard.stores.catalog.policies, "/policies", name, visibility, cursor)
    versions = dashboard.stores.overview.policy_results(versions)
    newest = {policy.definition.slug: policy.id for policy in reversed(versions.items)}  # of those that a run learned
    shown = [p for p in versions.items if p.definition.lineage is None or newest[p.definition.slug] == p.id]
    cells = dashboard.stores.overview.matrix([policy.id for policy in versions.items])
    own = {policy.id: [cell for cell in cells if cell.pair == (policy.id, None)] for policy in versions.items}
    return page(request, "policies.html", policies=shown, cells=own, **filters)


@router.get("/{name}")
def show_policy(request: Request, name: str, dashboard: DashboardDep) -> Response:
    return _page(request, dashboard, dashboard.stores.catalog.policy(name))


@router.post("/{name}", dependencies=[SubmittedForm])
async def ping_policy(request: Request, name: str, dashboard: DashboardDep, app_state: AppStateDep) -> Response:
    """Ping the endpoint and show the result; only on request, since it may load an adapter."""
    version = await to_thread.run_sync(dashboard.stores.catalog.policy, name)
    ping = errors = None
    try:
        ping = await policy_registration.ping(version.definition, app_state)
    except SpeciateError as error:
        errors = form_errors(error)
    return await to_thread.run_sync(_page, request, dashboard, version, ping, errors)


def _page(
    request: Request,
    dashboard: DashboardContext,
    version: PolicyVersion,
    ping: PingResult | None = None,
    errors: FormErrors | None = None,
) -> Response:
    return page(
        request,
        "policy.html",
        version=version,
        policy=version.definition,
        ping=ping,
        errors=errors,
        figures=dashboard.stores.overview.policy(version.id),
        versions=dashboard.stores.catalog.policies(
            slug=version.definition.slug, visibility=Visibility.ALL, limit=20
        ).items,
        unlocks=dashboard.stores.unlocks.list(policy_id=version.id, limit=30).items,
        runs=dashboard.stores.runs.list(policy_id=version.id, limit=12).items,
    )


def read_submission(values: Mapping[str, str]) -> PolicySubmission:
    """Return the form as a submission of the REST API; raises ``ValidationError`` for an invalid value."""
    definition = FORM.read(values)
    own = {name: definition.pop(name) for name in (_KEY, "check") if name in definition}
    definition["price"] = read_values(Price, "price.", values) or None
    if isinstance(fields := definition["options"].get("fields"), dict):  # a preset omits them unless they are set
        given = {"temperature", "top_p"} & definition.get("sampling", {}).keys()
        definition["options"]["fields"] = {
            name: field for name, field in fields.items() if field is not None or name not in given
        }
    return PolicySubmission.model_validate({"definition": definition, **own})


def policy_form_errors(error: SpeciateError | ValidationError) -> FormErrors:
    """Return the errors with each detail assigned to its form field."""
    errors = form_errors(error)
    details = (replace(each, where=each.where.removeprefix("definition").removeprefix(".")) for each in errors.details)
    return replace(errors, details=tuple(details))
