"""The small, complete problems that ``speciate problems init`` writes for an author to start from."""

import re
from enum import StrEnum
from pathlib import Path
from typing import Final

from speciate.domain.errors import ConflictError, InvalidInputError
from speciate.domain.known_languages import KNOWN, known_language
from speciate.domain.values import slug_of

_SLUG: Final = re.compile(r'(?m)^slug = "([^"]+)" *')
_DEFINE: Final = re.compile(r"Define `solve\((\w*)\)`: ")
SCHEMA: Final = Path(__file__).with_name("problem.schema.json")
"""JSON schema of ``problem.toml`` for editors, generated from the model by ``make reference``."""


class TemplateKind(StrEnum):
    """Kind of problem that has a template."""

    CASES = "cases"
    EVALUATOR = "evaluator"
    DATA = "data"


def example() -> dict[str, str]:
    return _files(TemplateKind.EVALUATOR, None)


def write_template(
    directory: Path, kind: TemplateKind = TemplateKind.EVALUATOR, language: str | None = None
) -> list[Path]:
    """Write a template and the schema into a directory, created if missing, and return the files.

    The problem takes the name of the directory. No file is written if one of them exists (``ConflictError``).
    """
    texts = _files(kind, language) | {SCHEMA.name: SCHEMA.read_text(encoding="utf-8")}
    definition = _SLUG.sub(
        lambda match: f'slug = "{slug_of(directory.resolve().name, match[1])}"'.ljust(38) + " ", texts["problem.toml"]
    )
    texts["problem.toml"] = f"#:schema ./{SCHEMA.name}\n{definition}"
    paths = [directory / name for name in texts]
    if present := [path for path in paths if path.exists()]:
        raise ConflictError(f"{present[0]} already exists.", remedy="Name a new directory, or move the file away.")
    directory.mkdir(parents=True, exist_ok=True)
    for path in paths:
        path.write_text(texts[path.name], encoding="utf-8")
    return paths


def _files(kind: TemplateKind, language: str | None) -> dict[str, str]:
    folder = Path(__file__).with_name("templates") / kind
    if language is None or (language.lower() == "python" and kind is not TemplateKind.DATA):
        return _texts(folder, next(folder.glob("seed.*")).name)
    if kind is TemplateKind.DATA:
        raise InvalidInputError("candidates of kind data are texts: omit the language.")
    spec = known_language(language)
    if spec is None or not (folder / spec.file).is_file():
        written = [key for key, each in KNOWN.items() if (folder / each.file).is_file()]
        raise InvalidInputError(
            f"there is no template in {language[:60]!r}: expected one of python, {', '.join(written)}.",
            remedy=f"Other languages of problem.toml: {', '.join(key for key in KNOWN if key not in written)}.",
        )
    texts = _texts(folder, spec.file)
    language_line = f'language = {{ name = "{spec.labels[0]}", exchange = "json" }}  # arguments and result as JSON'
    texts["problem.toml"] = _DEFINE.sub(
        lambda match: f"Read the list [{match[1]}] and print " if match[1] else "Print ",
        texts["problem.toml"].replace('seed = "seed.py"', f'{language_line}\nseed = "{spec.file}"'),
    )
    return texts


def _texts(folder: Path, seed: str) -> dict[str, str]:
    names = ("problem.toml", seed, "evaluate.py")
    return {name: (folder / name).read_text(encoding="utf-8") for name in names if (folder / name).is_file()}
