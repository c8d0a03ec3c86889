"""Log a run to an experiment tracker: MLflow, TensorBoard, Trackio or Weights & Biases."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, redirect_stdout
from dataclasses import dataclass, field
from functools import partial
from importlib import import_module
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any, Final

from speciate.cli import output
from speciate.domain.errors import ConfigurationError, InvalidInputError
from speciate.domain.event import EventKind
from speciate.domain.objective import Direction

if TYPE_CHECKING:
    from speciate.client import RunHandle
    from speciate.domain.problem import Problem
    from speciate.schema.runs import EventRecord


class _Wandb:
    """A module with the interface of wandb; ``options`` are further arguments of its ``init``."""

    def __init__(self, module: Any, **options: Any) -> None:
        self._module, self._options = module, options

    def init(self, project: str, name: str, config: dict[str, Any]) -> None:
        self._module.init(project=project, name=name, config=config, **self._options)
        self.log, self.finish = self._module.log, self._module.finish  # wandb defines them anew in ``init``

    def save(self, folder: str, name: str) -> None:
        self._module.log_artifact(folder, name=name, type="program")


class _MLflow:
    def __init__(self, module: Any) -> None:
        self._module, self.log = module, module.log_metrics
        self.save, self.finish = module.log_artifacts, module.end_run

    def init(self, project: str, name: str, config: dict[str, Any]) -> None:
        self._module.set_experiment(project)
        self._module.start_run(run_name=name)
        self._module.log_params(config)


class _TensorBoard:
    def __init__(self, module: Any) -> None:
        self._module, self._step = module, 0

    def init(self, project: str, name: str, config: dict[str, Any]) -> None:
        self._writer = self._module.SummaryWriter(str(Path("runs", project, name.replace("/", "-"))))
        self._writer.add_text("config", f"```json\n{json.dumps(config, indent=2)}\n```")

    def log(self, values: Mapping[str, float], *, step: int) -> None:
        self._step = step
        for name, value in values.items():
            self._writer.add_scalar(name, value, step)

    def save(self, folder: str, name: str) -> None:
        from speciate.prompts.text import fenced

        for path in sorted(path for path in Path(folder).rglob("*") if path.is_file()):
            text = fenced(path.read_text(encoding="utf-8"))
            self._writer.add_text(f"{name}/{path.relative_to(folder)}", text, self._step)

    def finish(self) -> None:
        self._writer.close()


TRACKERS: Final[dict[str, tuple[str, Callable[[Any], Any]]]] = {
    "mlflow": ("mlflow", _MLflow),
    "tensorboard": ("tensorboardX", _TensorBoard),
    "trackio": ("trackio", partial(_Wandb, resume="never", auto_log_gpu=False, auto_log_cpu=False)),
    "wandb": ("wandb", _Wandb),
}
"""Module of each tracker, and its adapter: ``init``, ``log`` of metrics, ``save`` of a folder, and ``finish``.

The name is that of the extra that installs the module.
"""


@dataclass(frozen=True, slots=True)
class Tracker:
    name: str
    adapter: Any
    project: str
    """Project of the tracker; empty for the name of the problem."""


def load_tracker(text: str | None) -> Tracker | None:
    """Import the tracker of ``NAME`` or ``NAME:PROJECT``, if any is given."""
    if text is None:
        return None
    name, _, project = text.partition(":")
    if name not in TRACKERS:
        raise InvalidInputError(f"--log {text}: expected {', '.join(TRACKERS)}, or NAME:PROJECT.")
    module, adapter = TRACKERS[name]
    try:
        return Tracker(name, adapter(import_module(module)), project)
    except ImportError:
        raise ConfigurationError(
            f"--log {name} requires {module}, which is not installed.", remedy=f"Run `pip install 'speciate[{name}]'`."
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
            self._count("duplicates", candidate.get("repetition", False))
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
    """Logs a run to an open tracker. If the tracker fails, it prints why and logs no more."""

    def __init__(self, tracker: Tracker, run: RunHandle) -> None:
        self._tracker, self._run = tracker, run
        self._metrics = RunMetrics(run.problem().definition)
        self._open = True

    def add(self, event: EventRecord) -> None:
        """Log the metrics after an event if it changed any."""
        if self._metrics.add(event):
            self.log()

    def log(self) -> None:
        """Log the latest metrics."""
        spent, step = self._run.record.spent, self._metrics.step
        # Events tell no costs, and the record may be newer than the event.
        if spent.cost and step >= spent.evaluations:
            self._metrics.values["dollars"] = spent.cost
        self._call(lambda: self._tracker.adapter.log(dict(self._metrics.values), step=step))

    def save(self, files: Mapping[str, str]) -> None:
        """Store the files of the best program, by path."""
        with TemporaryDirectory() as folder:
            for name, text in files.items():
                path = Path(folder, name)
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_text(text, encoding="utf-8", errors="replace")
            self._call(lambda: self._tracker.adapter.save(folder, f"best-{str(self._run.id)[-8:]}"))

    def finish(self) -> None:
        """Close the run in the tracker, also after a failure."""
        self._open = True
        self._call(self._tracker.adapter.finish)

    def _call(self, action: Callable[[], object]) -> None:
        if not self._open:
            return
        try:
            with redirect_stdout(sys.stderr):
                action()
        except Exception as error:  # noqa: BLE001 - any error of the library
            self._open = False
            output.print_note(f"{self._tracker.name} failed, and the rest of the run is not logged: {error}")


@contextmanager
def open_log(tracker: Tracker, run: RunHandle) -> Iterator[RunLog]:
    """Open a run in the tracker; it receives the metrics of the whole run, from its first event."""
    record = run.record
    config = {
        "run": str(run.id),
        "problem": f"{record.problem}@{record.problem_version}",
        "policy": record.policies_of("propose"),
        "mutator": record.policies_of("mutate") or None,
        "url": run.url,
        **record.spec.stored_json(),
    }
    name = f"{record.name or record.spec.searched_by} {str(run.id)[-8:]}"
    # Standard output is for the watch: with --json it holds events only.
    with redirect_stdout(sys.stderr):
        try:
            tracker.adapter.init(tracker.project or record.problem, name, config)
        except Exception as error:
            remedy = f"The run goes on. Watch it without the tracker: {output.command_line('runs watch', run.id)}"
            raise ConfigurationError(f"{tracker.name} cannot be opened: {error}.", remedy=remedy) from error
    log = RunLog(tracker, run)
    try:
        yield log
    finally:
        log.finish()
