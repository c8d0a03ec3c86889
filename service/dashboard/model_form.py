"""Forms derived from declared models: a few fields first, the others under "Advanced"."""

from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any, Final
from uuid import uuid4

from fastapi import APIRouter, Request, Response
from pydantic import BaseModel, ValidationError

from service.dashboard.context import DashboardContext, DashboardDep
from service.dashboard.fields import Field, build_fields, read_values
from service.dashboard.forms import FormDep, FormErrors, form_errors
from service.dashboard.pages import page
from speciate.domain.errors import FieldError, InvalidInputError, NotFoundError, SpeciateError
from speciate.runs.declarations import SET_PREFIX
from speciate.search.strategies import STRATEGIES
from speciate.storage.catalog import Catalog

PROBLEMS_NOTE: Final = f"Names, or {SET_PREFIX}NAME for all problems of a set, separated by blanks or lines."
_MAX_NAMES: Final = 500
_REFERENCES: Final = {"problem": "problems", "problems": "problems", "policies": "policies"} | dict.fromkeys(
    ("policy", "mutator"), "policies"
)
"""What the names in a field refer to."""


@dataclass(frozen=True)
class PlugIn:
    """A plug-in that a field selects."""

    about: str
    options: type[BaseModel]
    """Model of its options, which are fields of the form."""
    unread: frozenset[str] = frozenset()
    """Fields of the form that it does not read, and that the form leaves out."""


@dataclass(frozen=True)
class PlugIns:
    """A field that selects a plug-in, and the field with its options."""

    field: str
    options: str
    names: tuple[str, ...]
    default: str
    get: Callable[[str], PlugIn]

    def selected(self, values: Mapping[str, str]) -> str:
        """Return the selected name; validation reports an unknown one."""
        return values.get(self.field, self.default).strip()

    def get_selected(self, values: Mapping[str, str]) -> PlugIn:
        name = self.selected(values)
        return self.get(name if name in self.names else self.default)

    def own_options(self, values: Mapping[str, str]) -> Mapping[str, str]:
        """Drop options shown for another plug-in, since equal names have other defaults."""
        if values.get("options_of", name := self.selected(values)) == name:
            return values
        return {key: value for key, value in values.items() if not key.startswith(f"{self.options}.")}


def strategies(default: str) -> PlugIns:
    def plug_in(name: str) -> PlugIn:
        return PlugIn((STRATEGIES[name].__doc__ or "").strip().partition("\n")[0], STRATEGIES[name].Config)

    return PlugIns("strategy", "strategy_options", tuple(STRATEGIES), default, plug_in)


