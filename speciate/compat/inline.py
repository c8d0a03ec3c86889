"""A problem from what lies there: a program and its evaluator, a directory, or the name of a bundled problem.

Nothing is written. Names of the rewards become known when the evaluator scores the program, so that this is done first.
"""

import ast
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final

from speciate.compat import Choice, read_directory
from speciate.compat.conversion import Converted, adjusted, convert
from speciate.compat.draft import PROBE, Draft, DraftRewards, Objectives
from speciate.compat.folder import ADAPTER, SCRIPT, read_plain
from speciate.compat.measuring import Score
from speciate.compat.naming import LANGUAGES, named_after
from speciate.compat.reading import read_configured, read_evaluated
from speciate.compat.settings import CONFIG, NOT_USED
from speciate.domain.errors import InvalidInputError, NotFoundError
from speciate.domain.problem import Problem
from speciate.domain.suggestions import did_you_mean
from speciate.domain.target import BETTER
from speciate.problems.definition import python_field_errors
from speciate.problems.loader import FILE_NAME, known_problems, load_problem
from speciate.problems.lockfile import UnreadableError
from speciate.problems.writing import toml_text
from speciate.prompts.python_source import top_level_names

_EXPECTED: Final = "Define evaluate(program_path), which returns a dict with combined_score, or a number."
_SYSTEMS: Final = {
    "shinka": ("initial", "evaluate.py"),
    "skydiscover": ("initial_program", "evaluator/evaluator.py"),
    "openevolve": ("initial_program", "evaluator.py"),
}
"""Program, without suffix, and evaluator of a directory, by system."""


def inline_problem(
    program: Path | str | None,
    evaluator: Path | str | None = None,
    *,
    score: Score | None,
    config: Path | str | None = None,
    maximize: Sequence[str] = (),
    minimize: Sequence[str] = (),
    targets: Sequence[str] = (),
    name: str | None = None,
    include: Sequence[str] = (),
    anyway: bool = False,
    **adjustments: Any,
) -> Converted:
    """Return the problem of a program and an evaluator.

    Args:
        program: A file; without an evaluator a directory, or the name of a bundled problem.
        evaluator: A file with ``evaluate(program_path)`` as for OpenEvolve, ``evaluate(candidate, context)`` as for
            problems of kind ``evaluator``, or a script as for ShinkaEvolve.
        config: OpenEvolve's ``config.yaml``; without a program, its folder is the directory.
        maximize: Names of numbers that the evaluator returns. By default ``combined_score`` or the only number.
        targets: Rules such as ``loss <= 0.1``, all to be met. By default any better value.
        include: Files to take although an import leaves them out.
        anyway: Accept a seed program without a positive score.
        adjustments: ``wall_s``, ``memory_mb``, ``limits`` and ``requirements`` of ``conversion.adjusted``.
    """
    settings = None if config is None else _file(config, "configuration")
    declared = None if evaluator is not None or program is None else _declared(Path(program))
    if declared is not None:
        if maximize or minimize or targets or settings or name or include or any(adjustments.values()):
            raise InvalidInputError(
                f"{program} declares its objectives, targets and limits in {FILE_NAME}.",
                remedy="Change them there, or give a program and an evaluator.",
            )
        return Converted(load_problem(declared))
    draft = adjusted(_draft(program, evaluator, settings, tuple(include)), slug=name, **adjustments)
    return convert(draft, score, maximize=maximize, minimize=minimize, targets=targets, anyway=anyway)


def same_inputs(one: Problem, other: Problem) -> bool:
    """Return True if two problems differ at most in what the evaluations of their seed programs have shown.

    A second command with the same program and evaluator measures other noise, and means the same problem.
    """
    return one == other or _inputs(one) == _inputs(other)


