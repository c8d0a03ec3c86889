"""Validation messages and typed option parsing for Pydantic models."""

import re
from collections.abc import Mapping, Sequence
from typing import Any, Final, TypeVar

from pydantic import ValidationError

from speciate.domain import image, values
from speciate.domain.errors import FieldError, InvalidInputError
from speciate.domain.suggestions import did_you_mean
from speciate.domain.values import Value

_PATTERNS: Final = {
    image.FOLDER: "an absolute path of letters, digits, dots, hyphens and underscores, such as /app",
    values.REQUIREMENT: "a package with versions, such as networkx==3.4, without paths, URLs and options",
    values.SLUG: "lower-case words joined by hyphens, such as two-words",
    values.IDENTIFIER: "letters, digits and underscores, and no digit first",
    values.FILE_NAME: "the name of a file without a folder: letters, digits, dots, hyphens and underscores",
    values.MODULE_NAME: "the name of a Python module, such as scipy.optimize",
    values.WEB_ADDRESS: "an address that begins with http:// or https://",
    values.WORD: "1 to 255 visible ASCII characters without blanks",
    values.ONE_LINE: "one line without control characters",
    values.LINE: "one line without control characters, or nothing",
    values.NAME: "one line without slashes and control characters, or nothing",
    values.RUN_ID: "the id of a run: 36 digits, letters from a to f and hyphens",
    values.TAG: "letters, digits and any of . _ : / = + -, a letter or digit first",
    values.NO_NUL: "a text without NUL characters",
    values.KEY_ID: "the id of a stored key: 36 digits, letters from a to f and hyphens",
}

Options = TypeVar("Options", bound=Value)
T = TypeVar("T", bound=Mapping[str, Any])

_BOUNDS = {"minimum": "≥", "exclusiveMinimum": ">", "maximum": "≤", "exclusiveMaximum": "<"}


def read_options(owner: str, model: type[Options], options: Mapping[str, Any], *, where: str) -> Options:
    """Validate the options of a plug-in with its config model.

    ``owner`` names the plug-in in the error; ``where`` is the field that holds the options.

    Raises:
        InvalidInputError: An option is unknown, of the wrong type or out of range; the message lists the valid options
            with type, range and default.
    """
    try:
        return model.model_validate(dict(options))
    except ValidationError as error:
        field_errors = tuple(
            _field_error(validation_message(detail), (where, *detail["loc"]), model) for detail in error.errors()
        )
    raise InvalidInputError(
        f"{owner}: {'; '.join(map(str, field_errors))}.",
        field_errors=field_errors,
        remedy=f"Options: {'; '.join(describe_options(model).values()) or 'none'}.",
    )


def describe_options(model: type[Value]) -> dict[str, str]:
    """Return a line such as ``islands: integer, ≥ 1, ≤ 64, default 4`` for each option, by name."""
    schema = model.model_json_schema()
    return {name: f"{name}: {_expected(field, schema)}" for name, field in schema.get("properties", {}).items()}


def _expected(field: Mapping[str, Any], schema: Mapping[str, Any]) -> str:
    parts = [_type(field, schema), *(f"{sign} {field[key]}" for key, sign in _BOUNDS.items() if key in field)]
    if "default" in field:
        parts.append(f"default {field['default']}")
    return ", ".join(parts)


def _type(field: Mapping[str, Any], schema: Mapping[str, Any]) -> str:
    if "$ref" in field:
        return _type(schema["$defs"][field["$ref"].rsplit("/", 1)[-1]], schema)
    if "enum" in field:
        return f"one of {', '.join(map(str, field['enum']))}"
    if field.get("type") == "array" and "items" in field:
        most = f"at most {field['maxItems']} of" if "maxItems" in field else "list of"
        return f"{most} ({_type(field['items'], schema)})"
    return str(field.get("type", "value"))


def _field_error(message: str, place: tuple[int | str, ...], model: type[Value]) -> FieldError:
    options = describe_options(model)
    name = str(place[1]) if len(place) > 1 else ""
    if name and name not in options:
        message = "no such option"
    elif name in options:
        message = f"{message}; expected {options[name]}"
    return FieldError(message, where=".".join(map(str, place)))


def validation_message(detail: Mapping[str, Any]) -> str:
    """Return the message for one entry of ``ValidationError.errors()``."""
    context = detail.get("ctx") or {}
    match detail["type"]:
        case "missing":
            return "is missing: expected a value"
        case "string_pattern_mismatch" if (words := _PATTERNS.get(context.get("pattern", ""))) is not None:
            return f"expected {words}"
        case "literal_error" | "enum" if "expected" in context:
            expected = f"expected {context['expected']}"
            near = did_you_mean(str(detail.get("input")), re.findall(r"'([^']+)'", context["expected"]))
            return f"{expected} ({near[0].lower()}{near[1:]})" if near else expected
        case "value_error":
            return str(detail["msg"]).removeprefix("Value error, ")
        case "extra_forbidden":
            return "is not a known field"
        case "tuple_type" | "list_type":
            return "expected a list"
        case _:
            return str(detail["msg"]).replace("Tuple", "List").replace(" after validation", "")


def own_mistakes(details: Sequence[T]) -> list[T]:
    """Return the entries of ``ValidationError.errors()`` but lists that are too short because of invalid items."""
    inside = {each["loc"][:end] for each in details for end in range(1, len(each["loc"]))}
    return [each for each in details if each["type"] != "too_short" or each["loc"] not in inside]


def place_of(detail: Mapping[str, Any]) -> str:
    """Return the path of an entry of ``ValidationError.errors()``; a check across fields names it in its error."""
    stated = getattr((detail.get("ctx") or {}).get("error"), "where", "")
    return ".".join(str(part) for part in detail["loc"]) or stated


def first_mistake(error: ValidationError) -> tuple[str, str]:
    """Return path and message of the first mistake; the path is empty if the value as a whole is wrong."""
    detail = error.errors(include_url=False)[0]
    return place_of(detail), validation_message(detail)


def shorten(value: object) -> str:
    try:
        text = repr(value)
    except ValueError:  # more digits than Python writes
        return "a number with thousands of digits"
    return text if len(text) <= 60 else text[:57] + "..."
