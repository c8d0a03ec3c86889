"""Write a problem as ``problem.toml`` and the files beside it, so that ``load_problem`` returns an equal problem."""

import json
import re
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, Final

from speciate.domain.data_files import BINARY, bytes_of, content_of
from speciate.domain.errors import ConflictError
from speciate.domain.files import FilesError, files_of, text_of
from speciate.domain.objective import Objective, ObjectiveRole
from speciate.domain.problem import Problem, ProblemKind
from speciate.problems.loader import FILE_NAME
from speciate.problems.siblings import PLAIN_NAME, PLAIN_PATH, TEMPLATE_FOLDER, TEMPLATE_SUFFIX

_BARE_KEY: Final = re.compile(r"[A-Za-z0-9_-]+")
_CASES: Final = "cases.json"
_LINE_WIDTH: Final = 110


def write(texts: Mapping[str, str], folder: Path, *, remedy: str = "Name a new directory.") -> list[Path]:
    """Write files in a new or empty folder, else raise ``ConflictError``; return their paths. No files: only check."""
    try:
        if folder.exists() and any(folder.iterdir()):
            raise ConflictError(f"{folder} is not empty.", remedy=remedy)
        paths = [folder / name for name in texts]
        for path, content in zip(paths, texts.values(), strict=True):
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(bytes_of(content))
    except OSError as error:
        raise ConflictError(f"{error.filename or folder} cannot be written: {error.strerror}.") from None
    return paths


def with_ranges_of(problem: Problem, seen: Sequence[Mapping[str, float]]) -> Problem:
    """Return a problem whose estimated ranges are declared ones that reach the best of some rewards by name."""
    objectives = (o.widened([each[o.name] for each in seen]) if o.estimated else o for o in problem.objectives)
    declared = tuple(objective.model_copy(update={"estimated": False}) for objective in objectives)
    return problem.model_copy(update={"objectives": declared})


def problem_texts(problem: Problem) -> dict[str, str]:
    """Return the files of a problem's directory by name, ``problem.toml`` first."""
    definition = problem.model_dump(mode="json", exclude_defaults=True)
    definition["objectives"] = [objective_json(each) for each in problem.objectives]
    if problem.requirements:
        definition["preload"] = list(problem.preload)
    if "limits" in definition:  # one left out would follow from the others
        definition["limits"]["cpu_s"] = problem.limits.cpu_s
    folder = _Folder()
    folder.contents(definition, "data_files")
    folder.programs(problem, definition)
    if cases := definition.get("cases"):
        text = "[\n" + ",\n".join(json.dumps(case, ensure_ascii=False) for case in cases) + "\n]\n"
        # A definition cannot hold the null of a case, so another name is tried.
        definition["cases"] = folder.placed(_CASES, text) or folder.placed(f"problem_{_CASES}", text) or cases
    folder.contents(definition, "files")
    folder.prompts(definition)
    return {FILE_NAME: toml_text(definition, {}), **folder.files}