def _inputs(problem: Problem) -> dict[str, Any]:
    definition = problem.model_dump(mode="json")
    if not any(objective.estimated for objective in problem.objectives):
        return definition
    measured: dict[str, Any] = dict.fromkeys(("weights", "stochastic", "confirmations", "worst_seed"))
    if ADAPTER in problem.data_files:
        measured["evaluator"] = ""  # the author's lies among the data files; ours holds the ends of the ranges
    rules = [target.rule for target in problem.targets if target.name != BETTER]
    ranges = [{**each, "range": None} for each in definition["objectives"]]
    return definition | measured | {"targets": rules, "objectives": ranges}


def _declared(path: Path) -> Path | None:
    """Return the directory of a declared or bundled problem; None if the path is a directory of another system."""
    if path.is_dir():
        return path if (path / FILE_NAME).is_file() else None
    if path.name == FILE_NAME and path.is_file():
        return path.parent
    known = known_problems()
    if str(path) in known:
        return known[str(path)]
    if path.is_file():
        raise InvalidInputError(f"{path} is a program without an evaluator.", remedy=f"Name both files. {_EXPECTED}")
    raise NotFoundError(
        f"there is no {path}: expected a program, a directory or a bundled problem.",
        remedy=did_you_mean(str(path), known) or f"Bundled problems: {', '.join(known)}.",
    )


def _draft(
    program: Path | str | None, evaluator: Path | str | None, config: Path | None, include: tuple[str, ...]
) -> Draft:
    if program is None and evaluator is None and config is None:
        raise InvalidInputError("no program is named.", remedy=f"Name a program and an evaluator. {_EXPECTED}")
    if program is None or evaluator is None:
        folder = Path(program) if program is not None else (config or _file(str(evaluator), "evaluator")).parent
        return _named(_in_directory(folder, config, include), folder)
    path, script = _file(program, "program"), _file(evaluator, "evaluator")
    choice = Choice(str(path.absolute()), script.name, config, include, alone=True)
    return _named(_read(_system_of(script), script.parent, choice), script.parent)


def _in_directory(folder: Path, config: Path | None, include: tuple[str, ...]) -> Draft:
    for system, (stem, script) in _SYSTEMS.items():
        if (folder / script).is_file() and any((folder / f"{stem}{end}").exists() for end in (".py", "", *LANGUAGES)):
            choice = Choice(config=config, include=include)
            return _read(system if "/" in script else _system_of(folder / script), folder, choice)
    expected = ", ".join(f"{stem}.py and {script}" for stem, script in _SYSTEMS.values())
    raise NotFoundError(
        f"{folder} holds no problem: expected {FILE_NAME}, or {expected}.",
        remedy="Name the files: first the program, then the evaluator.",
    )


def _read(system: str, folder: Path, choice: Choice) -> Draft:
    if system == "speciate" and choice.config is not None:
        return read_configured(folder, choice, "", kind=_OwnDraft)
    if system == "speciate":
        return read_evaluated(folder, choice, "", kind=_OwnDraft, wall_s=_OWN_WALL_S)
    draft = read_directory(system, folder, choice)
    configured = (folder / CONFIG).is_file() and not any(NOT_USED in each for each in draft.remarks)
    if system == "openevolve" and choice.config is None and configured:
        used = f"of {CONFIG}, its system_message, evaluator and feature_dimensions are used"
        draft = replace(draft, remarks=(*draft.remarks, f"{used}; pass --config {folder / CONFIG} for the rest"))
    if draft.undeclared is Objectives.MEAN and choice.config is None and not configured:
        # Only who configures OpenEvolve expects its rule that the mean of all numbers counts.
        return replace(draft, undeclared=Objectives.SCORE)
    return draft


def _named(draft: Draft, folder: Path) -> Draft:
    slug, title = named_after(folder, "")
    remarks = tuple(remark for remark in draft.remarks if "no config.yaml" not in remark)
    return replace(draft, slug=slug, title=title, remarks=remarks)


def _file(path: Path | str, what: str) -> Path:
    if not Path(path).is_file():
        kind = "a directory" if Path(path).is_dir() else "not there"
        raise NotFoundError(f"the {what} {path} is {kind}: expected a file.", remedy="Check the path.")
    return Path(path)