@dataclass(frozen=True)
class ModelForm:
    path: str
    """Path of the list of such objects, to which the form is sent."""
    title: str
    button: str
    models: tuple[type[BaseModel], ...]
    first: tuple[str, ...]
    """Fields outside "Advanced", at most eight, besides those that a plug-in requires."""
    plug_ins: PlugIns | None = None
    omitted: frozenset[str] = frozenset()
    choices: Mapping[str, tuple[str, ...]] | None = None
    """Values to choose from, by field."""
    notes: Mapping[str, str] | None = None
    """Hints that replace those of the models, by field."""
    lead: str = ""

    def fields(self, values: Mapping[str, str], hidden: frozenset[str] = frozenset()) -> list[Field]:
        plugs, by_name, choices, notes = self.plug_ins, dict[str, Field](), self.choices or {}, self.notes or {}
        for field in (field for model in self.models for field in build_fields(model, "", values)):
            kind = "choice" if field.name in choices else field.kind
            listed, note = choices.get(field.name, field.choices), notes.get(field.name, field.note)
            by_name[field.name] = replace(field, kind=kind, choices=listed, note=note)
        if plugs is not None:
            plug_in = plugs.get_selected(values)
            hidden |= plug_in.unread | {plugs.options}
            by_name[plugs.field] = replace(
                by_name[plugs.field], kind="choice", choices=plugs.names, note=plug_in.about, default=plugs.default,
                value=plugs.selected(values),
            )  # fmt: skip
        hidden |= self.omitted
        fields = [field for field in by_name.values() if field.name.partition(".")[0] not in hidden]
        if plugs is not None:
            fields += build_fields(plug_in.options, f"{plugs.options}.", plugs.own_options(values))
        return fields

    def read(self, values: Mapping[str, str]) -> dict[str, Any]:
        """Return the form's values as nested JSON values without defaults."""
        read: dict[str, Any] = {}
        for model in self.models:
            read |= read_values(model, "", values)
        read = {name: value for name, value in read.items() if name not in self.omitted}
        if self.plug_ins is not None:
            name = read[self.plug_ins.field] = self.plug_ins.selected(values)
            options, own = self.plug_ins.get_selected(values).options, self.plug_ins.own_options(values)
            known = name in self.plug_ins.names
            read[self.plug_ins.options] = read_values(options, f"{self.plug_ins.options}.", own) if known else {}
        return read

    def refuse(
        self,
        request: Request,
        dashboard: DashboardContext,
        values: Mapping[str, str],
        error: SpeciateError | ValidationError,
        **more: Any,
    ) -> Response:
        """Show the form again with all errors, unknown names among them."""
        errors = form_errors(error)
        if unknown := [*self._unknown_names(dashboard.stores.catalog, values)]:
            known = [detail for detail in errors.details if detail.where not in {each.where for each in unknown}]
            errors = FormErrors("Invalid values", "Correct these fields:", (*known, *unknown))
        return self.page(request, dashboard, values, errors, **more)

    def _unknown_names(self, catalog: Catalog, values: Mapping[str, str]) -> Iterator[FieldError]:
        body: dict[str, Any] = {}
        with suppress(InvalidInputError):
            body = self.read(values)
        for field, kind in _REFERENCES.items():
            named = body.get(field) or ()
            names = [named] if isinstance(named, str) else [name for name in named if isinstance(name, str)]
            for name in names:
                try:
                    if kind == "policies":
                        catalog.policy(name)
                    elif name.startswith(SET_PREFIX):
                        catalog.problem_set(name.removeprefix(SET_PREFIX))
                    else:
                        catalog.problem(name)
                except NotFoundError as error:
                    yield FieldError(str(error), where=field)

    def page(
        self,
        request: Request,
        dashboard: DashboardContext,
        values: Mapping[str, str],
        errors: FormErrors | None = None,
        *,
        hidden: frozenset[str] = frozenset(),
        **more: Any,
    ) -> Response:
        """Show the form, without the fields ``hidden``."""
        fields, catalog = self.fields(values, hidden), dashboard.stores.catalog
        if errors is not None:
            labels = {field.name: field.label for field in fields}
            details = (replace(each, label=labels.get(each.where, each.label)) for each in errors.details)
            errors = replace(errors, details=tuple(details))
        first = [field for name in self.first for field in fields if field.name == name]
        first += [field for field in fields if field.required and field not in first]
        parts: dict[str, list[Field]] = {}
        for field in (field for field in fields if field not in first):
            parts.setdefault(field.name.rpartition(".")[0], []).append(field)
        wrong = {detail.where for detail in (errors.details if errors else ())}
        opened = any(f.changed or f.name in wrong for part in parts.values() for f in part)
        policies = [version.definition for version in catalog.policies(limit=_MAX_NAMES).items]
        problems = catalog.problems(limit=_MAX_NAMES).items
        sets = catalog.problem_sets(limit=100).items
        names = {
            "problems": [*(f"{SET_PREFIX}{each.slug}" for each in sets), *(problem.slug for problem in problems)],
            "policies": [policy.slug for policy in policies],
            "methods": sorted({policy.training_method for policy in policies if policy.training_method}),
        }
        context = {
            "form": self,
            "values": values,
            "errors": errors,
            "first": first,
            "parts": parts,
            "opened": opened or bool(values.get("shown")),
            "selected": self.plug_ins.selected(values) if self.plug_ins else "",
            "names": {kind: list(dict.fromkeys(each)) for kind, each in names.items()},
            "lists": _REFERENCES | {"training_method": "methods"},
            "key": values.get("key") or uuid4().hex,
        }
        context |= dict.fromkeys(("ping", "providers", "provider", "plan")) | more
        return page(request, "form.html", 200 if errors is None else 422, **context)


def add_form_routes(
    router: APIRouter,
    form: ModelForm,
    prepare: Callable[[DashboardContext, dict[str, str]], dict[str, str]] = lambda _, values: values,
    more: Callable[[Request], dict[str, Any]] = lambda _: {},
) -> None:
    """Add the pages of an empty form, and of one with the options of another plug-in.
    ``prepare`` returns the values of the form for those of the query, ``more`` further arguments of ``ModelForm.page``.
    """

    @router.get("/new")
    def show_form(request: Request, dashboard: DashboardDep) -> Response:
        return form.page(request, dashboard, prepare(dashboard, dict(request.query_params)), **more(request))

    # By POST, since a list of problems may not fit in a URL, and a key must not be in one.
    @router.post("/new")
    def update_form(request: Request, submitted: FormDep, dashboard: DashboardDep) -> Response:
        return form.page(request, dashboard, submitted.fields, **more(request))
