"""Served models: those loaded at the start, and others, such as versions that runs learn, at their first request."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from speciate.inference.checkpoint import read_config
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

    @property
    def card(self) -> ModelCard:
        """Its entry in the list of models."""
        checkpoint = self.engine.checkpoint
        return ModelCard(checkpoint.config.max_position_embeddings, checkpoint.method, self.digest)


def load_model(folder: Path) -> LoadedModel:
    """Load a checkpoint.

    Raises:
        ConfigurationError: It cannot be used; the message names the file and the remedy.
    """
    engine = Engine.load(folder)
    config = engine.checkpoint.config
    text = TextTokenizer(folder, config.vocab_size, config.max_position_embeddings)
    return LoadedModel(engine, text, ModelCounters(), weights_digest(folder))


@dataclass(frozen=True, slots=True)
class ModelCard:
    """Entry of a model in the list of models."""

    max_model_len: int
    method: str | None
    digest: str


def read_card(folder: Path) -> ModelCard:
    """Return the card of a checkpoint without loading it.

    Raises:
        ConfigurationError: It cannot be used; the message names the file and the remedy.
    """
    config, method = read_config(folder)
    return ModelCard(config.max_position_embeddings, method, weights_digest(folder))


class ServedModels:
    """The served models. Some are loaded when they are first requested.

    Attributes:
        loaded: Models in memory, by name.

    Args:
        loaded: Models that were given at the start.
        waiting: Folders of further ones by name, which stay once they are loaded.
        learned: Folder with one checkpoint per learned version; None for none. Old versions are unloaded; they and a
            restarted server find their checkpoints there.
    """

    def __init__(self, loaded: Mapping[str, LoadedModel], waiting: Mapping[str, Path], learned: Path | None) -> None:
        self.loaded = dict(loaded)
        self._waiting, self._learned = dict(waiting), learned
        self._cards: dict[str, ModelCard] = {}
        self._recent: dict[str, None] = {}
        self._loading = asyncio.Lock()

    @property
    def names(self) -> list[str]:
        """Names of all models; learned versions only if they are loaded."""
        return [*self._waiting, *(name for name in self.loaded if name not in self._waiting)]

    def cards(self) -> dict[str, ModelCard]:
        """Return the cards of all models by name; reading them for the first time takes a moment."""
        for name in self.names:
            if name not in self._cards and name in self._waiting:
                self._cards[name] = read_card(self._waiting[name])
        return {name: self._cards[name] if name in self._cards else self.loaded[name].card for name in self.names}

    async def prepare(self, name: str, scheduler: Scheduler) -> bool:
        """Load a model if it is not in memory; return False if there is no such model.

        Raises:
            ConfigurationError: Its checkpoint cannot be used.
        """
        if name in self.loaded:
            if name in self._recent:
                self._recent[name] = self._recent.pop(name)
            return True
        if (folder := self._folder(name)) is None:
            return False
        async with self._loading:
            if name not in self.loaded:
                loaded = await asyncio.to_thread(load_model, folder)
                scheduler.add(name, loaded.engine)
                self.loaded[name] = loaded
                if name not in self._waiting:
                    self._recent[name] = None
                    self._unload(scheduler)
        return True

    def _folder(self, name: str) -> Path | None:
        if name in self._waiting:
            return self._waiting[name]
        if self._learned is None or not _NAME.fullmatch(name) or not (self._learned / name).is_dir():
            return None
        return self._learned / name

    def _unload(self, scheduler: Scheduler) -> None:
        for name in list(self._recent)[:-MOST_LEARNED]:
            if scheduler.remove(name):
                del self.loaded[name], self._recent[name]