def _system_of(script: Path) -> str:
    """Return whose contract an evaluator follows; ``InvalidInputError`` if it is not Python, or follows none."""
    try:
        text = read_plain(script.parent, script.name)
    except UnreadableError as error:
        raise InvalidInputError(f"{script} {error}.", remedy=_EXPECTED) from None
    if mistakes := python_field_errors(text, where=script.name):
        place = f":{mistakes[0].line}" if mistakes[0].line else ""
        raise InvalidInputError(
            f"{script}{place} {mistakes[0].message}.", remedy=f"Evaluators are written in Python. {_EXPECTED}"
        )
    tree = ast.parse(text)
    calls = [part for node in ast.walk(tree) if isinstance(node, ast.Call) for part in (node.func, *node.args)]
    used = {getattr(part, "attr", getattr(part, "id", getattr(part, "value", None))) for part in calls}
    used |= {node.name for node in ast.walk(tree) if isinstance(node, ast.alias)}
    if not used.isdisjoint(("run_shinka_eval", "--results_dir")):
        return "shinka"
    if "--output-file" in used:
        return "alphaevolve"
    functions = {each.name: each for each in tree.body if isinstance(each, ast.FunctionDef | ast.AsyncFunctionDef)}
    if not {"evaluate", "evaluate_stage1", "*"} & top_level_names(tree):
        there = f"defines {', '.join(functions)}" if functions else "defines no function"
        raise InvalidInputError(f"{script} {there}: expected 'evaluate'.", remedy=_EXPECTED)
    if "evaluate" not in functions:
        return "openevolve"
    arguments = functions["evaluate"].args
    required = len(arguments.posonlyargs) + len(arguments.args) - len(arguments.defaults)
    return "speciate" if required == 2 else "openevolve"  # a candidate and the context


@dataclass(frozen=True, slots=True)
class _OwnDraft(Draft):
    """A program with an evaluator of kind ``evaluator``, which drives it from another process."""

    def texts(self, rewards: DraftRewards) -> dict[str, str]:
        evaluator = self.options["evaluator"]
        # Any of them may hold the answers.
        beside = {name: text for name, text in self.files.items() if name not in (self.seed, evaluator)}
        definition = Draft._definition(self, rewards)
        definition |= {"kind": "evaluator", "files": [*beside], "data_files": []}
        definition["limits"].setdefault("script_s", self.wall_s)
        measured = f"{_MEASURED}evaluate = _speciate_measured(evaluate, {sorted(rewards.worst)!r})\n"
        script = {SCRIPT: self.files[evaluator] + measured, self.seed: self.files[self.seed]}
        return {FILE_NAME: toml_text(definition, {}), **script, **beside}


_MEASURED: Final = rf'''


def _speciate_measured(evaluate, names):
    import re

    async def wait(rewards):
        return await rewards

    def plain(value):
        return value.tolist() if hasattr(value, "tolist") else value

    def measured(candidate, context):
        rewards = evaluate(candidate, context)
        rewards = plain(__import__("asyncio").run(wait(rewards)) if hasattr(rewards, "__await__") else rewards)
        if isinstance(rewards, int | float):
            rewards = {{"score": rewards}}
        if not isinstance(rewards, dict):
            return rewards
        values = {{}}
        for name, each in rewards.items():
            identifier = re.sub(r"\W|^(?=\d)", "_", str(name), flags=re.ASCII)
            values[str(name) if identifier in values else identifier] = plain(each)
        others = {{name: value for name, value in values.items() if name not in names}}
        numbers = {{n: v for n, v in others.items() if type(v) in (int, float) and abs(v) < 1e308}}
        if numbers:
            text = "\n".join(f"{{name}} = {{value}}" for name, value in numbers.items())
            context.notes.insert(0, ("other metrics", text))
        for name in [name for name in others if name not in numbers]:
            context.note(name, others[name])
        values["{PROBE.name}"] = 0
        return {{name: values[name] for name in names if name in values}}

    return measured


'''
"""Makes an evaluator return what the problem declares, and note the rest; for a trial, that is all."""
_OWN_WALL_S: Final = 60.0
