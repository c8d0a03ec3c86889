"""Reads a directory made for OpenEvolve: ``initial_program.py``, ``evaluator.py``, ``config.yaml``, what lies there.

Of the configuration only what makes the problem is read: the system message, the timeout, the memory limit and the
cascade. Models, keys and how OpenEvolve would search are not looked at.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Annotated, Any, Final

import yaml
from pydantic import BaseModel, ConfigDict, Field, StringConstraints, ValidationError

from speciate.compat.draft import Draft
from speciate.compat.folder import read_folder, read_plain, refused
from speciate.compat.naming import named_after, remarks_on
from speciate.domain.errors import FieldError
from speciate.domain.validation import validation_message
from speciate.domain.values import Finite
from speciate.problems.siblings import UnreadableError

SEED: Final = "initial_program.py"
EVALUATOR: Final = "evaluator.py"
CONFIG: Final = "config.yaml"

_MAX_CONFIG_CHARS: Final = 1 << 16
_MAX_DEPTH: Final = 32
_OPENING: Final = (
    yaml.BlockMappingStartToken,
    yaml.BlockSequenceStartToken,
    yaml.FlowMappingStartToken,
    yaml.FlowSequenceStartToken,
)
_CLOSING: Final = (yaml.BlockEndToken, yaml.FlowMappingEndToken, yaml.FlowSequenceEndToken)
_NO_MESSAGE: Final = "system_message"
"""What the configuration says where there is none: the name of a template of OpenEvolve's own."""


class _Part(BaseModel):
    """A part of the configuration; keys that are not read are no mistake."""

    model_config = ConfigDict(frozen=True, extra="ignore", allow_inf_nan=False)


Message = Annotated[str, StringConstraints(max_length=100_000)]


class _PromptSection(_Part):
    system_message: Message = ""


class _Evaluator(_Part):
    timeout: float = Field(default=300.0, gt=0, le=3600)
    memory_limit_mb: int = Field(default=2048, ge=64, le=64 << 10)
    cascade_evaluation: bool = True
    cascade_thresholds: tuple[Finite, ...] = Field(default=(0.5, 0.75, 0.9), max_length=16)


class _Config(_Part):
    prompt: _PromptSection = _PromptSection()
    llm: _PromptSection = _PromptSection()
    evaluator: _Evaluator = _Evaluator()
    system_message: Message = ""
    language: str = "python"
    file_suffix: str = ".py"

    @property
    def message(self) -> str:
        """The system message, wherever it stands."""
        given = (self.prompt.system_message, self.llm.system_message, self.system_message)
        return next((text for text in given if text.strip() not in ("", _NO_MESSAGE)), "")


def read_openevolve(folder: Path) -> Draft:
    """Return what a directory holds.

    Raises:
        NotFoundError: There is no such directory, or a file that it needs is not there.
        InvalidInputError: A file of it cannot be used.
    """
    files, left_out = read_folder(folder, (SEED, EVALUATOR), without=(CONFIG,))
    config, remarks = _config_in(folder)
    slug, title = named_after(folder)
    options: dict[str, Any] = {}
    if config.evaluator.cascade_evaluation:
        options["thresholds"] = list(config.evaluator.cascade_thresholds)
    return Draft(
        slug=slug,
        title=title,
        seed=SEED,
        files=files,
        adapter="openevolve",
        options=options,
        description=config.message,
        wall_s=config.evaluator.timeout,
        memory_bytes=config.evaluator.memory_limit_mb << 20,
        remarks=(*remarks, *remarks_on(files, EVALUATOR, config.message)),
        left_out=left_out,
    )


def _config_in(folder: Path) -> tuple[_Config, list[str]]:
    if not os.path.lexists(folder / CONFIG):
        return _Config(), [f"there is no {CONFIG}: the limits are OpenEvolve's defaults"]
    try:
        values = _values_in(read_plain(folder, CONFIG))
        config = _Config.model_validate(values)
    except UnreadableError as error:
        raise refused(folder, FieldError(str(error), file=CONFIG)) from None
    except ValidationError as error:
        field_errors = error.errors()
        where = ".".join(str(part) for part in field_errors[0]["loc"])
        raise refused(folder, FieldError(validation_message(field_errors[0]), where, file=CONFIG)) from None
    if config.file_suffix != ".py" or config.language.lower() != "python":
        raise refused(folder, FieldError("candidates are not Python: expected file_suffix '.py'", file=CONFIG))
    return config, []


def _values_in(text: str) -> dict[str, Any]:
    """Return the values of a YAML text.

    Raises:
        UnreadableError: It is no YAML, not a table, or a bomb.
    """
    if len(text) > _MAX_CONFIG_CHARS:
        raise UnreadableError(f"is longer than {_MAX_CONFIG_CHARS} characters")
    try:
        _refuse_bombs(text)
        values = yaml.safe_load(text)
        if values is not None and not isinstance(values, dict):
            raise UnreadableError("is no table of settings")
        return _without_nothing(values or {})
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark
        place = "" if mark is None else f" in line {mark.line + 1}"
        raise UnreadableError(f"is not valid YAML{place}: {error.problem}") from None
    except (yaml.YAMLError, ValueError, RecursionError) as error:
        raise UnreadableError(f"is not valid YAML: {str(error)[:200]}") from None


def _refuse_bombs(text: str) -> None:
    """Raise where a short text would cost much: repeated parts can stand for gigabytes, nested ones take minutes."""
    depth = 0
    for token in yaml.scan(text, Loader=yaml.SafeLoader):
        line = token.start_mark.line + 1
        if isinstance(token, yaml.AliasToken):
            raise UnreadableError(f"repeats a part with *{token.value} in line {line}: expected it written out")
        depth += isinstance(token, _OPENING) - isinstance(token, _CLOSING)
        if depth > _MAX_DEPTH:
            raise UnreadableError(f"is nested more than {_MAX_DEPTH} deep in line {line}")


def _without_nothing(values: dict[Any, Any]) -> dict[str, Any]:
    """Return a table and the tables in it without keys that have no value: that means the default."""
    return {
        str(key): _without_nothing(value) if isinstance(value, dict) else value
        for key, value in values.items()
        if value is not None
    }
