"""What ``speciate.evolve`` returns."""

from __future__ import annotations

import json
import shutil
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from html import escape
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from speciate.client import notebook
from speciate.domain.errors import NotFoundError
from speciate.domain.problem import Problem
from speciate.problems.writing import write
from speciate.schema.candidates import CandidateDetail
from speciate.schema.runs import RunRecord

if TYPE_CHECKING:
    from speciate.evolution.task import Evolution

_MOST_OF_FRONT: Final = 100
_FACTS: Final = "result.json"
_HISTORY: Final = "history.jsonl"


@dataclass(frozen=True, repr=False)
class Result:
    """Outcome of a run. A notebook shows the best program with its rewards."""

    run: RunRecord
    """State, reason, what was spent, targets reached."""
    problem: Problem
    seed: Mapping[str, float]
    """Rewards of the seed program by name."""
    front: Sequence[CandidateDetail] = field(repr=False)
    """Candidates that no other one dominates, best first, each with ``program`` and ``rewards``; at most 100."""
    history: Any = field(repr=False)
    """All candidates by number: a ``pandas.DataFrame`` if pandas is installed, else a list of dicts."""
    _best: CandidateDetail | None = None

    @property
    def best(self) -> CandidateDetail:
        """The best candidate: ``program``, ``rewards``, ``number``, ``targets``.

        Raises:
            NotFoundError: No candidate meets the constraints.
        """
        if self._best is None:
            raise NotFoundError(f"run {self.run.id} has no feasible candidate: {self.run.cause or 'none was scored'}.")
        return self._best

    @property
    def changes(self) -> dict[str, float]:
        """Differences of the best rewards from the seed's, by name."""
        return {name: value - self.seed[name] for name, value in (self.best.rewards or {}).items() if name in self.seed}

    def save(self, directory: Path | str) -> Path:
        """Write the best program, the front, the history and the facts, and return the path of the program.

        What an earlier call wrote is overwritten.

        Raises:
            ConflictError: The directory holds other files, or cannot be written.
        """
        files = dict(self.problem.files_in(self.best.program))
        for each in self.front if len(self.front) > 1 else ():
            files |= {f"front/{each.number}/{name}": text for name, text in self.problem.files_in(each.program).items()}
        facts: dict[str, Any] = {"best": self.best.number, "rewards": self.best.rewards, "seed": dict(self.seed)}
        facts |= {"run": self.run.model_dump(mode="json"), "files": [*files, _FACTS, _HISTORY]}
        rows = self.history
        if not isinstance(rows, list):  # pandas has NaN for what is missing
            rows = rows.astype(object).where(rows.notna(), None).to_dict("records")
        files[_FACTS] = json.dumps(facts, indent=2, allow_nan=False) + "\n"
        files[_HISTORY] = "".join(json.dumps(row, default=str, allow_nan=False) + "\n" for row in rows)
        folder = Path(directory)
        with suppress(OSError, ValueError, LookupError, TypeError):
            saved = {folder / name for name in json.loads((folder / _FACTS).read_text())["files"]}
            if saved.issuperset(each for each in folder.rglob("*") if not each.is_dir()):
                shutil.rmtree(folder)
        return write(files, folder)[0]

    def __repr__(self) -> str:
        best = "nothing feasible" if self._best is None else ", ".join(map(str, self.run.best_rewards))
        state = self.run.state.value + (f": {self.run.cause}" if self.run.cause else "")
        return f"<{self.run.problem}, {state}, {self.run.spent.evaluations:,} evaluations: {best}>"

    def _repr_html_(self) -> str:
        head = f"<p>{escape(repr(self)[1:-1])}</p>"
        return head if self._best is None else head + (self._best._repr_html_() or "")


def result_of(evolution: Evolution) -> Result:
    run = evolution.run
    best = run.best()
    ranked = [*run.front()[:_MOST_OF_FRONT]]
    if run.record.best is not None and len(evolution.problem.problem.space.selected) == 1:
        ranked = [run.record.best]  # of noisy rewards others have means from before the end, which luck may have raised
    # The run's own means: a candidate's are of the evaluations before the end.
    rewards = {each.number: dict(each.rewards) for each in (*ranked, run.record.best) if each is not None}
    front = [run.candidate(each.number).model_copy(update={"rewards": rewards[each.number]}) for each in ranked]
    best = best and best.model_copy(update={"rewards": rewards[best.number]})
    rows = notebook.rows(run.candidates())
    history = notebook.frame(rows) if find_spec("pandas") else rows
    seed = dict(evolution.problem.seed)
    if not seed and run.record.evaluated:
        seed = run.candidate(1).rewards or {}
    seed |= {each.objective: each.seed for each in run.record.best_rewards if each.seed is not None}
    return Result(run.record, evolution.problem.problem, seed, front, history, best)
