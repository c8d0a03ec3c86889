"""Validate a problem definition in JSON values and report all errors at once, each with its place and a fix."""

import ast
import warnings
from collections.abc import Mapping
from dataclasses import replace
from typing import Any, Final

from pydantic import BaseModel, ValidationError
from pydantic_core import ErrorDetails

from speciate.domain.errors import FieldError, RuleError, TooLargeError, invalid
from speciate.domain.files import PYTHON_MAIN, FilesError, files_of
from speciate.domain.language import Language
from speciate.domain.limits import Limits
from speciate.domain.objective import Objective
from speciate.domain.problem import Case, Problem, ProblemKind
from speciate.domain.rollout import TemplateName
from speciate.domain.rule import parse_rule
from speciate.domain.stage import Stage
from speciate.domain.target import Target
from speciate.domain.unstorable import storage_errors
from speciate.domain.validation import own_mistakes, shorten, validation_message
from speciate.domain.values import MAX_PROGRAM_BYTES
from speciate.prompts.evolve_blocks import MarkerError, find_blocks, has_stray_marker
from speciate.prompts.python_source import syntax_tree, top_level_names
from speciate.prompts.template import template_field_errors

_PARTS: Final[dict[str, type[BaseModel]]] = {
    "objectives": Objective,
    "targets": Target,
    "cases": Case,
    "limits": Limits,
    "stages": Stage,
    "language": Language,
}
_OF_KEY: Final = "[key]"
"""Suffix that Pydantic adds to a location if the key is wrong, not the value."""
_MOST_MISTAKES: Final = 20_000
"""Limit on reported errors: each takes a kilobyte, and every value may have one."""

_MISSING: Final = {
    "objectives": "is missing: add an [[objectives]] with a name, such as name = 'gain', for each reward",
    "targets": "is missing: add a [[targets]] that counts as success, such as name = 'good', rule = 'gain >= 1' and"
    " unlock = true",
}


def parse_definition(definition: Mapping[str, Any]) -> Problem:
    """Return the problem of a definition in JSON values; errors have the path of the invalid value as ``where``."""
    problem, field_errors = examine(definition)
    if problem is None:
        raise invalid("the problem", field_errors)
    return problem


def examine(definition: Mapping[str, Any]) -> tuple[Problem | None, list[FieldError]]:
    """Return the problem, or None and all errors of the definition."""
    # Compiling them below takes hundreds of times the memory of the text.
    for what, text in (("seed program", definition.get("seed_program")), ("evaluator", definition.get("evaluator"))):
        if isinstance(text, str) and (size := len(text.encode("utf-8", "surrogatepass"))) > MAX_PROGRAM_BYTES:
            raise TooLargeError(f"the {what} has {size} bytes: expected at most {MAX_PROGRAM_BYTES}.")
    field_errors = [
        *_limit_field_errors(definition),
        *_rule_field_errors(definition),
        *_program_field_errors(definition),
        *_template_field_errors(definition),
    ]
    problem = None
    try:
        problem = Problem.model_validate(dict(definition))
    except ValidationError as error:
        field_errors = [*_mistakes(error), *field_errors]
    except RuleError as error:
        # The domain's validation stops at the first invalid rule; ``_rule_field_errors`` reports all of them.
        field_errors = field_errors or [FieldError(str(error), "targets")]
    field_errors += [
        unfit
        for unfit in storage_errors(definition)
        if not any(field_error.where.startswith(unfit.where) for field_error in field_errors)
    ]
    field_errors = [replace(each, label=label_of(each.where, definition)) for each in field_errors]
    return (None if field_errors else problem), field_errors


def label_of(where: str, definition: Mapping[str, Any]) -> str:
    """Return a path in words if an index is in it: with the name of the entry, or its number from 1."""
    key, *path = where.split(".")
    entries = definition.get(key)
    if not isinstance(entries, list | tuple) or not path or not path[0].isdecimal():
        return ""
    words = [key, *(f"value {int(part[:9]) + 1}" if part.isdecimal() else part for part in path)]
    index = int(path[0][:9])
    if key in _PARTS and index < len(entries):  # a key may look like a path
        name = entries[index].get("name") if isinstance(entries[index], Mapping) else None
        words[:2] = [f"{key.removesuffix('s')} {shorten(name) if isinstance(name, str) and name else index + 1}"]
    return ", ".join(words)


def _mistakes(error: ValidationError) -> list[FieldError]:
    if (count := error.error_count()) > _MOST_MISTAKES:
        return [FieldError(f"has {count} errors, too many to report: try it with a few of its cases first")]
    return [_field_error_of(each) for each in own_mistakes(error.errors())]


def _field_error_of(detail: ErrorDetails) -> FieldError:
    where = ".".join(str(part) for part in detail["loc"] if part != _OF_KEY)
    match detail["type"]:
        case "missing":
            return FieldError(_MISSING.get(where) or validation_message(detail), where)
        case "extra_forbidden":
            path = detail["loc"]
            model = _PARTS.get(str(path[0]), Problem) if len(path) > 1 else Problem
            return FieldError(f"unknown key {path[-1]!r}: expected one of {', '.join(model.model_fields)}", where)
        case "value_error":
            error = detail["ctx"]["error"]
            return FieldError(str(error), where or getattr(error, "where", ""))
        case _:
            return FieldError(f"{validation_message(detail)}, not {shorten(detail['input'])}", where)


