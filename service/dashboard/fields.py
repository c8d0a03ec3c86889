"""Form fields made from the JSON schema of a model, and the form values they read back."""

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any, Final

from pydantic import BaseModel

from service.strict_json import parse
from speciate.domain.errors import InvalidInputError, invalid_field

_NUMBERS: Final = {"integer": int, "number": float}
_KINDS: Final = {"integer": "integer", "number": "number", "boolean": "check", "array": "list", "object": "json"}
_WORDS: Final = {
    "slug": "name",
    "url": "URL",
    "s": "in seconds",
    "logprobs": "log-probabilities",
    "api": "API",
    "budget": "",
}
"""Words of labels, where the part of a field's name is not one."""
_OPTIONS: Final = re.compile(r"^(strategy_)?options\.")
"""Prefix of the names of options."""
_LARGEST_BOUND: Final = 10**9
"""Bounds beyond are left out of hints."""


@dataclass(frozen=True)
class Field:
    name: str
    """Name in the form; a field of a nested model has a dot."""
    kind: str
    """``integer``, ``number``, ``text``, ``check``, ``choice``, ``list``, ``weights`` or ``json``."""
    value: str
    """Current value as text; "on" for a ticked box."""
    default: str = ""
    """Value that changes nothing, as text."""
    note: str = ""
    low: float | None = None
    high: float | None = None
    choices: tuple[str, ...] = ()
    opens_model: bool = False
    """True for the first field of an optional nested model, which is left out while this field is empty."""
    required: bool = False
    """True if the model has no default for it."""

    @property
    def label(self) -> str:
        words = [_WORDS.get(word, word) for word in re.split(r"[._]", _OPTIONS.sub("", self.name))]
        text = " ".join(filter(None, dict.fromkeys(words)))  # "learning rate", not "learning learning rate"
        return text[:1].upper() + text[1:]

    @property
    def changed(self) -> bool:
        return self.value.strip() != self.default


def build_fields(model: type[BaseModel], prefix: str, values: Mapping[str, str]) -> list[Field]:
    """Return the form fields of a model, with those of its nested models in their place.

    An optional nested model without a default is left out while its first field is empty.
    ``prefix`` begins every field name; missing ``values`` are the model's defaults.
    """
    schema = model.model_json_schema()
    fields = [
        replace(field, required=name in schema.get("required", ()) and "." not in field.name.removeprefix(prefix))
        for name, spec in schema.get("properties", {}).items()
        for field in _fields(prefix + name, spec, schema.get("$defs", {}))
    ]
    return [replace(field, value=values.get(field.name, field.value)) for field in fields]


def read_values(model: type[BaseModel], prefix: str, values: Mapping[str, str]) -> dict[str, Any]:
    """Return the form's values for a model as nested JSON values, without those that equal the defaults.

    Malformed numbers stay text, so that validation of the model reports them.
    """
    read: dict[str, Any] = {}
    left_out = ""
    for field in build_fields(model, prefix, {}):
        model_name, dot, name = field.name.removeprefix(prefix).rpartition(".")
        # Browsers do not send unticked boxes.
        text = values.get(field.name, "" if field.kind == "check" else field.value).strip()
        if field.opens_model and not text:
            left_out = model_name
        emptied = not text and field.kind in _NUMBERS
        value = _parse(field, text)
        if not emptied and value != _parse(field, field.value) and not (dot and model_name == left_out):
            (read.setdefault(model_name, {}) if dot else read)[name] = value
    return read


def form_values(values: Mapping[str, Any], prefix: str = "") -> dict[str, str]:
    """Return JSON values of a model as the texts of its form fields."""
    texts: dict[str, str] = {}
    for name, value in values.items():
        match value:
            case dict():
                texts |= form_values(value, f"{prefix}{name}.")
            case None | bool():
                texts[prefix + name] = "on" if value else ""
            case list() if all(isinstance(item, str | int | float) for item in value):
                texts[prefix + name] = ", ".join(map(str, value))
            case list():
                texts[prefix + name] = json.dumps(value)
            case _:
                texts[prefix + name] = str(value)
    return texts


