"""Log the metrics of a run to an experiment tracker: Trackio or Weights & Biases."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager, redirect_stdout
from dataclasses import dataclass, field
from importlib import import_module
from typing import TYPE_CHECKING, Any, Final

from speciate.cli import output
from speciate.domain.errors import ConfigurationError, InvalidInputError
from speciate.domain.event import EventKind
from speciate.domain.objective import Direction

if TYPE_CHECKING:
    from speciate.client import RunHandle
    from speciate.domain.problem import Problem
    from speciate.schema.runs import EventRecord

TRACKERS: Final[dict[str, dict[str, Any]]] = {
    "trackio": {"resume": "never", "auto_log_gpu": False, "auto_log_cpu": False},
    "wandb": {},
}
"""Further arguments of ``init`` by the name of the tracker's module; both have the interface of wandb."""

_INSTALL: Final = {"trackio": "pip install 'speciate[tracking]'", "wandb": "pip install wandb"}


@dataclass(frozen=True, slots=True)
class Tracker:
    """A tracker to log to."""

    name: str
    module: Any
    project: str
    """Project of the tracker; empty for the name of the problem."""


def load_tracker(text: str) -> Tracker:
    """Import the tracker of ``NAME`` or ``NAME:PROJECT``."""
    name, _, project = text.partition(":")
    if name not in TRACKERS:
        raise InvalidInputError(f"--log {text}: expected {' or '.join(TRACKERS)}, or NAME:PROJECT.")
    try:
        return Tracker(name, import_module(name), project)
    except ImportError:
        raise ConfigurationError(
            f"--log {name} requires {name}, which is not installed.", remedy=f"Run `{_INSTALL[name]}`."
        ) from None


@dataclass
class RunMetrics:
    """Metrics of a run, computed from its events in order."""

    problem: Problem
    step: int = 0
    """Evaluations spent."""
    values: dict[str, float] = field(default_factory=dict)
    """Latest value of each metric."""

    def add(self, event: EventRecord) -> bool:
        """Count an event; return True if a metric changed."""
        data: dict[str, Any] = dict(event.data)
        match event.kind:
            case EventKind.BATCH_PROPOSED:
                self._count("tokens", data["tokens"])
                return False  # the batch is logged when it is evaluated
            case EventKind.BATCH_EVALUATED:
                self._evaluated(data)
            case EventKind.TARGET_CONFIRMED:
                self.values[f"reached/{data['target']}"] = 1.0
            case _:
                return False
        return True

    def _evaluated(self, data: dict[str, Any]) -> None:
        self.step = int(data["evaluations"])
        self.values["evaluations"] = self.step
        self._count("archive_updates", len(data["archive"]))
        for candidate in data["candidates"]:
            self._count("failed", candidate["failure"] is not None)
            self._count("duplicates", candidate["duplicate_of"] is not None)
            rewards = candidate["rewards"]
            if rewards is not None and not self.problem.space.violation([rewards])[0]:
                self._keep_best(rewards)

    def _keep_best(self, rewards: list[float]) -> None:
        """Keep the best value of each objective, and of the weighted sum if weights are declared."""
        values = [(f"best/{o.name}", r, o.direction) for o, r in zip(self.problem.objectives, rewards, strict=True)]
        if (scalar := self.problem.scalarize(rewards)) is not None:
            values.append(("weighted_sum", scalar, Direction.MAXIMIZE))
        for name, value, direction in values:
            better = max if direction is Direction.MAXIMIZE else min
            self.values[name] = better(value, self.values.get(name, value))

    def _count(self, name: str, more: float) -> None:
        self.values[name] = self.values.get(name, 0) + more


class RunLog:
    """Logs the events of a run to an open tracker. If the tracker fails, it prints why and logs no more."""

    def __init__(self, tracker: Tracker, metrics: RunMetrics) -> None:
        self._tracker, self._metrics = tracker, metrics
        self._open = True

    def add(self, event: EventRecord) -> None:
        """Log the metrics after an event if it changed any."""
        if not self._metrics.add(event) or not self._open:
            return
        try:
            self._tracker.module.log(dict(self._metrics.values), step=self._metrics.step)
        except Exception as error:  # noqa: BLE001 - any error of the library
            self._open = False
            output.print_note(f"{self._tracker.name} failed, and the rest of the run is not logged: {error}")


@contextmanager
def open_log(tracker: Tracker, run: RunHandle) -> Iterator[RunLog]:
    """Open a run in the tracker; it receives the metrics of the whole run, from its first event."""
    record, module = run.record, tracker.module
    config = {
        "run": str(run.id),
        "problem": f"{record.problem}@{record.problem_version}",
        "policy": f"{record.policy}@{record.policy_version}",
        "mutator": record.mutator and f"{record.mutator}@{record.mutator_version}",
        "url": run.url,
        **record.spec.stored_json(),
    }
    name = f"{record.name or record.spec.strategy} {str(run.id)[-8:]}"
    # Standard output is for the watch: with --json it holds events only.
    with redirect_stdout(sys.stderr):
        try:
            module.init(project=tracker.project or record.problem, name=name, config=config, **TRACKERS[tracker.name])
        except Exception as error:
            raise ConfigurationError(f"{tracker.name} cannot be opened: {error}") from error
    try:
        yield RunLog(tracker, RunMetrics(run.problem().definition))
    finally:
        with redirect_stdout(sys.stderr):
            module.finish()
