"""The best program of a run with the facts that explain it, printed or written to a directory."""

from __future__ import annotations

import json
import shutil
import sys
from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from speciate.cli.export import replaced_file
from speciate.cli.output import command_line, format_number, print_fields, sanitize
from speciate.domain.candidate import mark_of
from speciate.domain.errors import ConflictError, InvalidInputError, NotFoundError
from speciate.domain.numbers import short_number

if TYPE_CHECKING:
    from uuid import UUID

    from speciate.client import Client, RunHandle
    from speciate.schema.candidates import CandidateDetail
    from speciate.schema.problems import ProblemVersion
    from speciate.schema.runs import RankedCandidate, RunRecord

FACTS: Final = "best.json"
"""File with the facts; its field ``run`` distinguishes the directories of different runs."""

_FOLDER: Final = "program"
_MOST_COMPARED: Final = 12


@dataclass(frozen=True)
class BestProgram:
    """The best candidate of a run, or one of its front, and what is needed to explain it."""

    service: Client
    run: RunHandle
    problem: ProblemVersion
    ranked: RankedCandidate
    candidate: CandidateDetail

    @cached_property
    def files(self) -> dict[str, str]:
        """The files of the program, by path in the directory."""
        files = self.problem.definition.files_in(self.candidate.program)
        own = len(files) > 1 or self.problem.definition.many_files or FACTS in files
        return {f"{_FOLDER}/{name}" if own else name: text for name, text in files.items()}

    @cached_property
    def facts(self) -> dict[str, Any]:
        """The content of ``best.json``; ``docs/reference/cli.md`` lists its fields."""
        from speciate import __version__

        record, candidate, version = self.run.record, self.candidate, self.problem
        return {
            "run": str(record.id),
            "page": None if self.service.in_process else self.run.url,
            "problem": {
                "name": f"{record.problem}@{record.problem_version}",
                "digest": version.digest,
                "evaluator_digest": version.evaluator_digest,
            },
            "policies": list(self._policies()),
            "strategy": record.spec.searched_by,
            "strategy_options": record.spec.search_options,
            "seed": record.spec.seed,
            "candidate": candidate.number,
            "id": str(candidate.id),
            "parents": candidate.parents,
            "rewards": self.ranked.rewards,
            "evaluations": self.ranked.evaluations,
            "margin": self.ranked.margin,
            "scalar": candidate.scalar,
            "targets": list(self.ranked.targets),
            "confirmed": list(record.reached),
            "lineage": [
                {"number": each.number, "role": each.role.value, "parents": each.parents, "rewards": each.rewards}
                for each in self.service.candidates.lineage(candidate.id)
            ],
            "tier": candidate.tier,
            "mark": _mark(version),
            "program_hash": candidate.program_hash,
            "files": list(self.files),
            "speciate": __version__,
        }

    def _policies(self) -> Iterator[dict[str, str]]:
        record = self.run.record
        used = [(each.role.value, each.policy_id) for each in record.ensembles] or [("propose", record.policy_id)]
        if record.mutator_id is not None and not record.ensembles:
            used.append(("mutate", record.mutator_id))
        for role, policy_id in used:
            version = self.service.policies.get(policy_id)
            yield {"role": role, "name": version.name, "digest": version.digest}

    @property
    def default_directory(self) -> Path:
        return Path("best", f"{self.run.record.problem}-{str(self.run.id)[-8:]}")

    def write(self, directory: Path) -> Path:
        """Write program and facts, and return the path of the program: a file, or a folder if it has several.

        Raises:
            ConflictError: The directory holds something other than the best program of this run, or cannot be written.
        """
        require_free(directory, self.run.id)
        facts = json.dumps(self.facts, indent=2, allow_nan=False) + "\n"
        shutil.rmtree(directory / _FOLDER, ignore_errors=True)
        try:
            for name, text in (*self.files.items(), (FACTS, facts)):
                path = directory / name
                path.parent.mkdir(parents=True, exist_ok=True)
                with replaced_file(path) as part:
                    part.write_bytes(text.encode("utf-8", "replace"))
        except OSError as error:
            raise ConflictError(f"{directory} cannot be written: {error.strerror}.") from None
        return directory / (next(iter(self.files)) if len(self.files) == 1 else _FOLDER)

    def print_program(self) -> None:
        """Print the program: unchanged into a file or pipe, without control characters on a terminal."""
        text = self.candidate.program
        if sys.stdout.isatty():
            text = sanitize(text)
        sys.stdout.flush()
        sys.stdout.buffer.write((text if text.endswith("\n") else f"{text}\n").encode("utf-8", "replace"))
        sys.stdout.buffer.flush()

    def print_facts(self, written: Path | None, *, stderr: bool = False) -> None:
        """Print what ``best_fields`` returns, where the program was written, and its page if a service shows it."""
        print_fields(
            *(*best_fields(self.run), ("mark", _mark(self.problem)), ("written to", written)),
            ("page", None if self.service.in_process else self.run.url),
            stderr=stderr,
        )


