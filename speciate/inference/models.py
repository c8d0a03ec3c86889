"""Served models: those given at the start, and the versions that runs learn, loaded when they are first requested."""

from __future__ import annotations

import asyncio
import re
from collections.abc import MutableMapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from speciate.inference.engine import Engine
from speciate.inference.metrics import ModelCounters
from speciate.inference.scheduler import Scheduler
from speciate.inference.tokenizer import TextTokenizer
from speciate.policies.manifest import weights_digest

MOST_LEARNED: Final = 8
"""Learned versions in memory; the least recently requested ones are unloaded. A run requests at most a few."""
_NAME: Final = re.compile(r"[a-z0-9-]+-[0-9a-f]{12}")


@dataclass(frozen=True, slots=True)
class LoadedModel:
    """A served model; ``digest`` is the SHA-256 of its weights, the fingerprint in every response."""

    engine: Engine
    text: TextTokenizer
    counters: ModelCounters
    digest: str


def load_model(folder: Path) -> LoadedModel:
    """Load a checkpoint.

    Raises:
        ConfigurationError: It cannot be used; the message names the file and the remedy.
    """
    engine = Engine.load(folder)
    config = engine.checkpoint.config
    text = TextTokenizer(folder, config.vocab_size, config.max_position_embeddings)
    return LoadedModel(engine, text, ModelCounters(), weights_digest(folder))


class LearnedVersions:
    """Loads learned versions by name and unloads old ones. A restarted server finds them in the same folder.

    Args:
        folder: The folder, with one checkpoint per version; None for none.
        served: All served models, to which versions are added.
    """

    def __init__(self, folder: Path | None, served: MutableMapping[str, LoadedModel]) -> None:
        self._folder, self._served = folder, served
        self._recent: dict[str, None] = {}
        self._loading = asyncio.Lock()

    async def prepare(self, name: str, scheduler: Scheduler) -> bool:
        """Load a version if it is not served; return False if there is no such model.

        Raises:
            ConfigurationError: Its checkpoint cannot be used.
        """
        if name in self._served:
            if name in self._recent:
                self._recent[name] = self._recent.pop(name)
            return True
        if self._folder is None or not _NAME.fullmatch(name) or not (self._folder / name).is_dir():
            return False
        async with self._loading:
            if name not in self._served:
                loaded = await asyncio.to_thread(load_model, self._folder / name)
                scheduler.add(name, loaded.engine)
                self._served[name], self._recent[name] = loaded, None
                self._unload(scheduler)
        return True

    def _unload(self, scheduler: Scheduler) -> None:
        for name in list(self._recent)[:-MOST_LEARNED]:
            if scheduler.remove(name):
                del self._served[name], self._recent[name]
