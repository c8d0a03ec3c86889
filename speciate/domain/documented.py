"""Models whose fields are documented by the docstring below each: the only text about a field.

JSON schemas, and with them the OpenAPI document, forms and the reference of ``problem.toml``, take it as description,
and the command line as help. Pydantic's ``use_attribute_docstrings`` would parse the source when a class is made, which
costs 3 ms for each class in every command; this parses a module once, when a text is asked for.
"""

from __future__ import annotations

import ast
import inspect
import sys
from functools import cache
from itertools import pairwise
from typing import TYPE_CHECKING, Any

from pydantic import BaseModel

if TYPE_CHECKING:
    from pydantic import GetJsonSchemaHandler
    from pydantic.fields import FieldInfo
    from pydantic.json_schema import JsonSchemaValue


class Flag:
    """Command-line option of a field, where it is not ``--field-name`` or the field is in a nested model."""

    def __init__(self, *names: str, metavar: str | None = None) -> None:
        self.names = names
        self.metavar = metavar


def flag_of(field: FieldInfo) -> Flag | None:
    return next((item for item in field.metadata if isinstance(item, Flag)), None)


def option_names(name: str, field: FieldInfo) -> tuple[str, ...]:
    return (flag_of(field) or Flag()).names or ("--" + name.replace("_", "-"),)


class Documented(BaseModel):
    """A model with attribute docstrings."""

    @classmethod
    def __get_pydantic_json_schema__(cls, core_schema: Any, handler: GetJsonSchemaHandler) -> JsonSchemaValue:
        schema = handler(core_schema)
        properties = handler.resolve_ref_schema(schema).get("properties", {})
        for name, text in attribute_docs(cls).items():
            if name in properties:
                properties[name].setdefault("description", text)
        return schema


@cache
def attribute_docs(model: type) -> dict[str, str]:
    """Return the docstrings of a class's attributes, inherited ones included, each on one line."""
    docs: dict[str, str] = {}
    for base in reversed(model.__mro__):
        if base.__module__.partition(".")[0] in _PACKAGES:
            docs |= _module_docs(base.__module__).get(base.__name__, {})
    return docs


_PACKAGES = frozenset({"speciate", "service"})


@cache
def _module_docs(module: str) -> dict[str, dict[str, str]]:
    tree = ast.parse(inspect.getsource(sys.modules[module]))
    return {node.name: _class_docs(node) for node in tree.body if isinstance(node, ast.ClassDef)}


def _class_docs(node: ast.ClassDef) -> dict[str, str]:
    docs = {}
    for field, text in pairwise(node.body):
        match field, text:
            case (ast.AnnAssign(target=ast.Name(id=name)), ast.Expr(value=ast.Constant(value=str(doc)))):
                docs[name] = " ".join(doc.split())
    return docs
