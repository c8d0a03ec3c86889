"""Form fields made from the JSON schema of a model, and the form values they read back."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any, Final

from pydantic import BaseModel

from speciate.domain.run import RunSpec
from speciate.search.strategies import STRATEGIES

OPTION: Final = "option."
"""Prefix of the field name of a strategy option."""
DEFAULT_STRATEGY: Final = str(RunSpec.model_fields["strategy"].default)

_OPTIONS_OF: Final = "options_of"
_NUMBERS: Final = {"integer": int, "number": float}
_KINDS: Final = {"integer": "integer", "number": "number", "boolean": "check", "array": "list"}
_WORDS: Final = {"slug": "name", "url": "URL", "s": "in seconds", "logprobs": "log-probabilities"}
"""Words of labels, where the part of a field's name is not one."""
_LARGEST_BOUND: Final = 10**9
"""Bounds beyond are left out of hints."""


@dataclass(frozen=True)
class Field:
    """One form field."""

    name: str
    """Name in the form; a field of a nested model has a dot."""
    kind: str
    """``integer``, ``number``, ``text``, ``check``, ``choice`` or ``list``."""
    value: str
    """Current value as text; "on" for a ticked box."""
    default: str = ""
    """Value that changes nothing, as text."""
    note: str = ""
    """Hint below the field."""
    low: float | None = None
    """Smallest number."""
    high: float | None = None
    """Largest number."""
    choices: tuple[str, ...] = ()
    """Possible values."""
    opens_model: bool = False
    """True for the first field of an optional nested model, which is left out while this field is empty."""

    @property
    def label(self) -> str:
        words = [_WORDS.get(word, word) for word in re.split(r"[._]", self.name.removeprefix(OPTION))]
        return " ".join(dict.fromkeys(words))  # "learning rate", not "learning learning rate"

    @property
    def changed(self) -> bool:
        """True if the value is not the default."""
        return self.value.strip() != self.default


def build_fields(model: type[BaseModel], prefix: str, values: Mapping[str, str]) -> list[Field]:
    """Return the form fields of a model, with those of its nested models in their place.

    An optional nested model without a default is left out while its first field is empty.

    Args:
        model: The model.
        prefix: Prefix of every field name.
        values: Form values by field name; missing ones take the model's defaults.
    """
    schema = model.model_json_schema()
    fields = [
        field
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
            case list():
                texts[prefix + name] = ", ".join(map(str, value))
            case _:
                texts[prefix + name] = str(value)
    return texts


def parse_number(kind: str, text: str) -> Any:
    """Return ``text`` as an ``integer`` or ``number``, or unchanged if it is malformed: validation reports it."""
    try:
        return _NUMBERS[kind](text.replace("\u202f", "").replace(" ", ""))
    except ValueError:
        return text


def read_strategy(values: Mapping[str, str]) -> dict[str, Any]:
    """Return ``strategy`` and ``strategy_options`` of a form; validation reports an unknown strategy."""
    strategy = values.get("strategy", DEFAULT_STRATEGY).strip()
    strategy_class = STRATEGIES.get(strategy)
    options = read_values(strategy_class.Config, OPTION, _own_options(values, strategy)) if strategy_class else {}
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


def _own_options(values: Mapping[str, str], strategy: str) -> Mapping[str, str]:
    """Drop options shown for another strategy, since equal names have other defaults."""
    if values.get(_OPTIONS_OF, strategy) == strategy:
        return values
    return {name: value for name, value in values.items() if not name.startswith(OPTION)}


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
    kind = "choice" if "enum" in spec else _KINDS.get(spec.get("type", ""), "text")
    choices = _choices(kind, spec, defs)
    note = re.sub(r"\bNone\b", "empty", spec.get("description", "")).replace("``", "")
    if kind == "list" and choices:
        note += f" Any of {', '.join(choices)}, separated by commas."
    defaults: dict[str, Any] = {name: spec.get("default")}
    default = form_values(defaults).get(name, "")
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
