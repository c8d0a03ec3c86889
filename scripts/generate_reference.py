"""Generate the reference of ``problem.toml`` from the model. Usage: ``generate_reference.py [--check]``.

Writes ``speciate/problems/problem.schema.json`` and the tables of ``docs/reference/problem-toml.md``. The prose of the
page is edited by hand; each table stands between ``<!-- keys of MODEL -->`` and ``<!-- end -->``.
"""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from pydantic import BaseModel
from pydantic.json_schema import GenerateJsonSchema

from speciate.domain.language import Language
from speciate.domain.limits import Limits
from speciate.domain.objective import Objective
from speciate.domain.problem import Case, Problem
from speciate.domain.stage import Stage
from speciate.domain.target import Target

ROOT = Path(__file__).resolve().parents[1]
SCHEMA = Path("speciate/problems/problem.schema.json")
PAGE = Path("docs/reference/problem-toml.md")
MODELS: tuple[type[BaseModel], ...] = (Problem, Objective, Target, Case, Stage, Language, Limits)

_NAMES = {"type": "array", "items": {"type": "string"}, "description": "Names of files"}
_TEXTS = {"type": "object", "additionalProperties": {"type": "string"}, "description": "Texts by file name"}
_FILE = {"type": "string", "description": "Name of a file"}
_SEED = {
    "description": "File of the seed program, instead of `seed_program`; with `many_files` several files.",
    "anyOf": [_FILE, _NAMES, _TEXTS],
}
# Keys that may name files instead of holding their texts: the further forms, and an example.
_FILE_FORMS: dict[str, tuple[list[dict[str, Any]], Any]] = {
    "seed": ([], "seed.py"),
    "evaluator": ([], "evaluate.py"),
    "cases": ([_FILE | {"description": "Name of a JSON file"}], "cases.json"),
    "files": ([_NAMES], ["instances.json"]),
    "data_files": ([_NAMES], ["points.csv"]),
    "requirements": ([_FILE], "requirements.txt"),
    "prompts": ([_NAMES], ["change.txt"]),
}
_BOUNDS = {"minimum": "≥", "exclusiveMinimum": ">", "maximum": "≤", "exclusiveMaximum": "<"}
_SECTIONS = {"Objective": "objectives", "Target": "targets", "Case": "cases", "Stage": "stages"}
_TABLE = re.compile(r"(<!-- keys of (\w+) -->\n).*?(<!-- end -->)", re.DOTALL)


class _Untitled(GenerateJsonSchema):
    def field_title_should_be_set(self, schema: Any) -> bool:  # noqa: ARG002 - the signature is Pydantic's
        return False

    def sort(self, value: Any, parent_key: str | None = None) -> Any:  # noqa: ARG002
        return value


def schema() -> dict[str, Any]:
    """Return the JSON schema of ``problem.toml``, in the draft that editors know best."""
    found = Problem.model_json_schema(schema_generator=_Untitled)
    seed_at = list(found["properties"]).index("seed_program")
    properties = list(found["properties"].items())
    properties.insert(seed_at, ("seed", _SEED))
    found["properties"] = {name: _file_form(name, dict(value)) for name, value in properties}
    parts = found.pop("$defs")
    parts["Language"]["required"].remove("file")  # a known language has one
    for model in (found, *parts.values()):
        for name, value in model.get("properties", {}).items():
            model["properties"][name] = _for_editors(value, parts)
    used = json.dumps([found, parts])
    kept = {name: part for name, part in parts.items() if f'"#/$defs/{name}"' in used}
    return {
        "$schema": "http://json-schema.org/draft-07/schema#",
        **found,
        "title": "problem.toml",
        "description": "A problem for Speciate.",
        "$defs": kept,
    }


def _file_form(name: str, value: dict[str, Any]) -> dict[str, Any]:
    if name not in _FILE_FORMS:
        return value
    forms, example = _FILE_FORMS[name]
    value["examples"] = [example]
    if forms:
        about = {key: value.pop(key) for key in ("description", "default", "examples") if key in value}
        value = about | {"anyOf": [*forms, value]}
    return value


def _for_editors(value: dict[str, Any], parts: Mapping[str, Any]) -> dict[str, Any]:
    """Return a property without ``null``, which TOML lacks, and without keywords that draft 7 ignores."""
    if value.get("default", "") is None:
        del value["default"]
    if {"type": "null"} in value.get("anyOf", ()):
        forms = [form for form in value.pop("anyOf") if form != {"type": "null"}]
        value |= forms[0] if len(forms) == 1 else {"anyOf": forms}
    if "prefixItems" in value:
        value["items"] = value.pop("prefixItems")[0]
    if "$ref" in value:  # draft 7 ignores the keywords beside a reference
        reference = value.pop("$ref")
        part = parts[reference.rpartition("/")[2]]
        value = part | value if "enum" in part else {"allOf": [{"$ref": reference}], **value}
        value.pop("title", None)
    return value