def _limit_field_errors(definition: Mapping[str, Any]) -> list[FieldError]:
    """Return an error for each constraint without a limit, whose default would seldom be meant."""
    objectives = definition.get("objectives")
    return [
        FieldError(
            "a constraint needs its `limit`: the largest allowed value if minimized, else the smallest",
            f"objectives.{i}.role",
        )
        for i, entry in enumerate(objectives if isinstance(objectives, list | tuple) else ())
        if isinstance(entry, Mapping) and entry.get("role") == "constraint" and "limit" not in entry
    ]


def _rule_field_errors(definition: Mapping[str, Any]) -> list[FieldError]:
    objectives, targets = definition.get("objectives"), definition.get("targets")
    if not isinstance(objectives, list | tuple) or not isinstance(targets, list | tuple):
        return []
    names = [entry.get("name") for entry in objectives if isinstance(entry, Mapping)]
    if len(names) < len(objectives) or not all(isinstance(name, str) for name in names):
        return []  # "unknown objective" would blame the rule for an error of the objectives
    field_errors: list[FieldError] = []
    for i, target in enumerate(targets):
        rule = target.get("rule") if isinstance(target, Mapping) else None
        if not isinstance(rule, str) or not rule:
            continue
        try:
            parse_rule(rule, [str(name) for name in names])
        except RuleError as error:
            field_errors.append(FieldError(f"in {shorten(rule)}: {error}", f"targets.{i}.rule"))
    return field_errors


def _program_field_errors(definition: Mapping[str, Any]) -> list[FieldError]:
    kind = definition.get("kind")
    field_errors: list[FieldError] = []
    seed = definition.get("seed_program")
    if isinstance(seed, str) and seed and kind != ProblemKind.DATA.value:
        if definition.get("language") is None:
            field_errors += _seed_field_errors(seed, definition)
        try:
            find_blocks(seed)
        except MarkerError as error:
            field_errors.append(FieldError(error.message, "seed_program", line=error.line))
    evaluator = definition.get("evaluator")
    by_command = kind == ProblemKind.IN_PROCESS.value and definition.get("image") is not None  # any language
    if isinstance(evaluator, str) and evaluator.strip() and not by_command:
        missing = [
            python_field_errors(evaluator, where="evaluator", defines=name, awaited=True)
            for name in _functions(definition)
        ]
        field_errors += next(filter(None, missing), [])
    return field_errors


def stray_marker_note(program: str) -> str:
    if not has_stray_marker(program):
        return ""
    return (
        "the seed program contains EVOLVE-BLOCK-START, but on no line that holds only this mark and a comment sign:"
        " nothing is protected"
    )


def _seed_field_errors(seed: str, definition: Mapping[str, Any]) -> list[FieldError]:
    called = definition.get("entry_point", "solve") if definition.get("kind") == ProblemKind.CASES.value else None
    if definition.get("many_files") is not True:
        return python_field_errors(seed, where="seed_program", defines=called)
    try:
        files = files_of(seed)
    except FilesError:
        return []  # the domain's validation reports this
    return [
        field_error
        for name, text in files.items()
        for field_error in python_field_errors(
            text, where=f"seed_program.{name}", defines=called if name == PYTHON_MAIN else None
        )
    ]


def _template_field_errors(definition: Mapping[str, Any]) -> list[FieldError]:
    templates = definition.get("prompts")
    texts = templates if isinstance(templates, Mapping) else {}
    return [
        field_error
        for name in TemplateName
        if isinstance(text := texts.get(name.value), str) and text
        for field_error in template_field_errors(name, text, where=f"prompts.{name}")
    ]


def _functions(definition: Mapping[str, Any]) -> list[str | None]:
    scorer = {"evaluator": "evaluate", "in_process": "evaluate", "data": "score"}.get(str(definition.get("kind")))
    stages = definition.get("stages")
    if scorer is None or not stages or not isinstance(stages, list | tuple):
        return [scorer]
    return [
        stage.get("function") or f"{scorer}_{stage.get('name')}"
        for stage in stages
        if isinstance(stage, Mapping) and stage.get("evaluation") != "external"
    ]


def python_field_errors(program: str, *, where: str, defines: object = None, awaited: bool = False) -> list[FieldError]:
    """Return the errors of a Python program without executing it."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            tree = syntax_tree(program)
            compile(tree, where, "exec", dont_inherit=True)
    except SyntaxError as error:
        return [FieldError(f"does not compile as Python: {error.msg}", where, line=error.lineno, column=error.offset)]
    except (ValueError, RecursionError, MemoryError, OverflowError) as error:
        return [FieldError(f"does not compile as Python: {error or type(error).__name__}", where, line=1)]
    if not isinstance(defines, str):
        return []
    coroutines = {node.name for node in ast.walk(tree) if isinstance(node, ast.AsyncFunctionDef)}
    if defines in coroutines and not awaited:
        return [FieldError(f"defines {defines!r} as 'async def': expected 'def {defines}(...)'", where, line=1)]
    if top_level_names(tree).isdisjoint((defines, "*")):
        return [FieldError(f"defines no {defines!r}: expected 'def {defines}(...)' at the top level", where, line=1)]
    return []
