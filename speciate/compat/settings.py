"""Settings in the YAML configuration of OpenEvolve and SkyDiscover: those of the problem, and what a search can take.

Models and keys are ignored, and settings of another system's search.
"""

import os
from pathlib import Path
from typing import Annotated, Any, Final

from pydantic import BaseModel, ConfigDict, Field, StringConstraints, ValidationError, model_validator

from speciate.compat.folder import read_plain, refused
from speciate.domain.validation import first_mistake
from speciate.domain.values import Finite
from speciate.problems.lockfile import UnreadableError

CONFIG: Final = "config.yaml"
MOST_S: Final = 86_400.0
NOT_USED: Final = "is not used: it"

_MAX_CONFIG_CHARS: Final = 1 << 16
_MAX_ALIASES: Final = 16
_NO_MESSAGE: Final = "system_message"
"""Value of a system message that is not set: the name of OpenEvolve's default template."""


class _Part(BaseModel):
    """A part of the configuration; what it does not declare is not used."""

    model_config = ConfigDict(frozen=True, extra="allow", allow_inf_nan=False)

    @model_validator(mode="before")
    @classmethod
    def _drop_unset(cls, values: Any) -> Any:
        if not isinstance(values, dict):
            return values
        return {str(key): value for key, value in values.items() if value is not None}


Message = Annotated[str, StringConstraints(max_length=100_000)]


class _PromptSection(_Part):
    system_message: Message = ""


class _Models(_PromptSection):
    temperature: float | None = Field(default=None, ge=0, le=10)
    max_tokens: int | None = Field(default=None, ge=1, le=1_000_000)


class _Evaluator(_Part):
    timeout: float = Field(default=300.0, gt=0)
    memory_limit_mb: int = Field(default=2048, ge=64, le=64 << 10)
    cascade_evaluation: bool = True
    cascade_thresholds: tuple[Finite, ...] = Field(default=(0.5, 0.75, 0.9), max_length=16)


class _Database(_Part):
    feature_dimensions: tuple[str, ...] = Field(default=("complexity", "diversity"), max_length=64)


class Settings(_Part):
    """The settings of a configuration that are used."""

    max_iterations: int | None = Field(default=None, ge=1)
    random_seed: int | None = Field(default=None, ge=0, lt=2**63)
    prompt: _PromptSection = _PromptSection()
    llm: _Models = _Models()
    evaluator: _Evaluator = _Evaluator()
    database: _Database = _Database()
    system_message: Message = ""
    file_suffix: str = ".py"

    @property
    def message(self) -> str:
        messages = (self.prompt.system_message, self.llm.system_message, self.system_message)
        return next((text for text in messages if text.strip() not in ("", _NO_MESSAGE)), "")


def settings_in(folder: Path, config: Path | None = None, *, alone: bool = False) -> tuple[Settings, list[str]]:
    """Return the settings of a configuration, by default ``config.yaml`` of the folder, and notes about them.

    Of one that the user names, a note lists what is not used. With ``alone`` (``read_folder``) the folder's own may
    belong to anything else: one without any of these settings is left out.
    """
    if config is not None:
        settings, remarks = _settings_of(config.parent, config.name, [])
        unused = [
            f"{name}.{each}" for name, part in settings if isinstance(part, _Part) for each in part.model_extra or ()
        ]
        unused += settings.model_extra or ()
        return settings, remarks + ([f"{config.name}: not used: {', '.join(unused)}"] if unused else [])
    name, remarks = CONFIG, []
    if not os.path.lexists(folder / CONFIG):
        others = sorted(path.name for path in folder.glob("config*.yaml")) if folder.is_dir() else []
        if not others:
            return Settings(), [f"no {CONFIG} found: the limits are the other system's defaults"]
        name, remarks = others[0], [f"no {CONFIG} found: the settings are those of {others[0]}"]
    if alone:
        try:
            values = _values_in(read_plain(folder, name))
            parts = (values.get(each) or {} for each in ("prompt", "llm", "evaluator", "database"))
            if values.keys() & Settings.model_fields and all(isinstance(each, dict) for each in parts):
                return _settings_of(folder, name, remarks)
            foreign = "has no setting of OpenEvolve that is used"
        except UnreadableError as error:
            foreign = str(error)
        return Settings(), [f"{name} {NOT_USED} {foreign}"]
    return _settings_of(folder, name, remarks)


def _settings_of(folder: Path, name: str, remarks: list[str]) -> tuple[Settings, list[str]]:
    try:
        settings = Settings.model_validate(_values_in(read_plain(folder, name)))
    except UnreadableError as error:
        raise refused(folder, error, name) from None
    except ValidationError as error:
        where, message = first_mistake(error)
        raise refused(folder, message, name, where) from None
    if settings.evaluator.timeout > MOST_S:
        remarks.append(
            f"{name} allows {settings.evaluator.timeout:g} seconds: reduced to {MOST_S:g}, the longest possible"
        )
    return settings, remarks


def _values_in(text: str) -> dict[str, Any]:
    """Return the values of a YAML text; ``UnreadableError`` if it is no table, or could expand to gigabytes."""
    import yaml

    if len(text) > _MAX_CONFIG_CHARS:
        raise UnreadableError(f"is longer than {_MAX_CONFIG_CHARS} characters")
    try:
        aliases = sum(isinstance(token, yaml.AliasToken) for token in yaml.scan(text, Loader=yaml.SafeLoader))
        if aliases > _MAX_ALIASES:  # each may double what merged tables hold
            raise UnreadableError(f"has {aliases} aliases: expected at most {_MAX_ALIASES}")
        values = yaml.safe_load(text) or {}
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark
        place = "" if mark is None else f" in line {mark.line + 1}"
        raise UnreadableError(f"is not valid YAML{place}: {error.problem}") from None
    except (yaml.YAMLError, ValueError, RecursionError) as error:
        raise UnreadableError(f"is not valid YAML: {str(error)[:200]}") from None
    if not isinstance(values, dict):
        raise UnreadableError("is not a table of settings")
    return values