class _Folder:
    """Files beside a definition. What a file cannot hold without loss stays in the definition."""

    def __init__(self) -> None:
        self.files: dict[str, str] = {}

    def placed(self, name: str, text: str) -> str | None:
        """Add a text under a name and return that, or None if reading the file would give another text."""
        if text.startswith(BINARY) or not self._holds(name, text, "files"):
            return None
        self.files[name] = text
        return name

    def contents(self, definition: dict[str, Any], key: str) -> None:
        contents: Mapping[str, str] = definition.get(key, {})
        if contents and all(self._holds(path, content, key) for path, content in contents.items()):
            self.files |= contents
            definition[key] = list(contents)

    def _holds(self, path: str, content: str, key: str) -> bool:
        if not PLAIN_PATH.fullmatch(path) or path.endswith("/") or path == FILE_NAME:
            return False
        if key == "files" and ("\r" in content or content.startswith("\ufeff")):
            return False
        with suppress(ValueError):  # a text that begins like bytes
            return content_of(bytes_of(content)) == content == self.files.get(path, content)
        return False

    def programs(self, problem: Problem, definition: dict[str, Any]) -> None:
        seed, script = problem.seed_program, problem.evaluator
        if problem.many_files and seed:
            names: list[str] | str | None = self._sections(seed)
        else:
            same = next((path for path in self.files if self.files[path] == seed and "/" not in path), None)
            suffix = Path(problem.main_file).suffix if problem.kind is not ProblemKind.DATA else ".txt"
            names = self.placed(same or f"seed{suffix}", seed) if seed else None
        if names:
            definition["seed"] = names
            del definition["seed_program"]
        ending = ".py" if problem.image is None else ".sh"
        for name in (f"evaluate{ending}", f"evaluate_candidate{ending}"):
            if script and self.placed(name, script):
                definition["evaluator"] = name
                break

    def prompts(self, definition: dict[str, Any]) -> None:
        files = {f"{name}{TEMPLATE_SUFFIX}": text for name, text in definition.get(TEMPLATE_FOLDER, {}).items()}
        if files and all(self.placed(f"{TEMPLATE_FOLDER}/{name}", text) for name, text in files.items()):
            definition[TEMPLATE_FOLDER] = [*files]

    def _sections(self, seed: str) -> list[str] | None:
        try:
            files = files_of(seed)
            if text_of(files) != seed or not all(map(PLAIN_NAME.fullmatch, files)):
                return None
        except FilesError:
            return None
        return [*files] if all(self.placed(name, text) for name, text in files.items()) else None


def objective_json(objective: Objective) -> dict[str, Any]:
    fields = objective.model_dump(mode="json", exclude_defaults=True)
    fields["range"] = list(objective.range)
    if objective.role is not ObjectiveRole.RECORD:
        fields["direction"] = objective.direction.value
    if objective.role is ObjectiveRole.CONSTRAINT:
        fields["limit"] = objective.limit
    return {name: fields[name] for name in Objective.model_fields if name in fields}


def toml_text(definition: Mapping[str, Any], comments: Mapping[str, str]) -> str:
    """Return a definition in TOML; ``comments`` are by key, that of the empty key begins the text."""
    parts = [_comment(comments, "")]
    tables = {
        key
        for key, value in definition.items()
        if isinstance(value, Mapping) or (isinstance(value, list | tuple) and value and isinstance(value[0], Mapping))
    }
    plain = {key: value for key, value in definition.items() if key not in tables}
    parts += [f"{_comment(comments, key)}{_key(key)} = {_value(value)}" for key, value in plain.items()]
    for key in (key for key in definition if key in tables):
        value, comment = definition[key], "\n" + _comment(comments, key)
        entries = [("[{}]", value)] if isinstance(value, Mapping) else [("[[{}]]", entry) for entry in value]
        for i, (heading, entry) in enumerate(entries):
            lines = [f"{_key(name)} = {_value(each)}" for name, each in entry.items()]
            parts.append("\n".join([("\n" if i else comment) + heading.format(_key(key)), *lines]))
    return "\n".join(filter(None, parts)) + "\n"


def _comment(comments: Mapping[str, str], key: str) -> str:
    lines = "".join(f"# {line}\n" for line in comments.get(key, "").splitlines())
    return lines if key else lines.removesuffix("\n")


def _key(name: str) -> str:
    return name if _BARE_KEY.fullmatch(name) else _quoted(name)


def _value(value: Any) -> str:
    match value:
        case str():
            return _text_block(value) if "\n" in value else _quoted(value)
        case Mapping():
            return "{ " + ", ".join(f"{_key(name)} = {_value(each)}" for name, each in value.items()) + " }"
        case list() | tuple():
            items = [_value(each) for each in value]
            line = f"[{', '.join(items)}]"
            return line if len(line) <= _LINE_WIDTH else "[\n" + "".join(f"  {item},\n" for item in items) + "]"
        case _:
            return json.dumps(value, allow_nan=False)


def _quoted(text: str) -> str:
    return json.dumps(text, ensure_ascii=False).replace("\x7f", "\\u007f")


def _text_block(text: str) -> str:
    block = "\n".join(_quoted(line)[1:-1] for line in text.split("\n"))
    return '"""\n' + re.sub(r'\\"(?!(\\"){2}|\Z)', '"', block) + '"""'
