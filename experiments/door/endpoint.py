"""The model that all systems ask: the stand-in, or a real one behind it that the user names."""

from __future__ import annotations

from dataclasses import dataclass

from experiments.door.declaration import Task
from experiments.standin import MODEL, StandIn


@dataclass(frozen=True, slots=True)
class Endpoint:
    """An OpenAI-compatible endpoint.

    Attributes:
        stand_in: The server that all systems talk to.
        model: Name of the model.
    """

    stand_in: StandIn
    model: str = MODEL

    def url_for(self, task: Task) -> str:
        """Return the URL for a run."""
        return self.stand_in.base_url(task.problem, task.seed, forge=task.kind == "forge")

    def sent_forged(self, task: Task) -> int:
        """Return how many forged answers a run was given."""
        return self.stand_in.forged[_path(task)]

    def tokens(self, task: Task) -> tuple[int, int]:
        """Return the tokens of a run's prompts and of its answers."""
        return self.stand_in.prompt_tokens[_path(task)], self.stand_in.completion_tokens[_path(task)]

    def clear(self) -> None:
        """Forget all counts, so that every run gets the same answers."""
        self.stand_in.clear()


def _path(task: Task) -> str:
    return f"{task.problem}/{task.seed}{'-forge' if task.kind == 'forge' else ''}"