def best_fields(run: RunHandle) -> list[tuple[str, str | None]]:
    record = run.record
    best = record.best
    if best is None:
        return [("best", f"none: {_why_none(run)}")] if record.candidates else []
    front, seed = len(run.front()), any(each.seed is not None for each in record.best_rewards)
    name = f"candidate {best.number:,}"
    if seed and best.number <= max(record.seeds, 1):
        nothing = "nothing better was found" if record.state.ended else "nothing better so far"
        name += f", {'a given' if record.seeds else 'the'} seed program: {nothing}"
    return [
        ("best", name),
        ("rewards", _rewards(record, best)),
        ("95 % interval", _interval(best)),
        ("weighted sum", format_number(best.scalar)),
        ("meets", ", ".join(best.targets) or "no target"),
        ("others meet", ", ".join(name for name in record.reached if name not in best.targets)),
        ("trade-offs", f"{front:,}: {command_line('best', run.id, '--front')}" if front > 1 else None),
    ]


def _interval(best: RankedCandidate) -> str | None:
    margins = ", ".join(f"{name} ± {short_number(margin, 2)}" for name, margin in best.margin.items())
    known = [f"{margins}, from {best.evaluations} evaluations after the end"] if margins else []
    failed = [f"{best.failed_after_end} evaluations after the end failed"] if best.failed_after_end else []
    return "; ".join([*known, *failed]) or None


def _rewards(record: RunRecord, best: RankedCandidate) -> str:
    """Return the rewards of the best candidate: objectives beside the seed program's, then records; at most twelve."""
    compared = {each.objective: str(each) for each in record.best_rewards}
    others = (f"{name} {short_number(value)}" for name, value in best.rewards.items() if name not in compared)
    texts = [*compared.values(), *others]
    more = len(texts) - _MOST_COMPARED
    return ", ".join(texts[:_MOST_COMPARED]) + (f" and {more:,} more" if more > 0 else "")


def find_best_program(service: Client, run: RunHandle) -> BestProgram:
    """Return a run's best candidate; ``NotFoundError``, which names the nearest one, if none is feasible."""
    best = run.record.best
    if best is None:
        raise NotFoundError(_why_none(run), remedy=f"See `{command_line('candidates list', run.id)}`.")
    return BestProgram(service, run, run.problem(), best, run.candidate(best.number))


def check_out_options(out: Path | None, *, no_out: bool, watch: bool = True) -> None:
    """Reject options about the directory that contradict each other or have no effect."""
    if no_out and out is not None:
        raise InvalidInputError("--out and --no-out exclude each other.", remedy="Leave one of them out.")
    if no_out and not watch:
        raise InvalidInputError("--no-out needs --watch: otherwise nothing is written.", remedy="Leave it out.")


def require_free(directory: Path, run_id: UUID | None) -> None:
    """Check that writing into a directory overwrites nothing but files of the same run."""
    with suppress(OSError):
        if not directory.exists() or (directory.is_dir() and not any(directory.iterdir())):
            return
    if (owner := _owner(directory)) is None or owner != str(run_id):
        what = f"the answer of run {owner}" if owner else "other files"
        raise ConflictError(f"{directory} holds {what}.", remedy="Choose another directory with --out DIR.")


def remove_others(folder: Path, run_id: UUID, front: Iterable[RankedCandidate]) -> None:
    """Remove the programs of a run that were written below a folder, by number, when they were still on its front."""
    numbers = {str(each.number) for each in front}
    for directory in folder.glob("[0-9]*"):
        if directory.name.isdecimal() and directory.name not in numbers and _owner(directory) == str(run_id):
            shutil.rmtree(directory, ignore_errors=True)


def _owner(directory: Path) -> Any:
    """Return the run whose program is in a directory, or None."""
    try:
        return json.loads((directory / FACTS).read_text(encoding="utf-8"))["run"]
    except (OSError, ValueError, LookupError, TypeError):
        return None


def _why_none(run: RunHandle) -> str:
    """Return a sentence about the nearest candidate of a run without a feasible one."""
    elites = [cell.elite for cell in run.archive()]
    none = f"run {run.id} has no feasible candidate"
    if not elites:
        return f"{none}: {run.record.no_result or f'none of its {run.record.candidates:,} candidates has rewards'}."
    definition = run.problem().definition
    vectors = [tuple(elite.rewards.values()) for elite in elites]
    at = definition.ranking.nearest(vectors)
    known = definition.measured_names((nearest := run.candidate(elites[at].number)).stopped_at)
    missing = "; ".join(str(each) for each in definition.ranking.violations(vectors[at]) if each.name in known)
    missing = missing or f"it stopped before stage {nearest.stopped_at}"
    return f"{none}. The nearest is candidate {nearest.number:,}: {missing}."


def _mark(version: ProblemVersion) -> str:
    problem = version.definition
    return mark_of(attested=problem.attested, forgeable=problem.forgeable)
