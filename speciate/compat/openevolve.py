"""Read a directory made for OpenEvolve: ``initial_program.py``, ``evaluator.py``, ``config.yaml`` and other files.

The importer reads only those settings that define the problem: the system message, the timeout, the memory limit and
the cascade. It ignores models, keys and search settings.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Annotated, Any, Final

import yaml
from pydantic import BaseModel, ConfigDict, Field, StringConstraints, ValidationError

from speciate.compat.draft import Draft
from speciate.compat.folder import read_folder, read_plain, refused
from speciate.compat.naming import named_after, remarks_on, requirements_in
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
"""Value of a system message that is not set: the name of OpenEvolve's default template."""


class _Part(BaseModel):
    """A part of the configuration; ignores unknown keys."""

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
        """The system message, from either of its places."""
        given = (self.prompt.system_message, self.llm.system_message, self.system_message)
        return next((text for text in given if text.strip() not in ("", _NO_MESSAGE)), "")


def read_openevolve(folder: Path) -> Draft:
    """Read the problem in a directory.

    Raises:
        NotFoundError: The directory or a required file does not exist.
        InvalidInputError: A file in the directory cannot be used.
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
        requirements=requirements_in(folder)[0],
        remarks=(*remarks, *remarks_on(folder, files, EVALUATOR, config.message)),
        left_out=left_out,
    )


def _config_in(folder: Path) -> tuple[_Config, list[str]]:
    if not os.path.lexists(folder / CONFIG):
        return _Config(), [f"no {CONFIG} found: the limits are OpenEvolve's defaults"]
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
        UnreadableError: The text is not valid YAML, is not a table, or would take too much memory or time to parse.
    """
    if len(text) > _MAX_CONFIG_CHARS:
        raise UnreadableError(f"is longer than {_MAX_CONFIG_CHARS} characters")
    try:
        _refuse_bombs(text)
        values = yaml.safe_load(text)
        if values is not None and not isinstance(values, dict):
            raise UnreadableError("is not a table of settings")
        return _without_nothing(values or {})
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark
        place = "" if mark is None else f" in line {mark.line + 1}"
        raise UnreadableError(f"is not valid YAML{place}: {error.problem}") from None
    except (yaml.YAMLError, ValueError, RecursionError) as error:
        raise UnreadableError(f"is not valid YAML: {str(error)[:200]}") from None


def _refuse_bombs(text: str) -> None:
    """Reject short texts that are expensive to parse: aliases can expand to gigabytes, deep nesting takes minutes."""
    depth = 0
    for token in yaml.scan(text, Loader=yaml.SafeLoader):
        line = token.start_mark.line + 1
        if isinstance(token, yaml.AliasToken):
            raise UnreadableError(f"repeats a part with *{token.value} in line {line}: expected it written out")
        depth += isinstance(token, _OPENING) - isinstance(token, _CLOSING)
        if depth > _MAX_DEPTH:
            raise UnreadableError(f"is nested more than {_MAX_DEPTH} deep in line {line}")


def _without_nothing(values: dict[Any, Any]) -> dict[str, Any]:
    """Return a table, recursively without keys that have no value; such keys mean the default."""
    return {
        str(key): _without_nothing(value) if isinstance(value, dict) else value
        for key, value in values.items()
        if value is not None
    }
