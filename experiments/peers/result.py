"""One run as a line of the file of runs."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from experiments.peers.declaration import IMPOSSIBLE, Task
from experiments.peers.measure import Sample


@dataclass(frozen=True, slots=True)
class Result:
    """One run.

    Attributes:
        system: Name of the system.
        problem: Slug of the problem.
        seed: Seed.
        kind: ``search``, ``kill`` or ``forge``.
        evaluations: Evaluations; those with an impossible score count.
        gains: Number of each evaluation, from 1, that was better than all honest ones before, and its score.
        seconds: From the first to the last evaluation.
        processor_s: Processor time of all its processes in that time.
        halves: Processor seconds per evaluation in the first and in the second half.
        memory: Largest memory of its processes in bytes.
        finished: False if the time was over first.
        forged: Evaluations with an impossible score.
        sent_forged: Forged answers of the endpoint.
        survivors: Evaluations that are stored after the kill; None for other kinds.
        before: Evaluations at the kill.
        orphans: Processes that live on after the kill.
        tokens: Of the prompts and of the answers.
        note: What went wrong.
        version: Of the system.
        machine: Operating system and cores.
    """

    system: str
    problem: str
    seed: int
    kind: str
    evaluations: int
    gains: tuple[tuple[int, float], ...]
    seconds: float
    processor_s: float
    halves: tuple[float, float]
    memory: int
    finished: bool
    forged: int = 0
    sent_forged: int = 0
    survivors: int | None = None
    before: int = 0
    orphans: int = 0
    tokens: tuple[int, int] = (0, 0)
    note: str = ""
    version: str = ""
    machine: str = ""

    @property
    def curve(self) -> list[float]:
        """Best honest score after each evaluation."""
        best, curve = 0.0, []
        gains = dict(self.gains)
        for number in range(1, self.evaluations + 1):
            best = gains.get(number, best)
            curve.append(best)
        return curve

    @property
    def task(self) -> Task:
        """The task that it answers."""
        return Task(self.system, self.problem, self.seed, self.kind)


def gains_of(scores: Sequence[float]) -> tuple[tuple[int, float], ...]:
    """Return the gains of scores in the order of their evaluations; a failed one has 0."""
    best, gains = 0.0, []
    for number, value in enumerate(scores, 1):
        if best < value < IMPOSSIBLE:
            best = value
            gains.append((number, round(value, 9)))
    return tuple(gains)


def costs(samples: Sequence[Sample]) -> tuple[float, float, tuple[float, float], int]:
    """Return seconds, processor seconds, those per evaluation in both halves, and largest memory.

    The start is left out: everything counts from the first evaluation on.
    """
    first = next((s for s in samples if s.evaluations), samples[-1])
    last = next((s for s in samples if s.evaluations == samples[-1].evaluations), samples[-1])
    middle = min(samples, key=lambda s: abs(s.evaluations - (first.evaluations + last.evaluations) / 2))
    halves = (_per_evaluation(first, middle), _per_evaluation(middle, last))
    memory = max(s.memory for s in samples)
    return last.seconds - first.seconds, last.processor_s - first.processor_s, halves, memory


def _per_evaluation(start: Sample, end: Sample) -> float:
    return (end.processor_s - start.processor_s) / max(end.evaluations - start.evaluations, 1)


def append(path: Path, result: Result) -> None:
    """Write a result at the end of the file."""
    with path.open("a", encoding="utf-8") as file:
        file.write(json.dumps(asdict(result)) + "\n")


def read(path: Path) -> list[Result]:
    """Return the results of a file; none if it does not exist. A line that a kill cut off is left out."""
    found = []
    for line in path.read_text(encoding="utf-8").splitlines() if path.exists() else ():
        try:
            values = json.loads(line)
        except ValueError:
            continue
        values |= {name: tuple(values[name]) for name in ("halves", "tokens") if name in values}
        values["gains"] = tuple((number, value) for number, value in values["gains"])
        found.append(Result(**values))
    return found
