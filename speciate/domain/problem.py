"""A problem: its candidates, objectives, targets, limits and evaluator."""

import json
import math
from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from enum import StrEnum
from functools import cached_property
from typing import Any, ClassVar, Self

from pydantic import Field, JsonValue, model_validator

from speciate.domain.capabilities import capabilities_for
from speciate.domain.data_files import check_data_files
from speciate.domain.errors import InvalidFieldError
from speciate.domain.files import MODULE_FILE, PYTHON_MAIN, FilesError, files_of, sections_of
from speciate.domain.image import ImageFolder, ImageName
from speciate.domain.language import Exchange, LanguageOrName, complete_language
from speciate.domain.limits import Limits
from speciate.domain.objective import Objective, ObjectiveRole
from speciate.domain.ranking import Ranking
from speciate.domain.reward import RewardSpace
from speciate.domain.rollout import TemplateName, TemplateText
from speciate.domain.rule import Rule, parse_rule
from speciate.domain.stage import CascadeStage, EvaluatedBy, Stage, check_stages
from speciate.domain.target import Target, TargetSet
from speciate.domain.values import (
    MAX_PROGRAM_BYTES,
    Digested,
    FilePath,
    Finite,
    Identifier,
    ModuleName,
    Requirement,
    Slug,
    Value,
    digest_of,
)

BEST_FILE = "best.json"
"""Data file with the output of the best candidate so far, for problems with ``carry``."""
OUTPUT = "output"
"""Label of the note in which a script stores the output of a candidate (``carry`` of a problem)."""

_RESERVED = frozenset({"and", "or", "not"})
_NO_LIBRARIES = frozenset({"antigravity", "ensurepip", "evaluators", "idlelib", "lib2to3", "pip", "service"})
_NO_LIBRARIES |= {"sitecustomize", "speciate", "this", "turtledemo", "usercustomize", "venv", "workers"}
_PROGRAM_PARTS = frozenset({"__main__", "test", "tests"})
_TEXT_READERS = ("source", "vars(", "__dict__")


Mistakes = Iterator[tuple[str, str]]
"""Paths of fields with what is wrong with each."""


class Carry(StrEnum):
    """Output of earlier candidates that a candidate receives."""

    BEST = "best"
    """That of the best candidate of the run so far."""


class ProblemKind(StrEnum):
    CASES = "cases"
    """A program; its outputs are compared with expected ones."""
    EVALUATOR = "evaluator"
    """A program; the author's script calls it from another process."""
    DATA = "data"
    """A text or JSON document, scored by the author's function and never executed."""
    IN_PROCESS = "in_process"
    """A program that the author's script imports into its own process. It can forge its rewards."""


_CARRYING = (ProblemKind.EVALUATOR, ProblemKind.IN_PROCESS)


class Case(Value):
    """One input with its expected output, compared outside the candidate's process."""

    input: list[JsonValue] = Field(examples=[[26], [[3, 1, 2], "up"]])
    """Positional arguments of the entry point, as JSON values."""
    expected: JsonValue = Field(examples=[5])
    """Correct result, as a JSON value."""
    reward: Identifier | None = Field(default=None, examples=["large"])
    """Objective that this case counts towards: the share of its cases passed. Default: the first one."""
    tolerance: float = Field(default=0.0, ge=0, le=1, examples=[1e-6])
    """Largest absolute or relative difference at which two numbers are equal; 0 means exact."""
    hidden: bool = Field(default=False, examples=[True])
    """True to keep input and outcome out of prompts."""


