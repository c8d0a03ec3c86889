"""Policies: the registration form, the list, and the page of a version with statistics, unlocks and a ping."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import replace
from typing import Any, Final

from anyio import to_thread
from fastapi import APIRouter, Request, Response
from fastapi.responses import RedirectResponse
from pydantic import ValidationError

from service import policy_registration
from service.api.schemas import PolicySubmission
from service.dashboard.context import DashboardContext, DashboardDep
from service.dashboard.fields import Field, build_fields, read_values
from service.dashboard.forms import FormDep, FormErrors, SubmittedForm, form_errors
from service.dashboard.pages import address, page
from service.dashboard.parameters import Text
from service.dashboard.routes.visibility import visibility_from
from service.dependencies import AppStateDep
from service.policy_registration import PingResult
from service.principal import PrincipalDep
from service.strict_json import MalformedJsonError, parse
from speciate.domain.errors import FieldError, InvalidInputError, SpeciateError
from speciate.domain.policy import Policy, Price, Sampling
from speciate.domain.visibility import Visibility
from speciate.policies import DEFAULT_KIND, KINDS, policy_kind
from speciate.policies.kind import KEY_VARIABLE_PREFIX
from speciate.policies.providers import PROVIDERS
from speciate.prompts.codecs import CODECS
from speciate.schema.policies import PolicyVersion

router = APIRouter(include_in_schema=False, prefix="/policies")

_LIMIT: Final = 60
_KEY: Final = "api_key"
_SAMPLING: Final = "sampling."
_PRICE: Final = "price."
_ENDPOINT: Final = "Endpoint"
_SECTIONS: Final[dict[str, tuple[str, ...]]] = {
    "Policy": ("slug", "kind", "description"),
    _ENDPOINT: ("base_url", "model", "timeout_s", "price.input", "price.output"),
    "Prompts and sampling": (
        "prompt_format",
        "codec",
        "edit_format",
        "prompt_style",
        "answers_per_rollout",
        "prompt_tokens",
        "sampling.temperature",
        "sampling.top_p",
        "sampling.max_tokens",
        "sampling.logprobs",
    ),
    "Training": ("training_method", "checkpoint_digest"),
}
"""Fields by heading."""
_KINDS_NOTE: Final = "; ".join(f"{name}: {policy_kind(name).summary}" for name in KINDS)
_CHOICES: Final = {"kind": tuple(KINDS), "codec": ("", *CODECS)}
_OWN: Final = {name for part in _SECTIONS.values() for name in part if "." not in name} | {"api_key_env"}
# An error about several fields has no location; its message begins with the field to change.
_STARTS_WITH_FIELD: Final = re.compile(r"definition\.(api_key_env): (.*)|(api_key): (.*)", re.DOTALL)


@router.get("/new")
def show_form(request: Request) -> Response:
    """Show the form with the values of the query, and those of the preset that it names as ``provider``."""
    values = dict(request.query_params)
    return _form(request, _preset_values(values.pop("provider", "")) | values)


@router.post("/new")
async def try_out(request: Request, form: FormDep, app_state: AppStateDep, principal: PrincipalDep) -> Response:
    """Ping the endpoint and show the form again with the result; nothing is stored."""
    try:
        ping = await policy_registration.try_out(read_submission(form.fields), app_state, principal)
    except (SpeciateError, ValidationError) as error:
        return _form(request, form.fields, errors=policy_form_errors(error))
    return _form(request, form.fields, ping=ping)


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
        return _form(request, form.fields, errors=policy_form_errors(error))
    return RedirectResponse(f"/policies/{version.name}", 303)


@router.get("")
def list_policies(request: Request, dashboard: DashboardDep, visibility: Text = "", cursor: Text = "") -> Response:
    shown_visibility = visibility_from(visibility)
    versions = dashboard.stores.catalog.policies(visibility=shown_visibility, limit=_LIMIT, cursor=cursor or None)
    older = versions.next_cursor and address("/policies", visibility=visibility, cursor=versions.next_cursor)
    cells = dashboard.overview.matrix([policy.id for policy in versions.items])
    own = {policy.id: [cell for cell in cells if cell.pair == (policy.id, None)] for policy in versions.items}
    return page(request, "policies.html", policies=versions.items, cells=own, older=older, visibility=visibility)


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
        figures=dashboard.overview.policy(version.id),
        versions=dashboard.stores.catalog.policies(
            slug=version.definition.slug, visibility=Visibility.ALL, limit=20
        ).items,
        unlocks=dashboard.stores.unlocks.list(policy_id=version.id, limit=60).items,
        runs=dashboard.stores.runs.list(policy_id=version.id, limit=12).items,
    )


def read_submission(values: Mapping[str, str]) -> PolicySubmission:
    """Return the form as a submission of the REST API.

    Raises:
        InvalidInputError: The options are malformed.
        ValidationError: A value is invalid.
    """
    own = {name: text for name, text in values.items() if name in _OWN}
    key = values.get(_KEY, "").strip()
    definition = {
        **read_values(Policy, "", own),
        "sampling": read_values(Sampling, _SAMPLING, values),
        "price": read_values(Price, _PRICE, values) or None,
        "options": _options(values.get("options", "")),
    }
    check = values.get("unchecked", "") != "on"
    return PolicySubmission.model_validate({"definition": definition, "check": check, **({_KEY: key} if key else {})})


def policy_form_errors(error: SpeciateError | ValidationError) -> FormErrors:
    """Return the errors with each detail assigned to its form field."""
    errors = form_errors(error)
    return replace(errors, details=tuple(map(_at_field, errors.details)))


def _at_field(detail: FieldError) -> FieldError:
    where, message = detail.where.removeprefix("definition").removeprefix("."), detail.message
    if not where and (match := _STARTS_WITH_FIELD.fullmatch(message)):
        where, message = (group for group in match.groups() if group is not None)
    option = where.removeprefix("options.")
    return FieldError(message, where) if option == where else FieldError(f"{option}: {message}", "options")


def _options(text: str) -> dict[str, Any]:
    """Return the options, one ``name=value`` per line; a value that is not JSON is text, as on the command line."""
    options: dict[str, Any] = {}
    errors = []
    for line in filter(None, map(str.strip, text.split("\n"))):
        name, equals, value = (part.strip() for part in line.partition("="))
        if not equals or not name:
            errors.append(FieldError(f"{line[:60]!r}: expected name=value", "options"))
            continue
        try:
            options[name] = parse(value.encode())
        except MalformedJsonError:
            options[name] = value
        except InvalidInputError as error:
            errors += [FieldError(f"{name[:60]}: {detail.message}", "options") for detail in error.field_errors]
    if errors:
        raise InvalidInputError("The options are malformed.", field_errors=tuple(errors))
    return options


def _preset_values(name: str) -> dict[str, str]:
    """Return the form's values of a provider's preset; empty without one."""
    if name not in PROVIDERS:
        return {}
    fields = PROVIDERS[name].policy_fields({})
    options = "\n".join(f"{option}={json.dumps(value)}" for option, value in fields.get("options", {}).items())
    return {"kind": fields["kind"], "base_url": fields["base_url"], "options": options}


def _form(
    request: Request, values: Mapping[str, str], *, errors: FormErrors | None = None, ping: PingResult | None = None
) -> Response:
    # No response contains a key: it is typed again each time.
    values = {"kind": DEFAULT_KIND} | {name: text for name, text in values.items() if name != _KEY}
    fields = {
        field.name: _with_choices(field)
        for model, prefix in ((Policy, ""), (Sampling, _SAMPLING), (Price, _PRICE))
        for field in build_fields(model, prefix, values)
    }
    context: dict[str, Any] = {
        "values": values,
        "errors": errors,
        "ping": ping,
        "sections": {heading: [fields[name] for name in names] for heading, names in _SECTIONS.items()},
        "endpoint": _ENDPOINT,
        "variables": KEY_VARIABLE_PREFIX,
        "providers": PROVIDERS,
        "provider": PROVIDERS.get(request.query_params.get("provider", "")),
    }
    return page(request, "new_policy.html", 200 if errors is None else 422, **context)


def _with_choices(field: Field) -> Field:
    choices = _CHOICES.get(field.name)
    note = _KINDS_NOTE if field.name == "kind" else field.note
    return replace(field, kind="choice", choices=choices, note=note) if choices else field