def page(text: str) -> str:
    """Return the page with tables that match the model."""
    models, whole = {model.__name__: model for model in MODELS}, schema()
    return _TABLE.sub(lambda place: place[1] + _table(models[place[2]], whole) + place[3], text)


def _table(model: type[BaseModel], whole: Mapping[str, Any]) -> str:
    found = whole if model is Problem else whole["$defs"][model.__name__]
    rows = ["| key | type | default | meaning |", "|---|---|---|---|"]
    for name, value in found["properties"].items():
        field = model.model_fields.get(name)
        kind = _type(value)
        example = field.examples[0] if field is not None and field.examples else value["examples"][0]
        default = "**required**" if name in found.get("required", ()) else _default(name, value)
        in_section = kind.startswith(("[", "list of ["))
        shown = f" `{name} = {_toml(example)}`" if not in_section and ("list" in kind or "table" in kind) else ""
        cells = (f"`{name}`", kind + _bounds(name, value), default, value["description"] + shown)
        rows.append("| " + " | ".join(str(cell).replace("|", r"\|") for cell in cells) + " |")
    return "\n".join(rows) + "\n"


def _default(name: str, value: Mapping[str, Any]) -> str:
    match value.get("default"):
        case None:
            return "none"
        case int(size) if name.endswith("_bytes"):
            return _number(name, size)
        case dict():
            return f"[see below](#{name})"
        case other:
            return f"`{_toml(other)}`"


def _type(value: Mapping[str, Any]) -> str:
    match value:
        case {"anyOf": forms}:
            return " or ".join(_type(form) for form in forms)
        case {"enum": choices}:
            return ", ".join(f"`{choice}`" for choice in choices)
        case {"allOf": [{"$ref": reference}]} | {"$ref": reference}:
            name = reference.rpartition("/")[2]
            return "value" if name == "JsonValue" else f"[{name}](#{_SECTIONS.get(name, name.lower())}) table"
        case {"type": "array", "items": items, "maxItems": 2}:
            return f"list of 2 {_type(items)}s"
        case {"type": "array", "items": items}:
            return f"list of {_type(items)}s" if items else "list"
        case {"type": "object"}:
            (inner,) = value.get("patternProperties", {"": value.get("additionalProperties")}).values()
            return f"table of {_type(inner)}s"
        case {"type": kind}:
            return str(kind)
    raise ValueError(f"no words for the type {value}")


def _bounds(name: str, value: Mapping[str, Any]) -> str:
    bounds = "".join(f", {sign} {_number(name, value[key])}" for key, sign in _BOUNDS.items() if key in value)
    return bounds + (f", at most {value['maxLength']:,} characters" if "maxLength" in value else "")


def _number(name: str, value: float) -> str:
    if not name.endswith("_bytes") or value < 1 << 10:
        return f"{value:,g}" if value < 1 << 20 else f"{int(value):,}"
    unit, bits = next((unit, bits) for unit, bits in (("GiB", 30), ("MiB", 20), ("KiB", 10)) if value >= 1 << bits)
    return f"{int(value) >> bits} {unit}"


def _toml(value: Any) -> str:
    match value:
        case dict():
            return "{ " + ", ".join(f"{_key(key)} = {_toml(inner)}" for key, inner in value.items()) + " }"
        case list() | tuple():
            return f"[{', '.join(map(_toml, value))}]"
        case bool() | str():
            return json.dumps(value, ensure_ascii=False)
        case int():
            return f"{value:_}"
        case _:
            return str(value)


def _key(name: str) -> str:
    return name if re.fullmatch(r"[\w-]+", name) else json.dumps(name)


def main() -> None:
    """Write the files, or with ``--check`` exit with status 1 if they are out of date."""
    texts = {
        SCHEMA: json.dumps(schema(), indent=2, ensure_ascii=False) + "\n",
        PAGE: page((ROOT / PAGE).read_text(encoding="utf-8")),
    }
    stale = [path for path, text in texts.items() if not _is(ROOT / path, text)]
    if "--check" in sys.argv[1:]:
        sys.exit(f"Out of date: {', '.join(map(str, stale))}. Run `make reference`." if stale else 0)
    for path in stale:
        (ROOT / path).write_text(texts[path], encoding="utf-8")


def _is(path: Path, text: str) -> bool:
    return path.exists() and path.read_text(encoding="utf-8") == text


if __name__ == "__main__":
    main()
