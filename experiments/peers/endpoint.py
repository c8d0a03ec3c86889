"""The model that all systems ask: the stand-in, or a real one that the user names."""

from __future__ import annotations

from dataclasses import dataclass

from experiments.peers.declaration import Task
from experiments.peers.standin import MODEL, StandIn


@dataclass(frozen=True, slots=True)
class Endpoint:
    """An OpenAI-compatible endpoint.

    Attributes:
        stand_in: The stand-in; it also serves the forged answers where a real model answers everything else.
        url: URL of a real endpoint; empty for the stand-in.
        model: Name of the model.
    """

    stand_in: StandIn
    url: str = ""
    model: str = MODEL

    def url_for(self, task: Task) -> str:
        """Return the URL for a run."""
        if self.url and task.kind != "forge":
            return self.url
        return self.stand_in.base_url(task.problem, task.seed, forge=task.kind == "forge")

    def sent_forged(self, task: Task) -> int:
        """Return how many forged answers a run was given."""
        return self.stand_in.forged[f"{task.problem}/{task.seed}-forge"] if task.kind == "forge" else 0

    def clear(self) -> None:
        """Forget all counts, so that every run gets the same answers."""
        self.stand_in.clear()
