"""Fields of forms, made from the JSON schema of a config model: what the model takes is what the form offers."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from pydantic import BaseModel

from speciate.domain.run import RunSpec
from speciate.search.strategies import STRATEGIES

_NUMBERS: Final = {"integer": int, "number": float}


@dataclass(frozen=True)
class Field:
    """One field.

    Attributes:
        name: Its name in the form.
        label: What people read.
        kind: ``integer``, ``number``, ``text``, ``check``, ``choice`` or ``list``.
        value: What stands in it.
        note: What it means.
        low: Smallest number.
        high: Largest number.
        choices: What may be chosen.
    """

    name: str
    label: str
    kind: str
    value: str
    note: str = ""
    low: float | None = None
    high: float | None = None
    choices: tuple[str, ...] = ()


def build_fields(model: type[BaseModel], prefix: str, values: Mapping[str, str]) -> list[Field]:
    """Return the fields of a config model.

    Args:
        model: The model.
        prefix: Put before every name.
        values: What was filled in, by name of field; the rest has the model's defaults.
    """
    schema = model.model_json_schema()
    return [
        _field(name, spec, schema.get("$defs", {}), prefix, values)
        for name, spec in schema.get("properties", {}).items()
    ]


def read_values(model: type[BaseModel], prefix: str, values: Mapping[str, str]) -> dict[str, Any]:
    """Return what a form holds for a config model as JSON values; what cannot be read stays text, and is refused later.

    Fields that have the model's default are left out, so that the values say what was chosen.
    """
    found: dict[str, Any] = {}
    defaults = {field.name: field for field in build_fields(model, prefix, {})}
    for field in defaults.values():
        if field.kind == "check":
            value: Any = values.get(field.name, "") == "on"
        else:
            text = values.get(field.name, field.value).strip()
            value = _read(field, text)
        if value != _read(field, field.value):
            found[field.name.removeprefix(prefix)] = value
    return found


def number_or_text(kind: str, text: str) -> Any:
    """Return the number that a text is, else the text, which is then refused with its place."""
    try:
        return _NUMBERS[kind](text.replace("\u202f", "").replace(" ", ""))
    except ValueError:
        return text


def _field(name: str, spec: dict[str, Any], defs: dict[str, Any], prefix: str, values: Mapping[str, str]) -> Field:
    spec = {**_resolved(spec, defs), **{key: value for key, value in spec.items() if key in {"default", "description"}}}
    default = spec.get("default")
    choices = tuple(str(choice) for choice in spec.get("enum", ()))
    kind = {"integer": "integer", "number": "number", "boolean": "check", "array": "list"}.get(
        spec.get("type", ""), "text"
    )
    if choices:
        kind = "choice"
        if spec.get("default", choices) is None:
            choices = ("", *choices)
    if kind == "list":
        choices = tuple(str(choice) for choice in _resolved(spec.get("items", {}), defs).get("enum", ()))
    text = (
        ", ".join(map(str, default)) if isinstance(default, list | tuple) else "" if default is None else str(default)
    )
    if kind == "check":
        text = "on" if default else ""
    note = str(spec.get("description", ""))
    if kind == "list" and choices:
        note += f" Any of {', '.join(choices)}, with commas."
    return Field(
        prefix + name,
        name.replace("_", " "),
        kind,
        values.get(prefix + name, text),
        note,
        spec.get("minimum", spec.get("exclusiveMinimum")),
        spec.get("maximum", spec.get("exclusiveMaximum")),
        choices,
    )


def _resolved(spec: dict[str, Any], defs: dict[str, Any]) -> dict[str, Any]:
    if "$ref" in spec:
        found: dict[str, Any] = defs.get(str(spec["$ref"]).rpartition("/")[2], {})
        return found
    for option in spec.get("anyOf", ()):
        if option.get("type") != "null":
            return _resolved(option, defs)
    return spec


def _read(field: Field, text: str) -> Any:
    match field.kind:
        case "check":
            return text == "on"
        case "integer" | "number" if text:
            return number_or_text(field.kind, text)
        case "list":
            return [part.strip() for part in text.split(",") if part.strip()]
        case _:
            return text or None


OPTION: Final = "option."
"""Before the name of every option's field."""

_USUAL: Final = str(RunSpec.model_fields["strategy"].default)
_SHOWN: Final = "options_of"


def chosen(values: Mapping[str, str]) -> dict[str, Any]:
    """Return ``strategy`` and its ``strategy_options`` as a declaration has them; an unknown one is refused later."""
    strategy = values.get("strategy", _USUAL).strip()
    options = read_values(STRATEGIES[strategy].Config, OPTION, _own(values, strategy)) if strategy in STRATEGIES else {}
    return {"strategy": strategy, "strategy_options": options}


def shown(values: Mapping[str, str]) -> dict[str, Any]:
    """Return what the template shows: the strategies, the chosen one and its options."""
    strategy = values.get("strategy", _USUAL)
    strategy = strategy if strategy in STRATEGIES else _USUAL
    return {
        "strategy": strategy,
        "strategies": list(STRATEGIES),
        "about": (STRATEGIES[strategy].__doc__ or "").strip().partition("\n")[0],
        "options": build_fields(STRATEGIES[strategy].Config, OPTION, _own(values, strategy)),
    }


def _own(values: Mapping[str, str], strategy: str) -> Mapping[str, str]:
    """Return the fields without options that were shown for another strategy: names recur, and defaults differ."""
    if values.get(_SHOWN, strategy) == strategy:
        return values
    return {name: value for name, value in values.items() if not name.startswith(OPTION)}
