"""Form fields made from the JSON schema of a config model, and the form values they read back."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from pydantic import BaseModel

from speciate.domain.run import RunSpec
from speciate.search.strategies import STRATEGIES

OPTION: Final = "option."
"""Prefix of the field name of a strategy option."""

_NUMBERS: Final = {"integer": int, "number": float}
_KINDS: Final = {"integer": "integer", "number": "number", "boolean": "check", "array": "list"}
DEFAULT_STRATEGY: Final = str(RunSpec.model_fields["strategy"].default)
_OPTIONS_OF: Final = "options_of"


@dataclass(frozen=True)
class Field:
    """One form field.

    Attributes:
        name: Name in the form.
        label: Visible label.
        kind: ``integer``, ``number``, ``text``, ``check``, ``choice`` or ``list``.
        value: Current value as text; "on" for a ticked box.
        default: Value that changes nothing, as text.
        note: Hint below the field.
        low: Smallest number.
        high: Largest number.
        choices: Possible values.
    """

    name: str
    label: str
    kind: str
    value: str
    default: str = ""
    note: str = ""
    low: float | None = None
    high: float | None = None
    choices: tuple[str, ...] = ()

    @property
    def changed(self) -> bool:
        """True if the value is not the default."""
        return self.value.strip() != self.default


def build_fields(model: type[BaseModel], prefix: str, values: Mapping[str, str]) -> list[Field]:
    """Return the form fields of a config model.

    Args:
        model: The model.
        prefix: Prefix of every field name.
        values: Form values by field name; missing ones take the model's defaults.
    """
    schema = model.model_json_schema()
    defs = schema.get("$defs", {})
    return [_field(name, spec, defs, prefix, values) for name, spec in schema.get("properties", {}).items()]


def read_values(model: type[BaseModel], prefix: str, values: Mapping[str, str]) -> dict[str, Any]:
    """Return the form's values for a config model as JSON values, without those that equal the defaults.

    Malformed numbers stay text, so that validation of the model reports them.
    """
    found: dict[str, Any] = {}
    for field in build_fields(model, prefix, {}):
        # Browsers do not send unticked boxes.
        text = values.get(field.name, "" if field.kind == "check" else field.value).strip()
        value = _parse(field, text)
        if value != _parse(field, field.value):
            found[field.name.removeprefix(prefix)] = value
    return found


def parse_number(kind: str, text: str) -> Any:
    """Return ``text`` as an ``integer`` or ``number``, or unchanged if it is malformed: validation reports it."""
    try:
        return _NUMBERS[kind](text.replace("\u202f", "").replace(" ", ""))
    except ValueError:
        return text


def number_fields(model: type[BaseModel], notes: Mapping[str, str], values: Mapping[str, str]) -> list[Field]:
    """Return integer fields for the fields of ``model`` that ``notes`` names, with the model's defaults."""
    defaults = {name: model.model_fields[name].get_default() for name in notes}
    texts = {name: str(default) if isinstance(default, int) else "" for name, default in defaults.items()}
    return [
        _labelled(name, "integer", values.get(name, texts[name]), texts[name], note) for name, note in notes.items()
    ]


def check_fields(notes: Mapping[str, str], values: Mapping[str, str]) -> list[Field]:
    """Return checkboxes with the form's values."""
    return [_labelled(name, "check", values.get(name, ""), "", note) for name, note in notes.items()]


def read_strategy(values: Mapping[str, str]) -> dict[str, Any]:
    """Return ``strategy`` and ``strategy_options`` of a form; validation reports an unknown strategy."""
    strategy = values.get("strategy", DEFAULT_STRATEGY).strip()
    known = STRATEGIES.get(strategy)
    options = read_values(known.Config, OPTION, _own_options(values, strategy)) if known else {}
    return {"strategy": strategy, "strategy_options": options}


def strategy_context(values: Mapping[str, str]) -> dict[str, Any]:
    """Return the template values of the strategy panel: all strategies, the selected one and its options."""
    strategy = values.get("strategy", DEFAULT_STRATEGY)
    strategy = strategy if strategy in STRATEGIES else DEFAULT_STRATEGY
    return {
        "strategy": strategy,
        "strategies": list(STRATEGIES),
        "about": (STRATEGIES[strategy].__doc__ or "").strip().partition("\n")[0],
        "options": build_fields(STRATEGIES[strategy].Config, OPTION, _own_options(values, strategy)),
    }


def _labelled(name: str, kind: str, value: str, default: str, note: str) -> Field:
    return Field(name, name.replace("_", " "), kind, value, default, note)


def _own_options(values: Mapping[str, str], strategy: str) -> Mapping[str, str]:
    """Drop options shown for another strategy, since equal names have other defaults."""
    if values.get(_OPTIONS_OF, strategy) == strategy:
        return values
    return {name: value for name, value in values.items() if not name.startswith(OPTION)}


def _field(name: str, spec: dict[str, Any], defs: dict[str, Any], prefix: str, values: Mapping[str, str]) -> Field:
    spec = {**_resolve(spec, defs), **{key: value for key, value in spec.items() if key in {"default", "description"}}}
    kind = "choice" if "enum" in spec else _KINDS.get(spec.get("type", ""), "text")
    choices = _choices(kind, spec, defs)
    note = str(spec.get("description", ""))
    if kind == "list" and choices:
        note += f" Any of {', '.join(choices)}, separated by commas."
    default = _default_text(kind, spec.get("default"))
    return Field(
        prefix + name,
        name.replace("_", " "),
        kind,
        values.get(prefix + name, default),
        default,
        note,
        spec.get("minimum", spec.get("exclusiveMinimum")),
        spec.get("maximum", spec.get("exclusiveMaximum")),
        choices,
    )


def _choices(kind: str, spec: dict[str, Any], defs: dict[str, Any]) -> tuple[str, ...]:
    if kind == "list":
        spec = _resolve(spec.get("items", {}), defs)
    optional = kind == "choice" and spec.get("default", "") is None
    return (*([""] if optional else []), *map(str, spec.get("enum", ())))


def _default_text(kind: str, default: Any) -> str:
    if kind == "check":
        return "on" if default else ""
    if isinstance(default, list | tuple):
        return ", ".join(map(str, default))
    return "" if default is None else str(default)


def _resolve(spec: dict[str, Any], defs: dict[str, Any]) -> dict[str, Any]:
    """Follow ``$ref``, and of alternatives take the first that is not null."""
    if "$ref" in spec:
        found: dict[str, Any] = defs.get(str(spec["$ref"]).rpartition("/")[2], {})
        return found
    for option in spec.get("anyOf", ()):
        if option.get("type") != "null":
            return _resolve(option, defs)
    return spec


def _parse(field: Field, text: str) -> Any:
    match field.kind:
        case "check":
            return text == "on"
        case "integer" | "number" if text:
            return parse_number(field.kind, text)
        case "list":
            return [part.strip() for part in text.split(",") if part.strip()]
        case _:
            return text or None
