"""Command-line options made from the fields of a model: name, type, default and help are those of the field."""

from __future__ import annotations

import inspect
import json
import shlex
from collections.abc import Callable, Collection
from dataclasses import dataclass
from enum import StrEnum
from functools import wraps
from types import NoneType
from typing import TYPE_CHECKING, Annotated, Any, Literal, get_args, get_origin

import typer
from pydantic import BaseModel

from speciate.cli.common import parse_key_values
from speciate.domain.documented import Flag, attribute_docs, flag_of, option_names

if TYPE_CHECKING:
    from pydantic.fields import FieldInfo

    from speciate.domain.run import RunSpec


@dataclass(frozen=True)
class ModelOption:
    """The command-line option of a field."""

    path: tuple[str, ...]
    """Names of the fields that lead from the model to the value."""
    names: tuple[str, ...]
    parameter: inspect.Parameter

    def store(self, value: Any, values: dict[str, Any]) -> None:
        """Put a value, if the user set one, into nested dictionaries."""
        *parents, name = self.path
        if value is None or value is False or value == []:
            return
        for parent in parents:
            values = values.setdefault(parent, {})
        if isinstance(value, list):
            values.setdefault(name, {}).update(parse_key_values(value, self.names[0]))
        else:
            values[name] = value


def model_options(model: type[BaseModel]) -> list[ModelOption]:
    """Return the options of a model's fields, required ones first; fields of a nested model need a ``Flag``."""
    fields = sorted(model.model_fields.items(), key=lambda item: not item[1].is_required())
    options = []
    for name, field in fields:
        inner = _bare_type(field)
        nested = inner.model_fields if issubclass(inner, BaseModel) else {}
        # The defaults within an optional model say nothing: without it there are none.
        options += [
            _option(inner, (name, part), each, shows_default=field.default is not None)
            for part, each in nested.items()
            if flag_of(each)
        ]
        if not nested or flag_of(field):
            options.append(_option(model, (name,), field))
    return options


def add_options(
    model: type[BaseModel], *, only: Collection[str] = (), without: Collection[str] = ()
) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Replace the parameter ``options`` of a command by the options of a model.

    The command receives the values that the user set, nested as in the model: ``{"seed": 7, "budget": {"tokens": 9}}``.
    ``only`` and ``without`` are dotted paths of the fields to take, by default all, and to leave out.
    """
    options = {
        option.parameter.name: option
        for option in model_options(model)
        if (path := ".".join(option.path)) not in without and (not only or path in only)
    }

    def decorate(command: Callable[..., None]) -> Callable[..., None]:
        signature = inspect.signature(command, eval_str=True)
        parameters = [
            added.replace(kind=inspect.Parameter.KEYWORD_ONLY)
            for parameter in signature.parameters.values()
            for added in (
                [option.parameter for option in options.values()] if parameter.name == "options" else [parameter]
            )
        ]

        @wraps(command)
        def with_options(**arguments: Any) -> None:
            values: dict[str, Any] = {}
            for name, option in options.items():
                option.store(arguments.pop(name), values)
            command(**arguments, options=values)

        with_options.__signature__ = signature.replace(parameters=parameters)  # type: ignore[attr-defined]
        with_options.__annotations__ = {parameter.name: parameter.annotation for parameter in parameters}
        return with_options

    return decorate


def written_options(spec: RunSpec) -> str:
    """Return the changed options of a run as on the command line; by path what it has no option for."""
    flags, written = {".".join(option.path): option.names[0] for option in model_options(type(spec))}, []
    for path, value in spec.changed_options.items():
        text, (parent, _, key) = value if isinstance(value, str) else json.dumps(value), path.partition(".")
        if path in flags:
            written += [flags[path]] if value is True else [flags[path], shlex.quote(text)]
        else:
            written += [flags[parent], shlex.quote(f"{key}={text}")] if parent in flags else [f"{path}={text}"]
    return " ".join(written)


def _option(
    owner: type[BaseModel], path: tuple[str, ...], field: FieldInfo, *, shows_default: bool = True
) -> ModelOption:
    flag, kind = flag_of(field) or Flag(), _bare_type(field)
    names = option_names(path[-1], field)
    text, metavar = attribute_docs(owner)[path[-1]].replace("``", "`"), flag.metavar
    required = field.is_required() and shows_default
    unshown = required or not shows_default or field.default_factory is not None
    default = None if unshown else field.get_default()
    annotation: Any
    if issubclass(kind, dict | BaseModel):
        default, annotation, metavar = None, list[str] | None, "KEY=VALUE"
        if issubclass(kind, BaseModel):
            parts = ", ".join(name for name, part in kind.model_fields.items() if not flag_of(part))
            text = f"{text.rstrip('.')}: {parts}."
        text = f"{text.rstrip('.')}; repeatable."
    elif kind is bool:
        annotation = bool
    else:
        annotation = kind if kind in (int, float) else str
        annotation = annotation if required else annotation | None
        if issubclass(kind, StrEnum) and metavar is None:
            metavar = f"[{'|'.join(kind)}]"
    visible_default = False if default is None or default is False or default == "" else str(default)
    parameter = inspect.Parameter(
        "_".join(path),
        inspect.Parameter.KEYWORD_ONLY,
        default=inspect.Parameter.empty if required else False if kind is bool else None,
        annotation=Annotated[
            annotation, typer.Option(*names, help=text, metavar=metavar, show_default=visible_default)
        ],
    )
    return ModelOption(path, names, parameter)


def _bare_type(field: FieldInfo) -> Any:
    """Return the class of a field, without ``None``, constraints and the types of its items."""
    annotation: Any = field.annotation
    kinds = [kind for kind in get_args(annotation) if kind is not NoneType]
    if NoneType in get_args(annotation):
        (annotation,) = kinds
    if get_origin(annotation) is Annotated:
        annotation = get_args(annotation)[0]
    return str if get_origin(annotation) is Literal else get_origin(annotation) or annotation