class Problem(Digested):
    """A problem as registered; storage adds id and version."""

    omitted_at_default: ClassVar[frozenset[str]] = frozenset(
        {
            "prompts",
            "many_files",
            "evaluation",
            "capabilities",
            "requirements",
            "carry",
            "image",
            "writable",
            "worst_seed",
        }
    )

    slug: Slug = Field(examples=["circle-packing-26"])
    """Name: lower-case words joined by hyphens. All versions of a problem share it."""
    title: str = Field(min_length=1, max_length=200, examples=["26 circles in the unit square"])
    """Title, one line."""
    description: str = Field(
        default="", max_length=100_000, examples=["Define solve(n): the largest integer whose square is at most n."]
    )
    """Task as the policy reads it: the function to define, its signature, the rules."""
    source: str = Field(
        default="", max_length=2000, examples=["Knuth, The Art of Computer Programming, vol. 3, section 5.3.4"]
    )
    """Origin of the problem and of its record level."""
    kind: ProblemKind = Field(examples=["evaluator"])
    """Kind of candidate and of scoring."""
    objectives: tuple[Objective, ...] = Field(
        min_length=1, max_length=512, examples=[[{"name": "gain"}, {"name": "cost", "direction": "minimize"}]]
    )
    """Components of the reward vector, in this order."""
    targets: tuple[Target, ...] = Field(
        min_length=1, max_length=60, examples=[[{"name": "cheap", "rule": "gain >= 5 and cost < 9", "unlock": True}]]
    )
    """Named rules over the reward vector; exactly one unlocks the problem."""
    weights: dict[Identifier, Finite] | None = Field(default=None, examples=[{"gain": 3.0, "cost": 1.0}])
    """Weights ≥ 0 over objectives of role `objective`. Without them there is no scalar score."""
    seed_program: str = Field(default="", examples=["def solve(n):\n    return int(n ** 0.5)\n"])
    """Text of the first member of the population. Empty: candidates start from scratch."""
    entry_point: Identifier = Field(default="solve", examples=["integer_root"])
    """Function that a `cases` candidate defines."""
    evaluator: str = ""
    """Python script that defines `evaluate`, or `score` for kind `data`. Kind `cases` needs none."""
    files: dict[str, str] = Field(default_factory=dict, max_length=1024)
    """Further read-only files of the evaluator, by path: `context.files["PATH"]`; bytes as `data:;base64,…`."""
    cases: tuple[Case, ...] = Field(default=(), max_length=10_000)
    """Inputs and expected outputs, for kind `cases`."""
    data_files: dict[FilePath, str] = Field(default_factory=dict, max_length=1024)
    """Read-only files that candidates find in their folder `data`, by path; bytes as `data:;base64,…`."""
    preload: tuple[ModuleName, ...] = Field(default=("numpy",), max_length=16, examples=[["numpy", "scipy.optimize"]])
    """Modules imported before candidates and the script start. With `requirements` none by default."""
    requirements: tuple[Requirement, ...] = Field(default=(), max_length=512, examples=[["networkx==3.4", "numpy>=2"]])
    """Packages of the script and of candidates, instead of the worker's. Only wheels are installed."""
    stages: tuple[Stage, ...] = Field(
        default=(), max_length=16, examples=[[{"name": "quick", "objectives": ["short"], "needs": "short >= 0.5"}]]
    )
    """Evaluation cascade, cheapest stage first. Empty: everything is measured at once."""
    language: LanguageOrName | None = Field(default=None, examples=["rust"])
    """Language of programs that are not Python: the name of a known one, or its file and commands."""
    image: ImageName | None = Field(default=None, examples=["docker.io/library/python@sha256:" + 64 * "0"])
    """Container image, with its digest, in which programs are built and run; needs `language`."""
    writable: tuple[ImageFolder, ...] = Field(default=(), max_length=16, examples=[["/app"]])
    """Folders of the image that programs may write to: a fresh copy in memory for each call, of at most
    `limits.tmp_bytes`."""
    many_files: bool = Field(default=False, examples=[True])
    """True if a candidate is a set of files, each under a heading."""
    prompts: dict[TemplateName, TemplateText] = Field(default_factory=dict)
    """Prompt templates that replace the default ones, by name."""
    evaluation: EvaluatedBy = Field(default=EvaluatedBy.SANDBOX, examples=["external"])
    """`sandbox`, or `external`: programs outside the service lease candidates and submit rewards."""
    capabilities: tuple[Identifier, ...] = Field(default=(), max_length=16, examples=[["gpu"]])
    """What the machine of an external evaluator must offer; it names the same words when it leases."""
    carry: Carry | None = Field(default=None, examples=["best"])
    """`best`: candidates find the output of the best candidate so far in `data/best.json`. The script stores it as the
    note `output`."""
    worst_seed: bool = Field(default=False, examples=[True])
    """True if the seed program may have the worst value of every reward. Otherwise that counts as a failure of the
    evaluator, except with kind `cases`."""
    limits: Limits = Field(default=Limits(), examples=[{"wall_s": 10.0}])
    """Limits of one evaluation."""
    confirmations: int = Field(default=1, ge=0, le=20, examples=[3])
    """Repeated evaluations, with new seeds, before a target counts as met; ≥ 1 for kind `in_process`."""
    stochastic: bool = Field(default=False, examples=[True])
    """True if evaluations of one program differ, by their seed or by the machine, in every objective. Runs then
    evaluate the best programs again, rank by bounds and reuse no result."""

    @model_validator(mode="before")
    @classmethod
    def _complete(cls, fields: Any) -> Any:
        if not isinstance(fields, Mapping):
            return fields
        if fields.get("requirements") and "preload" not in fields:
            fields = {**fields, "preload": ()}
        if fields.get("language") is not None:
            runs = fields.get("kind") != ProblemKind.IN_PROCESS or fields.get("image") is not None
            fields = {**fields, "language": complete_language(fields["language"], runs=runs)}
        return fields

    @model_validator(mode="after")
    def _parts_fit(self) -> Self:
        for where, message in self._mistakes():
            raise InvalidFieldError(where, message)
        return self

    def _mistakes(self) -> Mistakes:
        """Check across fields; what follows a mistake may assume that it is not there, since the reader stops at it."""
        _refuse_repeats("objective", [o.name for o in self.objectives])
        _refuse_repeats("target", [t.name for t in self.targets])
        if reserved := sorted(_RESERVED.intersection(self.space.names)):
            yield (
                self._place_of(reserved[0]),
                f"objective {reserved[0]!r} is a word of the rule language: choose another name",
            )
        if not self.space.selected:
            yield "objectives", "no objective has role 'objective': search would have nothing to improve"
        if (unlocks := sum(t.unlock for t in self.targets)) != 1:
            yield "targets", f"{unlocks} targets are marked 'unlock = true': expected exactly one"
        for target in self.targets:
            parse_rule(target.rule, self.space.names)
        yield from self._mistakes_in_weights()
        yield from self._mistakes_in_kind()
        check_stages(self.stages, self.objectives, scripted=self.kind is not ProblemKind.CASES)
        yield from self._mistakes_in_external()
        if self.carry is not None and (self.kind not in _CARRYING or self.attested):
            yield "carry", "carry needs a script of kind 'evaluator' or 'in_process' that runs in the sandbox"
        check_data_files(self.data_files)
        for module in self.preload:
            parts = module.split(".")
            if parts[0] in _NO_LIBRARIES or not _PROGRAM_PARTS.isdisjoint(parts):
                yield "preload", f"preload names {module!r}, which is a program or a test and no library: remove it"
        if len(self.seed_program.encode("utf-8", "surrogatepass")) > MAX_PROGRAM_BYTES:
            yield "seed_program", f"the seed program is over {MAX_PROGRAM_BYTES} bytes"

    def _place_of(self, objective: str) -> str:
        return f"objectives.{self.space.names.index(objective)}.name"

    def _mistakes_in_weights(self) -> Mistakes:
        if self.weights is None:
            return
        if unknown := set(self.weights) - {o.name for o in self.space.selected}:
            yield "weights", f"weights name {min(unknown)!r}, which is not an objective of role 'objective'"
        if any(objective.estimated for objective in self.space.selected):
            yield "weights", "weights are in units of declared ranges: remove `estimated` of the objectives"
        if not self.weights or min(self.weights.values()) < 0 or not 0 < sum(self.weights.values()) < math.inf:
            yield "weights", "weights must be ≥ 0 with a positive sum: directions are declared on the objectives"

    def _mistakes_in_kind(self) -> Mistakes:
        if self.kind is ProblemKind.CASES:
            if self.evaluator.strip():
                yield "kind", "kind 'cases' compares answers with its cases: remove the evaluator"
            yield from self._mistakes_in_cases()
        elif not self.evaluator.strip() and not all(step.external for step in self.cascade):
            yield "kind", f"kind {self.kind.value!r} needs an evaluator script"
        elif self.cases:
            yield "kind", f"kind {self.kind.value!r} scores by its evaluator: remove the cases"
        elif self.kind is ProblemKind.IN_PROCESS and self.files:
            yield "kind", "kind 'in_process' reads no `files`: name them in `data_files` and open them in `data`"
        yield from self._mistakes_in_language()
        yield from self._mistakes_in_image()
        if self.many_files:
            yield from self._mistakes_in_files()
        if self.forgeable and self.confirmations < 1:
            yield "kind", "kind 'in_process' can be forged: confirmations must be at least 1"

    def _mistakes_in_language(self) -> Mistakes:
        if self.language is None:
            return
        if self.kind is ProblemKind.DATA:
            yield "kind", "kind 'data' has no language: candidates are texts"
        if self.kind is ProblemKind.IN_PROCESS and self.image is None:
            if self.language.run or self.language.build:
                yield "kind", "kind 'in_process': the script builds and runs programs: remove `build` and `run`"
        elif not self.language.run:
            yield "kind", f"kind {self.kind.value!r} runs programs by a command: `run` of the language is missing"

    def _mistakes_in_image(self) -> Mistakes:
        if self.image is None:
            if self.writable:
                yield "writable", "writable names folders of an image: the problem has no `image`"
            return
        if self.kind is ProblemKind.DATA:
            yield "image", "image: candidates of kind 'data' are texts that nothing executes: remove `image`"
        if self.language is None:
            yield "image", "image: programs run by a command in it: declare `language` with `name`, `file` and `run`"
        if self.kind is ProblemKind.CASES or self.kind is ProblemKind.EVALUATOR:
            return
        if self.stages or self.carry is not None:
            yield "image", "image: kind 'in_process' measures everything at once there: remove `stages` and `carry`"

    def _mistakes_in_external(self) -> Mistakes:
        if self.stages and self.evaluation is EvaluatedBy.EXTERNAL:
            yield "evaluation", "the problem has stages: declare evaluation = 'external' for the last one instead"
        if self.external_stage is None:
            if self.capabilities:
                yield "capabilities", "capabilities are those of external evaluators: this problem has none"
            return
        if self.kind not in (ProblemKind.EVALUATOR, ProblemKind.DATA):
            yield "kind", f"kind {self.kind.value!r} has no external evaluation: expected 'evaluator' or 'data'"
        for objective in self.external_stage.objectives:
            if objective.role is ObjectiveRole.OBJECTIVE and "range" not in objective.model_fields_set:
                message = "is measured externally: declare its range, because rewards beyond its better end are refused"
                yield self._place_of(objective.name), f"objective {objective.name!r} {message}"

    def _mistakes_in_cases(self) -> Mistakes:
        if not self.cases:
            yield "kind", "kind 'cases' needs at least one case"
        counted = {case.reward or self.objectives[0].name for case in self.cases}
        needed = [o.name for o in self.objectives if o.role is not ObjectiveRole.RECORD]
        if empty := [name for name in needed if name not in counted]:
            yield "cases", f"no case counts towards objective {empty[0]!r}"
        if unknown := counted - set(self.space.names):
            yield "cases", f"a case counts towards {min(unknown)!r}, which is not an objective"
        if self.language is not None and self.language.exchange is Exchange.TEXT:
            for place, case in enumerate(self.cases, 1):
                if [type(value) for value in (*case.input, case.expected)] != [str, str]:
                    message = (
                        f"a case, number {place}, is not one text as input and one as `expected`, which programs"
                        ' exchange: write both in quotes, or set `exchange = "json"` in `language`'
                    )
                    yield "cases", message

    def _mistakes_in_files(self) -> Mistakes:
        if self.kind not in (ProblemKind.CASES, ProblemKind.EVALUATOR):
            yield "many_files", f"many_files: a candidate of kind {self.kind.value!r} is one text"
        if not self.seed_program:
            return
        try:
            files = sections_of(self.seed_program)
        except FilesError as error:
            yield "seed_program", f"the seed program is not a set of files: {error}"
            return
        if wrong := self.wrong_files(files):
            yield "seed_program", f"the seed program {wrong}"

    def wrong_files(self, names: Collection[str]) -> str | None:
        """Return the mistake in the file names of a program, or None."""
        if self.main_file not in names:
            return f"has no main file {self.main_file!r}"
        if self.language is None and (other := [name for name in names if not MODULE_FILE.fullmatch(name)]):
            return f"has a file {other[0]!r}: expected Python modules, such as geometry.py"
        return None

    @property
    def main_file(self) -> str:
        """File of a program that is run, or that holds the entry point."""
        return PYTHON_MAIN if self.language is None else self.language.file

    def files_in(self, program: str) -> dict[str, str]:
        """Return the files of a candidate by name; a text that is no set of files is one file."""
        if self.many_files:
            try:
                return files_of(program)
            except FilesError:
                return {"candidate.txt": program}
        if self.kind is ProblemKind.DATA:
            return {"candidate.json" if _is_json(program) else "candidate.txt": program}
        return {self.main_file: program}

    @cached_property
    def space(self) -> RewardSpace:
        return RewardSpace(self.objectives)

    @cached_property
    def ranking(self) -> Ranking:
        return Ranking(self.space, self.targets, self.weight_vector)

    @property
    def rules(self) -> tuple[Rule, ...]:
        return self.ranking.rules

    @cached_property
    def cascade(self) -> tuple[CascadeStage, ...]:
        """The stages in order; a problem without stages has one that measures everything."""
        scorer = "score" if self.kind is ProblemKind.DATA else "evaluate"
        if not self.stages:
            return (CascadeStage("", self.objectives, scorer, external=self.evaluation is EvaluatedBy.EXTERNAL),)
        return tuple(
            CascadeStage(
                stage.name,
                tuple(o for o in self.objectives if o.name in stage.objectives),
                stage.function or f"{scorer}_{stage.name}",
                parse_rule(stage.needs, self.space.names) if stage.needs else None,
                stage.evaluation is EvaluatedBy.EXTERNAL,
            )
            for stage in self.stages
        )

    @property
    def external_stage(self) -> CascadeStage | None:
        """The last stage, if programs outside the service measure it."""
        return self.cascade[-1] if self.cascade[-1].external else None

    @property
    def attested(self) -> bool:
        """True if rewards are the word of an external evaluator: the service did not measure them."""
        return self.external_stage is not None

    @property
    def forgeable(self) -> bool:
        """True if a candidate shares a process with its scorer, and so can write any rewards."""
        return self.kind is ProblemKind.IN_PROCESS

    @property
    def repeatable(self) -> bool:
        """True if another run may reuse a result: it depends on no seed or other candidate, and cannot be forged."""
        return not self.is_noisy and not self.forgeable and self.carry is None

    @cached_property
    def noisy(self) -> tuple[bool, ...]:
        """Which of the d objectives differ between evaluations of one program."""
        return tuple(self.stochastic or objective.stochastic for objective in self.objectives)

    @property
    def is_noisy(self) -> bool:
        """True if evaluations of one program may differ in what the search selects on."""
        pairs = zip(self.noisy, self.objectives, strict=True)
        return any(noisy and objective.role is not ObjectiveRole.RECORD for noisy, objective in pairs)

    @property
    def worker_capabilities(self) -> frozenset[str]:
        """Requirements of a worker that evaluates candidates: programs, or the ability to run images."""
        return capabilities_for(self.image, self.writable, () if self.language is None else self.language.programs)

    @property
    def is_python(self) -> bool:
        return self.kind is not ProblemKind.DATA and self.language is None

    @property
    def scores_text(self) -> bool:
        """True if a score may depend on the text of a candidate: its scorer receives the text, or can read it."""
        match self.kind:
            case ProblemKind.CASES:
                return False
            case ProblemKind.EVALUATOR if not self.attested:
                # A script reads the text as ``candidate.source``, perhaps in another of its files.
                return any(word in text for text in (self.evaluator, *self.files.values()) for word in _TEXT_READERS)
        return True

    @cached_property
    def evaluator_digest(self) -> str:
        """SHA-256 of everything a score depends on except the candidate and the seed."""
        scored_by = {"kind", "objectives", "entry_point", "evaluator", "files", "cases"}
        scored_by |= {"data_files", "preload", "stages", "language", "limits", "many_files", "evaluation"}
        scored_by |= {"requirements", "carry", "image", "writable"}
        if self.attested:  # the external evaluator of another problem measures something else
            scored_by |= {"slug", "description"}
        return digest_of({name: value for name, value in self.stored_json().items() if name in scored_by})

    @cached_property
    def weight_vector(self) -> tuple[float, ...] | None:
        """The declared weights over the k selected objectives, summing to 1, or None."""
        return self.space.weight_vector(self.weights)

    def targets_met(self, rewards: Sequence[float], *, stopped_at: str | None = None) -> TargetSet:
        """Return the targets that a raw reward vector meets; an infeasible one meets none.

        Args:
            rewards: Shape (d,).
            stopped_at: First stage without measurements; targets on its objectives, or later ones, are not met.
        """
        if self.ranking.violations(rewards):
            return 0
        measured = self.measured_names(stopped_at)
        return sum(1 << i for i, rule in enumerate(self.rules) if rule.uses <= measured and rule.holds(rewards))

    def measured_names(self, stopped_at: str | None) -> frozenset[str]:
        """Return the objectives that a candidate has measurements of, if its first stage without is ``stopped_at``."""
        names = [step.name for step in self.cascade]
        steps = self.cascade if stopped_at is None else self.cascade[: names.index(stopped_at)]
        return frozenset(objective.name for step in steps for objective in step.objectives)

    def padded(self, measured: Mapping[str, float]) -> tuple[float, ...]:
        """Return measured rewards by objective as a vector; what is not measured has the worst end of its range."""
        return tuple(measured.get(objective.name, objective.worst) for objective in self.objectives)

    def scalarize(self, rewards: Sequence[float]) -> float | None:
        """Return the declared weighted sum of normalised rewards, or None without declared weights."""
        if self.weight_vector is None:
            return None
        return float(self.space.normalise([tuple(rewards)])[0] @ self.weight_vector)


def _is_json(text: str) -> bool:
    if text.lstrip()[:1] not in {"{", "["}:
        return False
    try:
        json.loads(text)
    except (ValueError, RecursionError):
        return False
    return True


def _refuse_repeats(what: str, names: Sequence[str]) -> None:
    name, count = Counter(names).most_common(1)[0]
    if count > 1:
        last = len(names) - 1 - names[::-1].index(name)
        raise InvalidFieldError(f"{what}s.{last}.name", f"{what} {name!r} is declared {count} times: names must differ")