def parse_number(kind: str, text: str) -> Any:
    """Return ``text`` as an ``integer`` or ``number``, or unchanged if it is malformed: validation reports it."""
    try:
        return _NUMBERS[kind](text.replace("\u202f", "").replace(" ", ""))
    except ValueError:
        return text


def _fields(name: str, spec: dict[str, Any], defs: dict[str, Any]) -> Iterator[Field]:
    own: dict[str, Any] = {key: spec[key] for key in ("default", "description") if key in spec}
    resolved = _resolve(spec, defs) | own
    if "properties" not in resolved:
        yield _field(name, resolved, defs)
        return
    optional = spec.get("default", "") is None
    for position, (part, inner) in enumerate(resolved["properties"].items()):
        for field in _fields(f"{name}.{part}", inner, defs):
            if optional and position == 0:
                choices = ("", *field.choices) if field.choices else ()
                yield replace(field, value="", default="", choices=choices, opens_model=True)
            else:
                yield field


def _field(name: str, spec: dict[str, Any], defs: dict[str, Any]) -> Field:
    kind = "choice" if "enum" in spec else "weights" if _is_ensemble(spec) else _KINDS.get(spec.get("type", ""), "text")
    choices = _choices(kind, spec, defs)
    note = re.sub(r"\bNone\b", "empty", spec.get("description", "")).replace("``", "")
    if kind == "list" and choices:
        note += f" Any of {', '.join(choices)}, separated by commas."
    default = form_values({name: spec.get("default")}).get(name, "")
    high = spec.get("maximum", spec.get("exclusiveMaximum"))
    return Field(
        name,
        kind,
        default,
        default,
        note,
        spec.get("minimum", spec.get("exclusiveMinimum")),
        None if high is None or high >= _LARGEST_BOUND else high,
        choices,
    )


def _choices(kind: str, spec: dict[str, Any], defs: dict[str, Any]) -> tuple[str, ...]:
    if kind == "list":
        spec = _resolve(spec.get("items", {}), defs)
    optional = kind == "choice" and spec.get("default", "") is None
    return (*([""] if optional else []), *map(str, spec.get("enum", ())))


def _resolve(spec: dict[str, Any], defs: dict[str, Any]) -> dict[str, Any]:
    """Follow ``$ref``, and of alternatives take the first that is not null."""
    if "$ref" in spec:
        definition: dict[str, Any] = defs.get(str(spec["$ref"]).rpartition("/")[2], {})
        return definition
    alternatives = [option for option in spec.get("anyOf", ()) if option.get("type") != "null"]
    return spec if _is_ensemble(spec) or not alternatives else _resolve(alternatives[0], defs)


def _is_ensemble(spec: Mapping[str, Any]) -> bool:
    """Return True for ``PolicyWeights``: a name, or an object of names and weights."""
    return [option.get("type") for option in spec.get("anyOf", ())][:2] == ["string", "object"]


def _parse(field: Field, text: str) -> Any:
    match field.kind:
        case "check":
            return text == "on"
        case "integer" | "number" if text:
            return parse_number(field.kind, text)
        case "list" if not text.startswith("["):
            return [part for part in re.split(r"[\s,]+", text) if part]
        case "weights" if text:
            return _parse_weights(text, field.name)
        case "list" | "json" if text:
            try:
                return parse(text.encode())
            except InvalidInputError:
                return text
        case _:
            return text or None


def _parse_weights(text: str, where: str) -> str | dict[str, Any]:
    """Return a policy name, or for several, as in ``small=3, big``, their weights."""
    entries = [entry.strip() for entry in text.split(",") if entry.strip()]
    if len(entries) == 1 and "=" not in entries[0]:
        return entries[0]
    weights: dict[str, Any] = {}
    for name, equals, weight in (entry.partition("=") for entry in entries):
        weights[name.strip()] = parse_number("number", weight.strip()) if equals else 1.0
    if len(weights) < len(entries):
        raise invalid_field(f"The {where}", where, "names a policy twice: expected each policy once")
    return weights
