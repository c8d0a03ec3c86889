"""Served models: those loaded at the start, and others, such as versions that runs learn, at their first request."""

import asyncio
import re
import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from speciate.inference.checkpoint import read_config
from speciate.inference.engine import Engine
from speciate.inference.scheduler import Scheduler
from speciate.inference.tokenizer import TextTokenizer
from speciate.policies.manifest import weights_digest

MOST_LEARNED: Final = 8
"""Learned versions in memory; the least recently requested ones are unloaded. A run requests at most a few."""
_NAME: Final = re.compile(r"[a-z0-9-]+-[0-9a-f]{12}")


@dataclass(frozen=True, slots=True)
class LoadedModel:
    engine: Engine
    text: TextTokenizer
    card: "ModelCard"


def load_model(folder: Path) -> LoadedModel:
    engine = Engine.load(folder)
    config = engine.checkpoint.config
    text = TextTokenizer(folder, config.vocab_size, config.max_position_embeddings)
    return LoadedModel(engine, text, read_card(folder))


@dataclass(frozen=True, slots=True)
class ModelCard:
    """Entry of a model in the list of models; ``digest`` is the SHA-256 of its weights, as in every response."""

    max_model_len: int
    digest: str


def read_card(folder: Path) -> ModelCard:
    """Return the card of a checkpoint without loading it."""
    return ModelCard(read_config(folder).max_position_embeddings, weights_digest(folder))


class ServedModels:
    """The served models. Some are loaded when they are first requested: those of the folders ``waiting``, by name, and
    those in the folder ``learned``, one for each version that a run has learnt, of which old ones are unloaded.
    """

    def __init__(self, loaded: Mapping[str, LoadedModel], waiting: Mapping[str, Path], learned: Path | None) -> None:
        self.loaded = dict(loaded)
        self._waiting, self._learned = dict(waiting), learned
        self._cards: dict[str, ModelCard] = {}
        self._requested: dict[str, float] = {}  # when, the least recent first; not those given at the start
        self._loading = asyncio.Lock()

    @property
    def names(self) -> list[str]:
        """Names of all models; learned versions only if they are loaded."""
        return [*self._waiting, *(name for name in self.loaded if name not in self._waiting)]

    def cards(self) -> dict[str, ModelCard]:
        for name in self.names:
            if name not in self._cards and name in self._waiting:
                self._cards[name] = read_card(self._waiting[name])
        return {name: self._cards[name] if name in self._cards else self.loaded[name].card for name in self.names}

    async def prepare(self, name: str, scheduler: Scheduler) -> bool:
        """Load a model if it is not in memory; return False if there is no such model."""
        if name not in self.loaded:
            if (folder := self._folder(name)) is None:
                return False
            async with self._loading:
                if name not in self.loaded:
                    loaded = await asyncio.to_thread(load_model, folder)
                    scheduler.add(name, loaded.engine)
                    self.loaded[name] = loaded
                    self._requested[name] = time.monotonic()
        if self._requested.pop(name, None) is not None:
            self._requested[name] = time.monotonic()
            self._unload([each for each in self._requested if each not in self._waiting][:-MOST_LEARNED], scheduler)
        return True

    def unload_idle(self, scheduler: Scheduler, idle_s: float) -> bool:
        """Unload models without a request for a time that can be loaded again; return True if there were any."""
        until = time.monotonic() - idle_s
        return self._unload([name for name, at in self._requested.items() if at <= until], scheduler)

    def _folder(self, name: str) -> Path | None:
        if name in self._waiting:
            return self._waiting[name]
        if self._learned is None or not _NAME.fullmatch(name) or not (self._learned / name).is_dir():
            return None
        return self._learned / name

    def _unload(self, names: Iterable[str], scheduler: Scheduler) -> bool:
        removed = [name for name in names if scheduler.remove(name)]
        for name in removed:
            del self.loaded[name], self._requested[name]
        return bool(removed)
