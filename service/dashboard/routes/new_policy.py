"""Registering a policy from a form; its endpoint can be tried before anything is kept."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import replace
from typing import Any, Final

from fastapi import APIRouter, Request, Response
from fastapi.responses import RedirectResponse
from pydantic import ValidationError

from service import policy_registration
from service.api.schemas import PolicySubmission
from service.dashboard.context import DashboardDep
from service.dashboard.fields import Field, build_fields, read_values
from service.dashboard.forms import FormDep, FormErrors, form_errors
from service.dashboard.pages import page
from service.dependencies import AppStateDep
from service.policy_registration import PingResult
from service.principal import PrincipalDep
from service.strict_json import MalformedJsonError, parse
from speciate.domain.errors import FieldError, InvalidInputError, SpeciateError
from speciate.domain.policy import Policy, Sampling
from speciate.policies import DEFAULT_KIND, KINDS, policy_kind
from speciate.policies.kind import KEY_VARIABLE_PREFIX
from speciate.prompts.codecs import CODECS

router = APIRouter(include_in_schema=False, prefix="/policies")

_KEY: Final = "api_key"
_SAMPLING: Final = "sampling."
_PARTS: Final[dict[str, dict[str, tuple[str, str]]]] = {
    "Who": {
        "slug": ("Name", "lower-case words joined by hyphens; what changes under a name is its next version"),
        "kind": ("Kind", "; ".join(f"{name}: {policy_kind(name).summary}" for name in KINDS)),
        "description": ("Description", "one line for people"),
    },
    "Where": {
        "base_url": ("Endpoint", "speaks the OpenAI protocol, such as http://127.0.0.1:8000/v1"),
        "model": ("Model", "a model or adapter that is served there"),
        "timeout_s": ("Longest answer", "seconds one request may take."),
    },
    "How it is asked": {
        "prompt_format": ("Prompt format", "by chat or by completion"),
        "codec": ("Codec", "a tiny model's own language, by completion; empty: English"),
        "edit_format": ("Edit format", "whole programs, or diffs"),
        "answers_per_rollout": ("Answers", "programs in one completion."),
        "prompt_tokens": ("Longest prompt", "counted as one token for each byte of UTF-8."),
        "sampling.temperature": ("Temperature", "0 is the likeliest answer."),
        "sampling.top_p": ("Top-p", "nucleus mass."),
        "sampling.max_tokens": ("Longest completion", "in tokens."),
        "sampling.logprobs": ("Log-probabilities", "are asked for: its entropy is known then"),
    },
    "For the record": {
        "training_method": ("Trained by", "vpo, grpo, base, …"),
        "checkpoint_digest": ("Checkpoint", "SHA-256 of the weights; empty: as the endpoint says"),
    },
}
"""Label and note of every field, by the heading that it stands under."""
_CHOICES: Final = {"kind": tuple(KINDS), "codec": ("", *CODECS)}
_OWN: Final = {name for part in _PARTS.values() for name in part if not name.startswith(_SAMPLING)}
# Rules about several fields have no place; their messages begin with the one to change.
_BEGINS_WITH_PLACE: Final = re.compile(r"definition\.(api_key_env): (.*)|(api_key): (.*)", re.DOTALL)


@router.get("/new")
def show_form(request: Request) -> Response:
    """Show the form, filled in as the address says."""
    return _form(request, dict(request.query_params))


@router.post("/new")
async def try_out(request: Request, form: FormDep, app_state: AppStateDep, principal: PrincipalDep) -> Response:
    """Show the form again with what its endpoint says; nothing is kept."""
    try:
        sign = await policy_registration.try_out(read_submission(form.fields), app_state, principal)
    except (SpeciateError, ValidationError) as error:
        return _form(request, form.fields, errors=policy_form_errors(error))
    return _form(request, form.fields, sign=sign)


@router.post("")
async def register(
    request: Request, form: FormDep, dashboard: DashboardDep, app_state: AppStateDep, principal: PrincipalDep
) -> Response:
    """Register it and go to its page, or show the form again with what is wrong."""
    try:
        version, _ = await policy_registration.register(
            read_submission(form.fields), app_state, dashboard.stores, principal
        )
    except (SpeciateError, ValidationError) as error:
        return _form(request, form.fields, errors=policy_form_errors(error))
    return RedirectResponse(f"/policies/{version.name}", 303)


def read_submission(values: Mapping[str, str]) -> PolicySubmission:
    """Return what a form holds, as the REST surface takes it.

    Raises:
        InvalidInputError: The options cannot be read.
        ValidationError: A value does not fit.
    """
    own = {name: text for name, text in values.items() if name in _OWN or name == "api_key_env"}
    key = values.get(_KEY, "").strip()
    definition = {
        **read_values(Policy, "", own),
        "sampling": read_values(Sampling, _SAMPLING, values),
        "options": _options(values.get("options", "")),
    }
    check = values.get("unchecked", "") != "on"
    return PolicySubmission.model_validate({"definition": definition, "check": check, **({_KEY: key} if key else {})})


def policy_form_errors(error: SpeciateError | ValidationError) -> FormErrors:
    """Return what the form is errors of an error, every flaw at the field that it is about."""
    errors = form_errors(error)
    title = "This cannot be registered" if isinstance(error, ValidationError) else errors.title
    return replace(errors, title=title, flaws=tuple(map(_placed, errors.flaws)))


def _placed(flaw: FieldError) -> FieldError:
    where, message = flaw.where.removeprefix("definition").removeprefix("."), flaw.message
    if not where and (found := _BEGINS_WITH_PLACE.fullmatch(message)):
        where, message = (group for group in found.groups() if group is not None)
    option = where.removeprefix("options.")
    return FieldError(message, where) if option == where else FieldError(f"{option}: {message}", "options")


def _options(text: str) -> dict[str, Any]:
    """Return the options, one a line as ``name=value``; what is not JSON is a text, as on the command line."""
    found: dict[str, Any] = {}
    flaws = []
    for line in filter(None, map(str.strip, text.split("\n"))):
        name, sign, value = (part.strip() for part in line.partition("="))
        if not sign or not name:
            flaws.append(FieldError(f"{line[:60]!r}: expected name=value", "options"))
            continue
        try:
            found[name] = parse(value.encode())
        except MalformedJsonError:
            found[name] = value
        except InvalidInputError as error:
            flaws += [FieldError(f"{name[:60]}: {flaw.message}", "options") for flaw in error.flaws]
    if flaws:
        raise InvalidInputError("The options cannot be read.", flaws=tuple(flaws))
    return found


def _form(
    request: Request, values: Mapping[str, str], *, errors: FormErrors | None = None, sign: PingResult | None = None
) -> Response:
    # A key is typed again each time: no answer repeats it.
    values = {"kind": DEFAULT_KIND} | {name: text for name, text in values.items() if name != _KEY}
    known = {
        field.name: field for field in (*build_fields(Policy, "", values), *build_fields(Sampling, _SAMPLING, values))
    }
    sections = {
        heading: [_labelled(known[name], *words) for name, words in part.items()] for heading, part in _PARTS.items()
    }
    context: dict[str, Any] = {
        "values": values,
        "errors": errors,
        "sign": sign,
        "sections": sections,
        "variables": KEY_VARIABLE_PREFIX,
    }
    return page(request, "new_policy.html", 200 if errors is None else 422, **context)


def _labelled(field: Field, label: str, note: str) -> Field:
    choices = _CHOICES.get(field.name, field.choices)
    return replace(field, label=label, note=note, choices=choices, kind="choice" if choices else field.kind)
